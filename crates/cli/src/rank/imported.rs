//! Ranking by imported models: a row of a table is a user with candidates, or one candidate of a user.

use super::report::Tally;
use super::table::{count, print_summary};
use super::{RankUsage, SummaryLine};
use crate::args::Rank;
use crate::error::CliError;
use crate::output::Output;
use crate::predict::{encoded, in_file};
use crate::requests::{InputError, Value, title};
use crate::spread::{self, Devices};
use crate::tables::{self, Items, Nested, Table, integer};
use rewire::predict::{LabelledTask, Lists, Predicted, PredictedColumn, Predictor};
use rewire::rank::{Spread, Task};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

/// Rows per batch.
const ROWS: usize = 256;

#[derive(Serialize)]
struct Line {
    /// The value of the user column, or the row number, from 1.
    user: Json,
    candidates: Vec<Candidate>,
}

#[derive(Serialize)]
struct Candidate {
    item: Json,
    score: f32,
    logits: Map<String, Json>,
}

/// The columns of a table that ranking uses.
struct Columns {
    /// The columns of the model, followed by the others.
    names: Vec<String>,
    items: Items,
    /// The positions of items, of users, and of the labels of the tasks.
    item: usize,
    user: Option<usize>,
    labels: Vec<(LabelledTask, usize)>,
}

impl Columns {
    fn of(predictor: &Predictor, options: &Rank) -> Result<Self, RankUsage> {
        let (user, item) = (options.user_column.as_deref(), options.item_column.as_deref());
        let items = Items::of(predictor, item);
        let items = items.filter(|items| user.is_some() || !items.are_rows()).ok_or(RankUsage::Columns)?;
        if predictor.outputs().iter().any(|output| output.name.ends_with("_tower_emb")) {
            return Err(RankUsage::Matching);
        }
        let mut names = predictor.columns().to_vec();
        let mut place = |name: &str| {
            names.push(name.to_owned());
            names.len() - 1
        };
        let (item, user) = (place(&items.column), user.map(&mut place));
        Ok(Self { names, items, item, user, labels: vec![] })
    }

    /// Opens the table, including labels if it has them.
    fn open(&mut self, data: &Path, tasks: &[LabelledTask]) -> Result<Box<dyn Table>, InputError> {
        let labels = tasks.iter().map(|task| task.label.clone());
        let with_labels: Vec<String> = self.names.iter().cloned().chain(labels).collect();
        if let Ok(table) = tables::open(data, &with_labels) {
            self.labels = tasks.iter().cloned().zip(self.names.len()..).collect();
            return Ok(table);
        }
        tables::open(data, &self.names)
    }
}

/// A run over a table.
struct Run<'a> {
    columns: Columns,
    predictors: Spread<Predictor>,
    data: &'a Path,
    top: usize,
    json: bool,
    tally: Tally,
    /// Users whose candidates are rows, in the order of their first rows.
    users: Vec<Line>,
    known: HashMap<String, usize>,
}

/// Ranks the candidates of every user.
pub fn run(
    model: &Path,
    options: &Rank,
    devices: &Devices,
    json: bool,
    begun: Instant,
    output: &mut Output,
) -> Result<(), CliError> {
    let data = options.data.as_deref().ok_or(RankUsage::NoData)?;
    let predictors = devices.load(|with| Predictor::load(model, with))?;
    let mut columns = Columns::of(predictors.first(), options)?;
    let mut table = columns.open(data, predictors.first().tasks())?;
    let tasks = columns.labels.iter().map(|(task, _)| Task { name: name_of(task), bitmask: 1 });
    let tally = Tally::new(&tasks.collect::<Vec<_>>(), begun);
    let mut run =
        Run { columns, predictors, data, top: options.top, json, tally, users: vec![], known: HashMap::new() };
    let mut rows = 0;
    loop {
        let read = table.read(ROWS)?;
        if read.count == 0 {
            break;
        }
        run.add(read.columns, read.count, rows, output)?;
        rows += read.count as u64;
    }
    if rows == 0 {
        return Err(InputError::Table { file: title(Some(data)), reason: "it holds no rows".to_owned() }.into());
    }
    for line in std::mem::take(&mut run.users) {
        run.print(line, output)?;
    }
    output.flush()?;
    let summary = run.tally.summary(&spread::report(&run.predictors, Predictor::report));
    match json {
        true => output.json(&SummaryLine { summary: &summary })?,
        false => print_summary(&summary, output)?,
    }
    Ok(())
}

/// The task's name, or that of its label.
fn name_of(task: &LabelledTask) -> String {
    if task.name.is_empty() { task.label.clone() } else { task.name.clone() }
}

impl Run<'_> {
    /// Scores rows after `before` others.
    fn add(
        &mut self,
        mut cells: Vec<Vec<Nested>>,
        count: usize,
        before: u64,
        output: &mut Output,
    ) -> Result<(), CliError> {
        let first = self.predictors.first();
        let others = cells.split_off(first.columns().len());
        let columns = encoded(first.columns(), cells, (before, self.data))?;
        let predicted = self.predictors.run(|predictor| predictor.predict(count, &columns));
        let predicted = predicted.map_err(|error| in_file(error, before))?;
        let outputs = first.outputs().to_vec();
        let cell = |place: usize, row: usize| others.get(place - columns.len()).and_then(|cells| cells.get(row));
        let values = |place: usize, row: usize| cell(place, row).map_or(vec![], |cell| self.columns.items.values(cell));
        let scores: Vec<Option<&Lists>> =
            self.columns.labels.iter().map(|(task, _)| column_of(&outputs, &predicted, &task.output)).collect();
        let (mut start, mut lines) = (0, vec![]);
        for (row, &candidates) in predicted.counts.iter().enumerate() {
            let entries = start..start + candidates;
            start = entries.end;
            for (at, ((task, place), scores)) in self.columns.labels.iter().zip(&scores).enumerate() {
                let scores = entries.clone().filter_map(|entry| scores.as_ref()?.values.get(entry));
                for (label, &score) in values(*place, row).iter().filter_map(integer).zip(scores) {
                    self.tally.label(at, score, task.is_positive(label));
                }
            }
            let items = values(self.columns.item, row).into_iter().map(|item| json_of(&item));
            let scored = entries.zip(items).map(|(entry, item)| candidate(&outputs, &predicted, entry, item));
            let user = match self.columns.user.and_then(|place| cell(place, row)) {
                Some(Nested::One(value)) => json_of(value),
                Some(_) | None => json!(before + row as u64 + 1),
            };
            lines.push(Line { user, candidates: scored.collect() });
        }
        for line in lines {
            match self.columns.items.are_rows() {
                true => self.join(line),
                false => self.print(line, output)?,
            }
        }
        Ok(())
    }

    /// Adds the candidates of a row to those of its user.
    fn join(&mut self, line: Line) {
        let place = *self.known.entry(line.user.to_string()).or_insert(self.users.len());
        match self.users.get_mut(place) {
            Some(user) => user.candidates.extend(line.candidates),
            None => self.users.push(line),
        }
    }

    /// Prints a user's candidates, the best first.
    fn print(&mut self, mut line: Line, output: &mut Output) -> Result<(), CliError> {
        let order = |item: &Json| (item.as_i64(), item.as_str().map(str::to_owned));
        let candidates = &mut line.candidates;
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| order(&a.item).cmp(&order(&b.item))));
        self.tally.count(candidates.len() as u64);
        let all = count(candidates.len() as u64, "candidate");
        candidates.truncate(self.top);
        if self.json {
            return Ok(output.json(&line)?);
        }
        let user = line.user.as_str().map_or_else(|| line.user.to_string(), str::to_owned);
        let kind = if self.columns.user.is_some() { "" } else { "row " };
        output.line(format_args!("{kind}{user}  {all}"))?;
        for Candidate { item, score, .. } in &line.candidates {
            output.line(format_args!("  {item}  {score:.4}"))?;
        }
        Ok(())
    }
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Integer(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Text(text) => json!(text),
    }
}

fn column_of<'p>(outputs: &[PredictedColumn], predicted: &'p Predicted, name: &str) -> Option<&'p Lists> {
    let place = outputs.iter().position(|output| output.name == name)?;
    predicted.columns.get(place)
}

/// A candidate with the prediction of its row: the score is the first single-class probability, or the first output.
fn candidate(outputs: &[PredictedColumn], predicted: &Predicted, row: usize, item: Json) -> Candidate {
    let values = |column: usize| predicted.columns.get(column).map_or(&[][..], |lists| lists.row(row));
    let is_score = |output: &PredictedColumn| !output.is_list && output.name.starts_with("probs");
    let score = outputs.iter().position(is_score).unwrap_or(0);
    let logits = outputs.iter().enumerate().filter_map(|(column, output)| {
        let task = output.name.strip_prefix("logits")?;
        let value = if output.is_list { json!(values(column)) } else { json!(values(column).first()) };
        Some((task.trim_start_matches('_').to_owned(), value))
    });
    Candidate { item, score: values(score).first().copied().unwrap_or_default(), logits: logits.collect() }
}
