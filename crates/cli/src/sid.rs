//! Semantic ids of items by residual k-means or by an autoencoder: codebooks, the codes of every item, and their trie.

use crate::args::{Common, Sid as Options};
use crate::error::CliError;
use crate::output::Output;
use crate::retrieve::items;
use rewire::generate::{Codebooks, GenerateError, RqVae, RqVaeOptions, SidOptions};
use rewire::graph::HostTensor;
use rewire::runtime::ModelOptions;
use rewire::train::{ConfigError, TrainConfig};
use rewire::weights::serialize;
use rewire::write_file;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

pub fn run(options: &Options, common: &Common, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    let (items, vectors, width) = items(&options.items, &options.item, &options.item_vector)?;
    let codes: Vec<usize> = options.codes.iter().map(|codes| codes.get()).collect();
    let Quantized { codebooks, vectors, parameters } = match &options.rq_vae {
        Some(config) => autoencoder(options, common, config, codes.clone(), (&vectors, width))?,
        None => {
            let of_codebooks = SidOptions {
                codes: codes.clone(),
                iterations: options.iterations,
                normalize_residuals: options.normalize_residuals,
                seed: options.seed,
                ..SidOptions::default()
            };
            let codebooks = Codebooks::train(&vectors, width, &of_codebooks)?;
            Quantized { codebooks, vectors, parameters: None }
        }
    };
    let plain: BTreeSet<Vec<u32>> = codebooks.encode(&vectors).into_iter().collect();
    let ids = codebooks.encode_items(&items, &vectors);
    let tokens: Vec<Vec<u32>> = ids.iter().map(|id| tokens(id, options.first_token, &codes)).collect();
    let lines = items.iter().zip(&ids).zip(&tokens);
    let lines =
        lines.map(|((item, codes), tokens)| format!("{}\n", json!({"item": item, "codes": codes, "tokens": tokens})));
    let failed = |error: std::io::Error| CliError::Write { file: options.out.display().to_string(), source: error };
    std::fs::create_dir_all(&options.out).map_err(failed)?;
    let write = |name: &str, content: &[u8]| write_file(&options.out.join(name), content).map_err(failed);
    let stored =
        |tensors: &BTreeMap<String, HostTensor>| serialize(tensors, &BTreeMap::new()).map_err(GenerateError::from);
    write("codebooks.safetensors", &stored(&codebooks.tensors().map_err(GenerateError::from)?)?)?;
    if let Some(parameters) = &parameters {
        write("model.safetensors", &stored(parameters)?)?;
    }
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

/// Vectors with their codebooks, and the parameters of the encoder.
struct Quantized {
    codebooks: Codebooks,
    vectors: Vec<f32>,
    parameters: Option<BTreeMap<String, HostTensor>>,
}

fn autoencoder(
    options: &Options,
    common: &Common,
    config: &Path,
    codes: Vec<usize>,
    (vectors, width): (&[f32], usize),
) -> Result<Quantized, CliError> {
    let read = |source| GenerateError::Read { path: config.to_owned(), source };
    let bad = |error: ConfigError| GenerateError::File { path: config.to_owned(), reason: error.to_string() };
    let config = TrainConfig::from_json(&std::fs::read_to_string(config).map_err(read)?).map_err(bad)?;
    let of_model = RqVaeOptions {
        codes,
        width: options.width.get(),
        hidden: options.hidden.iter().map(|width| width.get()).collect(),
        normalize_residuals: options.normalize_residuals,
        seed: options.seed,
        ..RqVaeOptions::default()
    };
    let with = ModelOptions { kernel: common.kernel, adapter: common.adapter.clone(), ..ModelOptions::default() };
    let mut model = RqVae::train(vectors, width, &of_model, &config, &with)?;
    let vectors = model.encode(vectors, width)?;
    Ok(Quantized { codebooks: model.codebooks().clone(), vectors, parameters: Some(model.parameters().clone()) })
}

/// The tokens of an id. The tokens of a level follow those of the previous level.
fn tokens(id: &[u32], first: u32, codes: &[usize]) -> Vec<u32> {
    let firsts = codes.iter().scan(first, |next, &codes| {
        let first = *next;
        *next = first.saturating_add(codes as u32);
        Some(first)
    });
    id.iter().zip(firsts).map(|(code, first)| first.saturating_add(*code)).collect()
}
