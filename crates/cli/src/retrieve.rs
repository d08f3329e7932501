//! `rewire retrieve`: the items whose vectors have the largest inner products with those of users, and how many right ones are among them.

use crate::args::{Common, Retrieve as Options};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::with_common;
use crate::requests::Value;
use crate::tables::{self, Nested};
use rewire::rank::{Index, RankOptions};
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::time::Instant;
use thiserror::Error;

/// Rows of a table that are read together, and users that are compared with items together.
const CHUNK: usize = 1 << 12;

/// Why vectors cannot be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RetrieveError {
    #[error("{file}, row {row}: `{column}` is not {expected}")]
    Cell { file: String, row: usize, column: String, expected: &'static str },
    #[error("{file}, row {row}: `{column}` has {actual} elements: expected {expected}")]
    Width { file: String, row: usize, column: String, actual: usize, expected: String },
    #[error("{file} has no row with a vector of an item")]
    NoItems { file: String },
}

/// A vector with the items of a column of its row: its own, or those that are right for it.
struct Row {
    vector: Vec<f32>,
    items: Vec<i64>,
}

/// An item of a user.
#[derive(Serialize)]
struct Found {
    item: i64,
    score: f32,
}

/// Prints the items of every user, and a summary.
pub fn run(options: &Options, common: &Common, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    let (file, column) = (&options.items, &options.item_vector);
    let items = rows(file, column, Some(&options.item))?;
    let width = items.first().map(|row| row.vector.len());
    let width = width.ok_or_else(|| RetrieveError::NoItems { file: file.display().to_string() })?;
    check(file, column, &items, |actual| actual == width && width > 0, &format!("{width}, as in row 1"))?;
    let ids: Vec<i64> = items.iter().filter_map(|row| row.items.first().copied()).collect();
    let vectors: Vec<f32> = items.iter().flat_map(|row| &row.vector).copied().collect();
    let index = Index::new(&ids, &vectors, width, &with_common(common, RankOptions::default()))?;
    let (file, column) = (&options.users, &options.user_vector);
    let users = rows(file, column, options.truth.as_deref())?;
    let is_whole = |actual: usize| actual > 0 && actual.is_multiple_of(width);
    check(file, column, &users, is_whole, &format!("a multiple of the {width} of an item"))?;
    let (mut recall, mut judged) = (0.0, 0);
    for (first, users) in users.chunks(CHUNK).enumerate() {
        for (at, (user, found)) in users.iter().zip(best(&index, users, width, options.top.get())?).enumerate() {
            if !user.items.is_empty() {
                let is_found = |item: &&i64| found.iter().any(|found| found.item == **item);
                recall += user.items.iter().filter(is_found).count() as f64 / user.items.len() as f64;
                judged += 1;
            }
            let row = first * CHUNK + at + 1;
            match common.json {
                true => output.json(&json!({ "row": row, "items": found }))?,
                false => found
                    .iter()
                    .try_for_each(|Found { item, score }| output.line(format_args!("{row}  {item}  {score:.5}")))?,
            }
        }
    }
    let recall = (judged > 0).then(|| recall / f64::from(judged));
    let name = format!("recall@{}", options.top);
    let seconds = begun.elapsed().as_secs_f64();
    match common.json {
        true => {
            let metrics: serde_json::Map<_, _> =
                recall.into_iter().map(|recall| (name.clone(), recall.into())).collect();
            let summary = json!({ "users": users.len(), "items": index.len(), "metrics": metrics, "seconds": seconds });
            output.json(&json!({ "summary": summary }))?;
        }
        false => {
            output.line(format_args!("\n{} users, {} items in {seconds:.2} s", users.len(), index.len()))?;
            recall.into_iter().try_for_each(|recall| output.line(format_args!("{name}  {recall:.4}")))?;
        }
    }
    Ok(())
}

/// The best items of each user: by the best of its interests.
fn best(index: &Index, users: &[Row], width: usize, top: usize) -> Result<Vec<Vec<Found>>, CliError> {
    let vectors: Vec<f32> = users.iter().flat_map(|user| &user.vector).copied().collect();
    let mut found = index.top(&vectors, width, top)?.into_iter();
    let of_user = |user: &Row| {
        let mut all: Vec<(i64, f32)> = found.by_ref().take(user.vector.len() / width).flatten().collect();
        all.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        let mut kept: Vec<Found> = vec![];
        for (item, score) in all {
            if kept.len() < top && !kept.iter().any(|found| found.item == item) {
                kept.push(Found { item, score });
            }
        }
        kept
    };
    Ok(users.iter().map(of_user).collect())
}

/// The vectors of a table, and the items of a column if one is named.
fn rows(file: &Path, vector: &str, items: Option<&str>) -> Result<Vec<Row>, CliError> {
    let names: Vec<String> = [vector].into_iter().chain(items).map(str::to_owned).collect();
    let mut table = tables::open(file, &names)?;
    let mut all = vec![];
    loop {
        let read = table.read(CHUNK)?;
        if read.count == 0 {
            return Ok(all);
        }
        let mut columns = read.columns.into_iter();
        let (vectors, mut ids) = (columns.next().unwrap_or_default(), columns.next().map(Vec::into_iter));
        for cell in vectors {
            let wrong = |column: &str, expected| RetrieveError::Cell {
                file: file.display().to_string(),
                row: all.len() + 1,
                column: column.to_owned(),
                expected,
            };
            let own = numbers(&cell).ok_or_else(|| wrong(vector, "a list of finite numbers"))?;
            let ids = ids.as_mut().and_then(Iterator::next).zip(items);
            let ids =
                ids.map(|(cell, column)| integers(&cell).ok_or_else(|| wrong(column, "an integer or a list of such")));
            all.push(Row { vector: own, items: ids.transpose()?.unwrap_or_default() });
        }
    }
}

/// Checks the number of elements of all vectors.
fn check(
    file: &Path,
    column: &str,
    rows: &[Row],
    is_right: impl Fn(usize) -> bool,
    expected: &str,
) -> Result<(), RetrieveError> {
    match rows.iter().position(|row| !is_right(row.vector.len())) {
        None => Ok(()),
        Some(at) => Err(RetrieveError::Width {
            file: file.display().to_string(),
            row: at + 1,
            column: column.to_owned(),
            actual: rows.get(at).map_or(0, |row| row.vector.len()),
            expected: expected.to_owned(),
        }),
    }
}

fn numbers(cell: &Nested) -> Option<Vec<f32>> {
    let Nested::List(items) = cell else { return None };
    let number = |item: &Nested| match item {
        Nested::One(Value::Float(value)) => Some(*value as f32),
        Nested::One(Value::Integer(value)) => Some(*value as f32),
        _ => None,
    };
    items.iter().map(|item| number(item).filter(|value| value.is_finite())).collect()
}

fn integers(cell: &Nested) -> Option<Vec<i64>> {
    match cell {
        Nested::One(Value::Integer(value)) => Some(vec![*value]),
        Nested::One(Value::Null) => Some(vec![]),
        Nested::List(items) => items.iter().map(integers).collect::<Option<Vec<_>>>().map(|items| items.concat()),
        Nested::One(_) | Nested::Map(_) => None,
    }
}
