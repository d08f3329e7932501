//! Computations on parameters that run once at loading: the operators that move there, and that every backend agrees.

use rewire_graph::op::Window;
use rewire_graph::{DType, Scope, Tensor};
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::plan::{Plan, Source};
use rewire_graph_rewrite::schedule::Schedule;
use rewire_tests::backend::plan;
use rewire_tests::case::GraphCase;

const F32: DType = DType::F32;
const SIZES: &[(&str, usize)] = &[("rows", 9)];

fn case(model: impl Fn(&Scope) -> Vec<(&'static str, Tensor)>) -> GraphCase {
    let scope = Scope::new();
    let outputs = model(&scope);
    GraphCase::random(scope.finish(&outputs).unwrap(), SIZES, 11)
}

/// Batch norm of axis `axis` with the parameters of module `name`.
fn batch_norm(scope: &Scope, name: &str, x: &Tensor, axis: usize) -> Tensor {
    let mut shape = vec![1.into(); x.rank() - axis];
    shape[0] = x.dim(axis);
    let [mean, var, weight, bias] = ["mean", "var", "weight", "bias"]
        .map(|part| scope.parameter(&format!("{name}.{part}"), F32, &[x.dim(axis)]).reshape(&shape));
    &(&(&(x - &mean) / &(&var + 1e-3).sqrt()) * &weight) + &bias
}

/// Parameters that a run reads, and values computed from parameters.
fn resident(plan: &Plan) -> usize {
    let read = |n: usize| {
        let id = rewire_graph_rewrite::plan::BufferId(n as u32);
        plan.steps.iter().any(|step| step.reads.contains(&rewire_graph_rewrite::plan::Binding::Buffer(id)))
    };
    plan.buffers.iter().enumerate().filter(|(n, buffer)| buffer.source.is_resident() && read(*n)).count()
}

#[test]
fn batch_norm_becomes_part_of_a_linear_layer() {
    for bias in [false, true] {
        let case = case(|scope| {
            let x = scope.input("x", F32, &[scope.size("rows"), 7.into()]);
            let bias = bias.then(|| scope.parameter("a.bias", F32, &[25.into()]));
            let h = x.linear(&scope.parameter("a.weight", F32, &[25.into(), 7.into()]), bias.as_ref());
            vec![("y", batch_norm(scope, "bn", &h, 1).relu())]
        });
        let plan = plan(&case.graph).unwrap();
        assert_eq!(case.steps(), ["addmm"]);
        assert_eq!(resident(&plan), 2, "a weight and a bias");
        case.check();
    }
}

#[test]
fn batch_norm_becomes_part_of_a_convolution() {
    for (groups, kernel, bias) in [(1, 3, true), (2, 1, false), (4, 3, false)] {
        let case = case(|scope| {
            let x = scope.input("x", F32, &[scope.size("rows"), 4.into(), 6.into(), 5.into()]);
            let weight = scope.parameter("w", F32, &[8.into(), (4 / groups).into(), kernel.into(), kernel.into()]);
            let bias = bias.then(|| scope.parameter("b", F32, &[8.into()]));
            let window = Window { stride: [1, 2], padding: [1, 0], groups, ..Window::default() };
            let h = x.conv2d(&weight, bias.as_ref(), &window);
            vec![("y", batch_norm(scope, "bn", &h, 1).relu())]
        });
        let plan = plan(&case.graph).unwrap();
        assert_eq!(plan.steps.len(), 1, "{:?}", case.steps());
        assert!(matches!(plan.steps[0].computation.schedule(), Some(Schedule::Product(_))));
        assert_eq!(resident(&plan), 2, "a weight and a bias: {:?}", plan.steps[0]);
        case.check();
    }
}

#[test]
fn scales_that_are_not_a_channel_each_stay_behind_the_product() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 6.into()]);
        let h = x.linear(&scope.parameter("w", F32, &[6.into(), 6.into()]), None);
        let h = h.reshape(&[x.dim(0), 2.into(), 3.into()]);
        let scale = scope.parameter("scale", F32, &[2.into(), 1.into()]);
        let row = scope.input("row", F32, &[x.dim(0), 1.into(), 1.into()]);
        vec![("y", &(&h * &scale) + &row)]
    });
    assert_eq!(case.steps().len(), 1, "{:?}", case.steps());
    case.check();
}

#[test]
fn half_precision_weights_stay_in_half_precision() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 7.into()]);
        let h = x.linear(&scope.parameter("a.weight", DType::F16, &[25.into(), 7.into()]), None);
        vec![("y", batch_norm(scope, "bn", &h, 1))]
    });
    let plan = plan(&case.graph).unwrap();
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(resident(&plan), 3, "a weight, a scale and a shift");
    let weight = plan.buffers.iter().find(|buffer| buffer.source == Source::Parameter("a.weight".to_owned()));
    assert_eq!(weight.map(|buffer| buffer.dtype), Some(DType::F16));
    case.check();
}

#[test]
fn what_depends_on_parameters_alone_is_computed_at_load() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 5.into()]);
        let [a, b] = ["a", "b"].map(|name| scope.parameter(name, F32, &[5.into(), 5.into()]));
        let mixed = &a.matmul(&b).tanh() + &a.softmax(1);
        vec![("y", x.matmul(&mixed)), ("mixed", mixed)]
    });
    let plan = plan(&case.graph).unwrap();
    assert_eq!(case.steps(), ["matmul"]);
    assert!(!plan.load.is_empty());
    case.check();
}

#[test]
fn tables_are_not_computed_again() {
    let case = case(|scope| {
        let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
        let table = scope.parameter("table", DType::F16, &[40_000.into(), 4.into()]);
        vec![("y", (&table.cast(F32) * 2.0).gather(&ids))]
    });
    let plan = plan(&case.graph).unwrap();
    assert!(plan.load.is_empty(), "{:?}", plan.load);
    case.check();
}

#[test]
fn merged_layers_compute_what_single_ones_do() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 7.into()]);
        let linear = |name: &str, x: &Tensor, out: usize, bias: bool| {
            let bias = bias.then(|| scope.parameter(&format!("{name}.bias"), F32, &[out.into()]));
            x.linear(&scope.parameter(&format!("{name}.weight"), F32, &[out.into(), x.width().into()]), bias.as_ref())
        };
        let experts: Vec<Tensor> = (0..3)
            .map(|n| {
                let h = linear(&format!("e{n}.0"), &x, 10, true).relu();
                let h = linear(&format!("e{n}.1"), &h, 25, true).silu();
                linear(&format!("e{n}.2"), &h, 6, n == 1)
            })
            .collect();
        let gate = linear("gate", &x, 3, false).softmax(1);
        let stacked = scope.concat(&experts.iter().collect::<Vec<_>>(), 1);
        let mixed = experts.iter().enumerate().map(|(n, e)| &gate.slice(1, n, 1) * e).reduce(|a, b| &a + &b).unwrap();
        let narrow = linear("narrow", &x, 1, true).sigmoid();
        vec![("stacked", stacked), ("mixed", mixed), ("narrow", narrow)]
    });
    assert!(case.steps().len() <= 6, "{:?}", case.steps());
    case.check();
}

#[test]
fn operators_on_constants_are_folded() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows")]);
        let factor = &(&scope.scalar(F32, 3.0) * &scope.scalar(F32, 0.5)).exp() + 1.0;
        let zero = &scope.scalar(F32, 1.0) - &scope.scalar(F32, 1.0);
        vec![("y", &x * &factor), ("z", (&x + &zero).sigmoid())]
    });
    let (graph, report) = Pipeline::default().only("fold_constants").unwrap().run(case.graph.clone()).unwrap();
    assert_eq!(report.passes[0].applications.len(), 4);
    assert!(graph.text().contains("5.48168"), "{}", graph.text());
    case.check();
}

#[test]
fn changes_of_layout_that_change_nothing_are_removed() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 6.into()]);
        let part = x.permute(&[0, 1]).slice(1, 1, 4).slice(1, 1, 2).reshape(&[x.dim(0), 2.into()]);
        vec![("y", part.cast(F32).broadcast(&[x.dim(0), 2.into()]).sigmoid())]
    });
    let (graph, _) = Pipeline::default().only("clean_layout").unwrap().run(case.graph.clone()).unwrap();
    let live = graph.live();
    let names: Vec<&str> =
        graph.ids().filter(|id| live.contains(id)).filter_map(|id| Some(graph.node(id)?.op.name())).collect();
    assert_eq!(names, ["input", "sigmoid", "slice"], "{}", graph.text());
    case.check();
}

#[test]
fn parts_of_a_concatenation_are_read_where_they_come_from() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 6.into()]);
        let y = scope.input("y", F32, &[3.into(), 6.into()]);
        let columns = scope.concat(&[&x, &x.silu()], 1);
        let rows = scope.concat(&[&x, &y], 0);
        let parts = [columns.slice(1, 6, 6), columns.slice(1, 2, 3), columns.slice(1, 4, 4)];
        let [whole, inner, across] = parts.map(|part| part.sigmoid());
        vec![("whole", whole), ("inner", inner), ("across", across), ("rows", rows.slice(1, 1, 2))]
    });
    let (graph, report) = Pipeline::default().only("read_parts").unwrap().run(case.graph.clone()).unwrap();
    assert_eq!(report.passes[0].applications.len(), 2, "{}", graph.text());
    case.check();
}

/// Every pass keeps the meaning by itself.
#[test]
fn a_pipeline_may_leave_out_any_pass() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 7.into()]);
        let layer = |name: &str| {
            let h = x.linear(&scope.parameter(&format!("{name}.w"), F32, &[5.into(), 7.into()]), None);
            batch_norm(scope, name, &h, 1).relu()
        };
        vec![("y", &layer("a") * &layer("b"))]
    });
    let expected = rewire_tests::backend::oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    for pass in ["fold_affine", "merge_siblings", "precompute", "clean_layout", "read_parts", "fold_constants"] {
        for pipeline in [Pipeline::default().without(pass).unwrap(), Pipeline::default().only(pass).unwrap()] {
            let (graph, _) = pipeline.run(case.graph.clone()).unwrap();
            let actual = rewire_tests::backend::oracle(&graph, &case.inputs, &case.parameters).unwrap();
            let tolerance = rewire_tests::compare::Tolerance { relative: 1e-6, floor: 1.0 };
            let found = rewire_tests::compare::differences(&actual, &expected, tolerance);
            assert!(found.is_empty(), "{pass}: {found:?}");
        }
    }
}
