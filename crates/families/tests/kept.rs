//! HSTU rankers traced in two parts return the same predictions as the whole model.
#![allow(clippy::unwrap_used)]

use rewire_families::{HISTORIES, Interface, trace, trace_cached};
use rewire_features::{Column, Feature, Features, OwnedCell};
use rewire_graph::op::Input;
use rewire_graph::{DType, HostTensor, interpret};
use std::collections::HashMap;
use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;

type Tensors = HashMap<String, HostTensor>;

const ROWS: usize = 3;
const CACHE_ROWS: usize = 80;
/// The request time of each row.
const TIMES: [f32; ROWS] = [1_000_000.0, 1_300_000.0, 900_000.0];

/// A pipeline, and the numbers of tokens in its channels.
struct Case {
    folder: &'static str,
    channels: &'static [(&'static str, &'static str)],
    context: usize,
    tokens_a_step: usize,
}

fn folder_of(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec").join(case)
}

fn file(case: &Case, name: &str) -> PathBuf {
    folder_of(case.folder).join(name)
}

fn weights(case: &Case) -> Result<Tensors, Box<dyn Error>> {
    let bytes = std::fs::read(file(case, "model.safetensors"))?;
    let stored = safetensors::SafeTensors::deserialize(&bytes)?;
    let tensors = stored.tensors().into_iter().filter(|(_, view)| view.dtype() == safetensors::Dtype::F32);
    let tensor = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let name = name.strip_prefix("model.").unwrap_or(&name).to_owned();
        Ok((name, HostTensor::from_bytes(DType::F32, view.shape().to_vec(), view.data().to_vec())?))
    };
    tensors.map(tensor).collect()
}

/// Number of steps of a sequence in each row.
fn steps(sequence: &str) -> [usize; ROWS] {
    match sequence {
        "cand_seq" => [2, 1, 3],
        "view_seq" => [2, 9, 0],
        _ => [4, 0, 11],
    }
}

/// The value of a feature in a row, as text.
fn cell(feature: &Feature, row: usize) -> String {
    let Some((sequence, _)) = feature.name.split_once("__") else { return (row + 1).to_string() };
    let count = steps(sequence)[row];
    let step = |step: usize| match feature.name.as_str() {
        name if name.ends_with("timestamp") => (TIMES[row] - 600.0 * (count - step) as f32).to_string(),
        name if name.ends_with("query_time") => TIMES[row].to_string(),
        name => ((7 * row + 3 * step + name.len()) % 9).to_string(),
    };
    (0..count).map(step).collect::<Vec<_>>().join("|")
}

/// The encoded features, with prefixed input names.
fn encoded(features: &Features, names: &[String], prefix: &str, rows: Range<usize>) -> Result<Tensors, Box<dyn Error>> {
    let texts = |name: &String| {
        let cells = (0..ROWS).map(|row| OwnedCell::Text(cell(&features.features[name], row)));
        (name.clone(), Column::of_cells(cells.collect()).unwrap())
    };
    let columns: HashMap<String, Column<'static>> = names.iter().map(texts).collect();
    let inputs = features.encode(names, |name| columns.get(name), rows)?;
    Ok(inputs.into_iter().map(|(name, tensor)| (format!("{prefix}{name}"), tensor)).collect())
}

/// The inputs for the cache: rows to write and read, and request times.
fn places(case: &Case, histories: Range<usize>, requests: Range<usize>) -> Tensors {
    let mut all = Tensors::new();
    for (channel, sequence) in case.channels {
        let tokens = |row: usize| case.context + case.tokens_a_step * steps(sequence)[row];
        let rows = |row: usize| {
            let before: usize = (0..row).map(tokens).sum();
            (before..before + tokens(row)).map(|row| (CACHE_ROWS - 1 - row) as u32)
        };
        let rows = |range: Range<usize>| HostTensor::vector(&range.flat_map(rows).collect::<Vec<_>>());
        let lengths: Vec<i64> = requests.clone().map(|row| tokens(row) as i64).collect();
        all.insert(format!("{channel}.query_time"), HostTensor::vector(&TIMES[histories.clone()]));
        all.insert(format!("{channel}.kept"), rows(histories.clone()));
        all.insert(format!("{channel}.cached.lengths"), HostTensor::lengths(&lengths));
        all.insert(format!("{channel}.cached"), rows(requests.clone()));
    }
    all.insert("candidate.query_time".to_owned(), HostTensor::vector(&TIMES[requests]));
    all
}

fn check(case: &Case) -> Result<(), Box<dyn Error>> {
    let pipeline = rewire_tzrec::Pipeline::read(&file(case, "pipeline.config"))?;
    let weights = weights(case)?;
    let whole = trace(pipeline.json())?;
    let inputs = encoded(&whole.interface.features, &whole.columns, "", 0..ROWS)?;
    let expected = interpret(&whole.graph, &inputs, &weights)?;

    let parts = trace_cached(pipeline.json(), DType::F32)?;
    let (graph, features) = (&parts.traced.graph, &parts.traced.interface.features);
    let run = |histories: Range<usize>, requests: Range<usize>, states: &Tensors| {
        let mut inputs = places(case, histories.clone(), requests.clone());
        inputs.extend(encoded(features, &parts.histories, HISTORIES, histories)?);
        inputs.extend(encoded(features, &parts.traced.columns, "", requests)?);
        inputs.extend(states.clone());
        Ok::<_, Box<dyn Error>>(interpret(graph, &inputs, &weights)?)
    };
    let mut states = Tensors::new();
    for input in graph.ids().filter_map(|id| graph.op::<Input>(id)).filter(|input| graph.states().contains(&input.name))
    {
        let width = input.ty.width().ok_or("a state of unknown width")?;
        states.insert(input.name.clone(), HostTensor::f32(vec![CACHE_ROWS, width], &vec![9.0; CACHE_ROWS * width])?);
    }
    let after = run(0..ROWS, 0..0, &states)?.into_iter().filter(|(name, _)| states.contains_key(name)).collect();
    let actual = run(0..0, 0..ROWS, &after)?;
    for (name, tensor) in &expected {
        for (a, b) in actual[name].to_f64().into_iter().zip(tensor.to_f64()) {
            assert!((a - b).abs() < 1e-5 * b.abs().max(1.0), "{}: {name}: {a} is not {b}", case.folder);
        }
    }
    Ok(())
}

#[test]
fn kept_histories_give_the_predictions_of_the_whole() -> Result<(), Box<dyn Error>> {
    let channels = &[("uih_click", "click_seq"), ("uih_view", "view_seq")];
    check(&Case { folder: "ultra_hstu_channels", channels, context: 2, tokens_a_step: 1 })?;
    // Here the rows of candidates depend on contextual features.
    let channels = &[("uih", "uih_seq")];
    check(&Case { folder: "dlrm_hstu_interleave", channels, context: 1, tokens_a_step: 2 })
}

/// The interface parsed from the configuration equals the traced model's.
#[test]
fn the_interface_of_a_configuration_is_that_of_its_model() -> Result<(), Box<dyn Error>> {
    let kinds = ["descending", "interleave", "kuairand", "train"].map(|kind| format!("dlrm_hstu_{kind}"));
    for folder in kinds.iter().map(String::as_str).chain(["ultra_hstu_channels", "hstu_match_cosine", "mind_taobao"]) {
        let pipeline = rewire_tzrec::Pipeline::read(&folder_of(folder).join("pipeline.config"))?;
        let (traced, own) = (trace(pipeline.json())?, Interface::new(pipeline.json())?);
        assert_eq!(traced.interface.histories, own.histories, "{folder}");
        assert_eq!(own.histories.is_some(), folder.contains("hstu_") && !folder.contains("match"), "{folder}");
        let rows: Vec<_> = traced.outputs.iter().map(|output| own.rows_of(&output.name)).collect();
        assert_eq!(traced.outputs.into_iter().map(|output| output.rows).collect::<Vec<_>>(), rows, "{folder}");
    }
    Ok(())
}
