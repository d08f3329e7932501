//! The demo's model stored in smaller types: every combination stays within the errors that the documentation states.
#![allow(clippy::unwrap_used)]

mod program;

use program::{DEMO, Folder, command, finish, run};
use rewire::graph::DType;
use rewire::rank::{Batch, Comparison, Precision, RankOptions, Ranker};
use rewire::runtime::Kernel;

/// Types of tables, of weights and of values between kernels, each with the largest change of a logit.
const TABLES: [(DType, f64); 6] = [
    (DType::F32, 0.0),
    (DType::F16, 2e-3),
    (DType::BF16, 2e-2),
    (DType::Rows8, 3e-2),
    (DType::Rows4, 0.4),
    (DType::Rows2, 1.5),
];
const WEIGHTS: [(DType, f64); 4] = [(DType::F32, 0.0), (DType::F16, 5e-3), (DType::BF16, 4e-2), (DType::Rows8, 3e-2)];
const ACTIVATIONS: [(DType, f64); 3] = [(DType::F32, 0.0), (DType::F16, 3e-3), (DType::BF16, 4e-2)];

fn ranker(precision: Precision) -> Ranker {
    let options = RankOptions { kernel: Kernel::Cpu, precision, ..RankOptions::default() };
    Ranker::load(format!("{DEMO}/model").as_ref(), &options).unwrap()
}

/// The first users of the demo.
fn users(ranker: &Ranker) -> Batch {
    let mut batch = ranker.batch();
    let text = std::fs::read_to_string(format!("{DEMO}/interactions.jsonl")).unwrap();
    text.lines().take(40).for_each(|line| batch.push_json(line.as_bytes()).unwrap());
    batch
}

#[test]
fn errors_of_tables_weights_and_activations_add_up() {
    let single = ranker(Precision::default());
    let batch = users(&single);
    let expected = single.rank_batch(&batch).unwrap();
    for (tables, of_tables) in TABLES {
        for (weights, of_weights) in WEIGHTS {
            for (activations, of_activations) in ACTIVATIONS {
                let [tables, weights, activations] = [tables, weights, activations].map(Some);
                let model = ranker(Precision { tables, weights, activations });
                let mut comparison = Comparison::new(&model, &single).unwrap();
                for (ranked, expected) in model.rank_batch(&batch).unwrap().iter().zip(&expected) {
                    comparison.add(ranked, expected, None).unwrap();
                }
                let largest = comparison.tasks.iter().map(|change| change.largest).fold(0.0, f64::max);
                let most = of_tables + of_weights + of_activations;
                let is_changed = most > 0.0;
                assert!(largest <= most, "{tables:?} {weights:?} {activations:?}: {largest}");
                assert_eq!(largest > 0.0, is_changed, "{tables:?} {weights:?} {activations:?}");
            }
        }
    }
}

#[test]
fn a_package_ranks_as_its_folder_with_the_same_types() {
    let folder = Folder::new();
    let file = folder.0.join("model.rewire").display().to_string();
    let stored = ["--dtype", "int8", "--tables", "int4", "--activations", "f16"];
    assert_eq!(run(&[&["package", "--out", &file][..], &stored].concat()).code, Some(0));
    let rank = |model: &str, stored: &[&str]| {
        let run = run(&[&["rank", "--kernel", "cpu", "--json", "--model", model], stored].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout.lines().filter(|line| !line.contains("summary")).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = rank(&format!("{DEMO}/model"), &stored);
    assert!(rank(&file, &[]) == expected);
    assert!(rank(&format!("{DEMO}/model"), &[]) != expected);
}

#[test]
fn options_are_taken_from_the_environment() {
    let folder = Folder::new();
    let [told, set] = ["told.rewire", "set.rewire"].map(|name| folder.0.join(name).display().to_string());
    let stored = ["--dtype", "f16", "--tables", "int4", "--activations", "f16"];
    assert_eq!(run(&[&["package", "--out", &told][..], &stored].concat()).code, Some(0));
    let mut package = command(&["package", "--out", &set]);
    package.envs([("REWIRE_DTYPE", "f16"), ("REWIRE_TABLES", "int4"), ("REWIRE_ACTIVATIONS", "f16")]);
    assert_eq!(finish(&mut package).code, Some(0));
    assert!(std::fs::read(told).unwrap() == std::fs::read(set).unwrap());
    for (variable, value) in [("REWIRE_KERNEL", "gpu"), ("REWIRE_TABLES", "int3"), ("REWIRE_ACTIVATIONS", "int8")] {
        let run = finish(command(&["rank"]).env(variable, value));
        assert!(run.code == Some(2) && run.stderr.contains(value), "{variable}: {}", run.stderr);
    }
    let run = finish(command(&["rank"]).envs([("REWIRE_KERNEL", "wgpu"), ("REWIRE_ADAPTER", "no such adapter")]));
    run.failed_with(&["no such adapter"]);
}
