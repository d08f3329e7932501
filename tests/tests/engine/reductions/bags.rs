//! Sums over the rows of a sample: the patterns that fuse, and that every backend agrees.

use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor};
use rewire_graph_rewrite::plan::Step;
use rewire_graph_rewrite::schedule::Schedule;
use rewire_hstu::modules::ranking::DinConfig;
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, oracle, plan, run, session};
use rewire_tests::compare::{Tolerance, differences};
use serde_json::json;

const ROWS: usize = 11;
const WIDTH: usize = 6;

/// Sums, means and softmaxes of table rows and a DIN attention to them.
fn model(pick: impl Fn([Tensor; 4]) -> Vec<(&'static str, Tensor)>) -> Graph {
    let scope = Scope::new();
    let bags = scope.lengths("lengths", scope.size("samples"));
    let ids = scope.input("ids", DType::I64, std::slice::from_ref(&bags.total));
    let query = scope.input("query", DType::F32, &[bags.batch.clone(), WIDTH.into()]);
    let table = scope.parameter("table", DType::F32, &[ROWS.into(), WIDTH.into()]);
    let din: DinConfig = serde_json::from_value(json!({ "attn_mlp": { "hidden_units": [5] } })).unwrap();
    let history = table.gather(&ids);
    let tensors = [
        table.embedding_bag_sum(&ids, &bags),
        table.embedding_bag_mean(&ids, &bags),
        history.jagged_softmax(&bags),
        din.forward(&scope, &query, &history, &bags),
    ];
    let outputs = pick(tensors);
    scope.finish(&outputs).unwrap()
}

fn values(shape: &[usize], scale: f64) -> HostTensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|n| ((n * 37 + 11) % 23) as f64 * scale - 0.7).collect();
    HostTensor::from_f64(DType::F32, shape.to_vec(), &values).unwrap()
}

fn inputs(lengths: &[i64]) -> Tensors {
    let total = lengths.iter().sum::<i64>() as usize;
    let ids: Vec<f64> = (0..total).map(|n| ((n * 7 + 3) % ROWS) as f64).collect();
    [
        ("lengths".to_owned(), HostTensor::lengths(lengths)),
        ("ids".to_owned(), HostTensor::from_f64(DType::I64, vec![total], &ids).unwrap()),
        ("query".to_owned(), values(&[lengths.len(), WIDTH], 0.06)),
    ]
    .into()
}

#[test]
fn a_bag_is_one_sum_over_rows() {
    for mean in [false, true] {
        let graph = model(|[sum, average, ..]| vec![("out", if mean { average } else { sum })]);
        let plan = plan(&graph).unwrap();
        let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(plan.steps.len(), 1, "{names:?}");
        assert!(matches!(plan.steps[0].computation.schedule(), Some(Schedule::SegmentedReduce(_))), "{names:?}");
    }
}

/// Rows of a table that a matrix of ids names, weighted and added by sample.
fn fields(fields: usize, width: usize) -> Graph {
    let scope = Scope::new();
    let samples = scope.size("samples");
    let ids = scope.input("ids", DType::I64, &[samples.clone(), fields.into()]);
    let weights = scope.input("weights", DType::F32, &[samples, fields.into(), 1.into()]);
    let table = scope.parameter("table", DType::F32, &[ROWS.into(), width.into()]);
    let rows = table.gather(&ids);
    scope.finish(&[("sum", rows.sum(1)), ("weighted", (&rows * &weights).sum(1))]).unwrap()
}

#[test]
fn rows_that_ids_name_are_added_as_rows() {
    for (fields_of, width) in [(2, 3), (20, 16), (7, 50), (70, 65)] {
        let graph = fields(fields_of, width);
        let plan = plan(&graph).unwrap();
        let is_fold = |step: &Step| matches!(step.computation.schedule(), Some(Schedule::SegmentedReduce(_)));
        assert!(plan.steps.iter().all(is_fold), "{fields_of} {width}");
        let parameters: Tensors = [("table".to_owned(), values(&[ROWS, width], 0.05))].into();
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
            for samples in [0, 1, 13] {
                let ids: Vec<f64> = (0..samples * fields_of).map(|n| ((n * 7 + 3) % ROWS) as f64).collect();
                let inputs: Tensors = [
                    ("ids".to_owned(), HostTensor::from_f64(DType::I64, vec![samples, fields_of], &ids).unwrap()),
                    ("weights".to_owned(), values(&[samples, fields_of, 1], 0.06)),
                ]
                .into();
                let expected = oracle(&graph, &inputs, &parameters).unwrap();
                let actual = run(&mut session, &inputs).unwrap();
                let differences = differences(&actual, &expected, Tolerance::SINGLE);
                assert!(differences.is_empty(), "{kernel} {samples} {fields_of} {width}\n{}", differences.join("\n"));
            }
        }
    }
}

#[test]
fn backends_compute_what_the_interpreter_computes() {
    let graph =
        model(|[sum, mean, softmax, din]| vec![("sum", sum), ("mean", mean), ("softmax", softmax), ("din", din)]);
    let parameters: Tensors = [
        ("table", vec![ROWS, WIDTH]),
        ("mlp.mlp.0.perceptron.0.weight", vec![5, 4 * WIDTH]),
        ("mlp.mlp.0.perceptron.0.bias", vec![5]),
        ("linear.weight", vec![1, 5]),
        ("linear.bias", vec![1]),
    ]
    .map(|(name, shape)| (name.to_owned(), values(&shape, 0.05)))
    .into();
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
        for lengths in [vec![3, 0, 1, 5], vec![0, 0], vec![], vec![1], vec![700, 0, 2, 129]] {
            let inputs = inputs(&lengths);
            let expected = oracle(&graph, &inputs, &parameters).unwrap();
            let actual = run(&mut session, &inputs).unwrap();
            let differences = differences(&actual, &expected, Tolerance::SINGLE);
            assert!(differences.is_empty(), "{kernel} {lengths:?}\n{}", differences.join("\n"));
        }
    }
}
