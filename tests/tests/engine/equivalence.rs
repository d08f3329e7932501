//! Random graphs compute the same before and after rewriting, and on every backend.
//!
//! `REWIRE_TEST_CASES` multiplies the number of cases, `REWIRE_TEST_SEED` chooses others.

use rewire_graph_rewrite::optimize;
use rewire_runtime::Kernel;
use rewire_tests::backend::{gpu, oracle, plan, run, session};
use rewire_tests::build::{build, kinds};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::program::{KINDS, Kind, Program, compiled, hold};
use std::cell::RefCell;
use std::collections::BTreeMap;

fn same(differences: Vec<String>, graph: &rewire_graph::Graph) -> Result<(), String> {
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{}", differences.join("\n"), graph.text()))
}

fn rewritten(program: &Program) -> Result<(), String> {
    let case = build(program)?;
    let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
    let (fused, _) =
        optimize(case.graph.clone()).map_err(|error| format!("optimize: {error}\n{}", case.graph.text()))?;
    let actual = oracle(&fused, &case.inputs, &case.parameters).map_err(|e| format!("{e}\n{}", case.graph.text()))?;
    let tolerance = Tolerance { relative: 1e-6, ..Tolerance::SINGLE };
    same(differences(&actual, &expected, tolerance), &fused)?;
    plan(&case.graph).map(drop).map_err(|error| format!("{error}\n{}", case.graph.text()))
}

fn on(kernel: Kernel, program: &Program) -> Result<(), String> {
    let case = build(program)?;
    let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
    let text = || case.graph.text();
    let loaded = session(&case.graph, &case.parameters, kernel).map_err(|e| format!("{e}\n{}", text()));
    let Some(mut session) = loaded? else { return Ok(()) };
    let actual = run(&mut session, &case.inputs).map_err(|error| format!("{error}\n{}", text()))?;
    let steps: Vec<&str> = session.plan().steps.iter().map(|step| step.name.as_str()).collect();
    same(differences(&actual, &expected, Tolerance::SINGLE), &case.graph).map_err(|e| format!("{steps:?}\n{e}"))
}

#[test]
fn rewriting_keeps_the_meaning_of_short_graphs() {
    hold(300, 5, rewritten);
}

#[test]
fn rewriting_keeps_the_meaning_of_long_graphs() {
    hold(60, 24, rewritten);
}

#[test]
fn the_cpu_computes_what_the_interpreter_computes() {
    hold(150, 10, |program| on(Kernel::Cpu, program));
}

#[test]
fn the_gpu_computes_what_the_interpreter_computes() {
    if gpu().is_some() {
        hold(compiled(75), 9, |program| on(Kernel::Wgpu, program));
    }
}

#[test]
fn random_graphs_hold_every_kind_of_kernel() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut added: BTreeMap<Kind, usize> = BTreeMap::new();
    let (counted, fitted) = (RefCell::new(&mut counts), RefCell::new(&mut added));
    hold(150, 10, |program| {
        kinds(program).into_iter().for_each(|kind| *fitted.borrow_mut().entry(kind).or_default() += 1);
        for step in plan(&build(program)?.graph)?.steps {
            *counted.borrow_mut().entry(step.name).or_default() += 1;
        }
        Ok(())
    });
    eprintln!("{counts:?}\n{added:?}");
    let families = ["attention", "softmax_attention", "addmm", "matmul", "jagged_addmm", "reduce", "pointwise"];
    for name in families.into_iter().chain(["layer_norm", "softmax"]) {
        assert!(counts.get(name).is_some_and(|count| *count > 2), "{name} in {counts:?}");
    }
    for kind in KINDS {
        assert!(added.get(kind).is_some_and(|count| *count > 2), "{kind:?} in {added:?}");
    }
}
