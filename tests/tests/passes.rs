//! Every pass and every rule alone keeps the meaning of random graphs, and passes are deterministic and idempotent.
//!
//! `REWIRE_TEST_CASES` multiplies the number of cases, `REWIRE_TEST_SEED` chooses others. Failures are shrunk and
//! printed as the text of a small graph.

use rewire_graph::Graph;
use rewire_graph_rewrite::passes::Pipeline;
use rewire_tests::backend::oracle;
use rewire_tests::build::build;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::program::{Program, hold};

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
fn every_pass_alone_keeps_the_meaning() {
    // Fusion needs what the passes before it establish.
    for name in names().into_iter().filter(|name| name != "fuse") {
        let pipeline = Pipeline::default().only(&name).unwrap();
        hold(8, STEPS, |program| keeps_the_meaning(program, &pipeline).map_err(|error| format!("{name}: {error}")));
    }
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

#[test]
fn simplifying_twice_is_simplifying_once() {
    let pipeline = Pipeline::default().only("simplify").unwrap();
    hold(20, STEPS, |program| {
        let (once, _) = pipeline.run(build(program)?.graph).map_err(|error| error.to_string())?;
        let (twice, report) = pipeline.run(once.clone()).map_err(|error| error.to_string())?;
        let fired = report.passes.iter().any(|pass| !pass.applications.is_empty());
        if once.text() == twice.text() && !fired { Ok(()) } else { Err(format!("{report}{}", once.text())) }
    });
}
