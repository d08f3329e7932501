//! `rewire eval`.

mod ranker;

use crate::args::{Common, Eval};
use crate::error::CliError;
use crate::output::Output;
use crate::predict::encoded;
use crate::progress::Progress;
use crate::rank::with_common;
use crate::requests::{InputError, title};
use crate::table::table;
use crate::tables::{self, Table};
use rewire::predict::{Evaluated, Evaluation, Evaluator, Negatives, is_imported};
use rewire::rank::RankOptions;
use serde_json::{Map, Value, json};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;
use thiserror::Error;

/// Why a model cannot be evaluated on a file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Negatives are missing.
    #[error(
        "the model is evaluated against sampled negatives: --negatives must name a file with a row for each batch and the columns {}",
        columns.join(", ")
    )]
    NoNegatives { columns: Vec<String> },
    /// The model uses no negatives.
    #[error("the model has no sampled negatives: leave out --negatives")]
    OtherNegatives,
    /// There are more batches than rows of negatives.
    #[error("{file} has negatives for {rows} batches: expected one row per batch of {batch} rows")]
    FewNegatives { file: String, rows: usize, batch: usize },
    /// A request has no labels.
    #[error("user `{user}` has no `labels`: expected the action bits of each candidate")]
    NoLabels { user: String },
    /// An option of imported models.
    #[error("ranking models are evaluated by candidates: leave out {option}")]
    Ranking { option: &'static str },
}

impl EvalError {
    /// True if the arguments themselves are invalid.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoNegatives { .. } | Self::OtherNegatives | Self::Ranking { .. })
    }
}

/// Prints the metrics and losses of a model on a file. The program began at `begun`.
pub fn run(options: &Eval, common: &Common, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    let with = RankOptions {
        precision: options.stored.precision(),
        cache: options.stored.cache(),
        allow_unread: options.weights.allow_unread,
        ..options.placement.of_model()
    };
    let with = with_common(common, with);
    let evaluated = match is_imported(&options.model) {
        true => {
            let (evaluator, weights) = Evaluator::load(&options.model, &with)?;
            let data = Files { data: &options.data, negatives: options.negatives.as_deref() };
            data.evaluate(&evaluator, evaluator.begin(&weights)?, options.batch)?
        }
        false => ranker::evaluate(options, &with)?,
    };
    print(&evaluated, begun, common.json, output)
}

/// The input files for evaluating an imported model.
pub struct Files<'a> {
    pub data: &'a Path,
    pub negatives: Option<&'a Path>,
}

impl Files<'_> {
    /// Checks that the files have the columns for the evaluation, and at least one row.
    pub fn check(&self, evaluator: &Evaluator) -> Result<(), CliError> {
        if let Some((mut negatives, _)) = self.open_negatives(evaluator)? {
            negatives.read(1)?;
        }
        match tables::open(self.data, evaluator.columns())?.read(1)?.count {
            0 => Err(self.empty().into()),
            _ => Ok(()),
        }
    }

    fn empty(&self) -> InputError {
        InputError::Table { file: title(Some(self.data)), reason: "it holds no rows".to_owned() }
    }

    /// Evaluates the rows in order, by default in batches of the configuration.
    pub fn evaluate(
        &self,
        evaluator: &Evaluator,
        mut evaluation: Evaluation,
        batch: Option<NonZeroUsize>,
    ) -> Result<Evaluated, CliError> {
        let size = batch.map_or(evaluator.batch_size(), NonZeroUsize::get);
        let mut negatives = self.open_negatives(evaluator)?;
        let mut table = tables::open(self.data, evaluator.columns())?;
        let mut progress = Progress::new();
        for number in 0.. {
            let read = table.read(size)?;
            if read.count == 0 {
                break;
            }
            let columns = encoded(evaluator.columns(), read.columns, ((number * size) as u64, self.data))?;
            let sampled = negatives.as_mut().map(|(table, file)| {
                let read = table.read(1)?;
                if read.count == 0 {
                    let file = title(Some(file));
                    return Err(CliError::from(EvalError::FewNegatives { file, rows: number, batch: size }));
                }
                Ok(encoded(evaluator.negatives(), read.columns, (number as u64, file))?)
            });
            let sampled = sampled.transpose()?;
            let row = sampled.as_deref().map(|columns| Negatives { columns, row: 0 });
            evaluation.add(read.count, &columns, row)?;
            if let Some(read) = table.progress() {
                progress.update(read, format_args!("{} batches", number + 1));
            }
        }
        let evaluated = evaluation.evaluated();
        match evaluated.rows {
            0 => Err(self.empty().into()),
            _ => Ok(evaluated),
        }
    }

    fn open_negatives(&self, evaluator: &Evaluator) -> Result<Option<Named<'_>>, CliError> {
        match (self.negatives, evaluator.negatives()) {
            (None, []) => Ok(None),
            (Some(_), []) => Err(EvalError::OtherNegatives.into()),
            (None, columns) => Err(EvalError::NoNegatives { columns: columns.to_vec() }.into()),
            (Some(file), columns) => Ok(Some((tables::open(file, columns)?, file))),
        }
    }
}

/// A table and its file.
type Named<'a> = (Box<dyn Table>, &'a Path);

fn print(evaluated: &Evaluated, begun: Instant, json: bool, output: &mut Output) -> Result<(), CliError> {
    let seconds = begun.elapsed().as_secs_f64();
    let Evaluated { metrics, losses, rows } = evaluated;
    if json {
        let map = |values: &[(String, Option<f64>)]| -> Map<String, Value> {
            values.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
        };
        let line = json!({ "metrics": map(metrics), "losses": map(losses), "rows": rows, "seconds": seconds });
        return Ok(output.json(&line)?);
    }
    let of = |kind: &'static str| {
        move |(name, value): &(String, Option<f64>)| {
            let value = value.map_or_else(|| "undefined".to_owned(), |value| format!("{value:.6}"));
            vec![kind.to_owned(), name.clone(), value]
        }
    };
    let lines = metrics.iter().map(of("metric")).chain(losses.iter().map(of("loss")));
    output.line(table(&["", "name", "value"], lines, &[0, 1]))?;
    Ok(output.line(format_args!("{rows} rows in {seconds:.1} s"))?)
}
