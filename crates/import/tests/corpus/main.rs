//! Exported programs with expected results: <https://pytorch.org/docs/stable/export.html>.
//!
//! `REWIRE_PT2=DIR cargo test -p rewire-import --test corpus -- --ignored --nocapture` replays another folder of the same layout.
//! `REWIRE_KERNEL=cpu` runs it on the CPU; `REWIRE_KERNEL=wgpu` with `--features rewire-runtime/gpu,rewire-runtime/emit` runs it on a GPU.
//! `REWIRE_CASE=NAME` selects the models whose names contain `NAME`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod backend;
mod case;

use backend::Backend;
use case::{Case, Outcome};
use std::path::Path;

/// Replays all models of a folder, and returns the failed ones.
fn replay(folder: &Path, backend: Backend) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let (mut failures, mut right, mut all) = (vec![], 0, 0);
    let filter = std::env::var("REWIRE_CASE").ok();
    for path in names.iter().filter(|path| path.join("meta.json").is_file()) {
        let case = Case::read(path);
        if filter.as_ref().is_some_and(|filter| !case.name.contains(filter.as_str())) {
            continue;
        }
        for file in ["model.pt2", "model_core.pt2"].iter().filter(|file| path.join(file).is_file()) {
            all += 1;
            match case.replay(file, backend) {
                Outcome::Right { error, nodes } => {
                    right += 1;
                    println!("ok   {:24} {file:15} error/limit {error:.2} nodes {nodes}", case.name);
                }
                Outcome::Wrong(reason) => {
                    println!("FAIL {:24} {file:15} {reason}", case.name);
                    failures.push(format!("{} {file}: {reason}", case.name));
                }
            }
        }
    }
    println!("{right} of {all}");
    failures
}

/// The models in the repository. Stack traces of their nodes have been removed.
const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/pt2");

#[test]
fn models_are_right_in_the_interpreter() {
    let failures = replay(Path::new(MODELS), Backend::Interpreter);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn models_are_right_on_the_cpu() {
    let failures = replay(Path::new(MODELS), Backend::Cpu);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "replays the folder REWIRE_PT2"]
fn other_models() {
    let folder = std::env::var("REWIRE_PT2").unwrap();
    let backend = match std::env::var("REWIRE_KERNEL").as_deref() {
        Ok("cpu") => Backend::Cpu,
        Ok("wgpu") => Backend::Gpu,
        _ => Backend::Interpreter,
    };
    let failures = replay(Path::new(&folder), backend);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
