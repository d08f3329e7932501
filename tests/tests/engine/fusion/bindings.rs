//! Operands and bindings of steps.

use super::*;
use rewire_emit::emit;
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::plan::{MemorySpace, Source};

#[test]
fn small_parameters_share_one_binding() {
    let plan = plan_of(16, |scope, x| {
        let normed = x.layer_norm(&weight(scope, "w", &[16]), &weight(scope, "b", &[16]), 1e-5);
        let y = linear(scope, "a", &normed, 20);
        (0..5).map(|n| y.slice(1, n * 4, 4)).collect()
    });
    // The input, five results, and the norm's and the product's four parameters in one.
    assert_eq!(names(&plan), ["layer_norm_addmm"]);
    let places = plan.steps[0].computation.body().operands.iter().map(|operand| operand.space);
    assert_eq!(places.filter(|&place| place == MemorySpace::Pooled).count(), 4);
}

#[test]
fn large_parameters_keep_a_buffer_of_their_own() {
    let plan = plan_of(256, |scope, x| vec![linear(scope, "a", x, 512)]);
    let places: Vec<MemorySpace> =
        plan.steps[0].computation.body().operands.iter().map(|operand| operand.space).collect();
    assert_eq!(places, [MemorySpace::Device, MemorySpace::Device, MemorySpace::Pooled]);
}

#[test]
fn a_table_larger_than_a_binding_counts_as_several() {
    for large in 0..6 {
        let scope = Scope::new();
        let rows = scope.size("rows");
        let lookups = (0..6).map(|n| {
            let ids = scope.input(&format!("ids{n}"), DType::U32, std::slice::from_ref(&rows));
            // A million rows of 64 need two bindings of the baseline.
            let count = if n < large { 1_000_000 } else { 1000 };
            weight(&scope, &format!("table{n}"), &[count, 64]).gather(&ids)
        });
        let sum = lookups.reduce(|a, b| &a + &b).unwrap();
        emits_for_the_baseline(&finish(scope, vec![sum]));
    }
}

#[test]
fn no_step_takes_more_than_eight_bindings() {
    let plan = plan_of(4, |scope, x| {
        let inputs: Vec<Tensor> = (0..12).map(|n| scope.input(&format!("x{n}"), F32, x.shape())).collect();
        let sum = inputs.iter().fold(x.clone(), |sum, x| &sum + &x.tanh());
        vec![scope.concat(&inputs.iter().collect::<Vec<_>>(), 1), sum]
    });
    for step in &plan.steps {
        assert!(step.reads.len() + step.writes.len() <= 8, "{}: {:?}", step.name, step.reads);
    }
}

#[test]
fn no_step_computes_what_its_only_neighbour_could() {
    let plan = plan_of(8, |scope, x| {
        let a = linear(scope, "a", &x.tanh(), 8).relu();
        let b = a.layer_norm(&weight(scope, "w", &[8]), &weight(scope, "b", &[8]), 1e-5);
        let c = (&b * &a).softmax(1);
        vec![linear(scope, "c", &(&c + x), 8).sigmoid()]
    });
    assert!(!names(&plan).contains(&"pointwise"), "{:?}", names(&plan));
}

#[test]
fn parameters_without_readers_are_not_part_of_a_plan() {
    let plan = plan_of(8, |scope, x| {
        let unused = linear(scope, "unused", x, 8);
        let _ = unused.relu();
        vec![x.silu()]
    });
    assert!(plan.buffers.iter().all(|buffer| !matches!(buffer.source, Source::Parameter(_))));
}

/// A sum and a concatenation of 12 inputs are one kernel each where kernels bind enough.
#[test]
fn kernels_take_the_bindings_that_they_are_given() {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let inputs: Vec<Tensor> = (0..12).map(|n| scope.input(&format!("x{n}"), F32, (&rows, 4))).collect();
    let sum = inputs.iter().cloned().reduce(|a, b| a + b).unwrap();
    let joined = scope.concat(&inputs.iter().collect::<Vec<_>>(), 1);
    let graph = scope.finish(&[("sum", sum), ("joined", joined)]).unwrap();
    let steps = |bindings: usize| {
        let fused = Pipeline::default().for_bindings(bindings).run(graph.clone()).unwrap().0;
        let steps = lower(&fused).unwrap().steps;
        let most = steps.iter().map(|step| step.reads.len() + step.writes.len()).max().unwrap();
        assert!(most <= bindings, "{most} of {bindings} bindings");
        steps.len()
    };
    assert!(steps(8) > 2);
    assert_eq!(steps(13), 2);
}

/// A table of three bindings and as many others as make eight with it counted once, or with all of it counted.
#[test]
fn windows_of_large_tables_count_as_bindings() {
    let steps = |others: usize| {
        let plan = plan_of(8, |scope, x| {
            let ids = scope.input("ids", DType::I64, &[x.dim(0)]);
            let mut y = weight(scope, "table", &[9 << 20, 8]).gather(&ids);
            for n in 0..others {
                y = &y * &scope.input(&format!("x{n}"), F32, &[x.dim(0), 8.into()]).sigmoid();
            }
            vec![&y + x]
        });
        for step in &plan.steps {
            emit(&step.computation, &Target::BASELINE, &Tuning::default()).unwrap();
        }
        plan.steps.len()
    };
    // The table, ids, x and the result are six bindings.
    assert_eq!(steps(2), 1);
    assert!(steps(4) > 1);
}
