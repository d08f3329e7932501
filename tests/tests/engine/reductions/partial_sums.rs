//! Sums over a dynamic number of rows, in parts; and the operands of matmuls on matrix hardware.

use rewire_graph::{DType, Scope, Tensor};
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::prove::confine;
use rewire_runtime::Kernel;
use rewire_tests::backend::{oracle, plan};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::Tolerance;

/// None, one, fewer than parts, as many, numbers that parts do not divide.
const ROWS: [usize; 8] = [0, 1, 5, 8, 64, 77, 301, 1367];

/// Half a unit in the last place of a half, twice.
const F16_TOLERANCE: Tolerance = Tolerance { relative: 1e-3, floor: 1.0 };

/// Compares the result of `trace` with the interpreter, checks its kernels, and that its indices are proven.
fn hold(trace: impl Fn(&Scope, &dyn Fn(&str, &[usize]) -> Tensor) -> Vec<(&'static str, Tensor)>, expected: &[&str]) {
    for (seed, rows) in (0..).zip(ROWS) {
        let scope = Scope::new();
        let total = scope.size("rows");
        let input = |name: &str, inner: &[usize]| {
            let shape = std::iter::once(total.clone()).chain(inner.iter().map(|&n| n.into()));
            scope.input(name, DType::F32, &shape.collect::<Vec<_>>())
        };
        let outputs = trace(&scope, &input);
        let case = GraphCase::random(scope.finish(&outputs).unwrap(), &[("rows", rows)], seed);
        assert_eq!(case.steps(), expected, "{}", case.graph.text());
        assert!(confine(&mut plan(&case.graph).unwrap()).unwrap().is_empty(), "{}", case.graph.text());
        case.check();
    }
}

#[test]
fn products_over_rows_are_summed_in_parts() {
    for (m, n) in [(3, 5), (25, 50), (64, 33)] {
        let product = |_: &Scope, input: &dyn Fn(&str, &[usize]) -> Tensor| {
            vec![("y", input("a", &[m]).transpose(0, 1).matmul(&input("b", &[n])).relu())]
        };
        hold(product, &["jagged_jagged_matmul", "reduce"]);
        let computed = |_: &Scope, input: &dyn Fn(&str, &[usize]) -> Tensor| {
            let (a, b) = (input("a", &[m]), input("b", &[n]));
            vec![
                ("right", a.transpose(0, 1).matmul(&(&b * &b.sigmoid()))),
                ("left", (&a * 0.5).transpose(0, 1).matmul(&b)),
            ]
        };
        hold(computed, &["jagged_jagged_matmul", "reduce", "jagged_jagged_matmul", "reduce"]);
    }
}

#[test]
fn rows_are_summed_in_parts() {
    // 3,000 columns are summed in 43 parts.
    for inner in [&[25][..], &[50], &[2, 3], &[3000]] {
        let sum = |_: &Scope, input: &dyn Fn(&str, &[usize]) -> Tensor| vec![("y", input("x", inner).sum(0).exp())];
        hold(sum, &["segment_sum", "reduce"]);
    }
}

#[test]
fn sums_of_one_tensor_are_parts_of_one_kernel() {
    let sums = |_: &Scope, input: &dyn Fn(&str, &[usize]) -> Tensor| {
        let (x, y) = (input("x", &[24]), input("y", &[24]));
        vec![("of_x", x.sum(0)), ("of_both", (&x * &y).sum(0))]
    };
    hold(sums, &["segment_sum", "reduce", "reduce"]);
}

#[test]
fn sums_that_keep_a_device_busy_stay_whole() {
    let steps = |trace: &dyn Fn(&Scope) -> Tensor| {
        let scope = Scope::new();
        let y = trace(&scope);
        let plan = plan(&scope.finish(&[("y", y)]).unwrap()).unwrap();
        plan.steps.into_iter().map(|step| step.name).collect::<Vec<_>>()
    };
    let input =
        |scope: &Scope, name: &str, width: usize| scope.input(name, DType::F32, &[scope.size("rows"), width.into()]);
    let wide = |scope: &Scope| input(scope, "a", 2048).transpose(0, 1).matmul(&input(scope, "b", 4096));
    assert_eq!(steps(&wide), ["matmul"]);
    assert_eq!(steps(&|scope| scope.input("x", DType::F32, [300, 8]).sum(0)), ["reduce"]);
    assert_eq!(steps(&|scope| scope.input("x", DType::F32, &[scope.size("rows")]).sum(0)), ["reduce"]);
}

#[test]
fn the_largest_of_rows_are_found_whole() {
    for inner in [&[25][..], &[2, 3]] {
        let most = |_: &Scope, input: &dyn Fn(&str, &[usize]) -> Tensor| {
            let x = input("x", inner);
            vec![("largest", (&x * &x).max(0)), ("least", x.min(0) + 1.0)]
        };
        hold(most, &["reduce"]);
    }
}

/// A product of two matrices may be beyond f16 where it is not a half in the graph.
#[test]
fn operands_that_are_halves_are_kept_for_matrix_hardware() {
    let graph = |dtype: DType| {
        let scope = Scope::new();
        let total = scope.size("rows");
        let [x, u] = ["x", "u"].map(|name| scope.input(name, DType::F16, &[total.clone(), 48.into()]));
        let weight = scope.parameter("weight", DType::F16, [48, 32]);
        let y = (&x * &u).cast(dtype).matmul(&weight);
        scope.finish(&[("y", y)]).unwrap()
    };
    let steps = |dtype: DType, storage: DType| {
        let (graph, _) = Pipeline::default().for_storage(storage).run(graph(dtype)).unwrap();
        lower(&graph).unwrap().steps.into_iter().map(|step| step.name).collect::<Vec<_>>()
    };
    assert_eq!(steps(DType::F32, DType::F32), ["matmul"]);
    assert_eq!(steps(DType::F16, DType::F32), ["pointwise", "matmul"]);
    assert_eq!(steps(DType::F32, DType::F16), ["pointwise", "matmul"]);
    let case = GraphCase::random(graph(DType::F16), &[("rows", 37)], 3);
    let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        assert_eq!(case.differences(kernel, &expected, F16_TOLERANCE), Ok(vec![]), "{kernel}");
    }
}
