//! A model cut into a sparse and a dense part: each lowered, stored and placed by itself, together the whole.

use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor};
use rewire_graph_rewrite::plan::{Plan, Source};
use rewire_graph_rewrite::split::{JoinError, Parts, join, lookups, module, split};
use rewire_runtime::{Inputs, Kernel, Model, Session};
use rewire_tests::backend::{Tensors, gpu, options, oracle, plan, run};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;

/// Bags of ids and one id a sample, their rows and an MLP; also the rows themselves.
fn model() -> GraphCase {
    let scope = Scope::new();
    let bags = scope.lengths("lengths", scope.size("samples"));
    let ids = scope.input("ids", DType::I64, std::slice::from_ref(&bags.total));
    let item = scope.input("item", DType::I64, std::slice::from_ref(&bags.batch));
    let (history, target) = scope.module("embeddings", |scope| {
        let table = scope.parameter("table", F32, &[23.into(), 6.into()]);
        (table.gather(&ids), table.gather(&item))
    });
    let weighted = &history * &target.jagged_broadcast(&bags);
    let parts = scope.concat(&[&weighted, &history], 1);
    let y = linear(&scope, "a", &parts, 9).relu();
    let y = linear(&scope, "b", &y, 1).sigmoid();
    let graph = scope.finish(&[("y", y), ("target", target)]).unwrap();
    let lengths = [3i64, 0, 5, 1];
    let integers = |name: &str, count: usize| Noise::new(4, name).integers(DType::I64, &[count], 0, 23);
    let floats = |name: &str, shape: &[usize]| (name.to_owned(), Noise::new(4, name).floats(F32, shape, 1.0));
    GraphCase {
        graph,
        inputs: [
            ("lengths".to_owned(), HostTensor::lengths(&lengths)),
            ("ids".to_owned(), integers("ids", 9)),
            ("item".to_owned(), integers("item", 4)),
        ]
        .into(),
        parameters: [
            floats("embeddings.table", &[23, 6]),
            floats("a.weight", &[9, 12]),
            floats("a.bias", &[9]),
            floats("b.weight", &[1, 9]),
            floats("b.bias", &[1]),
        ]
        .into(),
    }
}

fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    scope.module(name, |scope| {
        x.linear(&scope.weight("weight", &[out.into(), x.width().into()]), Some(&scope.weight("bias", &[out.into()])))
    })
}

fn parameters(plan: &Plan) -> Vec<&str> {
    let names = plan.buffers.iter().filter_map(|buffer| match &buffer.source {
        Source::Parameter(name) => Some(name.as_str()),
        _ => None,
    });
    names.collect()
}

fn load(graph: &Graph, parameters: &Tensors, kernel: Kernel) -> Session {
    let stored = serde_json::to_string(&plan(graph).unwrap()).unwrap();
    let plan: Plan = serde_json::from_str(&stored).unwrap();
    Model::load(plan, parameters, options(kernel).unwrap()).unwrap().session()
}

/// Both parts, one after the other, on the given kernels.
fn run_parts(case: &GraphCase, parts: &Parts, kernels: [Kernel; 2]) -> Results {
    let [mut first, mut second] = [(&parts.first, kernels[0]), (&parts.second, kernels[1])]
        .map(|(part, kernel)| load(part, &case.parameters, kernel));
    let handed = run(&mut first, &case.inputs).unwrap();
    let mut inputs: Tensors = case.inputs.clone();
    inputs.extend(handed.iter().map(|(name, tensor)| (name.clone(), tensor.clone())));
    let mut results = run(&mut second, &inputs).unwrap();
    results.extend(handed.into_iter().filter(|(name, _)| !parts.boundary.contains(name)));
    results
}

#[test]
fn the_parts_compute_what_the_whole_computes() {
    let case = model();
    let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    let parts = split(&case.graph, lookups).unwrap();
    let mut kernels = vec![[Kernel::Cpu, Kernel::Cpu]];
    if gpu().is_some() {
        kernels.push([Kernel::Cpu, Kernel::Wgpu]);
    }
    for kernels in kernels {
        let found = differences(&run_parts(&case, &parts, kernels), &expected, Tolerance::SINGLE);
        assert!(found.is_empty(), "{kernels:?}: {found:?}");
    }
}

#[test]
fn ids_belong_to_the_part_that_reads_them() {
    let case = model();
    let parts = split(&case.graph, lookups).unwrap();
    let ids =
        |graph: &Graph| -> Vec<String> { plan(graph).unwrap().shapes.ids.into_iter().map(|ids| ids.input).collect() };
    assert_eq!(ids(&parts.first), ["ids", "item"]);
    assert!(ids(&parts.second).is_empty());
    assert_eq!(ids(&join(&parts).unwrap()), ["ids", "item"]);
    let mut inputs = case.inputs.clone();
    inputs.insert("item".to_owned(), HostTensor::i64(vec![4], &[0, 22, 23, 0]).unwrap());
    let error = run(&mut load(&parts.first, &case.parameters, Kernel::Cpu), &inputs).unwrap_err();
    assert_eq!(error, "run: input `item`: expected 0 to 22, the rows of the table, got 23 at element 2");
}

#[test]
fn tables_belong_to_the_first_part_alone() {
    let case = model();
    for parts in [split(&case.graph, lookups).unwrap(), split(&case.graph, module("embeddings")).unwrap()] {
        let (first, second) = (plan(&parts.first).unwrap(), plan(&parts.second).unwrap());
        assert_eq!(parameters(&first), ["embeddings.table"]);
        assert!(!parameters(&second).contains(&"embeddings.table"), "{:?}", parameters(&second));
        assert_eq!(parts.boundary.len(), 2);
    }
}

#[test]
fn joined_parts_are_the_whole_again() {
    let case = model();
    let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    let joined = join(&split(&case.graph, lookups).unwrap()).unwrap();
    assert_eq!(joined.counts(), case.graph.counts());
    let case = GraphCase { graph: joined, ..case };
    let found = differences(&oracle(&case.graph, &case.inputs, &case.parameters).unwrap(), &expected, Tolerance::EXACT);
    assert!(found.is_empty(), "{found:?}");
    case.check();
}

#[test]
fn a_part_is_split_again_and_joined_in_order() {
    let case = model();
    let names = |graph: &Graph| graph.outputs().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let parts = split(&case.graph, lookups).unwrap();
    let linear = |graph: &Graph, id| graph.node(id).is_some_and(|node| node.path == "a");
    let again = split(&parts.second, linear).unwrap();
    assert!(again.boundary.iter().all(|name| !parts.boundary.contains(name)), "{:?}", again.boundary);
    assert!(!again.boundary.is_empty());
    let second = join(&again).unwrap();
    assert_eq!(names(&second), names(&parts.second));
    let whole = join(&Parts { second, ..parts }).unwrap();
    assert_eq!(names(&whole), names(&case.graph));
    let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    let actual = oracle(&whole, &case.inputs, &case.parameters).unwrap();
    assert!(differences(&actual, &expected, Tolerance::EXACT).is_empty());
}

#[test]
fn a_part_may_hold_nothing_or_everything() {
    let case = model();
    let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    for all in [false, true] {
        let parts = split(&case.graph, |_, _| all).unwrap();
        assert!(parts.boundary.is_empty());
        let whole = oracle(&join(&parts).unwrap(), &case.inputs, &case.parameters).unwrap();
        assert!(differences(&whole, &expected, Tolerance::EXACT).is_empty());
    }
}

#[test]
fn parts_of_different_graphs_do_not_join() {
    let one = split(&model().graph, lookups).unwrap();
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 3.into()]);
    let other = split(&scope.finish(&[("y", x.silu())]).unwrap(), lookups).unwrap();
    let mixed = Parts { second: other.second, ..one.clone() };
    assert!(matches!(join(&mixed), Err(JoinError::Sizes { .. })));
    let torn = Parts { boundary: vec!["nothing".to_owned()], ..one };
    assert!(matches!(join(&torn), Err(JoinError::Boundary { .. })));
}

#[test]
fn unknown_inputs_are_ignored_by_the_parts() {
    let case = model();
    let parts = split(&case.graph, lookups).unwrap();
    let mut first = load(&parts.first, &case.parameters, Kernel::Cpu);
    let inputs: Inputs = case.inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    assert!(first.run(&inputs.with("other", HostTensor::lengths(&[1]))).is_ok());
}
