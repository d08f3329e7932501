//! Values that gradients keep or compute again: the same bits in less memory, by flags of layers, by a limit, and in training.

use rewire::train::{Objective, TrainConfig, TrainError, Trainer};
use rewire_graph::{DType, Graph, HostTensor, Mode, Scope, Seed, differentiate};
use rewire_graph_rewrite::cost::{HardwareModel, Sizes, kernels};
use rewire_graph_rewrite::recompute::{Timeline, recompute};
use rewire_graph_rewrite::{lower, optimize};
use rewire_hstu::modules::{StuConfig, StuInput, StuLayer, StuStack};
use rewire_hstu::ops::SeqLen;
use rewire_runtime::{Inputs, Kernel, Model};
use rewire_tests::backend::{Tensors, options, run};
use rewire_tests::case::parameter;
use rewire_tests::compare::Results;
use rewire_tests::noise::Noise;
use serde_json::json;
use std::collections::BTreeMap;

const LENGTHS: [i64; 4] = [7, 0, 13, 1];
const WIDTH: usize = 25;

/// Three layers that learn, with the flags of a configuration.
fn layers(flags: &[&str]) -> Graph {
    let mut config = json!({ "embedding_dim": WIDTH, "num_heads": 2, "hidden_dim": 7, "attention_dim": 6 });
    flags.iter().for_each(|flag| config[*flag] = json!(true));
    let config: StuConfig = serde_json::from_value(config).unwrap();
    let layer = StuLayer { config };
    let stack = StuStack { layers: vec![layer; 3], truncate_split_layer: 0, truncate_tail_len: 0 };
    let scope = Scope::new().with_mode(Mode::Train);
    let rows = scope.lengths("rows", scope.size("samples"));
    let x = scope.input("x", DType::F32, [rows.total.clone(), WIDTH.into()]);
    let y = stack.forward(&scope, &StuInput { x, rows, num_targets: None, max_seq_len: SeqLen::Fixed(16) }).x;
    scope.finish(&[("loss", y.square().mean(1).mean(0))]).unwrap()
}

fn parameters(graph: &Graph) -> Vec<(String, Vec<usize>)> {
    let named = graph.ids().filter_map(|id| graph.op::<rewire_graph::op::Parameter>(id));
    let shape = |ty: &rewire_graph::Type| ty.shape.iter().filter_map(|extent| extent.as_const()).collect();
    named.map(|parameter| (parameter.name.clone(), shape(&parameter.ty))).collect()
}

/// The layers with the gradients of all parameters.
fn with_gradients(flags: &[&str]) -> Graph {
    let graph = layers(flags);
    let wanted = parameters(&graph);
    let wanted: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    differentiate(&graph, &[("loss", Seed::One)], &wanted).unwrap()
}

fn values(graph: &Graph) -> (Tensors, Tensors) {
    let own = parameters(graph).into_iter().map(|(name, shape)| {
        let tensor = parameter(&name, DType::F32, &shape, 5);
        (name, tensor)
    });
    let rows = LENGTHS.iter().sum::<i64>() as usize;
    let inputs = [
        ("rows", HostTensor::lengths(&LENGTHS)),
        ("x", Noise::new(3, "x").floats(DType::F32, &[rows, WIDTH], 1.0)),
        ("seed", HostTensor::i64([], &[9]).unwrap()),
    ];
    (inputs.map(|(name, tensor)| (name.to_owned(), tensor)).into(), own.collect())
}

/// The results of a rewritten graph.
fn results(rewritten: &Graph, traced: &Graph, kernel: Kernel) -> Option<Results> {
    let (inputs, parameters) = values(traced);
    let model = Model::load(lower(rewritten).unwrap(), &parameters, options(kernel)?).unwrap();
    Some(run(&mut model.session(), &inputs).unwrap())
}

fn bytes(graph: &Graph) -> u64 {
    Timeline::of(graph).unwrap().bytes(&Sizes::assumed(graph))
}

#[test]
fn flags_of_a_layer_save_memory_and_keep_the_bits() {
    let kept = with_gradients(&[]);
    let (all, _) = optimize(kept.clone()).unwrap();
    let count = |graph: &Graph, name: &str| graph.counts().get(name).copied().unwrap_or(0);
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(expected) = results(&all, &kept, kernel) else { continue };
        // The norm of the first layer is part of the product that reads it.
        for (flags, norms, products) in [
            (&["recompute_normed_x"][..], 2, 0),
            (&["recompute_uvqk"], 0, 3),
            (&["recompute_normed_x", "recompute_uvqk", "recompute_y"], 2, 3),
        ] {
            let traced = with_gradients(flags);
            assert_eq!(traced.counts(), kept.counts());
            let (rewritten, report) = optimize(traced).unwrap();
            let more = |name: &str| count(&rewritten, name) - count(&all, name);
            assert!(more("layer_norm") >= norms, "{flags:?}: {}", more("layer_norm"));
            assert_eq!(more("addmm"), products, "{flags:?}");
            let repeated = report.passes.last().unwrap().applications.len();
            assert_eq!(kernels(&rewritten).unwrap(), kernels(&all).unwrap() + repeated);
            assert_eq!(results(&rewritten, &kept, kernel).unwrap(), expected, "{kernel}, {flags:?}");
            assert!(bytes(&rewritten) < bytes(&all), "{flags:?}: {} of {}", bytes(&rewritten), bytes(&all));
        }
    }
}

#[test]
fn a_limit_is_kept_with_the_same_bits() {
    let traced = with_gradients(&[]);
    let (all, _) = optimize(traced.clone()).unwrap();
    let (sizes, most) = (Sizes::assumed(&all), bytes(&all));
    let least = recompute(&all, &sizes, 0, &HardwareModel::TYPICAL).unwrap().bytes;
    assert!(least < most * 3 / 4, "{least} of {most}");
    let on = [Kernel::Cpu, Kernel::Wgpu];
    let expected = on.map(|kernel| results(&all, &traced, kernel));
    let mut before = (0, 0.0);
    for limit in [most, most - 1, (most + least) / 2, least] {
        let found = recompute(&all, &sizes, limit, &HardwareModel::TYPICAL).unwrap();
        assert!(found.bytes <= limit && found.bytes == bytes(&found.graph), "{limit}: {}", found.bytes);
        assert_eq!(kernels(&found.graph).unwrap(), kernels(&all).unwrap() + found.kernels);
        assert!((found.kernels, found.seconds) >= before, "{limit}: {} kernels, {} s", found.kernels, found.seconds);
        before = (found.kernels, found.seconds);
        for (kernel, expected) in on.into_iter().zip(&expected) {
            assert_eq!(results(&found.graph, &traced, kernel), *expected, "{kernel}, {limit}");
        }
    }
    assert!(before.0 > 3);
}

fn config(more: &str) -> TrainConfig {
    let text = format!(
        r#"{{ "batch_size": 4, "steps": 5{more},
        "dense_optimizer": {{ "adam_optimizer": {{ "lr": 0.01 }} }}, "sparse_optimizer": {{ "sgd_optimizer": {{ "lr": 0.1 }} }} }}"#
    );
    TrainConfig::from_json(&text).unwrap()
}

/// A batch with rows of some lengths.
fn batch(lengths: &[i64], seed: u64) -> Inputs {
    let rows = lengths.iter().sum::<i64>() as usize;
    Inputs::new()
        .with("rows", HostTensor::lengths(lengths))
        .with("x", Noise::new(seed, "x").floats(DType::F32, &[rows, WIDTH], 1.0))
}

/// The result of a training.
struct Trained {
    losses: Vec<f64>,
    parameters: BTreeMap<String, HostTensor>,
    /// Kernels of the last step.
    kernels: usize,
}

/// A training with ever larger batches.
fn train(kernel: Kernel, more: &str) -> Option<Result<Trained, TrainError>> {
    let graph = layers(&[]);
    let (_, own) = values(&graph);
    let begin = |name: &str| own.get(name).cloned();
    let mut trainer = Trainer::new(&Objective::new(graph, "loss"), &config(more), begin, options(kernel)?).unwrap();
    let mut preparer = trainer.preparer();
    let steps = [[3, 0, 2, 1], [9, 4, 0, 7], [16, 15, 14, 16], [1, 1, 0, 0]];
    let losses = (0..).zip(steps).map(|(seed, lengths)| {
        let step = preparer.prepare(vec![batch(&lengths, seed)])?;
        trainer.step(step).map(|report| report.loss)
    });
    let losses = losses.collect::<Result<Vec<_>, _>>();
    let (parameters, kernels) = (trainer.parameters().unwrap(), trainer.plan().steps.len());
    Some(losses.map(|losses| Trained { losses, parameters, kernels }))
}

#[test]
fn training_keeps_a_limit_of_memory_with_the_same_bits() {
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(Ok(all)) = train(kernel, "") else { continue };
        // The largest of these limits that lets kernels run again: without parts of sums a step of the CPU needs less.
        let within = |limit: usize| train(kernel, &format!(r#", "memory_limit": {limit}"#)).unwrap().ok();
        let limits = [230_000, 200_000, 170_000, 140_000, 110_000, 80_000];
        let limited = limits.into_iter().filter_map(within).find(|found| found.kernels > all.kernels);
        let limited = limited.unwrap_or_else(|| panic!("{kernel}: {} kernels with any limit", all.kernels));
        assert_eq!((limited.losses, limited.parameters), (all.losses, all.parameters), "{kernel}");
        match train(kernel, r#", "memory_limit": 3000"#).unwrap() {
            Err(TrainError::Memory { limit: 3000, needed }) => assert!(needed > 3000),
            other => panic!("{kernel}: {:?}", other.map(|found| found.losses)),
        }
    }
}
