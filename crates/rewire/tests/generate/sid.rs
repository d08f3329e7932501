//! Semantic ids of items by their vectors.

use crate::Noise;
use rewire::Kernel;
use rewire::generate::{Codebooks, RqVae, RqVaeOptions, SidOptions};
use rewire::runtime::ModelOptions;
use rewire::train::TrainConfig;
use std::collections::BTreeSet;

fn vectors(count: usize, width: usize) -> Vec<f32> {
    let mut noise = Noise(3);
    (0..count * width).map(|_| noise.below(2001) as f32 / 1000.0 - 1.0).collect()
}

/// The sum of squares of what codes leave.
fn error(codebooks: &Codebooks, vectors: &[f32]) -> f32 {
    let levels: Vec<Vec<f32>> = codebooks.tensors().unwrap().into_values().map(|level| level.to_f32()).collect();
    let width = codebooks.width();
    let left = vectors.chunks(width).zip(codebooks.encode(vectors)).flat_map(|(vector, id)| {
        let levels = &levels;
        (0..width)
            .map(move |n| {
                let codes = levels.iter().zip(&id).map(|(level, &code)| level[code as usize * width + n]);
                vector[n] - codes.sum::<f32>()
            })
            .collect::<Vec<f32>>()
    });
    left.map(|value| value * value).sum()
}

#[test]
fn more_levels_and_more_iterations_leave_less() {
    let vectors = vectors(300, 5);
    let trained = |codes: &[usize], iterations| {
        let options = SidOptions { codes: codes.to_vec(), iterations, ..SidOptions::default() };
        error(&Codebooks::train(&vectors, 5, &options).unwrap(), &vectors)
    };
    let all: f32 = vectors.iter().map(|value| value * value).sum();
    let errors = [all, trained(&[8], 0), trained(&[8], 25), trained(&[8, 8], 25), trained(&[8, 8, 8], 25)];
    assert!(errors.windows(2).all(|pair| pair[1] < pair[0]), "{errors:?}");
    assert!(trained(&[300], 5) < 1e-6, "as many codes as vectors leave nothing");
}

#[test]
fn normalised_residuals_have_the_codes_of_their_direction() {
    let options = SidOptions { codes: vec![4, 4], normalize_residuals: true, ..SidOptions::default() };
    let vectors = vectors(60, 3);
    let codebooks = Codebooks::train(&vectors, 3, &options).unwrap();
    let longer: Vec<f32> = vectors.iter().map(|value| value * 4.0).collect();
    assert_eq!(codebooks.encode(&vectors), codebooks.encode(&longer));
}

#[test]
fn items_of_one_id_move_to_the_nearest_free_code() {
    let options = SidOptions { codes: vec![2, 16], ..SidOptions::default() };
    let vectors = [vectors(40, 4), vec![0.25; 4 * 3]].concat();
    let codebooks = Codebooks::train(&vectors, 4, &options).unwrap();
    let items: Vec<i64> = (0..43).map(|item| item * 7 % 43).collect();
    let (plain, ids) = (codebooks.encode(&vectors), codebooks.encode_items(&items, &vectors));
    let distinct = |ids: &[Vec<u32>]| ids.iter().collect::<BTreeSet<_>>().len();
    // As many as a prefix has items, or codes for them.
    let most: usize = (0..2).map(|first| plain.iter().filter(|id| id[0] == first).count().min(16)).sum();
    assert!(distinct(&plain) < distinct(&ids), "{plain:?}");
    assert_eq!(distinct(&ids), most);
    assert!(plain.iter().zip(&ids).all(|(a, b)| a[0] == b[0]), "the levels before the last stay");
    let turned: Vec<f32> = vectors.chunks(4).rev().flatten().copied().collect();
    let mut again = codebooks.encode_items(&items.iter().rev().copied().collect::<Vec<_>>(), &turned);
    again.reverse();
    assert_eq!(again, ids, "the order of items does not matter");
}

#[test]
fn vectors_that_cannot_be_are_errors() {
    for (vectors, width, codes, told) in [
        (vec![0.0; 5], 2, 1, "rows of 2"),
        (vec![f32::NAN; 4], 2, 1, "not finite"),
        (vec![0.5; 4], 2, 3, "are 2: a level of 3 codes"),
        (vec![0.5; 4], 2, 0, "a level of 0 codes"),
    ] {
        let options = SidOptions { codes: vec![codes], ..SidOptions::default() };
        let error = Codebooks::train(&vectors, width, &options).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

/// Vectors of few directions: an autoencoder of fewer elements learns them, and the codes of an item determine its group.
#[test]
fn an_autoencoder_learns_codes_that_tell_groups() {
    let mut noise = Noise(5);
    let group = |item: usize| item % 6;
    let vectors: Vec<f32> = (0..120)
        .flat_map(|item| (0..12).map(|n| if n / 2 == group(item) { 2.0 } else { 0.0 }).collect::<Vec<f32>>())
        .map(|value| value + noise.below(1000) as f32 / 5000.0)
        .collect();
    let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let config = |steps: u64| {
        let config = serde_json::json!({
            "batch_size": 32, "steps": steps, "dense_optimizer": {"adam_optimizer": {"lr": 0.005}},
            "sparse_optimizer": {"adam_optimizer": {"lr": 0.005}}
        });
        TrainConfig::from_json(&config.to_string()).unwrap()
    };
    for sinkhorn in [None, Some((5, 10.0))] {
        let options = RqVaeOptions {
            codes: vec![6, 6],
            width: 4,
            hidden: vec![16],
            sinkhorn,
            seed: 3,
            ..RqVaeOptions::default()
        };
        let trained = |steps| RqVae::train(&vectors, 12, &options, &config(steps), &on_cpu).unwrap();
        let mut model = trained(150);
        let encoded = model.encode(&vectors, 12).unwrap();
        let ids = model.codebooks().encode(&encoded);
        // Of pairs of items with one id, how many are of one group?
        let pairs = (0..120).flat_map(|a| (0..a).map(move |b| (a, b))).filter(|&(a, b)| ids[a] == ids[b]);
        let (same, all) = pairs.fold((0, 0), |(same, all), (a, b)| (same + usize::from(group(a) == group(b)), all + 1));
        assert!(all > 100 && same * 10 >= all * 9, "{sinkhorn:?}: {same} of {all}");
        let left = error(model.codebooks(), &encoded) / encoded.iter().map(|value| value * value).sum::<f32>();
        assert!(left < 0.1, "{sinkhorn:?}: codes leave {left}");
        assert_eq!(model.parameters()["encoder.2.weight"].shape(), [4, 16]);
        assert_eq!(model.codebooks(), trained(150).codebooks(), "the same seed, the same codes");
    }
}
