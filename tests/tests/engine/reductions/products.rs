//! Matmuls of operands with different ranks, and the operators around them.

use rewire_graph::{DType, Scope, Tensor};
use rewire_graph_rewrite::plan::Step;
use rewire_graph_rewrite::schedule::Schedule;
use rewire_tests::backend::plan;
use rewire_tests::case::GraphCase;

const F32: DType = DType::F32;

fn case(rows: usize, model: impl Fn(&Scope, &Tensor) -> Vec<(&'static str, Tensor)>) -> GraphCase {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 8.into()]);
    let outputs = model(&scope, &x);
    GraphCase::random(scope.finish(&outputs).unwrap(), &[("rows", rows)], 5)
}

#[test]
fn a_norm_goes_into_a_product_with_several_right_operands() {
    for rows in [3, 8, 70] {
        let case = case(rows, |scope, x| {
            let experts = scope.parameter("experts", F32, &[3.into(), 8.into(), 20.into()]);
            vec![("y", x.rms_norm(&scope.parameter("w", F32, &[8.into()]), 1e-6).matmul(&experts))]
        });
        assert_eq!(case.steps().len(), 1, "{:?}", case.steps());
        case.check();
    }
}

#[test]
fn reshaped_parts_are_not_the_whole() {
    let case = case(2, |scope, x| {
        let weight = |name: &str| scope.parameter(name, F32, &[8.into(), 8.into()]);
        let (a, b) = (x.matmul(&weight("a")), x.matmul(&weight("b")));
        let fixed = scope.parameter("h", F32, &[2.into(), 8.into()]).silu();
        let part = |start| fixed.slice(1, start, 4).reshape(&[4.into(), 2.into()]);
        vec![("joined", scope.concat(&[&part(0), &part(4)], 1)), ("a", a), ("b", b)]
    });
    // Parts are joined where siblings are merged.
    let steps = plan(&case.graph).unwrap().steps;
    let is_product = |step: &&Step| matches!(step.computation.schedule(), Some(Schedule::Product(_)));
    assert_eq!(steps.iter().filter(is_product).count(), 1);
    case.check();
}

#[test]
fn a_weight_made_of_weights_is_computed_when_they_are_bound() {
    let case = case(6, |scope, x| {
        let [weight, mask] = ["weight", "mask"].map(|name| scope.parameter(name, F32, &[20.into(), 8.into()]));
        vec![("y", x.linear(&(&weight * &mask), None))]
    });
    let plan = plan(&case.graph).unwrap();
    assert_eq!((plan.load.len(), plan.steps.len()), (1, 1));
    assert_eq!(plan.steps[0].reads.len(), 2, "the rows and the product of both weights");
    case.check();
}

#[test]
fn long_chains_of_layouts_end() {
    let case = case(4, |scope, x| {
        let mut y = x.reshape(&[x.dim(0), 8.into()]);
        for _ in 0..1500 {
            y = y.reshape(&[y.dim(0), 2.into(), 4.into()]).permute(&[0, 2, 1]).reshape(&[y.dim(0), 8.into()]);
        }
        vec![("sum", y.sum(1)), ("product", y.matmul(&scope.parameter("w", F32, &[8.into(), 3.into()])))]
    });
    assert!(!plan(&case.graph).unwrap().steps.is_empty());
}
