//! Compares two models' logits for the same users.

use crate::args::{Common, Compare};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::{load, with_common};
use crate::requests::{Chunk, InputError, Reading, Sizes, chunks, open, title};
use crate::table::table;
use rewire::rank::{Change, Comparison, RankOptions};
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a comparison.
#[derive(Debug, Serialize)]
struct Compared {
    users: u64,
    candidates: u64,
    /// Users whose top 10 candidates differ or are ordered differently.
    reordered: u64,
    tasks: BTreeMap<String, Task>,
    kernel: String,
    adapter: String,
}

/// Differences of a task's logits.
#[derive(Debug, Serialize)]
struct Task {
    /// The largest absolute difference.
    largest_change: f64,
    mean_change: f64,
    /// Null without labels of both kinds.
    auc: Option<f64>,
    auc_against: Option<f64>,
}

impl Task {
    fn of(change: &Change) -> Self {
        let [auc, auc_against] = change.aucs();
        Self { largest_change: change.largest, mean_change: change.mean(), auc, auc_against }
    }
}

/// Compares the model of the options with another one.
pub fn run(options: &Compare, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let with =
        RankOptions { tuning: options.tuning, allow_unread: options.weights.allow_unread, ..RankOptions::default() };
    let with = with_common(common, with);
    let against = load(Some(&options.against), &with)?;
    let stored = &options.stored;
    let with = RankOptions { precision: stored.precision(), cache: stored.cache(), ..with };
    let model = load(options.model.as_deref(), &with)?;
    let mut comparison = Comparison::new(&model, &against)?;
    let data = options.data.as_deref();
    let reading = Reading { empty: model.batch(), sizes: Sizes::default(), rejects: false, ahead: 2 };
    for Chunk { batch, end, .. } in chunks(open(data, model.schema())?, reading)? {
        let (ranked, expected) = (model.rank_batch(&batch)?, against.rank_batch(&batch)?);
        for (request, (ranked, expected)) in ranked.iter().zip(&expected).enumerate() {
            comparison.add(ranked, expected, batch.labels(request))?;
        }
        end?;
    }
    if comparison.users == 0 {
        return Err(InputError::Empty { file: title(data) }.into());
    }
    let report = model.report();
    let compared = Compared {
        users: comparison.users,
        candidates: comparison.candidates,
        reordered: comparison.reordered,
        tasks: comparison.tasks.iter().map(|change| (change.task.name.clone(), Task::of(change))).collect(),
        kernel: report.kernel.to_string(),
        adapter: report.adapter.unwrap_or_else(|| "cpu".into()),
    };
    match common.json {
        true => Ok(output.json(&compared)?),
        false => compared.print(output),
    }
}

impl Compared {
    fn print(&self, output: &mut Output) -> Result<(), CliError> {
        let header = ["task", "largest change", "mean change", "AUC", "AUC against"];
        let auc = |auc: Option<f64>| auc.map_or_else(|| "-".to_owned(), |auc| format!("{auc:.4}"));
        let rows = self.tasks.iter().map(|(name, task)| {
            let [largest, mean] = [task.largest_change, task.mean_change].map(|change| format!("{change:.2e}"));
            vec![name.clone(), largest, mean, auc(task.auc), auc(task.auc_against)]
        });
        output.line(table(&header, rows, &[0]))?;
        let Self { users, candidates, reordered, adapter, .. } = self;
        let line =
            format!("{users} users, {candidates} candidates on {adapter}: {reordered} users with another first 10");
        Ok(output.line(line)?)
    }
}
