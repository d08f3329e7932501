//! Semantic ids of items by residual k-means: codebooks, the codes of every item, and the trie of them.

use crate::args::{Common, Sid as Options};
use crate::error::CliError;
use crate::output::Output;
use crate::retrieve::items;
use rewire::generate::{Codebooks, SidOptions};
use rewire::weights::serialize;
use rewire::write_file;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub fn run(options: &Options, common: &Common, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    let (items, vectors, width) = items(&options.items, &options.item, &options.item_vector)?;
    let of_codebooks = SidOptions {
        codes: options.codes.iter().map(|codes| codes.get()).collect(),
        iterations: options.iterations,
        normalize_residuals: options.normalize_residuals,
        seed: options.seed,
        ..SidOptions::default()
    };
    let codebooks = Codebooks::train(&vectors, width, &of_codebooks)?;
    let plain: BTreeSet<Vec<u32>> = codebooks.encode(&vectors).into_iter().collect();
    let ids = codebooks.encode_items(&items, &vectors);
    let tokens: Vec<Vec<u32>> = ids.iter().map(|id| tokens(id, options.first_token, &of_codebooks.codes)).collect();
    let lines = items.iter().zip(&ids).zip(&tokens);
    let lines =
        lines.map(|((item, codes), tokens)| format!("{}\n", json!({"item": item, "codes": codes, "tokens": tokens})));
    let failed = |error: std::io::Error| CliError::Write { file: options.out.display().to_string(), source: error };
    std::fs::create_dir_all(&options.out).map_err(failed)?;
    let write = |name: &str, content: &[u8]| write_file(&options.out.join(name), content).map_err(failed);
    let tensors = codebooks.tensors().map_err(rewire::generate::GenerateError::from)?;
    write(
        "codebooks.safetensors",
        &serialize(&tensors, &BTreeMap::new()).map_err(rewire::generate::GenerateError::from)?,
    )?;
    write("items.jsonl", lines.collect::<String>().as_bytes())?;
    write("trie.json", json!({ "items": tokens }).to_string().as_bytes())?;
    let distinct = ids.iter().collect::<BTreeSet<_>>().len();
    let seconds = begun.elapsed().as_secs_f64();
    let summary: Value = json!({"items": items.len(), "ids_before": plain.len(), "ids": distinct, "seconds": seconds});
    match common.json {
        true => output.json(&json!({ "summary": summary }))?,
        false => output.line(format_args!(
            "{} items with {distinct} ids, {} before those of one id were moved, in {seconds:.2} s",
            items.len(),
            plain.len()
        ))?,
    }
    Ok(())
}

/// The tokens of an id: those of a level follow those of the level before.
fn tokens(id: &[u32], first: u32, codes: &[usize]) -> Vec<u32> {
    let firsts = codes.iter().scan(first, |next, &codes| {
        let first = *next;
        *next = first.saturating_add(codes as u32);
        Some(first)
    });
    id.iter().zip(firsts).map(|(code, first)| first.saturating_add(*code)).collect()
}
