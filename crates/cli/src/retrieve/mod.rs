//! `rewire retrieve`: the items with the largest inner products for users, and the recall of relevant items.

#[cfg(feature = "hnsw")]
mod hnsw;

use crate::args::{Common, IndexKind, Retrieve as Options};
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

/// Rows of a table per read, and users per search.
const CHUNK: usize = 1 << 12;

/// Why retrieval is not possible.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RetrieveError {
    #[error("{file}, row {row}: `{column}` is not {expected}")]
    Cell { file: String, row: usize, column: String, expected: &'static str },
    #[error("{file}, row {row}: `{column}` has {actual} elements: expected {expected}")]
    Width { file: String, row: usize, column: String, actual: usize, expected: String },
    #[error("{file} has {actual} rows of relevant items: expected {expected}, one for each row of --users")]
    Truth { file: String, actual: usize, expected: usize },
    #[error("{file} has no item vectors")]
    NoItems { file: String },
    #[cfg(feature = "hnsw")]
    #[error("the inner product of a user and item {item} is {product}: expected a finite number")]
    Product { item: i64, product: f32 },
    #[cfg(not(feature = "hnsw"))]
    #[error("--index hnsw: this program was built without it: leave it out, or build with `--features hnsw`")]
    NoHnsw,
}

/// A vector with the items in a column of its row: its own, or the relevant ones.
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
    let (ids, vectors, width) = items(&options.items, &options.item, &options.item_vector)?;
    let exact = || -> Result<Box<dyn Search>, CliError> {
        Ok(Box::new(Index::new(&ids, &vectors, width, &with_common(common, RankOptions::default()))?))
    };
    let index = match options.index {
        IndexKind::Exact => exact()?,
        IndexKind::Hnsw => graph(&ids, &vectors, width, options.ef.get())?,
    };
    let judge = options.recall.then(exact).transpose()?;
    let (file, column) = (&options.users, &options.user_vector);
    let users = match &options.truth_data {
        None => rows(file, Some(column), options.truth.as_deref())?,
        Some(data) => with_truth(rows(file, Some(column), None)?, data, options.truth.as_deref())?,
    };
    let is_whole = |actual: usize| actual > 0 && actual.is_multiple_of(width);
    check(file, column, &users, is_whole, &format!("a multiple of the {width} of an item"))?;
    let top = options.top.get();
    let [mut of_truth, mut of_index] = [Recall::default(), Recall::default()];
    for (first, users) in users.chunks(CHUNK).enumerate() {
        let found = best(&*index, users, width, top)?;
        if let Some(judge) = &judge {
            for (found, right) in found.iter().zip(best(&**judge, users, width, top)?) {
                of_index.add(found, right.iter().map(|found| &found.item));
            }
        }
        for (at, (user, found)) in users.iter().zip(found).enumerate() {
            of_truth.add(&found, user.items.iter());
            let row = first * CHUNK + at + 1;
            match common.json {
                true => output.json(&json!({ "row": row, "items": found }))?,
                false => found
                    .iter()
                    .try_for_each(|Found { item, score }| output.line(format_args!("{row}  {item}  {score:.5}")))?,
            }
        }
    }
    let recalls = [("recall", of_truth), ("index_recall", of_index)];
    let recalls = recalls.iter().filter_map(|(name, recall)| Some((format!("{name}@{top}"), recall.mean()?)));
    let seconds = begun.elapsed().as_secs_f64();
    match common.json {
        true => {
            let metrics: serde_json::Map<_, _> = recalls.map(|(name, recall)| (name, recall.into())).collect();
            let summary = json!({ "users": users.len(), "items": index.len(), "metrics": metrics, "seconds": seconds });
            output.json(&json!({ "summary": summary }))?;
        }
        false => {
            output.line(format_args!("\n{} users, {} items in {seconds:.2} s", users.len(), index.len()))?;
            for (name, recall) in recalls {
                output.line(format_args!("{name}  {recall:.4}"))?;
            }
        }
    }
    Ok(())
}

/// The items of a table, their concatenated vectors, and the width of a vector.
pub(crate) fn items(file: &Path, item: &str, column: &str) -> Result<(Vec<i64>, Vec<f32>, usize), CliError> {
    let items = rows(file, Some(column), Some(item))?;
    let width = items.first().map(|row| row.vector.len());
    let width = width.ok_or_else(|| RetrieveError::NoItems { file: file.display().to_string() })?;
    check(file, column, &items, |actual| actual == width && width > 0, &format!("{width}, as in row 1"))?;
    if let Some(at) = items.iter().position(|row| row.items.len() != 1) {
        let (file, column) = (file.display().to_string(), item.to_owned());
        return Err(RetrieveError::Cell { file, row: at + 1, column, expected: "one integer" }.into());
    }
    let ids = items.iter().flat_map(|row| &row.items).copied().collect();
    Ok((ids, items.iter().flat_map(|row| &row.vector).copied().collect(), width))
}

/// Items with their vectors, and a search method.
trait Search {
    /// For each of the users' concatenated vectors, at most `count` items with large inner products, in descending order; ties are
    /// broken by the smaller item.
    fn top(&self, users: &[f32], width: usize, count: usize) -> Result<Vec<Vec<(i64, f32)>>, CliError>;

    /// Number of items.
    fn len(&self) -> usize;
}

impl Search for Index {
    fn top(&self, users: &[f32], width: usize, count: usize) -> Result<Vec<Vec<(i64, f32)>>, CliError> {
        Ok(self.top(users, width, count)?)
    }

    fn len(&self) -> usize {
        self.len()
    }
}

#[cfg(feature = "hnsw")]
fn graph(ids: &[i64], vectors: &[f32], width: usize, ef: usize) -> Result<Box<dyn Search>, CliError> {
    Ok(Box::new(hnsw::Graph::new(ids, vectors, width, ef)))
}

#[cfg(not(feature = "hnsw"))]
fn graph(_: &[i64], _: &[f32], _: usize, _: usize) -> Result<Box<dyn Search>, CliError> {
    Err(RetrieveError::NoHnsw.into())
}

/// The mean recall over users.
#[derive(Default)]
struct Recall {
    sum: f64,
    users: u32,
}

impl Recall {
    /// Users without relevant items are ignored.
    fn add<'i>(&mut self, found: &[Found], right: impl ExactSizeIterator<Item = &'i i64>) {
        let count = right.len();
        let hits = right.filter(|item| found.iter().any(|found| found.item == **item)).count();
        if count > 0 {
            self.sum += hits as f64 / count as f64;
            self.users += 1;
        }
    }

    fn mean(&self) -> Option<f64> {
        (self.users > 0).then(|| self.sum / f64::from(self.users))
    }
}

/// The best items of each user, by the best of its interests.
fn best(index: &dyn Search, users: &[Row], width: usize, top: usize) -> Result<Vec<Vec<Found>>, CliError> {
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

/// Users with the relevant items of another table, which has as many rows.
fn with_truth(mut users: Vec<Row>, data: &Path, truth: Option<&str>) -> Result<Vec<Row>, CliError> {
    let right = rows(data, None, truth)?;
    if right.len() != users.len() {
        let (file, actual) = (data.display().to_string(), right.len());
        return Err(RetrieveError::Truth { file, actual, expected: users.len() }.into());
    }
    users.iter_mut().zip(right).for_each(|(user, right)| user.items = right.items);
    Ok(users)
}

/// The vectors and items of a table's rows, from the named columns.
fn rows(file: &Path, vector: Option<&str>, items: Option<&str>) -> Result<Vec<Row>, CliError> {
    let names: Vec<String> = vector.into_iter().chain(items).map(str::to_owned).collect();
    let mut table = tables::open(file, &names)?;
    let mut all = vec![];
    loop {
        let read = table.read(CHUNK)?;
        if read.count == 0 {
            return Ok(all);
        }
        let mut columns = read.columns.into_iter();
        let mut next = |name: Option<&str>| name.and_then(|_| columns.next()).unwrap_or_default().into_iter();
        let (mut vectors, mut ids) = (next(vector), next(items));
        for _ in 0..read.count {
            let wrong = |column: &str, expected| RetrieveError::Cell {
                file: file.display().to_string(),
                row: all.len() + 1,
                column: column.to_owned(),
                expected,
            };
            let own = vectors
                .next()
                .zip(vector)
                .map(|(cell, column)| numbers(&cell).ok_or_else(|| wrong(column, "a list of finite numbers")));
            let ids = ids
                .next()
                .zip(items)
                .map(|(cell, column)| integers(&cell).ok_or_else(|| wrong(column, "an integer or a list of such")));
            let (own, ids) = (own.transpose()?, ids.transpose()?);
            all.push(Row { vector: own.unwrap_or_default(), items: ids.unwrap_or_default() });
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

/// The separator of a list's elements in CSV, as written by `predict`.
const SEPARATOR: char = ';';

fn numbers(cell: &Nested) -> Option<Vec<f32>> {
    let number = |item: &Nested| match item {
        Nested::One(Value::Float(value)) => Some(*value as f32),
        Nested::One(Value::Integer(value)) => Some(*value as f32),
        _ => None,
    };
    let all: Option<Vec<f32>> = match cell {
        Nested::List(items) => items.iter().map(number).collect(),
        Nested::One(Value::Text(text)) => text.split(SEPARATOR).map(|item| item.parse().ok()).collect(),
        Nested::One(_) | Nested::Map(_) => None,
    };
    all.filter(|all| all.iter().all(|value| value.is_finite()))
}

fn integers(cell: &Nested) -> Option<Vec<i64>> {
    match cell {
        Nested::One(Value::Integer(value)) => Some(vec![*value]),
        Nested::One(Value::Null) => Some(vec![]),
        Nested::One(Value::Text(text)) => text.split(SEPARATOR).map(|item| item.parse().ok()).collect(),
        Nested::List(items) => items.iter().map(integers).collect::<Option<Vec<_>>>().map(|items| items.concat()),
        Nested::One(_) | Nested::Map(_) => None,
    }
}
