//! Items of prompts, by beam search inside a trie.

use crate::args::{Common, Generate};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::with_common;
use rewire::generate::decoder::{Decoder, Prompt, read_items, read_prompts};
use rewire::generate::{Found, GenerateError, Trie};
use serde::Serialize;
use serde_json::Value;

/// The items of a prompt, best first.
#[derive(Debug, Serialize)]
struct Line<'a> {
    id: &'a Value,
    beams: usize,
    items: Vec<&'a [u32]>,
    scores: Vec<f64>,
}

/// Prints the items of every prompt.
pub fn run(options: &Generate, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let mut decoder = Decoder::open(&options.model, &with_common(common, options.placement.of_model()))?;
    let items = read_items(&options.trie)?;
    let levels = items.first().map_or(0, Vec::len);
    let codes = vec![decoder.config().vocabulary(); levels];
    let trie = Trie::new(&codes, items.into_iter().enumerate().map(|(place, item)| (place as i64, item)))?;
    let prompts = read_prompts(&options.prompts)?;
    for batch in prompts.chunks(options.batch.get()) {
        let tokens: Vec<&[u32]> = batch.iter().map(|prompt| prompt.tokens.as_slice()).collect();
        let found = decoder.search(&tokens, &trie, options.beams.get())?;
        for (Prompt { id, .. }, found) in batch.iter().zip(&found) {
            print(id, found, options.beams.get(), common.json, output)?;
        }
        output.flush()?;
    }
    Ok(())
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
