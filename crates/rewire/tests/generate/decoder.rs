//! Items by language models, against the beams of the reference.

use rewire::generate::decoder::{Config, Decoder, Sampling, read_items, read_prompts};
use rewire::generate::{Found, GenerateError, Trie};
use rewire::rank::RankOptions;
use rewire::{Gpu, Kernel};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/decoders").join(name)
}

fn trie(folder: &Path) -> Trie {
    let items = read_items(&folder.join("trie.json")).unwrap();
    Trie::new(&[400; 3], items.into_iter().enumerate().map(|(place, item)| (place as i64, item))).unwrap()
}

fn options() -> impl Iterator<Item = RankOptions> {
    let gpu = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")).ok();
    let on_cpu = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let on_gpu = gpu.map(|gpu| RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() });
    [Some(on_cpu), on_gpu].into_iter().flatten()
}

fn check(found: &[Found], expected: &Value) {
    let items: Vec<&[u32]> = found.iter().map(|found| found.codes.as_slice()).collect();
    assert_eq!(serde_json::to_value(items).unwrap(), expected["items"], "prompt {}", expected["id"]);
    for (found, score) in found.iter().zip(expected["scores"].as_array().unwrap()) {
        assert!((found.score - score.as_f64().unwrap()).abs() < 1e-4, "{} instead of {score}", found.score);
    }
}

#[test]
fn beams_are_those_of_the_reference_alone_and_together() {
    for name in ["qwen3", "t5"] {
        let folder = folder(name);
        let prompts = read_prompts(&folder.join("prompts.jsonl")).unwrap();
        let (trie, beams) = (trie(&folder), std::fs::read_to_string(folder.join("beams.jsonl")).unwrap());
        let beams: Vec<Value> = beams.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let tokens: Vec<&[u32]> = prompts.iter().map(|prompt| prompt.tokens.as_slice()).collect();
        for options in options() {
            let mut decoder = Decoder::open(&folder, &options).unwrap();
            for width in [2, 4, 16] {
                let found = decoder.search(&tokens, &trie, width).unwrap();
                let alone = tokens.iter().flat_map(|prompt| decoder.search(&[prompt], &trie, width).unwrap());
                assert_eq!(alone.collect::<Vec<_>>(), found, "sharing the search changes no bit");
                for (prompt, found) in prompts.iter().zip(&found) {
                    let expected = beams.iter().find(|line| line["id"] == prompt.id && line["beams"] == width);
                    check(found, expected.unwrap());
                }
            }
        }
    }
}

#[test]
fn a_search_that_keeps_all_beams_has_the_probabilities_of_whole_items() {
    for name in ["qwen3", "t5"] {
        let folder = folder(name);
        let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
        let mut decoder = Decoder::open(&folder, &options).unwrap();
        let (prompt, trie) = ([5u32, 399, 0, 27], trie(&folder));
        let found = decoder.search(&[&prompt], &trie, usize::MAX).unwrap().remove(0);
        assert_eq!(found.len(), trie.ids());
        assert!(found.windows(2).all(|pair| pair[0].score >= pair[1].score));
        for found in [found.first(), found.get(found.len() / 2), found.last()].into_iter().flatten() {
            let logits = decoder.logits(&prompt, &found.codes).unwrap().to_f64();
            let rows: Vec<&[f64]> = logits.chunks_exact(400).collect();
            let first = rows.len() - 1 - found.codes.len();
            let score = found
                .codes
                .iter()
                .zip(&rows[first..])
                .map(|(&token, row)| row[token as usize] - row.iter().map(|logit| logit.exp()).sum::<f64>().ln());
            assert!((score.sum::<f64>() - found.score).abs() < 1e-4);
        }
    }
}

#[test]
fn tokens_are_drawn_by_their_probabilities() {
    for name in ["qwen3", "t5"] {
        let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
        let mut decoder = Decoder::open(&folder(name), &options).unwrap();
        let prompts: [&[u32]; 2] = [&[3, 1, 7, 7, 200], &[17]];
        let greedy = Sampling { tokens: 6, ..Sampling::default() };
        let largest = decoder.sample(&prompts, &greedy).unwrap();
        // One token, or no probability beside that of the largest logit, leaves no choice.
        for narrow in [
            Sampling { temperature: 2.0, top_k: Some(1), ..greedy.clone() },
            Sampling { temperature: 2.0, top_p: 1e-9, ..greedy.clone() },
        ] {
            assert_eq!(decoder.sample(&prompts, &narrow).unwrap(), largest);
        }
        let free = Sampling { temperature: 1.5, seed: 7, top_k: Some(50), top_p: 0.9, ..greedy.clone() };
        let drawn = decoder.sample(&prompts, &free).unwrap();
        assert_ne!(drawn, largest);
        assert_ne!(drawn, decoder.sample(&prompts, &Sampling { seed: 8, ..free.clone() }).unwrap());
        let alone: Vec<Found> = prompts.iter().flat_map(|prompt| decoder.sample(&[prompt], &free).unwrap()).collect();
        assert_eq!(alone, drawn);
        let stop = Sampling { stop: vec![largest[0].codes[0]], ..greedy.clone() };
        assert_eq!(decoder.sample(&prompts, &stop).unwrap()[0].codes, largest[0].codes[..1]);
        for (prompt, found) in prompts.iter().zip(&largest) {
            let logits = decoder.logits(prompt, &found.codes).unwrap().to_f32();
            let rows: Vec<&[f32]> = logits.chunks_exact(400).collect();
            for (&token, row) in found.codes.iter().zip(&rows[rows.len() - 1 - found.codes.len()..]) {
                assert!(row.iter().all(|&logit| logit <= row[token as usize] + 1e-4));
            }
        }
        let wrong = Sampling { top_p: 0.0, ..greedy };
        assert!(matches!(decoder.sample(&prompts, &wrong), Err(GenerateError::Sampling { option: "top_p", .. })));
    }
}

#[test]
fn what_cannot_be_generated_from_is_an_error() {
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let mut decoder = Decoder::open(&folder("qwen3"), &options).unwrap();
    let trie = trie(&folder("qwen3"));
    assert!(matches!(decoder.search(&[&[1], &[]], &trie, 2), Err(GenerateError::Prompt { prompt: 1 })));
    assert!(matches!(decoder.search(&[&[1]], &trie, 0), Err(GenerateError::Widths { .. })));
    assert!(matches!(decoder.search(&[&[400]], &trie, 2), Err(GenerateError::Run(_))));
    assert_eq!(decoder.search(&[], &trie, 2).unwrap(), Vec::<Vec<Found>>::new());
    let none = Trie::new(&[400; 3], []).unwrap();
    assert_eq!(decoder.search(&[&[1]], &none, 2).unwrap(), [vec![]]);
}

#[test]
fn keys_of_configurations_that_matter_are_known() {
    let text = std::fs::read_to_string(folder("qwen3").join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    for (key, value, expected) in [
        ("hidden_size", Value::Null, "has no `hidden_size`"),
        ("num_key_value_heads", 3.into(), "`num_key_value_heads` must be a divisor of the 4 heads, got 3"),
        ("hidden_act", "tanh".into(), "`hidden_act` must be silu"),
        ("use_sliding_window", true.into(), "`use_sliding_window` must be false"),
        ("num_experts", 8.into(), "unknown key `num_experts` = 8"),
        ("rope_parameters", serde_json::json!({"rope_type": "dynamic"}), "must be default, linear, llama3 or yarn"),
        ("rope_parameters", serde_json::json!({"rope_type": "linear"}), "has no `rope_parameters.factor`"),
    ] {
        let mut changed = config.clone();
        changed[key] = value;
        let error = Config::from_json(&changed.to_string()).unwrap_err().to_string();
        assert!(error.contains(expected), "{key}: {error}");
    }
}
