//! The generated pages follow the source, and every constraint that the reference lists is an error.
//!
//! `REWIRE_WRITE_REFERENCE=1` writes the pages.

use rewire_measure::{Record, page as performance, roofline};
use rewire_tests::charts;
use rewire_tests::exported;
use rewire_tests::figures::{Measurements, unmarked, written};
use rewire_tests::kernels;
use rewire_tests::prose;
use rewire_tests::reference::{
    Function, Source, called, composites, methods, modules, ops, page, primitives, ranking, ranking_functions,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Items without an entry: fused operators, which rewriting makes, operators that only importers use, and parts of modules that the crates
/// of models share.
const UNLISTED: [&str; 17] = [
    "Fused",
    "Bits",
    "IntegerProduct",
    "MergeRuns",
    "OrthogonalColumns",
    "QuantizedProduct",
    "Recurrence",
    "Iota",
    "Remap",
    "SortRuns",
    "Activation",
    "MatchTower",
    "layer_norm",
    "linear",
    "linear_map",
    "prediction",
    "rounded_units",
];

/// Pages all of whose figures are those of `docs/measurements.json`.
const MEASURED: [&str; 17] = [
    "../README.md",
    "benchmarks.md",
    "browser.md",
    "building.md",
    "c.md",
    "deploying.md",
    "fast.md",
    "matrices.md",
    "measuring.md",
    "mobile.md",
    "prediction.md",
    "python.md",
    "reliability.md",
    "rust.md",
    "sessions.md",
    "start.md",
    "training.md",
];

fn functions() -> Vec<Function> {
    [primitives(), composites(), ops(), ranking_functions()].concat()
}

/// Compares a page of `docs` with what it has to be, or writes it.
fn hold_page(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("REWIRE_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let stale = stored.lines().zip(page.lines()).find(|(stored, current)| stored != current);
    assert!(stored == page, "docs/{name} is stale, `cargo xtask reference` writes it: {stale:?}");
}

#[test]
fn the_page_of_operators_is_current() {
    hold_page("reference.md", &page().unwrap());
}

#[test]
fn the_page_of_kernels_is_current() {
    hold_page("kernels.md", &kernels::page().unwrap());
}

#[test]
fn the_page_of_exported_models_is_current() {
    hold_page("exported.md", &exported::page().unwrap());
}

#[test]
fn the_page_of_onnx_is_current() {
    hold_page("onnx-operators.md", &rewire_tests::onnx::page());
}

#[test]
fn the_page_of_errors_is_current() {
    hold_page("errors.md", &rewire_tests::errors::page().unwrap());
}

#[test]
fn the_page_of_languages_is_current_and_its_tests_exist() {
    let capabilities = rewire_tests::languages::read().unwrap();
    let faults = capabilities.faults().unwrap();
    assert!(faults.is_empty(), "docs/languages.json:\n{}", faults.join("\n"));
    hold_page("languages.md", &capabilities.page());
}

#[test]
fn the_page_of_every_figure_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let measurements: Measurements = serde_json::from_str(&read("measurements.json")).unwrap();
    let entries = std::fs::read_dir(&folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.ends_with(".md")).chain([MEASURED[0].to_owned()]).collect();
    let mut used = BTreeSet::new();
    for name in &names {
        let (page, ids) = written(&read(name), &measurements).unwrap_or_else(|error| panic!("{name}: {error}"));
        hold_page(name, &page);
        used.extend(ids);
    }
    let unused: Vec<&String> = measurements.keys().filter(|id| !used.contains(*id)).collect();
    assert!(unused.is_empty(), "no page shows {unused:?}");
    for (id, one) in &measurements {
        assert!(!one.shape.is_empty() && !one.how.is_empty(), "{id}: expected a shape and how it was measured");
    }
    for name in MEASURED {
        let figures = unmarked(&read(name));
        assert!(figures.is_empty(), "{name}: figures that are not in docs/measurements.json: {figures:?}");
    }
}

#[test]
fn the_summary_lists_every_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let summary = std::fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
    let linked = summary.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    let linked: BTreeSet<String> = linked.filter(|page| !page.starts_with("..")).collect();
    let pages = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = pages.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(linked, pages);
}

#[test]
fn every_operator_and_module_has_an_entry() {
    let source = Source::read().unwrap();
    let known: BTreeSet<&str> = functions()
        .iter()
        .map(|function| function.item)
        .chain(modules().iter().chain(&ranking()).map(|m| m.item))
        .collect();
    let functions = source.functions();
    let all = source.operators().iter().chain(source.modules()).chain(&functions);
    let missing: Vec<&String> =
        all.filter(|item| !known.contains(item.as_str()) && !UNLISTED.contains(&item.as_str())).collect();
    assert!(missing.is_empty(), "no entry: {missing:?}");
}

#[test]
fn every_method_has_a_use() {
    let called = called().unwrap();
    for own in methods().unwrap() {
        let unused: Vec<&String> = own.names.iter().filter(|name| !called.contains(*name)).collect();
        assert!(unused.is_empty(), "{}: no test and no example calls {unused:?}", own.item);
    }
}

#[test]
fn wrong_uses_are_errors_that_name_operator_and_argument() {
    for function in functions() {
        for (n, error) in function.errors().into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{}: wrong use {n} is not an error", function.item)).to_string();
            assert!(error.contains(": `") || error.contains("name `"), "{} {n}: {error}", function.item);
            assert!(error.contains("must be") && error.contains(", got ") || error.contains("used twice"), "{error}");
        }
    }
}

#[test]
fn wrong_configurations_are_errors_that_name_the_key() {
    for module in modules().into_iter().chain(ranking()) {
        module.graph().unwrap_or_else(|error| panic!("{} {}: {error}", module.item, module.kind));
        for (error, (pointer, _)) in module.errors().into_iter().zip(&module.violations) {
            let error =
                error.unwrap_or_else(|| panic!("{} {}: a wrong `{pointer}` is not an error", module.item, module.kind));
            assert!(
                error.contains('`') || error.contains("invalid type") || error.contains("invalid value"),
                "{error}"
            );
        }
    }
}

/// The text of every file below the repository with one of the endings.
fn texts(endings: &[&str]) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = prose::files(&root, endings).unwrap();
    files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The checks of texts, which `cargo xtask lint` runs as well.
mod prose_of_all_files {
    use super::*;

    #[test]
    fn pages_comments_and_messages_use_the_words_of_the_field() {
        let is_list = |path: &PathBuf| path.ends_with("tests/src/prose.rs");
        let read = texts(&["md", "rs", "wgsl", "py", "pyi", "js", "mjs", "ts", "h", "kt", "swift"])
            .into_iter()
            .filter(|(path, _)| !is_list(path));
        let found: Vec<String> = read.flat_map(|(path, text)| prose::private_words(&path, &text)).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn lines_of_prose_in_the_book_are_short() {
        // Paragraphs of the reference are those of rustdoc, on one line each.
        let is_page = |path: &PathBuf| {
            path.parent().is_some_and(|parent| parent.ends_with("docs")) && !path.ends_with("reference.md")
        };
        let pages = texts(&["md"]).into_iter().filter(|(path, _)| is_page(path) || path.ends_with("../README.md"));
        let long: Vec<String> = pages.flat_map(|(path, text)| prose::long_lines(&path, &text)).collect();
        assert!(long.is_empty(), "{}", long.join("\n"));
    }

    #[test]
    fn links_between_pages_lead_somewhere() {
        let broken: Vec<String> =
            texts(&["md"]).into_iter().flat_map(|(path, text)| prose::broken_links(&path, &text).unwrap()).collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}

#[test]
fn rust_programs_of_all_pages_are_compiled() {
    let known = include_str!("../src/documentation.rs");
    let is_compiled =
        |path: &PathBuf| path.file_name().is_some_and(|name| known.contains(&format!("docs/{}\"", name.display())));
    for (path, text) in texts(&["md"]) {
        let is_page = path.parent().is_some_and(|parent| parent.ends_with("docs"));
        let has_programs = text.lines().any(|line| line.trim_start().starts_with("```rust"));
        assert!(!is_page || !has_programs || is_compiled(&path), "{}: src/documentation.rs lacks it", path.display());
    }
}

/// Records of `rewire bench --json`, in the order of the devices in `docs/performance.md`.
const RECORDS: [&str; 3] = ["h200-spirv", "h200-wgsl", "cpu"];

#[test]
fn the_page_of_performance_and_charts_follow_records() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let lines = RECORDS.map(|name| read(&format!("records/{name}.jsonl"))).concat();
    let records: Vec<Record> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let performance = performance(&records, Some("roofline.svg")).unwrap();
    hold_page("roofline.svg", &roofline(&records));
    hold_page("performance.md", &performance);
    let measurements: Measurements = serde_json::from_str(&read("measurements.json")).unwrap();
    hold_page("speedups.svg", &charts::speedups(&performance, &measurements).unwrap());
    hold_page("losses.svg", &charts::losses(&read("examples.md")).unwrap());
}
