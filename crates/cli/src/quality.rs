//! `rewire bench --quality`: metrics of pipelines, averaged over trainings and compared with earlier ones.

use crate::args::{Bench as Options, Common, Quality as Asked};
use crate::error::CliError;
use crate::output::Output;
use crate::table::table;
use crate::train::larger_is_better;
use rewire_measure::{BenchError, Category};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The metrics of a pipeline.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Quality {
    op: String,
    seeds: u64,
    metrics: BTreeMap<String, Spread>,
}

/// A metric over trainings; without a mean if it is undefined in a training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Spread {
    mean: Option<f64>,
    /// The standard deviation.
    std: Option<f64>,
}

/// The comparison of a pipeline with an earlier one.
#[derive(Debug, PartialEq, Serialize)]
struct Change {
    op: String,
    category: Category,
    /// Relative changes of means.
    changes: BTreeMap<String, f64>,
}

/// Trains the pipelines and prints their metrics, followed by the comparison with the baseline.
pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let asked = &options.quality;
    let baseline = asked.baseline.as_deref().map(read).transpose()?;
    let mut found = vec![];
    for op in &options.ops {
        let seeds = 0..asked.seeds.get();
        let metrics = seeds.map(|seed| train(op, seed, asked, common)).collect::<Result<Vec<_>, _>>()?;
        let quality = Quality { op: op.clone(), seeds: asked.seeds.get(), metrics: spreads(&metrics) };
        match common.json {
            true => output.json(&quality)?,
            false => output.line(quality.text())?,
        }
        found.push(quality);
    }
    let changes: Vec<Change> =
        baseline.iter().flatten().map(|before| change(before, &found, asked.tolerance)).collect();
    for change in &changes {
        match common.json {
            true => output.json(change)?,
            false => output.line(change.text())?,
        }
    }
    let is_bad = |change: &&Change| matches!(change.category, Category::Worse | Category::Mixed | Category::Error);
    match changes.iter().filter(is_bad).count() {
        0 => Ok(()),
        worse => Err(CliError::Worse { worse, all: changes.len() }),
    }
}

/// The metrics of a training in a separate process, whose memory and threads end with it.
fn train(op: &str, seed: u64, asked: &Asked, common: &Common) -> Result<BTreeMap<String, Option<f64>>, CliError> {
    let failed = |reason: String| CliError::Quality { op: op.to_owned(), seed, reason };
    let out = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["train", "--pipeline", op, "--json", "--seed", &seed.to_string()]).arg("--out").arg(out.path());
    command.args(["--kernel", &common.kernel.to_string()]);
    command.args(common.adapter.iter().flat_map(|adapter| ["--adapter", adapter]));
    command.args(common.kernel_for.iter().flat_map(|rule| ["--kernel-for".to_owned(), rule.to_string()]));
    let data = asked.data.iter().map(|file| ("--data", file));
    let others = [("--eval", &asked.eval), ("--negatives", &asked.negatives)];
    for (name, file) in data.chain(others.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?)))) {
        command.arg(name).arg(file);
    }
    tracing::info!("training {op} with seed {seed}");
    let done = command.stderr(Stdio::piped()).output().map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let reason = text.lines().last().unwrap_or_default();
        return Err(failed(reason.strip_prefix("error: ").unwrap_or(reason).to_owned()));
    }
    let text = String::from_utf8_lossy(&done.stdout);
    let summary = text.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let metrics = summary.and_then(|mut line| line.pointer_mut("/summary/metrics").map(Value::take));
    let metrics = metrics.and_then(|metrics| serde_json::from_value(metrics).ok());
    metrics.ok_or_else(|| failed("it has no metrics".to_owned()))
}

/// Means and standard deviations of the trainings' metrics.
fn spreads(trainings: &[BTreeMap<String, Option<f64>>]) -> BTreeMap<String, Spread> {
    let names = trainings.iter().flat_map(BTreeMap::keys);
    let spread = |name: &String| {
        let values = trainings.iter().map(|metrics| metrics.get(name).copied().flatten());
        let values: Option<Vec<f64>> = values.collect();
        let count = trainings.len() as f64;
        let mean = values.as_ref().map(|values| values.iter().sum::<f64>() / count);
        let variance = |mean: f64| values.iter().flatten().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        (name.clone(), Spread { mean, std: mean.map(|mean| variance(mean).sqrt()) })
    };
    names.map(spread).collect()
}

/// Compares a pipeline with an earlier one: common metrics whose means differ by more than the tolerance.
fn change(before: &Quality, found: &[Quality], tolerance: f64) -> Change {
    let after = found.iter().find(|quality| quality.op == before.op);
    let (mut better, mut worse, mut changes) = (false, false, BTreeMap::new());
    for (name, old) in &before.metrics {
        let new = after.and_then(|after| after.metrics.get(name));
        let Some((old, new)) = old.mean.zip(new.and_then(|new| new.mean)) else { continue };
        let change = if old == new { 0.0 } else { (new - old) / old.abs() };
        let gain = if larger_is_better(name) { change } else { -change };
        better |= gain > tolerance;
        worse |= gain < -tolerance;
        changes.insert(name.clone(), change);
    }
    let category = match (changes.is_empty(), better, worse) {
        (true, ..) => Category::Error,
        (_, true, true) => Category::Mixed,
        (_, true, false) => Category::Better,
        (_, false, true) => Category::Worse,
        (_, false, false) => Category::Balanced,
    };
    Change { op: before.op.clone(), category, changes }
}

/// Reads `--json` output, without comparisons.
fn read(path: &Path) -> Result<Vec<Quality>, CliError> {
    let failed = |reason: String| BenchError::File { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.contains("\"category\""));
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| failed(format!("line {}: {error}", number + 1)).into())
    };
    lines.map(parse).collect()
}

impl Quality {
    fn text(&self) -> String {
        let number = |value: Option<f64>| value.map_or_else(|| "undefined".to_owned(), |value| format!("{value:.5}"));
        let rows =
            self.metrics.iter().map(|(name, Spread { mean, std })| vec![name.clone(), number(*mean), number(*std)]);
        let seeds = format!("{} trainings", self.seeds);
        table(&[&self.op, &seeds, "std"], rows, &[0])
    }
}

impl Change {
    fn text(&self) -> String {
        let changes = self.changes.iter().map(|(name, change)| format!("{name} {:+.2} %", 100.0 * change));
        format!("{:<9} {}  {}", self.category, self.op, changes.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quality(metrics: &[(&str, Option<f64>)]) -> Quality {
        let spread = |mean| Spread { mean, std: Some(0.0) };
        let metrics = metrics.iter().map(|(name, mean)| ((*name).to_owned(), spread(*mean))).collect();
        Quality { op: "p.config".to_owned(), seeds: 1, metrics }
    }

    #[test]
    fn means_and_deviations_are_over_trainings() {
        let training = |auc, other| [("auc".to_owned(), auc), ("other".to_owned(), other)].into();
        let found = spreads(&[training(Some(0.5), Some(1.0)), training(Some(0.7), None)]);
        assert!((found["auc"].mean.unwrap() - 0.6).abs() < 1e-12 && (found["auc"].std.unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(found["other"], Spread { mean: None, std: None });
    }

    #[test]
    fn changes_are_sorted_into_the_categories_of_the_reference() {
        let before = quality(&[("auc", Some(0.5)), ("mean_squared_error", Some(2.0))]);
        let category = |auc, error| {
            let after = quality(&[("auc", auc), ("mean_squared_error", error)]);
            change(&before, &[after], 0.001).category
        };
        assert_eq!(category(Some(0.5004), Some(2.001)), Category::Balanced);
        assert_eq!(category(Some(0.51), Some(2.0)), Category::Better);
        assert_eq!(category(Some(0.5), Some(1.9)), Category::Better);
        assert_eq!(category(Some(0.49), Some(2.0)), Category::Worse);
        assert_eq!(category(Some(0.51), Some(2.1)), Category::Mixed);
        assert_eq!(category(None, None), Category::Error);
        assert_eq!(change(&before, &[], 0.001).category, Category::Error);
        let found = change(&before, &[quality(&[("auc", Some(0.4))])], 0.001);
        assert!((found.changes["auc"] + 0.2).abs() < 1e-12 && found.changes.len() == 1);
    }
}
