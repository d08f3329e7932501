//! Drawing and counting graphs.
#![allow(clippy::unwrap_used)]

mod program;

use program::{DEMO, Folder, run};
use serde_json::Value;

fn counts(stage: &str) -> Value {
    let run = run(&["graph", &format!("{DEMO}/model"), "--stage", stage, "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.json().remove(0)
}

#[test]
fn counts_tell_what_was_fused() {
    let (traced, rewritten) = (counts("traced"), counts("rewritten"));
    assert_eq!((&traced["stage"], &rewritten["stage"]), (&"traced".into(), &"rewritten".into()));
    let number = |counts: &Value, key: &str| counts[key].as_u64().unwrap();
    assert!(number(&traced, "kernels") > 5 * number(&rewritten, "kernels"));
    assert_eq!(number(&traced, "parameters") * 4, number(&traced, "bytes"));
    assert!(traced["ops"]["matmul"].as_u64().unwrap() > 5 && traced["ops"].get("attention").is_none());
    assert_eq!(rewritten["ops"]["attention"], 2);
    assert!(number(&rewritten, "kernels") <= 22);
    for counts in [traced, rewritten] {
        let all: u64 = counts["ops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(all, number(&counts, "nodes"));
    }
}

#[test]
fn kernels_are_the_dispatches_of_a_run() {
    let graph = rewire::rank::trace(&rewire::rank::read_config(format!("{DEMO}/model").as_ref()).unwrap()).unwrap();
    let plan = rewire::lower(&rewire::optimize(graph).unwrap().0).unwrap();
    assert_eq!(counts("rewritten")["kernels"], plan.steps.len());
}

#[test]
fn every_format_draws() {
    for (format, start) in [("text", "%0 = "), ("dot", "digraph"), ("svg", "<svg")] {
        for stage in ["traced", "rewritten"] {
            let run = run(&["graph", "--stage", stage, "--format", format]);
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            assert!(run.stdout.starts_with(start), "{format}: {}", &run.stdout[..80]);
        }
    }
}

#[test]
fn what_is_no_model_is_an_error() {
    let folder = Folder::new();
    run(&["graph", &folder.0.display().to_string()]).failed_with(&["config.json"]);
    run(&["graph", "/nonexistent"]).failed_with(&["cannot read /nonexistent"]);
    run(&["graph", &folder.write("x.safetensors", "x")]).failed_with(&["x.safetensors"]);
}
