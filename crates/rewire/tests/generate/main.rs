//! Beam search over semantic ids, against the probabilities of all of them by the interpreter.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod decoder;
mod kernels;
mod quantized;
mod sid;
mod training;

use rewire::generate::{Config, Found, GenerateError, Generator, Trie};
use rewire::graph::{DType, Graph, HostTensor, interpret};
use rewire::runtime::ModelOptions;
use rewire::{Gpu, Kernel};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};

struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as u32) % bound
    }

    fn floats(&mut self, shape: &[usize]) -> HostTensor {
        let inner = shape.first().map_or(1.0, |&rows| 2.0 / (rows as f64).sqrt());
        let values: Vec<f64> =
            (0..shape.iter().product()).map(|_| (f64::from(self.below(2001)) / 1000.0 - 1.0) * inner).collect();
        HostTensor::from_f64(DType::F32, shape.to_vec(), &values).unwrap()
    }
}

const CODES: [usize; 3] = [6, 5, 7];

fn config() -> Config {
    let config = json!({
        "model": "semantic_ids", "codes": CODES, "attn_num_layers": 2, "max_seq_len": 40,
        "stu": {"embedding_dim": 20, "num_heads": 2, "hidden_dim": 12, "attention_dim": 10}
    });
    Config::from_json(&config.to_string()).unwrap()
}

fn weights(graph: &Graph) -> HashMap<String, HostTensor> {
    let mut noise = Noise(4);
    graph.parameters().into_iter().map(|spec| (spec.name, noise.floats(&spec.shape))).collect()
}

fn id(noise: &mut Noise) -> Vec<u32> {
    CODES.iter().map(|&codes| noise.below(codes as u32)).collect()
}

fn items(noise: &mut Noise) -> Vec<(i64, Vec<u32>)> {
    (0..60).map(|item| (item, id(noise))).collect()
}

fn histories(noise: &mut Noise) -> Vec<Vec<Vec<u32>>> {
    [4, 0, 1, 30].into_iter().map(|length| (0..length).map(|_| id(noise)).collect()).collect()
}

/// The logarithms of probabilities of the codes that follow some tokens, of a level.
fn probabilities(graph: &Graph, weights: &HashMap<String, HostTensor>, tokens: &[u32], level: usize) -> Vec<f64> {
    let rows: Vec<u32> = (0..tokens.len() as u32).collect();
    let mut inputs: HashMap<String, HostTensor> = HashMap::from([
        ("lengths".to_owned(), HostTensor::lengths(&[tokens.len() as i64])),
        ("tokens".to_owned(), HostTensor::vector(tokens)),
        ("kept".to_owned(), HostTensor::vector(&rows)),
        ("before.lengths".to_owned(), HostTensor::lengths(&[0])),
        ("before".to_owned(), HostTensor::vector::<u32>(&[])),
    ]);
    for state in graph.states() {
        let width = if state.ends_with("k_cache") { 20 } else { 24 };
        inputs.insert(state.clone(), HostTensor::zeros(DType::F32, vec![40, width]).unwrap());
    }
    let logits = interpret(graph, &inputs, weights).unwrap()["logits"].to_f64();
    let first: usize = CODES[..level].iter().sum();
    let logits = &logits[first..first + CODES[level]];
    let sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
    logits.iter().map(|logit| logit - sum).collect()
}

/// The search by the book, with the probabilities of whole sequences.
fn by_the_book(history: &[Vec<u32>], items: &[(i64, Vec<u32>)], widths: &[usize]) -> Vec<Found> {
    let graph = config().trace().unwrap();
    let weights = weights(&graph);
    let newest = history.len().saturating_sub((40 - 3) / 3);
    let offsets = [0, CODES[0] as u32, (CODES[0] + CODES[1]) as u32];
    let tokens = |id: &[u32]| id.iter().zip(offsets).map(|(code, first)| code + first).collect::<Vec<u32>>();
    let before: Vec<u32> = history[newest..].iter().flat_map(|id| tokens(id)).collect();
    let mut beams: Vec<(Vec<u32>, f64)> = vec![(vec![], 0.0)];
    for (level, &width) in widths.iter().enumerate() {
        let mut next: BTreeMap<Vec<u32>, f64> = BTreeMap::new();
        for (codes, score) in &beams {
            let all = [before.clone(), tokens(codes)].concat();
            let probabilities = probabilities(&graph, &weights, &all, level);
            for (_, id) in items.iter().filter(|(_, id)| id.starts_with(codes)) {
                next.insert(id[..=level].to_vec(), score + probabilities[id[level] as usize]);
            }
        }
        beams = next.into_iter().collect();
        beams.sort_by(|a, b| b.1.total_cmp(&a.1));
        beams.truncate(width);
    }
    let items_of = |codes: &[u32]| items.iter().filter(|(_, id)| id == codes).map(|(item, _)| *item).collect();
    beams.into_iter().map(|(codes, score)| Found { items: items_of(&codes), codes, score }).collect()
}

#[test]
fn beams_are_those_of_an_exhaustive_search() {
    let (config, mut noise) = (config(), Noise(9));
    let weights = weights(&config.trace().unwrap());
    let (items, histories) = (items(&mut noise), histories(&mut noise));
    let trie = Trie::new(&CODES, items.clone()).unwrap();
    let gpu = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")).ok();
    let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let on_gpu = gpu.map(|gpu| ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..ModelOptions::default() });
    // All that there are, then fewer by level.
    let all_widths = [vec![usize::MAX; 3], vec![3, 5, 4]];
    let expected: Vec<Vec<Vec<Found>>> = all_widths
        .iter()
        .map(|widths| histories.iter().map(|history| by_the_book(history, &items, widths)).collect())
        .collect();
    for options in [Some(on_cpu), on_gpu].into_iter().flatten() {
        let mut generator = Generator::load(&config, &weights, options).unwrap();
        for (widths, expected) in all_widths.iter().zip(&expected) {
            let found = generator.search(&histories, &trie, widths).unwrap();
            for (found, expected) in found.iter().zip(expected) {
                let ids = |found: &[Found]| {
                    found.iter().map(|one| (one.codes.clone(), one.items.clone())).collect::<Vec<_>>()
                };
                assert_eq!(ids(found), ids(expected));
                assert!(found.iter().zip(expected).all(|(a, b)| (a.score - b.score).abs() < 1e-4));
            }
            let alone: Vec<_> = histories
                .iter()
                .flat_map(|history| generator.search(std::slice::from_ref(history), &trie, widths).unwrap())
                .collect();
            assert_eq!(alone, found, "who shares the search changes no bit");
        }
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let config = config();
    let weights = weights(&config.trace().unwrap());
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let mut generator = Generator::load(&config, &weights, options).unwrap();
    let trie = Trie::new(&CODES, [(1, vec![0, 0, 0])]).unwrap();
    assert!(matches!(generator.search(&[], &trie, &[2, 2]), Err(GenerateError::Widths { .. })));
    assert!(matches!(generator.search(&[], &trie, &[2, 0, 2]), Err(GenerateError::Widths { .. })));
    let other = Trie::new(&[3, 3], [(1, vec![0, 0])]).unwrap();
    assert!(matches!(generator.search(&[], &other, &[2; 3]), Err(GenerateError::Levels { .. })));
    let error = generator.search(&[vec![vec![0, 5, 0]]], &trie, &[2; 3]).unwrap_err().to_string();
    assert_eq!(error, "the semantic id [0, 5, 0] of item 0 does not fit levels of [6, 5, 7] codes");
    assert_eq!(generator.search(&[], &trie, &[2; 3]).unwrap(), Vec::<Vec<Found>>::new());
    let none = Trie::new(&CODES, []).unwrap();
    assert_eq!(generator.search(&[vec![]], &none, &[2; 3]).unwrap(), [vec![]]);
    for (key, value, told) in [
        ("model", json!("other"), "`model` must be `semantic_ids`"),
        ("codes", json!([]), "`codes` must be"),
        ("max_seq_len", json!(3), "`max_seq_len` must be more than the levels"),
        (
            "stu",
            json!({"embedding_dim": 8, "num_heads": 1, "hidden_dim": 8, "attention_dim": 8, "causal": false}),
            "causal",
        ),
    ] {
        let mut changed = json!({
            "model": "semantic_ids", "codes": CODES, "attn_num_layers": 2, "max_seq_len": 40,
            "stu": {"embedding_dim": 20, "num_heads": 2, "hidden_dim": 12, "attention_dim": 10}
        });
        changed[key] = value;
        let error = Config::from_json(&changed.to_string()).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
