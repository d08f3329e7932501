//! Dropout: every backend draws the interpreter's mask, fused or not.

use rewire_graph::{DType, HostTensor, Mode, Scope, Tensor};
use rewire_hstu::modules::{StuConfig, StuInput, StuLayer};
use rewire_hstu::ops::SeqLen;
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, oracle, plan, run, session, tolerance};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::noise::Noise;
use serde_json::json;

const ROWS: usize = 203;
const RATIO: f32 = 0.3;

/// Outputs of a model of `x` `[rows, width]` that learns, on every backend, the interpreter first.
fn run_all(
    dtype: DType,
    width: usize,
    seed: i64,
    model: impl Fn(&Scope, &Tensor) -> Vec<(&'static str, Tensor)>,
) -> Vec<Results> {
    let scope = Scope::new().with_mode(Mode::Train).with_weights(dtype);
    let x = scope.input("x", dtype, &[scope.size("rows"), width.into()]);
    let outputs = model(&scope, &x);
    let graph = scope.finish(&outputs).unwrap();
    let parameters: Tensors = graph
        .parameters()
        .into_iter()
        .map(|p| (p.name.clone(), Noise::new(3, &p.name).floats(p.dtype, &p.shape, 0.4)))
        .collect();
    let inputs: Tensors = [
        ("x".to_owned(), Noise::new(5, "x").floats(dtype, &[ROWS, width], 1.5)),
        ("seed".to_owned(), HostTensor::i64(vec![], &[seed]).unwrap()),
    ]
    .into();
    let mut results = vec![oracle(&graph, &inputs, &parameters).unwrap()];
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
        results.push(run(&mut session, &inputs).unwrap());
    }
    results
}

fn agree(results: &[Results], tolerance: Tolerance) {
    for actual in &results[1..] {
        let found = differences(actual, &results[0], tolerance);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

fn zeros(tensor: &HostTensor) -> Vec<bool> {
    tensor.to_f64().into_iter().map(|value| value == 0.0).collect()
}

#[test]
fn all_backends_draw_the_same_mask() {
    for (dtype, width) in [(DType::F32, 25), (DType::F32, 4), (DType::F16, 25), (DType::F16, 1)] {
        for seed in [0, 7, -1, i64::MIN + 12_345_678_901] {
            let results = run_all(dtype, width, seed, |scope, x| vec![("out", scope.dropout(x, RATIO))]);
            agree(&results, Tolerance::EXACT);
        }
    }
}

#[test]
fn the_kept_are_scaled_and_their_share_is_right() {
    let results = run_all(DType::F32, 50, 11, |scope, x| vec![("x", x.abs()), ("out", scope.dropout(&x.abs(), RATIO))]);
    let (x, out) = (results[0]["x"].to_f64(), results[0]["out"].to_f64());
    let count = x.len() as f64;
    let kept: Vec<usize> = (0..x.len()).filter(|&n| out[n] != 0.0).collect();
    for &n in &kept {
        assert!((out[n] - x[n] / (1.0 - f64::from(RATIO))).abs() < 1e-6 * x[n], "{n}");
    }
    let (expected, deviation) = (0.7 * count, (0.21 * count).sqrt());
    assert!((kept.len() as f64 - expected).abs() < 4.0 * deviation, "{} of {count}", kept.len());
}

#[test]
fn dropouts_of_a_graph_and_seeds_draw_differently() {
    let model = |scope: &Scope, x: &Tensor| vec![("a", scope.dropout(x, 0.5)), ("b", scope.dropout(x, 0.5))];
    let (first, second) = (run_all(DType::F32, 25, 1, model), run_all(DType::F32, 25, 2, model));
    let masks = [&first[0]["a"], &first[0]["b"], &second[0]["a"], &second[0]["b"]].map(zeros);
    for (n, a) in masks.iter().enumerate() {
        for b in &masks[n + 1..] {
            let same = a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len() as f64;
            assert!((same - 0.5).abs() < 0.05, "{same}");
        }
    }
}

#[test]
fn dropout_fuses_before_and_after_products_and_norms() {
    let weight = |scope: &Scope| scope.weight("weight", &[17.into(), 25.into()]);
    let after = |scope: &Scope, x: &Tensor| vec![("out", scope.dropout(&x.linear(&weight(scope), None), RATIO))];
    let before = |scope: &Scope, x: &Tensor| vec![("out", scope.dropout(x, RATIO).linear(&weight(scope), None))];
    let norm = |scope: &Scope, x: &Tensor| vec![("out", scope.dropout(&x.normalize(1e-5), RATIO))];
    let scope = Scope::new().with_mode(Mode::Train);
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 25.into()]);
    let outputs = after(&scope, &x);
    assert_eq!(plan(&scope.finish(&outputs).unwrap()).unwrap().steps.len(), 1);
    for dtype in [DType::F32, DType::F16] {
        for (result, masked, tolerance) in [
            (run_all(dtype, 25, 5, after), true, Tolerance::SINGLE),
            (run_all(dtype, 25, 5, before), false, tolerance(Kernel::Wgpu, [dtype])),
            (run_all(dtype, 25, 5, norm), true, Tolerance::SINGLE),
        ] {
            agree(&result, tolerance);
            for actual in result[1..].iter().filter(|_| masked) {
                assert_eq!(zeros(&actual["out"]), zeros(&result[0]["out"]));
            }
        }
    }
}

/// Three parts of 25 columns, of which the last has a norm.
fn joined(scope: &Scope, x: &Tensor) -> Tensor {
    scope.concat(&[&x.silu(), x, &(x * &x.normalize(1e-5))], 1)
}

#[test]
fn pointwise_operators_behind_a_concatenation_are_part_of_the_norm_before_it() {
    type Model = fn(&Scope, &Tensor) -> Tensor;
    let dropped: Model = |scope, x| scope.dropout(&joined(scope, x), RATIO);
    let scaled: Model =
        |scope, x| &(&joined(scope, x) * &scope.weight("factor", &[75.into()])).tanh() - &joined(scope, x).abs();
    for (model, masked) in [(dropped, true), (scaled, false)] {
        let outputs = |scope: &Scope, x: &Tensor| vec![("out", model(scope, x))];
        let scope = Scope::new().with_mode(Mode::Train);
        let x = scope.input("x", DType::F32, &[scope.size("rows"), 25.into()]);
        let outputs_of_x = outputs(&scope, &x);
        let plan = plan(&scope.finish(&outputs_of_x).unwrap()).unwrap();
        assert_eq!(plan.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["layer_norm"]);
        for dtype in [DType::F32, DType::F16] {
            let results = run_all(dtype, 25, 5, outputs);
            agree(&results, Tolerance::SINGLE);
            for actual in results[1..].iter().filter(|_| masked) {
                assert_eq!(zeros(&actual["out"]), zeros(&results[0]["out"]));
            }
        }
    }
}

#[test]
fn a_layer_that_learns_drops_its_output() {
    let config = |ratio: f32| -> StuConfig {
        serde_json::from_value(json!({
            "embedding_dim": 25, "num_heads": 2, "hidden_dim": 6, "attention_dim": 5, "output_dropout_ratio": ratio,
        }))
        .unwrap()
    };
    let layer = |ratio: f32, mode: Mode| {
        let scope = Scope::new().with_mode(mode);
        let rows = scope.lengths("lengths", scope.size("samples"));
        let x = scope.input("x", DType::F32, &[rows.total.clone(), 25.into()]);
        let input = StuInput { x, rows, num_targets: None, max_seq_len: SeqLen::Fixed(9) };
        let out = StuLayer { config: config(ratio) }.forward(&scope, &input);
        scope.finish(&[("out", out)]).unwrap()
    };
    let inputs: Tensors = [
        ("lengths".to_owned(), HostTensor::lengths(&[4, 0, 9, 1])),
        ("x".to_owned(), Noise::new(5, "x").floats(DType::F32, &[14, 25], 1.5)),
        ("seed".to_owned(), HostTensor::i64(vec![], &[99]).unwrap()),
    ]
    .into();
    let graphs = [layer(0.4, Mode::Train), layer(0.4, Mode::Eval), layer(0.0, Mode::Train)];
    let kernels = graphs.each_ref().map(|graph| plan(graph).unwrap().steps.len());
    assert_eq!(kernels, [kernels[1]; 3], "dropout takes no kernel");
    let parameters: Tensors = graphs[0]
        .parameters()
        .into_iter()
        .map(|p| (p.name.clone(), Noise::new(3, &p.name).floats(p.dtype, &p.shape, 0.4)))
        .collect();
    let [learns, used, without] = graphs.map(|graph| {
        let takes = |name: &str| graph.ids().any(|id| graph.node(id).unwrap().op.attributes()["name"] == name);
        let mut inputs = inputs.clone();
        inputs.retain(|name, _| takes(name));
        let mut results = vec![oracle(&graph, &inputs, &parameters).unwrap()];
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
            results.push(run(&mut session, &inputs).unwrap());
        }
        agree(&results, Tolerance::SINGLE);
        results.swap_remove(0)["out"].to_f64()
    });
    assert_eq!(used, without);
    assert!(learns.iter().zip(&used).filter(|(a, b)| (*a - *b).abs() > 1e-3).count() > used.len() / 2);
}
