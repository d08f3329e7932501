//! The demo's model stored in smaller types: every combination stays within the errors that the documentation states.

use crate::program::{DEMO, Folder, command, finish, run};
use rewire::Mapping;
use rewire::graph::DType;
use rewire::graph_rewrite::device::Target;
use rewire::package::Package;
use rewire::rank::{
    Batch, Comparison, PackOptions, Precision, RankOptions, Ranker, pack, read_config_text, read_weights,
};
use rewire::runtime::{Gpu, Kernel};

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
/// The largest change of a logit that f16 accumulators make, and products of integers.
const SUMS: f64 = 4e-3;
const INTEGERS: f64 = 6e-2;

/// The demo's model, traced and rewritten for values between kernels of a type.
fn package(activations: DType) -> Package {
    let folder = format!("{DEMO}/model");
    let (config, weights) = (
        read_config_text(folder.as_ref(), Mapping::Large).unwrap(),
        read_weights(folder.as_ref(), Mapping::Large).unwrap(),
    );
    let precision = Precision { activations: Some(activations), ..Precision::default() };
    pack(&folder, &config, &weights, &PackOptions { precision, ..PackOptions::default() }).unwrap()
}

fn ranker(package: &Package, precision: Precision) -> Ranker {
    let options = RankOptions { kernel: Kernel::Cpu, precision, ..RankOptions::default() };
    Ranker::from_package(package, &options).unwrap()
}

/// The first users of the demo.
fn users(ranker: &Ranker, count: usize) -> Batch {
    let mut batch = ranker.batch();
    let text = std::fs::read_to_string(format!("{DEMO}/interactions.jsonl")).unwrap();
    text.lines().take(count).for_each(|line| batch.push_json(line.as_bytes()).unwrap());
    batch
}

#[test]
fn errors_of_tables_weights_and_activations_add_up() {
    let packages = ACTIVATIONS.map(|(activations, _)| package(activations));
    let single = ranker(&packages[0], Precision::default());
    let [all, some] = [40, 12].map(|count| users(&single, count));
    let expected = single.rank_batch(&all).unwrap();
    for (package, (activations, of_activations)) in packages.iter().zip(ACTIVATIONS) {
        for (tables, of_tables) in TABLES {
            for (weights, of_weights) in WEIGHTS {
                let [tables, weights, activations] = [tables, weights, activations].map(Some);
                let model = ranker(package, Precision { tables, weights, activations, ..Precision::default() });
                let mut comparison = Comparison::new(&model, &single).unwrap();
                // The effect of single parts is measured on more users than their combination.
                let parts = [of_tables, of_weights, of_activations].into_iter().filter(|error| *error > 0.0).count();
                let batch = if parts > 1 { &some } else { &all };
                for (ranked, expected) in model.rank_batch(batch).unwrap().iter().zip(&expected) {
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

/// f16 accumulators are rounded where a device adds so, and change nothing elsewhere.
#[test]
fn f16_accumulators_are_those_of_the_device() {
    let halves = Precision { sums: None, ..Precision::all(DType::F16) };
    let [folder, of_f16] = [package(DType::F32), package(DType::F16)];
    let gpu = Gpu::for_kernel(Kernel::Wgpu, None).unwrap_or(None).filter(|gpu| gpu.target().half_sums);
    for gpu in [None, gpu.as_ref()] {
        let kernel = if gpu.is_some() { Kernel::Wgpu } else { Kernel::Cpu };
        let load = |package: &Package, precision| {
            let options = RankOptions { kernel, gpu: gpu.cloned(), precision, ..RankOptions::default() };
            Ranker::from_package(package, &options).unwrap()
        };
        let single = load(&folder, Precision::default());
        let models = [None, Some(DType::F16)].map(|sums| load(&of_f16, Precision { sums, ..halves }));
        let batch = users(&single, 12);
        let expected = single.rank_batch(&batch).unwrap();
        let [plain, summed] = models.each_ref().map(|model| model.rank_batch(&batch).unwrap());
        assert_eq!(plain == summed, gpu.is_none(), "{kernel}");
        let mut comparison = Comparison::new(&models[1], &single).unwrap();
        summed.iter().zip(&expected).for_each(|(ranked, expected)| comparison.add(ranked, expected, None).unwrap());
        let largest = comparison.tasks.iter().map(|change| change.largest).fold(0.0, f64::max);
        let of_sums = if gpu.is_some() { SUMS } else { 0.0 };
        let most = of_sums + [TABLES[1].1, WEIGHTS[1].1, ACTIVATIONS[1].1].iter().sum::<f64>();
        assert!(largest <= most, "{kernel}: {largest}");
    }
}

/// Matmuls with weights round both factors to 8 bits and multiply integers, whatever the type of the weights.
#[test]
fn integers_are_multiplied_on_every_device() {
    let package = package(DType::F32);
    let load = |gpu: Option<&Gpu>, precision| {
        let kernel = if gpu.is_some() { Kernel::Wgpu } else { Kernel::Cpu };
        let options = RankOptions { kernel, gpu: gpu.cloned(), precision, ..RankOptions::default() };
        Ranker::from_package(&package, &options).unwrap()
    };
    let single = load(None, Precision::default());
    let batch = users(&single, 6);
    let expected = single.rank_batch(&batch).unwrap();
    let gpu = Gpu::for_kernel(Kernel::Wgpu, None).unwrap_or(None);
    let plain = gpu.as_ref().map(|gpu| gpu.restricted(&Target { matrix: 0, ..gpu.target().clone() }));
    for gpu in [None, plain.as_ref(), gpu.as_ref()].into_iter().take(if gpu.is_some() { 3 } else { 1 }) {
        for weights in [None, Some(DType::Rows8)] {
            let model = load(gpu, Precision { weights, sums: Some(DType::I32), ..Precision::default() });
            let ranked = model.rank_batch(&batch).unwrap();
            let mut comparison = Comparison::new(&model, &single).unwrap();
            ranked.iter().zip(&expected).for_each(|(ranked, expected)| comparison.add(ranked, expected, None).unwrap());
            let largest = comparison.tasks.iter().map(|change| change.largest).fold(0.0, f64::max);
            assert!(largest > 1e-4 && largest <= WEIGHTS[3].1 + INTEGERS, "{weights:?}: {largest}");
        }
    }
}

#[test]
fn a_package_ranks_as_its_folder_with_the_same_types() {
    let folder = Folder::new();
    let file = folder.0.join("model.rewire").display().to_string();
    let rank = |model: &str, stored: &[&str]| {
        let run = run(&[&["rank", "--kernel", "cpu", "--json", "--model", model], stored].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout.lines().filter(|line| !line.contains("summary")).map(str::to_owned).collect::<Vec<_>>()
    };
    let packed = |stored: &[&str]| {
        assert_eq!(run(&[&["package", "--out", &file], stored].concat()).code, Some(0));
        let found = rank(&file, &[]);
        assert!(found == rank(&format!("{DEMO}/model"), stored), "{stored:?}");
        found
    };
    packed(&["--dtype", "int8", "--tables", "int4", "--activations", "f16"]);
    let expected = packed(&["--dtype", "int8", "--tables", "int4"]);
    // Dequantized rows are the same numbers as f32, along either dimension. In f16, only layers of f32 would be rounded when
    // they are joined.
    let singles = folder.0.join("singles.rewire").display().to_string();
    let repack = ["package", "--model", &file, "--out", &singles, "--dtype", "f32", "--tables", "f32"];
    assert_eq!(run(&repack).code, Some(0));
    assert!(rank(&singles, &[]) == expected);
    assert!(rank(&format!("{DEMO}/model"), &[]) != expected);
}

#[test]
fn options_are_taken_from_the_environment() {
    let folder = Folder::new();
    let [told, set] = ["told.rewire", "set.rewire"].map(|name| folder.0.join(name).display().to_string());
    let stored = ["--dtype", "f16", "--tables", "int4", "--activations", "f16", "--sums", "f16"];
    assert_eq!(run(&[&["package", "--out", &told][..], &stored].concat()).code, Some(0));
    let mut package = command(&["package", "--out", &set]);
    package.envs([
        ("REWIRE_DTYPE", "f16"),
        ("REWIRE_TABLES", "int4"),
        ("REWIRE_ACTIVATIONS", "f16"),
        ("REWIRE_SUMS", "f16"),
    ]);
    assert_eq!(finish(&mut package).code, Some(0));
    assert!(std::fs::read(told).unwrap() == std::fs::read(set).unwrap());
    let wrong =
        [("REWIRE_KERNEL", "gpu"), ("REWIRE_TABLES", "int3"), ("REWIRE_ACTIVATIONS", "int8"), ("REWIRE_SUMS", "bf16")];
    for (variable, value) in wrong {
        let run = finish(command(&["rank"]).env(variable, value));
        assert!(run.code == Some(2) && run.stderr.contains(value), "{variable}: {}", run.stderr);
    }
    let run = finish(command(&["rank"]).envs([("REWIRE_KERNEL", "wgpu"), ("REWIRE_ADAPTER", "no such adapter")]));
    run.failed_with(&["no such adapter"]);
}
