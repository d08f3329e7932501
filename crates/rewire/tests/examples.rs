//! Models of the examples learn, packages rank, and the program of the README prints what the README shows.
#![allow(clippy::unwrap_used)]

use rewire::rank::{PackOptions, pack};
use rewire::weights::Weights;
use std::path::Path;
use std::process::Command;

#[path = "../examples/din.rs"]
mod din;
#[path = "../examples/exported.rs"]
mod exported;
#[path = "../examples/fusion.rs"]
mod fusion;
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
fn a_package() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/packages");
    let users = std::fs::read(format!("{folder}/users.jsonl")).unwrap();
    package::rank(&format!("{folder}/format-1.rewire"), users.as_slice()).unwrap();
    assert!(package::rank(&format!("{folder}/format-1.rewire"), &b"{"[..]).is_err());
}

/// The example that a process runs.
const EXAMPLE: &str = "REWIRE_EXAMPLE";
const BEGIN: &str = "== the example prints";
const END: &str = "== end";

#[test]
#[ignore = "the next test runs it in processes of its own"]
fn an_example() {
    println!("\n{BEGIN}");
    match std::env::var(EXAMPLE).unwrap().as_str() {
        "din" => din::main(),
        "exported" => {
            exported::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pt2/linear_relu/model.pt2"))
        }
        "fusion" => fusion::main(),
        "retrieval" => retrieval::main(),
        "two_tower" => two_tower::main(),
        other => panic!("{other} is no example"),
    }
    .unwrap();
    println!("{END}");
}

/// True if texts have the same words, and numbers that differ by 2 % at most.
fn agree(shown: &str, printed: &str) -> bool {
    let words =
        |text: &str| text.split_whitespace().map(|word| word.trim_end_matches(',').to_owned()).collect::<Vec<_>>();
    let (shown, printed) = (words(shown), words(printed));
    let is_near = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 0.02 * a.abs(),
        _ => a == b,
    };
    shown.len() == printed.len() && shown.iter().zip(&printed).all(|(a, b)| is_near(a, b))
}

#[test]
fn examples_print_what_their_page_shows() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples.md");
    let page = std::fs::read_to_string(page).unwrap();
    let shown: Vec<(&str, &str)> = page
        .split("```text ")
        .skip(1)
        .map(|block| block.split_once("```").unwrap().0.split_once('\n').unwrap())
        .collect();
    assert_eq!(shown.len(), 5);
    for (name, shown) in shown {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "an_example", "--ignored", "--nocapture"]).env(EXAMPLE, name);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let printed = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let Some((printed, _)) = printed else { panic!("{name}: {text}{}", String::from_utf8_lossy(&output.stderr)) };
        assert!(agree(shown, printed), "{name} shows\n{shown}and prints{printed}");
    }
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
