//! Generates items from prompts by beam search in a trie, or samples the tokens that follow them.

use crate::args::{Common, Generate};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::with_common;
use rewire::generate::decoder::{Decoder, Prompt, read_items, read_prompts};
use rewire::generate::{Found, GenerateError, Sampling, Trie};
use rewire::rank::{Precision, RankOptions};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// The items of a prompt, best first.
#[derive(Debug, Serialize)]
struct Line<'a> {
    id: &'a Value,
    beams: usize,
    items: Vec<&'a [u32]>,
    scores: Vec<f64>,
}

/// Prints the items of every prompt, or the tokens that follow it.
pub fn run(options: &Generate, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let precision = Precision { weights: options.dtype, tables: options.dtype, ..Precision::default() };
    let of_model = RankOptions { precision, ..options.placement.of_model() };
    let mut decoder = Decoder::open(&options.model, &with_common(common, of_model))?;
    let trie = options.trie.as_deref().map(|path| trie(path, decoder.config().vocabulary())).transpose()?;
    let sampling = Sampling {
        tokens: options.tokens.get(),
        temperature: options.temperature,
        top_k: options.top_k,
        top_p: options.top_p,
        seed: options.seed,
        stop: options.stop.clone(),
    };
    let beams = trie.as_ref().map_or(1, |_| options.beams.get());
    for batch in read_prompts(&options.prompts)?.chunks(options.batch.get()) {
        let tokens: Vec<&[u32]> = batch.iter().map(|prompt| prompt.tokens.as_slice()).collect();
        let found = match &trie {
            Some(trie) => decoder.search(&tokens, trie, beams)?,
            None => decoder.sample(&tokens, &sampling)?.into_iter().map(|found| vec![found]).collect(),
        };
        for (Prompt { id, .. }, found) in batch.iter().zip(&found) {
            print(id, found, beams, common.json, output)?;
        }
        output.flush()?;
    }
    Ok(())
}

fn trie(path: &Path, vocabulary: usize) -> Result<Trie, CliError> {
    let items = read_items(path)?;
    Ok(Trie::of_tokens(vocabulary, items.into_iter().enumerate().map(|(place, item)| (place as i64, item)))?)
}

fn print(id: &Value, found: &[Found], beams: usize, json: bool, output: &mut Output) -> Result<(), CliError> {
    if json {
        let items = found.iter().map(|found| found.codes.as_slice()).collect();
        let scores = found.iter().map(|found| found.score).collect();
        return Ok(output.json(&Line { id, beams, items, scores })?);
    }
    for Found { codes, score, .. } in found {
        output.line(format_args!("{id}  {score:.4}  {codes:?}"))?;
    }
    Ok(())
}

impl From<GenerateError> for CliError {
    fn from(error: GenerateError) -> Self {
        Self::Generate(Box::new(error))
    }
}
