//! Models of the examples learn, packages rank, and the program of the README prints what the README shows.
#![allow(clippy::unwrap_used)]

use rewire::rank::{PackOptions, pack};
use rewire::weights::Weights;
use std::path::Path;
use std::process::Command;

#[path = "../examples/din.rs"]
mod din;
#[path = "../examples/package.rs"]
mod package;
mod rank {
    include!("readme/rank.rs");

    pub fn run() -> Result<(), Box<dyn std::error::Error>> {
        main()
    }
}
mod export {
    include!("readme/export.rs");

    pub fn run(x: HostTensor) -> Result<Results, Box<dyn std::error::Error>> {
        run_own(x)
    }
}
#[path = "../examples/retrieval.rs"]
mod retrieval;
#[path = "../examples/two_tower.rs"]
mod two_tower;

#[test]
fn a_deep_interest_network() {
    din::main().unwrap();
}

#[test]
fn a_package() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/packages");
    let users = std::fs::read(format!("{folder}/users.jsonl")).unwrap();
    package::rank(&format!("{folder}/format-1.rewire"), users.as_slice()).unwrap();
    assert!(package::rank(&format!("{folder}/format-1.rewire"), &b"{"[..]).is_err());
}

#[test]
fn a_two_tower_model() {
    two_tower::main().unwrap();
}

#[test]
fn retrieval_from_histories() {
    retrieval::main().unwrap();
}

/// A code block of the README, by what follows its fence.
fn of_readme<'a>(readme: &'a str, fence: &str) -> &'a str {
    let (_, from) = readme.split_once(&format!("```{fence}\n")).unwrap();
    from.split_once("```").unwrap().0
}

#[test]
#[ignore = "the next test runs it in a process of its own, in a folder with the package"]
fn rank_with_the_package_of_this_folder() {
    rank::run().unwrap();
}

#[test]
#[ignore = "the next test runs it in a process of its own, in a folder with the package"]
fn run_the_exported_model_of_this_folder() {
    let x = rewire::HostTensor::f32([2, 16], &[0.5; 32]).unwrap();
    let results = export::run(x).unwrap().tensors();
    assert_eq!(results.values().next().unwrap().tensor.shape(), [2, 4]);
}

#[test]
fn the_program_of_the_readme_runs_an_exported_model() {
    use rewire::program::ModelFile;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(here.join("../../README.md")).unwrap();
    assert_eq!(of_readme(&readme, "rust export"), include_str!("readme/export.rs"));
    let source = here.join("../../tests/pt2/linear_relu/model.pt2");
    let file = ModelFile::open(&source, rewire::Mapping::default()).unwrap();
    assert_eq!(file.inputs().unwrap()[0].name, "x");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.rewire"), file.pack(&PackOptions::default()).unwrap().bytes()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "run_the_exported_model_of_this_folder", "--ignored"]).current_dir(&folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_program_of_the_readme_prints_its_scores() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(here.join("../../README.md")).unwrap();
    assert_eq!(of_readme(&readme, "rust"), include_str!("readme/rank.rs"));
    let demo = here.join("../cli/demo/model");
    let config = std::fs::read_to_string(demo.join("config.json")).unwrap();
    let weights = std::fs::read(demo.join("model.safetensors")).unwrap();
    let package = pack("the demo", &config, &Weights::parse(&weights).unwrap(), &PackOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.rewire"), package.bytes()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rank_with_the_package_of_this_folder", "--ignored", "--nocapture", "--test-threads=2"]);
    let output = command.current_dir(&folder).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(of_readme(&readme, "text scores")), "{printed}{:?}", output.stderr);
}
