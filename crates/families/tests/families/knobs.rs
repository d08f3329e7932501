//! The examples of `knobs.tsv`: each key is supported, has no effect or is rejected as its row in the table states.

use rewire_families::{TraceError, trace};
use rewire_tzrec::Pipeline;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A change of a pipeline.
struct Example<'a> {
    folder: &'a str,
    pointer: &'a str,
    value: Value,
    /// The expected effect on the graph.
    effect: &'a str,
}

fn beside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Parses the example of a line. Its value may contain spaces.
fn example(line: &str) -> Option<Example<'_>> {
    let text = line.split('\t').nth(3)?;
    let (folder, rest) = text.split_once(' ')?;
    let (pointer, rest) = rest.split_once(' ')?;
    let (value, effect) = rest.rsplit_once(' ')?;
    Some(Example { folder, pointer, value: serde_json::from_str(value).unwrap(), effect })
}

/// Sets a key, which may be missing.
fn set(config: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(parent).unwrap()[key] = value;
}

/// The graph of a configuration as text, or the rejected keys.
fn traced(config: &Value) -> Result<String, Vec<String>> {
    match trace(config) {
        Ok(traced) => Ok(traced.graph.text()),
        Err(TraceError::Config(problems)) => Err(problems.0.into_iter().map(|problem| problem.key).collect()),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn keys_do_what_the_page_of_keys_says() {
    let rows = std::fs::read_to_string(beside("crates/tzrec/proto/knobs.tsv")).unwrap();
    let examples: Vec<Example> = rows.lines().filter_map(example).collect();
    assert!(examples.len() > 25, "{}", examples.len());
    let mut wrong = vec![];
    for Example { folder, pointer, value, effect } in examples {
        let path = beside("tests/tzrec").join(folder).join("pipeline.config");
        let mut config = Pipeline::read(&path).unwrap().json().clone();
        let before = traced(&config).unwrap();
        assert_ne!(config.pointer(pointer), Some(&value), "{folder} {pointer} has this value");
        set(&mut config, pointer, value);
        let found = match traced(&config) {
            Ok(after) if after == before => json!("ignored"),
            Ok(_) => json!("acts"),
            Err(keys) if keys.iter().any(|key| key.starts_with(pointer)) => json!("refused"),
            Err(keys) => json!(keys),
        };
        if found != effect {
            wrong.push(format!("{folder} {pointer}: expected {effect}, got {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
