//! Time of beam searches by a language model of a shape with random weights, that of Qwen3-0.6B by default: a JSON object a width.
//!
//! ```sh
//! cargo bench -p rewire-benches --bench decoder -- --kernel wgpu --dtype f16 --widths 1,32,256 --prompt 512 --layers 28
//! ```
#![allow(clippy::print_stdout, missing_docs)]

use rewire::generate::Trie;
use rewire::generate::decoder::{Config, Decoder, Task};
use rewire::graph::{DType, HostTensor, Scope};
use rewire::rank::{Precision, RankOptions};
use rewire::runtime::{Detail, Inputs, Model, ModelOptions};
use rewire::train::Random;
use rewire::weights::serialize;
use rewire::{lower, optimize};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

/// Searches of a width, of which the fastest counts.
const RUNS: usize = 5;

/// Elements of a tensor that is copied.
const COPIED: usize = 1 << 27;

/// The value of an option.
fn option(name: &str, default: &str) -> String {
    let given = std::env::args().skip_while(|arg| arg != name).nth(1);
    given.unwrap_or_else(|| default.to_owned())
}

fn config(layers: usize) -> String {
    format!(
        r#"{{ "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": {layers},
             "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rope_theta": 1000000.0,
             "tie_word_embeddings": true }}"#
    )
}

/// Writes a folder of Hugging Face with random weights in bf16.
fn write(folder: &Path, config: &str) -> Result<(), Box<dyn Error>> {
    let mut random = Random::new(1);
    let mut tensors = BTreeMap::new();
    for parameter in Config::from_json(config)?.trace(DType::BF16)?.parameters() {
        let bound = if parameter.shape.len() > 1 { 0.05 } else { 1.0 };
        let tensor = HostTensor::generate(parameter.shape, || ((random.unit() * 2.0 - 1.0) * bound) as f32)?;
        tensors.insert(parameter.name, tensor.stored_as(DType::BF16)?);
    }
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("config.json"), config)?;
    Ok(std::fs::write(folder.join("model.safetensors"), serialize(&tensors, &BTreeMap::new())?)?)
}

fn dtype(name: &str) -> Result<DType, Box<dyn Error>> {
    match name {
        "int8" => Ok(DType::Rows8),
        "int4" => Ok(DType::Rows4),
        _ => DType::named(name).ok_or_else(|| format!("--dtype: {name}").into()),
    }
}

/// GB/s that a large copy reads and writes on a device.
fn copied(options: &RankOptions) -> Result<Option<f64>, Box<dyn Error>> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [scope.size("elements")]);
    let graph = scope.finish(&[("y", -x)])?;
    let options = ModelOptions { kernel: options.kernel, ..ModelOptions::default() };
    let mut session = Model::load(lower(&optimize(graph)?.0)?, (), options)?.session();
    if session.gpu().is_none() {
        return Ok(None);
    }
    let mut inputs = Inputs::new();
    inputs.insert_device("x", session.upload(&HostTensor::zeros(DType::F32, vec![COPIED])?)?);
    inputs.keep_on_device("y");
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS {
        let (_, profile) = session.run_timed(&inputs, Detail::Steps)?;
        fastest = fastest.min(profile.gpu.map_or(f64::INFINITY, |time| time.as_secs_f64()));
    }
    Ok(Some(COPIED as f64 * 8.0 / fastest / 1e9))
}

/// Milliseconds of the fastest search.
fn search(decoder: &mut Decoder, prompt: &[u32], trie: &Trie, width: usize) -> Result<f64, Box<dyn Error>> {
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS {
        let begun = Instant::now();
        decoder.search(&[prompt], trie, width)?;
        fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(fastest)
}

/// Milliseconds of the fastest request in a queue, whose prefixes the host reads after each token.
fn queued(decoder: &mut Decoder, prompt: &[u32], trie: &Trie, width: usize) -> Result<f64, Box<dyn Error>> {
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS {
        let begun = Instant::now();
        let mut queue = decoder.queue(prompt.len() + width * trie.levels())?;
        queue.submit(prompt, Task::Search { trie, width })?;
        while !queue.is_empty() {
            queue.step()?;
        }
        fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(fastest)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (layers, prompt): (usize, usize) = (option("--layers", "28").parse()?, option("--prompt", "512").parse()?);
    let dtype = Some(dtype(&option("--dtype", "bf16"))?);
    let precision = Precision { weights: dtype, tables: dtype, ..Precision::default() };
    let options = RankOptions { kernel: option("--kernel", "auto").parse()?, precision, ..RankOptions::default() };
    let folder = std::env::temp_dir().join(format!("rewire-decoder-{}", std::process::id()));
    write(&folder, &config(layers))?;
    let opened = Decoder::open(&folder, &options);
    std::fs::remove_dir_all(&folder)?;
    let (mut decoder, copied) = (opened?, copied(&options)?);
    let report = decoder.report();
    let weights = (report.device_bytes + report.host_bytes) as f64;
    let mut random = Random::new(2);
    let mut below = |count: usize| random.below(count).unwrap_or(0) as u32;
    let items: Vec<Vec<u32>> =
        (0..20_000).map(|_| (0..4).map(|level| 150_000 + 256 * level + below(256)).collect()).collect();
    let trie = |levels: usize| {
        let items = items.iter().map(|item| item[..levels].to_vec());
        Trie::of_tokens(decoder.config().vocabulary(), (0..).zip(items))
    };
    let (first, trie) = (trie(1)?, trie(4)?);
    let tokens: Vec<u32> = (0..prompt).map(|_| below(150_000)).collect();
    for width in option("--widths", "1,32,256").split(',') {
        let width: usize = width.parse()?;
        let prompt_ms = search(&mut decoder, &tokens, &first, width)?;
        let request_ms = search(&mut decoder, &tokens, &trie, width)?;
        let queue_ms = queued(&mut decoder, &tokens, &trie, width)?;
        let step_ms = (request_ms - prompt_ms) / (trie.levels() - 1) as f64;
        let gbps = weights / step_ms / 1e6;
        let share = copied.map_or_else(|| "null".to_owned(), |copied| format!("{:.3}", gbps / copied));
        println!(
            r#"{{"width": {width}, "prompt": {prompt}, "adapter": {:?}, "weights_bytes": {weights}, "prompt_ms": {prompt_ms:.3}, "step_ms": {step_ms:.3}, "request_ms": {request_ms:.3}, "queue_request_ms": {queue_ms:.3}, "weights_gbps": {gbps:.1}, "share_of_copy": {share}}}"#,
            report.adapter.as_deref().unwrap_or("cpu")
        );
    }
    Ok(())
}
