//! Complete programs, as modules of one test program: each prints what `docs/examples.md` shows. The programs of the README do so, too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod app;
mod custom;
mod din;
mod exported;
mod fusion;
mod onnx;
mod precision;
mod rank;
mod retrieval;
mod states;
mod two_tower;

mod readme {
    pub mod rank {
        include!("readme/rank.rs");

        pub fn run() -> Result<(), Box<dyn std::error::Error>> {
            main()
        }
    }

    pub mod export {
        include!("readme/export.rs");

        pub fn run(x: HostTensor) -> Result<Results, Box<dyn std::error::Error>> {
            run_own(x)
        }
    }
}

use rewire::program::ModelFile;
use rewire::rank::{PackOptions, pack};
use rewire::weights::Weights;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The example that a process runs.
const EXAMPLE: &str = "REWIRE_EXAMPLE";
const BEGIN: &str = "== the example prints";
const END: &str = "== end";

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn a_line_that_is_no_user_is_an_error() {
    let package = root().join("crates/cli/tests/packages/format-1.rewire");
    assert!(rank::rank(&package, &b"{"[..]).is_err());
}

#[test]
#[ignore = "the next test runs it in processes of its own"]
fn an_example() {
    println!("\n{BEGIN}");
    let failed = match std::env::var(EXAMPLE).unwrap().as_str() {
        "app" => app::main().err().map(|error| error.to_string()),
        name => match name {
            "custom" => custom::main(),
            "din" => din::main(),
            "exported" => exported::run(&root().join("tests/pt2/linear_relu/model.pt2")),
            "fusion" => fusion::main(),
            "onnx" => onnx::main(),
            "precision" => precision::main(),
            "rank" => rank::run(&tempfile::tempdir().unwrap().path().join("model.rewire")),
            "retrieval" => retrieval::main(),
            "states" => states::main(),
            "two_tower" => two_tower::main(),
            other => panic!("{other} is not an example"),
        }
        .err()
        .map(|error| error.to_string()),
    };
    assert_eq!(failed, None);
    println!("{END}");
}

/// True if texts have the same words, and numbers that differ by 2 % at most.
fn agree(shown: &str, printed: &str) -> bool {
    let words = |text: &str| {
        text.split_whitespace().map(|word| word.trim_matches(['[', ']', ',']).to_owned()).collect::<Vec<_>>()
    };
    let (shown, printed) = (words(shown), words(printed));
    let is_near = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 0.02 * a.abs(),
        _ => a == b,
    };
    shown.len() == printed.len() && shown.iter().zip(&printed).all(|(a, b)| is_near(a, b))
}

#[test]
fn examples_print_what_their_page_shows() {
    let page = std::fs::read_to_string(root().join("docs/examples.md")).unwrap();
    let shown: Vec<(&str, &str)> = page
        .split("```text ")
        .skip(1)
        .map(|block| block.split_once("```").unwrap().0.split_once('\n').unwrap())
        .collect();
    assert_eq!(shown.len(), 11);
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

/// A code block of a page, by what follows its fence.
fn block<'a>(page: &'a str, fence: &str) -> &'a str {
    let (_, from) = page.split_once(&format!("```{fence}\n")).unwrap();
    from.split_once("```").unwrap().0
}

#[test]
#[ignore = "the next test runs it in a process of its own, in a folder with the package"]
fn rank_with_the_package_of_this_folder() {
    readme::rank::run().unwrap();
}

#[test]
#[ignore = "the next test runs it in a process of its own, in a folder with the package"]
fn run_the_exported_model_of_this_folder() {
    let x = rewire::HostTensor::f32([2, 16], &[0.5; 32]).unwrap();
    let results = readme::export::run(x).unwrap().tensors();
    assert_eq!(results.values().next().unwrap().tensor.shape(), [2, 4]);
}

#[test]
fn the_program_of_the_book_runs_an_exported_model() {
    let page = std::fs::read_to_string(root().join("docs/from-pytorch.md")).unwrap();
    assert_eq!(block(&page, "rust export"), include_str!("readme/export.rs"));
    let source = root().join("tests/pt2/linear_relu/model.pt2");
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
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert_eq!(block(&readme, "rust"), include_str!("readme/rank.rs"));
    let demo = root().join("crates/cli/demo/model");
    let config = std::fs::read_to_string(demo.join("config.json")).unwrap();
    let weights = std::fs::read(demo.join("model.safetensors")).unwrap();
    let package = pack("the demo", &config, &Weights::parse(&weights).unwrap(), &PackOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.rewire"), package.bytes()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rank_with_the_package_of_this_folder", "--ignored", "--nocapture", "--test-threads=2"]);
    let output = command.current_dir(&folder).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(block(&readme, "text scores")), "{printed}{:?}", output.stderr);
}
