//! Time of a prompt and of each token of beam searches, for a language model of a shape with random weights, that of Qwen3-0.6B by default.
//!
//! ```sh
//! cargo bench -p rewire-benches --bench decoder -- --kernel wgpu --widths 1,32,256 --prompt 512 --layers 28
//! ```
#![allow(clippy::print_stdout, missing_docs)]

use rewire::generate::Trie;
use rewire::generate::decoder::{Config, Decoder, Task};
use rewire::graph::{DType, HostTensor};
use rewire::runtime::ModelOptions;
use rewire::train::Random;
use rewire::weights::{Weights, serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

/// Searches of a width, of which the fastest counts.
const RUNS: usize = 5;

/// The value of an option.
fn option(name: &str, default: &str) -> String {
    let given = std::env::args().skip_while(|arg| arg != name).nth(1);
    given.unwrap_or_else(|| default.to_owned())
}

fn config(layers: usize) -> Result<Config, Box<dyn Error>> {
    Ok(Config::from_json(&format!(
        r#"{{ "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": {layers},
             "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rope_theta": 1000000.0,
             "tie_word_embeddings": true }}"#
    ))?)
}

/// Random weights in bf16, as the bytes of a checkpoint.
fn checkpoint(config: &Config) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut random = Random::new(1);
    let mut tensors = BTreeMap::new();
    for parameter in config.trace(DType::BF16)?.parameters() {
        let bound = if parameter.shape.len() > 1 { 0.05 } else { 1.0 };
        let tensor = HostTensor::generate(parameter.shape, || ((random.unit() * 2.0 - 1.0) * bound) as f32)?;
        tensors.insert(parameter.name, tensor.stored_as(DType::BF16)?);
    }
    Ok(serialize(&tensors, &BTreeMap::new())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (layers, prompt): (usize, usize) = (option("--layers", "28").parse()?, option("--prompt", "512").parse()?);
    let config = config(layers)?;
    let bytes = checkpoint(&config)?;
    let read = bytes.len();
    let options = ModelOptions { kernel: option("--kernel", "auto").parse()?, ..ModelOptions::default() };
    let mut decoder = Decoder::load(&config, &Weights::parse(bytes)?, options)?;
    let mut random = Random::new(2);
    let mut below = |count: usize| random.below(count).unwrap_or(0) as u32;
    let items = (0..20_000).map(|item| (item, (0..4).map(|level| 150_000 + 256 * level + below(256)).collect()));
    let trie = Trie::of_tokens(config.vocabulary(), items.collect::<Vec<_>>())?;
    let tokens: Vec<u32> = (0..prompt).map(|_| below(150_000)).collect();
    for width in option("--widths", "1,32,256").split(',') {
        let width: usize = width.parse()?;
        let mut fastest = vec![f64::INFINITY; trie.levels()];
        for _ in 0..RUNS {
            let mut queue = decoder.queue(prompt + width * trie.levels())?;
            queue.submit(&tokens, Task::Search { trie: &trie, width })?;
            for best in &mut fastest {
                let begun = Instant::now();
                queue.step()?;
                *best = best.min(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        let request: f64 = fastest.iter().sum();
        let steps = fastest.get(1..).unwrap_or_default();
        let step = steps.iter().sum::<f64>() / steps.len() as f64;
        println!(
            r#"{{"width": {width}, "prompt": {prompt}, "prompt_ms": {:.3}, "step_ms": {step:.3}, "request_ms": {request:.3}, "weights_gbps": {:.1}}}"#,
            fastest.first().copied().unwrap_or_default(),
            read as f64 / step / 1e6
        );
    }
    Ok(())
}
