//! Unused rows are not computed, and the others have the same bits.

use rewire_graph::op::ReduceOp;
use rewire_graph::{DType, Graph, HostTensor, Mode, Ragged, Scope, Seed, Tensor, differentiate};
use rewire_graph_rewrite::cost::HardwareModel;
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::passes::{Pipeline, SelectRows};
use rewire_hstu::modules::{StuConfig, StuInput, StuLayer};
use rewire_hstu::ops::{SeqLen, last_rows};
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, kernels, load_plan, options, oracle, run};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::noise::Noise;
use serde_json::{Value, json};

const WIDTH: usize = 25;

/// Rows and targets of samples.
const BATCHES: [&[(i64, i64)]; 5] =
    [&[(23, 5), (70, 1), (0, 0), (9, 9)], &[(33, 0), (4, 0)], &[(1, 1)], &[(0, 0), (0, 0)], &[(130, 67), (65, 64)]];

fn layer(changes: &Value) -> StuLayer {
    let mut config = json!({"embedding_dim": WIDTH, "num_heads": 2, "hidden_dim": 6, "attention_dim": 5});
    let object = config.as_object_mut().unwrap();
    object.extend(changes.as_object().unwrap().clone());
    StuLayer { config: serde_json::from_value::<StuConfig>(config).unwrap() }
}

/// Two layers, and an operator that reads rows of the last one.
fn model(changes: &Value, mode: Mode, read: impl Fn(&Scope, &Tensor, &Ragged, &Ragged) -> Tensor) -> Graph {
    let scope = Scope::new().with_mode(mode);
    let batch = scope.size("samples");
    let (rows, targets) = (scope.lengths("lengths", batch.clone()), scope.lengths("targets", batch));
    let mut x = scope.input("x", DType::F32, &[rows.total.clone(), WIDTH.into()]);
    for n in 0..2 {
        let num_targets = Some(targets.lengths.clone());
        let input = StuInput { x, rows: rows.clone(), num_targets, max_seq_len: SeqLen::Fixed(9) };
        x = scope.module(&n.to_string(), |scope| layer(changes).forward(scope, &input));
    }
    let head = scope.weight("head", &[3.into(), WIDTH.into()]);
    let out = read(&scope, &x, &rows, &targets).linear(&head, None).sigmoid();
    scope.finish(&[("out", out)]).unwrap()
}

fn of_targets(_: &Scope, x: &Tensor, rows: &Ragged, targets: &Ragged) -> Tensor {
    x.jagged_tail(rows, targets)
}

fn values(graph: &Graph, samples: &[(i64, i64)]) -> (Tensors, Tensors) {
    let column = |of: fn(&(i64, i64)) -> i64| HostTensor::lengths(&samples.iter().map(of).collect::<Vec<_>>());
    let total: i64 = samples.iter().map(|(rows, _)| rows).sum();
    let mut inputs: Tensors = [
        ("lengths".to_owned(), column(|sample| sample.0)),
        ("targets".to_owned(), column(|sample| sample.1)),
        ("x".to_owned(), Noise::new(5, "x").floats(DType::F32, &[total as usize, WIDTH], 1.5)),
        ("seed".to_owned(), HostTensor::i64(vec![], &[-77]).unwrap()),
    ]
    .into();
    let takes = |name: &str| graph.ids().any(|id| graph.node(id).unwrap().op.attributes()["name"] == name);
    inputs.retain(|name, _| takes(name));
    let parameters = graph.parameters().into_iter();
    let value = |shape: &[usize], name: &str| Noise::new(3, name).floats(DType::F32, shape, 0.4);
    (inputs, parameters.map(|p| (p.name.clone(), value(&p.shape, &p.name))).collect())
}

/// Results of a graph for all batches, rewritten by a pipeline, on some kernels.
fn results(graph: &Graph, pipeline: &Pipeline, on: &[Kernel]) -> Vec<Vec<Results>> {
    let (rewritten, _) = pipeline.run(graph.clone()).unwrap();
    let batches = BATCHES.map(|samples| values(graph, samples));
    let mut results = vec![];
    for options in on.iter().copied().filter_map(options) {
        let mut session = load_plan(lower(&rewritten).unwrap(), &batches[0].1, options).unwrap();
        results.push(batches.iter().map(|(inputs, _)| run(&mut session, inputs).unwrap()).collect());
    }
    results
}

/// Where one more kernel costs nothing, products are split.
const SPLITTING: HardwareModel = HardwareModel { launch: 0.0, ..HardwareModel::TYPICAL };

fn selected(graph: &Graph, machine: HardwareModel) -> Graph {
    let pipeline = Pipeline::new(vec![Box::new(SelectRows)]).for_machine(machine);
    let (selected, report) = pipeline.run(graph.clone()).unwrap();
    assert!(!report.passes[0].applications.is_empty(), "{}", graph.text());
    selected
}

/// How many operators of a name have as many rows as the output.
fn count(graph: &Graph, op: &str) -> usize {
    let (_, out) = graph.outputs()[0];
    let rows = &graph.ty(out).unwrap().shape[0];
    let nodes = graph.ids().filter_map(|id| graph.node(id)).filter(|node| node.op.name() == op);
    nodes.filter(|node| node.types[0].shape.first() == Some(rows)).count()
}

/// Kernels compute the same with fewer rows as with all, bit for bit.
fn hold(graph: &Graph, of: &str, on: &[Kernel]) {
    let whole = Pipeline::default().without("select_rows").unwrap();
    let expected = results(graph, &whole, on);
    for pipeline in [Pipeline::default(), Pipeline::default().for_machine(SPLITTING)] {
        for (backend, (actual, expected)) in results(graph, &pipeline, on).iter().zip(&expected).enumerate() {
            for ((actual, expected), samples) in actual.iter().zip(expected).zip(BATCHES) {
                let wrong = differences(actual, expected, Tolerance::EXACT);
                assert!(wrong.is_empty(), "{of} {samples:?}, backend {backend}: {}", wrong.join("\n"));
            }
        }
    }
}

#[test]
fn the_last_layer_computes_targets_alone_to_the_bit() {
    for (number, changes) in [
        json!({}),
        json!({"use_group_norm": true, "contextual_seq_len": 2, "max_attn_len": 7, "causal": false}),
        json!({"sla_k1": 4, "sla_k2": 3, "target_aware": false}),
    ]
    .into_iter()
    .enumerate()
    {
        let graph = model(&changes, Mode::Eval, of_targets);
        // The head; the output of the layer; gate and queries.
        let counts = [graph.clone(), selected(&graph, HardwareModel::TYPICAL), selected(&graph, SPLITTING)]
            .map(|graph| [count(&graph, "weighted_sum"), count(&graph, "matmul")]);
        assert_eq!(counts, [[0, 1], [1, 2], [1, 4]]);
        hold(&graph, &changes.to_string(), kernels(number));
    }
}

#[test]
fn the_last_rows_of_samples_are_enough() {
    let graph = model(&json!({}), Mode::Eval, |scope, x, rows, _| last_rows(scope, x, rows));
    assert_ne!(selected(&graph, HardwareModel::TYPICAL).text(), graph.text());
    hold(&graph, "last rows", kernels(0));
}

#[test]
fn what_learns_drops_the_same_elements() {
    let graph = model(&json!({"output_dropout_ratio": 0.4}), Mode::Train, of_targets);
    let fewer = selected(&graph, SPLITTING);
    assert!(count(&fewer, "dropout") > 0, "{}", fewer.text());
    for samples in BATCHES {
        let (inputs, parameters) = values(&graph, samples);
        let [actual, expected] = [&fewer, &graph].map(|graph| oracle(graph, &inputs, &parameters).unwrap());
        let wrong = differences(&actual, &expected, Tolerance::EXACT);
        assert!(wrong.is_empty(), "{samples:?}: {}", wrong.join("\n"));
    }
}

#[test]
fn gradients_of_the_rest_are_not_computed() {
    let graph = model(&json!({"output_dropout_ratio": 0.4}), Mode::Train, of_targets);
    let parameters = graph.parameters();
    let wanted: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).chain(["x"]).collect();
    let [fewer, graph] =
        [SelectRows.select(&graph).unwrap(), graph].map(|graph| differentiate(&graph, &[("out", Seed::One)], &wanted));
    let [fewer, graph] = [fewer.unwrap(), graph.unwrap()];
    let expected = BATCHES.map(|samples| {
        let (inputs, parameters) = values(&graph, samples);
        oracle(&graph, &inputs, &parameters).unwrap()
    });
    // Adapters compile these shaders where `REWIRE_TEST_ALL` is set.
    for actual in results(&fewer, &Pipeline::default(), kernels(1)) {
        for ((actual, expected), samples) in actual.iter().zip(&expected).zip(BATCHES) {
            let wrong = differences(actual, expected, Tolerance { relative: 1e-5, floor: 1.0 });
            assert!(wrong.is_empty(), "{samples:?}: {}", wrong.join("\n"));
        }
    }
}

#[test]
fn rows_that_others_read_and_rows_that_cost_nothing_stay() {
    let both = model(&json!({}), Mode::Eval, |_, x, rows, targets| {
        let all = x.segment_reduce(ReduceOp::Sum, rows);
        x.jagged_tail(rows, targets) + all.jagged_broadcast(targets)
    });
    let scope = Scope::new();
    let batch = scope.size("samples");
    let (rows, kept) = (scope.lengths("lengths", batch.clone()), scope.lengths("targets", batch));
    let x = scope.input("x", DType::F32, &[rows.total.clone(), WIDTH.into()]);
    let pointwise = scope.finish(&[("out", x.silu().jagged_tail(&rows, &kept))]).unwrap();
    for graph in [both, pointwise] {
        let (same, report) = Pipeline::new(vec![Box::new(SelectRows)]).run(graph.clone()).unwrap();
        assert_eq!(same.text(), graph.text(), "{report}");
    }
}
