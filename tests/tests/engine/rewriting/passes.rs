//! Every pass and every rule by itself preserves the results of random graphs, for the interpreter, the CPU and the GPU,
//! and passes are deterministic and idempotent.
//!
//! `REWIRE_TEST_CASES` multiplies the number of cases, `REWIRE_TEST_SEED` chooses others. Failures are shrunk and
//! printed as the text of a small graph.

use rewire_graph::Graph;
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::passes::{Fuse, Pipeline, Separate};
use rewire_runtime::Kernel;
use rewire_tests::backend::{self, gpu, load_plan, options, oracle};
use rewire_tests::build::build;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::program::{Program, compiled, hold};
use std::cell::Cell;

/// Instructions of a program; they make hundreds of operators.
const STEPS: usize = 80;

fn names() -> Vec<String> {
    Pipeline::default().passes().map(|pass| pass.name().to_owned()).collect()
}

fn rules() -> Vec<String> {
    Pipeline::default().passes().flat_map(|pass| pass.rules()).collect()
}

fn keeps_the_meaning(program: &Program, pipeline: &Pipeline) -> Result<(), String> {
    let case = build(program)?;
    let text = || case.graph.text();
    let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
    let (rewritten, report) = pipeline.run(case.graph.clone()).map_err(|error| format!("{error}\n{}", text()))?;
    let actual = oracle(&rewritten, &case.inputs, &case.parameters).map_err(|e| format!("{e}\n{report}{}", text()))?;
    let wrong = differences(&actual, &expected, Tolerance { relative: 1e-6, ..Tolerance::SINGLE });
    if wrong.is_empty() { Ok(()) } else { Err(format!("{}\n{report}{}", wrong.join("\n"), text())) }
}

#[test]
fn every_prefix_of_the_passes_keeps_the_meaning() {
    for count in 1..=names().len() {
        let pipeline = Pipeline::default().up_to(count);
        hold(4, STEPS, |program| keeps_the_meaning(program, &pipeline).map_err(|error| format!("{count}: {error}")));
    }
}

#[test]
fn every_rule_alone_keeps_the_meaning() {
    for rule in rules().into_iter().filter(|rule| rule != "fuse") {
        let pipeline = Pipeline::default().only(&rule).unwrap();
        hold(4, STEPS, |program| keeps_the_meaning(program, &pipeline).map_err(|error| format!("{rule}: {error}")));
    }
}

#[test]
fn a_kernel_for_each_operator_keeps_the_meaning() {
    let pipeline = Pipeline::default().without("fusion").unwrap();
    hold(4, STEPS, |program| keeps_the_meaning(program, &pipeline));
}

/// The result of a pass on a graph, after the passes that fusion requires, fused.
fn fused_after(name: &str, graph: Graph) -> Result<Graph, String> {
    let rewrite = |pipeline: Pipeline, graph: Graph| {
        pipeline.run(graph).map(|(graph, _)| graph).map_err(|error| format!("{name}: {error}"))
    };
    let alone = rewrite(Pipeline::default().only(name).unwrap(), graph)?;
    rewrite(Pipeline::new(vec![Box::new(Separate), Box::new(Fuse)]), alone)
}

fn runs_after(name: &str, kernel: Kernel, program: &Program) -> Result<(), String> {
    let case = build(program)?;
    let text = || case.graph.text();
    let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
    let plan = lower(&fused_after(name, case.graph.clone())?).map_err(|error| format!("{error}\n{}", text()))?;
    let Some(options) = options(kernel) else { return Ok(()) };
    let mut session = load_plan(plan, &case.parameters, options).map_err(|error| format!("{error}\n{}", text()))?;
    let actual = backend::run(&mut session, &case.inputs).map_err(|error| format!("{error}\n{}", text()))?;
    let wrong = differences(&actual, &expected, Tolerance::SINGLE);
    if wrong.is_empty() { Ok(()) } else { Err(format!("{name}: {}\n{}", wrong.join("\n"), text())) }
}

#[test]
fn every_pass_alone_keeps_the_meaning_on_the_cpu() {
    for name in names().into_iter().filter(|name| name != "fuse") {
        hold(4, STEPS / 2, |program| runs_after(&name, Kernel::Cpu, program));
    }
}

#[test]
fn every_pass_alone_keeps_the_meaning_on_the_gpu() {
    if gpu().is_some() {
        for name in names().into_iter().filter(|name| name != "fuse") {
            hold(compiled(2), 8, |program| runs_after(&name, Kernel::Wgpu, program));
        }
    }
}

#[test]
fn rewriting_keeps_the_meaning_of_graphs_of_hundreds_of_operators() {
    let largest = Cell::new(0);
    hold(12, 3 * STEPS, |program| {
        largest.set(largest.get().max(build(program)?.graph.len()));
        keeps_the_meaning(program, &Pipeline::default())
    });
    assert!(largest.get() > 500, "{} operators", largest.get());
}

fn run(pipeline: &Pipeline, graph: &Graph) -> Result<String, String> {
    Ok(pipeline.run(graph.clone()).map_err(|error| error.to_string())?.0.text())
}

#[test]
fn rewriting_is_deterministic() {
    hold(10, STEPS, |program| {
        let graph = build(program)?.graph;
        let texts = [run(&Pipeline::default(), &graph)?, run(&Pipeline::default(), &graph)?];
        if texts[0] == texts[1] { Ok(()) } else { Err(format!("{}\n{}", texts[0], texts[1])) }
    });
}

/// Passes that find nothing more in what they made. Merging siblings pays or not for the graph as it is, and what is
/// computed when parameters are bound is fused, so that it is not looked at again.
#[test]
fn passes_twice_are_passes_once() {
    for name in names() {
        if ["merge_siblings", "precompute", "fuse"].contains(&name.as_str()) {
            continue;
        }
        idempotent(&Pipeline::default().only(&name).unwrap());
    }
}

#[test]
fn rewriting_twice_is_rewriting_once() {
    hold(10, STEPS, |program| {
        let (once, _) = Pipeline::default().run(build(program)?.graph).map_err(|error| error.to_string())?;
        let (twice, report) = Pipeline::default().run(once.clone()).map_err(|error| error.to_string())?;
        if once.text() == twice.text() { Ok(()) } else { Err(format!("{report}{}", once.text())) }
    });
}

fn idempotent(pipeline: &Pipeline) {
    hold(8, STEPS, |program| {
        let (once, _) = pipeline.run(build(program)?.graph).map_err(|error| error.to_string())?;
        let (twice, report) = pipeline.run(once.clone()).map_err(|error| error.to_string())?;
        let fired = report.passes.iter().any(|pass| !pass.applications.is_empty());
        if once.text() == twice.text() && !fired { Ok(()) } else { Err(format!("{report}{}", once.text())) }
    });
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn every_pass_alone_keeps_the_meaning() {
        // Fusion requires the results of the passes before it.
        for name in names().into_iter().filter(|name| name != "fuse") {
            let pipeline = Pipeline::default().only(&name).unwrap();
            hold(8, STEPS, |program| keeps_the_meaning(program, &pipeline).map_err(|error| format!("{name}: {error}")));
        }
    }
}
