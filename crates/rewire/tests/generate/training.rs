//! Training language models.

use super::decoder::{folder, options};
use rewire::generate::decoder::{Config, Decoder, examples, examples_in_trie, objective, objective_in_trie};
use rewire::generate::{GenerateError, Trie};
use rewire::graph::HostTensor;
use rewire::rank::{RankOptions, read_weights};
use rewire::runtime::{Inputs, ModelOptions};
use rewire::train::{Objective, TrainConfig, Trainer};
use rewire::{Kernel, Mapping};
use std::path::Path;

/// The learning rate of [`trainer`].
const RATE: f64 = 0.5;

/// A trainer on a copy of a folder's weights, with one of them changed.
fn trainer(
    folder: &Path,
    objective: &Objective,
    with: ModelOptions,
    change: impl Fn(&str, &mut HostTensor),
) -> Trainer {
    let weights = read_weights(folder, Mapping::default()).unwrap();
    let mut tensors = weights.tensors().unwrap();
    tensors.iter_mut().for_each(|(name, tensor)| change(name, tensor));
    let sgd = serde_json::json!({ "sgd_optimizer": { "lr": RATE } });
    let training = serde_json::json!({ "batch_size": 1, "steps": 1, "dense_optimizer": sgd, "sparse_optimizer": sgd });
    let training = TrainConfig::from_json(&training.to_string()).unwrap();
    Trainer::new(objective, &training, |name| tensors.get(name).cloned(), with).unwrap()
}

fn config(folder: &Path) -> Config {
    Config::from_json(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
}

fn on_cpu() -> ModelOptions {
    ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() }
}

/// The loss before the first update is that of the logits, among all tokens or those that the trie allows.
#[test]
fn what_is_learned_inside_a_trie_is_weighed_among_what_it_allows() {
    let items = [vec![319, 360, 366], vec![319, 338], vec![7, 21, 300], vec![7, 21]];
    let trie = Trie::of_tokens(400, (0..).zip(items)).unwrap();
    let sequence = [87, 173, 319, 338, 7, 21, 319, 360, 366];
    let allowed: [&[usize]; 7] = [&[7, 319], &[338, 360], &[7, 319], &[21], &[7, 300, 319], &[338, 360], &[366]];
    for name in ["qwen3", "t5"] {
        let folder = folder(name);
        let config = config(&folder);
        let loss = |objective: Objective, inputs: Inputs| {
            let mut trainer = trainer(&folder, &objective, on_cpu(), |_, _| ());
            let step = trainer.preparer().prepare(vec![inputs]).unwrap();
            trainer.step(step).unwrap().loss
        };
        let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
        let mut decoder = Decoder::open(&folder, &options).unwrap();
        let logits = decoder.logits(&sequence[..2], &sequence[2..8]).unwrap().to_f64();
        let learned = logits.len() / 400 - allowed.len();
        let expected = |all: bool| {
            let of = |((row, allowed), &token): ((&[f64], &&[usize]), &u32)| {
                let sum: f64 =
                    (0..400).filter(|token| all || allowed.contains(token)).map(|token| row[token].exp()).sum();
                sum.ln() - row[token as usize]
            };
            logits.chunks_exact(400).skip(learned).zip(&allowed).zip(&sequence[2..]).map(of).sum::<f64>() / 7.0
        };
        let sequences: [(&[u32], usize); 1] = [(&sequence, 2)];
        let free = loss(objective(&config).unwrap(), examples(&config, &sequences).unwrap());
        let inputs = examples_in_trie(&config, &sequences, &trie).unwrap();
        let inside = loss(objective_in_trie(&config).unwrap(), inputs);
        assert!((free - expected(true)).abs() < 1e-5 * free, "{name}: {free} instead of {}", expected(true));
        assert!((inside - expected(false)).abs() < 1e-5 * free, "{name}: {inside} instead of {}", expected(false));
        let other = examples_in_trie(&config, &[(&[87, 319, 7], 1)], &trie);
        assert!(matches!(other, Err(GenerateError::Outside { sequence: 0, place: 2 })), "{other:?}");
    }
}

/// Updates of the biases of distances agree with differences of the loss, in a batch of different lengths.
#[test]
fn biases_of_distances_are_learned() {
    const STEP: f32 = 0.01;
    let folder = folder("t5");
    let (config, first, second) = (config(&folder), [87u32, 173, 19, 319, 338, 7, 21], [5u32, 399, 0, 27, 360]);
    let (objective, sequences) = (objective(&config).unwrap(), [(&first[..], 3), (&second[..], 2)]);
    let backends: Vec<ModelOptions> =
        options().map(|options| ModelOptions { kernel: options.kernel, gpu: options.gpu, ..on_cpu() }).collect();
    for part in ["encoder", "decoder"] {
        let bias = format!("{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        // The loss with a changed bias, and the gradients of all biases.
        let step = |place: usize, by: f32, with: &ModelOptions| {
            let changed = |name: &str, tensor: &mut HostTensor| {
                if name == bias {
                    let mut values: Vec<f32> = tensor.to_f64().iter().map(|&value| value as f32).collect();
                    values[place] += by;
                    *tensor = HostTensor::new(tensor.shape().to_vec(), &values).unwrap();
                }
            };
            let mut trainer = trainer(&folder, &objective, with.clone(), changed);
            let before = trainer.parameters().unwrap()[&bias].to_f64();
            let inputs = vec![examples(&config, &sequences).unwrap()];
            let step = trainer.preparer().prepare(inputs).unwrap();
            let loss = trainer.step(step).unwrap().loss;
            let after = trainer.parameters().unwrap()[&bias].to_f64();
            (loss, before.iter().zip(after).map(|(before, after)| (before - after) / RATE).collect::<Vec<f64>>())
        };
        let gradients: Vec<Vec<f64>> = backends.iter().map(|with| step(0, 0.0, with).1).collect();
        let mut largest: Vec<usize> = (0..gradients[0].len()).collect();
        largest.sort_by(|&a, &b| gradients[0][b].abs().total_cmp(&gradients[0][a].abs()));
        for &place in &largest[..4] {
            let [more, less] = [STEP, -STEP].map(|by| step(place, by, &on_cpu()).0);
            let difference = (more - less) / f64::from(2.0 * STEP);
            for gradient in gradients.iter().map(|gradients| gradients[place]) {
                let error = (gradient - difference).abs();
                assert!(error < 0.03 * difference.abs(), "{bias}[{place}]: {gradient} instead of {difference}");
            }
        }
    }
}
