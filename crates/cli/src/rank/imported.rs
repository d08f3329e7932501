//! Ranking by imported models: every row of a table is a user with candidates.

use super::Tally;
use super::count;
use crate::args::Rank;
use crate::error::CliError;
use crate::output::Output;
use crate::predict::encoded;
use crate::requests::{InputError, title};
use crate::spread::{self, Devices};
use crate::tables::{self, Nested};
use rewire::predict::{Predicted, PredictedColumn, Predictor};
use rewire::rank::RankError;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Instant;

/// Rows that are computed together.
const ROWS: usize = 256;

#[derive(Serialize)]
struct Line {
    /// The row, from 1.
    user: u64,
    candidates: Vec<Candidate>,
}

#[derive(Serialize)]
struct Candidate {
    item: Value,
    score: f32,
    logits: Map<String, Value>,
}

/// Ranks the candidates of every row.
pub fn run(
    model: &Path,
    options: &Rank,
    devices: &Devices,
    json: bool,
    begun: Instant,
    output: &mut Output,
) -> Result<(), CliError> {
    let predictors = devices.load(|with| Predictor::load(model, with))?;
    let first = predictors.first();
    let item = first.item().ok_or_else(|| RankError::Imported { name: model.display().to_string() })?;
    let place = first.columns().iter().position(|column| *column == item.name).unwrap_or(0);
    let delimiter = item.sequence.as_ref().map_or(";", |form| form.delimiter.as_str());
    let data = options.data.as_deref().unwrap_or(Path::new("-"));
    let mut table = tables::open(data, first.columns())?;
    let mut tally = Tally::new(&[], begun);
    loop {
        let read = table.read(ROWS)?;
        if read.count == 0 {
            break;
        }
        let items = read.columns.get(place).into_iter().flatten();
        let items: Vec<Vec<Value>> = items.map(|cell| values_of(cell, delimiter)).collect();
        let columns = encoded(first.columns(), read.columns, (tally.users, data))?;
        let columns: Vec<_> = columns.iter().map(|(name, column)| (name.as_str(), column.column())).collect();
        let predicted = predictors.run(|predictor| predictor.predict(read.count, &columns))?;
        let mut start = 0;
        for (count, items) in predicted.counts.iter().zip(items) {
            let rows = start..start + count;
            start += count;
            let scored = rows.zip(items).map(|(row, item)| candidate(first.outputs(), &predicted, row, item));
            let mut candidates: Vec<Candidate> = scored.collect();
            candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.item.as_i64().cmp(&b.item.as_i64())));
            tally.count(candidates.len() as u64);
            candidates.truncate(options.top);
            print(&Line { user: tally.users, candidates }, json, output)?;
        }
        output.flush()?;
    }
    if tally.users == 0 {
        return Err(InputError::Table { file: title(Some(data)), reason: "it holds no rows".to_owned() }.into());
    }
    let summary = tally.summary(&spread::report(&predictors, Predictor::report));
    match json {
        true => output.json(&super::SummaryLine { summary: &summary })?,
        false => super::table::print_summary(&summary, output)?,
    }
    Ok(())
}

/// The items of a row; a cell of text has a delimiter between them.
fn values_of(cell: &Nested, delimiter: &str) -> Vec<Value> {
    match cell {
        Nested::One(value) => {
            let text = value.to_string();
            let items = text.split(delimiter).filter(|item| !item.is_empty());
            items.map(|item| item.parse::<i64>().map_or(json!(item), Value::from)).collect()
        }
        Nested::List(cells) => {
            cells.iter().map(|cell| values_of(cell, delimiter).into_iter().next().unwrap_or_default()).collect()
        }
        Nested::Map(_) => vec![],
    }
}

/// A candidate with the prediction of its row: the score is the first probability of one class, or the first output.
fn candidate(outputs: &[PredictedColumn], predicted: &Predicted, row: usize, item: Value) -> Candidate {
    let values = |column: usize| {
        let lists = &predicted.columns[column];
        let start = row.checked_sub(1).and_then(|before| lists.ends.get(before)).copied().unwrap_or(0);
        lists.ends.get(row).and_then(|end| lists.values.get(start..*end)).unwrap_or_default()
    };
    let is_score = |output: &PredictedColumn| !output.is_list && output.name.starts_with("probs");
    let score = outputs.iter().position(is_score).unwrap_or(0);
    let logits = outputs.iter().enumerate().filter_map(|(column, output)| {
        let task = output.name.strip_prefix("logits_")?;
        let value = if output.is_list { json!(values(column)) } else { json!(values(column).first()) };
        Some((task.to_owned(), value))
    });
    Candidate { item, score: values(score).first().copied().unwrap_or_default(), logits: logits.collect() }
}

fn print(line: &Line, json: bool, output: &mut Output) -> Result<(), CliError> {
    if json {
        return Ok(output.json(line)?);
    }
    output.line(format_args!("row {}  {}", line.user, count(line.candidates.len() as u64, "candidate")))?;
    for Candidate { item, score, .. } in &line.candidates {
        output.line(format_args!("  {item}  {score:.4}"))?;
    }
    Ok(())
}
