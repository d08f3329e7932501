//! Observes a training of either kind: event files, and the best evaluation.

use super::TrainFailed;
use super::report::StepLine;
use super::tensorboard::EventFile;
use crate::args::Watching;
use rewire::write_file;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file in --out with one line per evaluation, which --resume reads.
pub const EVALUATIONS: &str = "evaluations.jsonl";

/// Name prefixes of metrics for which lower is better.
const SMALLER_IS_BETTER: [&str; 4] = ["loss", "normalized_entropy", "mean_absolute_error", "mean_squared_error"];

/// True for a metric for which higher is better.
pub fn larger_is_better(metric: &str) -> bool {
    !SMALLER_IS_BETTER.iter().any(|beginning| metric.starts_with(beginning))
}

/// The metrics of an evaluation; `None` if a metric is undefined, such as the AUC of labels that are all equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    pub step: u64,
    pub metrics: BTreeMap<String, Option<f64>>,
}

/// The best evaluation so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The metric that selects it.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// The step after which it was evaluated.
    pub step: u64,
}

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// True if the model is better than all earlier ones and must be written to `OUT/best`.
    pub is_best: bool,
    /// True after --stop-after consecutive evaluations without an improvement.
    pub stops: bool,
}

/// Follows a training.
pub struct Observer {
    events: Option<(PathBuf, EventFile)>,
    /// `None` if another rank writes it.
    evaluations: Option<PathBuf>,
    metric: Option<Metric>,
    stop_after: Option<u64>,
    history: Vec<Evaluation>,
}

struct Metric {
    name: String,
    larger_is_better: bool,
}

impl Observer {
    /// Observes a training that writes the folder `out` and has completed `done` steps. Later evaluations in the folder are
    /// dropped, because they will be repeated.
    pub fn new(options: &Watching, out: &Path, done: u64) -> Result<Self, TrainFailed> {
        let create = |folder: &PathBuf| match EventFile::create(folder, done + 1) {
            Ok(file) => Ok((folder.clone(), file)),
            Err(error) => Err(written(folder)(error)),
        };
        let evaluations = out.join(EVALUATIONS);
        let metric =
            options.metric.as_ref().map(|name| Metric { name: name.clone(), larger_is_better: larger_is_better(name) });
        Ok(Self {
            events: options.tensorboard.as_ref().map(create).transpose()?,
            history: earlier(&evaluations, done)?,
            evaluations: Some(evaluations),
            metric,
            stop_after: options.stop_after.map(|count| count.get()),
        })
    }

    /// An observer that writes nothing, for all ranks of a training but the first.
    pub fn of_other_rank(options: &Watching, out: &Path, done: u64) -> Result<Self, TrainFailed> {
        let options = Watching { tensorboard: None, ..options.clone() };
        let observer = Self::new(&options, out, done)?;
        Ok(Self { evaluations: None, ..observer })
    }

    /// Checks --metric against the metrics of evaluations before the first step.
    pub fn check_metric<'a>(&self, known: impl Iterator<Item = &'a str>) -> Result<(), TrainFailed> {
        let Some(metric) = &self.metric else { return Ok(()) };
        let known: Vec<&str> = known.collect();
        match known.contains(&metric.name.as_str()) {
            true => Ok(()),
            false => Err(TrainFailed::Metric { metric: metric.name.clone(), known: known.join(", ") }),
        }
    }

    /// Records a step.
    pub fn step(&mut self, step: &StepLine) -> Result<(), TrainFailed> {
        let Some((folder, events)) = &mut self.events else { return Ok(()) };
        let losses = step.losses.iter().map(|(name, loss)| (format!("loss/{name}"), *loss));
        let total = [("loss/total".to_owned(), step.loss)];
        let rates = [("lr/dense", step.lr.dense), ("lr/sparse", step.lr.sparse)];
        let rates = rates.map(|(name, rate)| (name.to_owned(), rate));
        events.add(step.step, losses.chain(total).chain(rates)).map_err(written(folder))
    }

    /// True if an evaluation is due after this step.
    pub fn is_evaluated(&self, step: u64) -> bool {
        self.history.iter().any(|evaluation| evaluation.step == step)
    }

    /// Records an evaluation after the latest step.
    pub fn evaluated(&mut self, evaluation: Evaluation) -> Result<Verdict, TrainFailed> {
        self.check_metric(evaluation.metrics.keys().map(String::as_str))?;
        if let Some((folder, events)) = &mut self.events {
            let defined =
                evaluation.metrics.iter().filter_map(|(name, value)| Some((format!("metric/{name}"), (*value)?)));
            let added = events.add(evaluation.step, defined).and_then(|()| events.flush());
            added.map_err(written(folder))?;
        }
        let step = evaluation.step;
        self.history.push(evaluation);
        let lines = self.history.iter().map(|evaluation| serde_json::json!(evaluation).to_string() + "\n");
        let text: String = lines.collect();
        if let Some(file) = &self.evaluations {
            write_file(file, text.as_bytes()).map_err(written(file))?;
        }
        let best = self.best();
        Ok(Verdict { is_best: best.as_ref().is_some_and(|best| best.step == step), stops: self.is_over() })
    }

    /// The best evaluation by --metric; the earlier one on a tie.
    pub fn best(&self) -> Option<Best> {
        let metric = self.metric.as_ref()?;
        let values = self.history.iter().filter_map(|evaluation| {
            let value = evaluation.metrics.get(&metric.name).copied().flatten().filter(|value| !value.is_nan())?;
            Some(Best { metric: metric.name.clone(), value, step: evaluation.step })
        });
        values.reduce(|best, other| {
            let is_better = if metric.larger_is_better { other.value > best.value } else { other.value < best.value };
            if is_better { other } else { best }
        })
    }

    /// True if the training stops early, or stopped before it was resumed: --stop-after evaluations have followed the
    /// best one.
    pub fn is_over(&self) -> bool {
        let best = self.best().map(|best| best.step);
        let since = self.history.iter().rev().take_while(|evaluation| Some(evaluation.step) != best).count() as u64;
        self.stop_after.is_some_and(|most| since >= most)
    }
}

/// The evaluations of a training up to a step.
fn earlier(path: &Path, done: u64) -> Result<Vec<Evaluation>, TrainFailed> {
    let file = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) if done > 0 => text,
        Err(source) if done > 0 && source.kind() != std::io::ErrorKind::NotFound => {
            return Err(TrainFailed::Read { file, source });
        }
        _ => return Ok(vec![]),
    };
    let parsed = text.lines().map(serde_json::from_str::<Evaluation>).collect::<Result<Vec<_>, _>>();
    let history = parsed.map_err(|source| TrainFailed::Evaluations { file, source })?;
    Ok(history.into_iter().filter(|evaluation| evaluation.step <= done).collect())
}

fn written(path: &Path) -> impl FnOnce(std::io::Error) -> TrainFailed {
    let file = path.display().to_string();
    |source| TrainFailed::Write { file, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    /// Observes a training that has completed `done` steps, with evaluations of a metric to `values` from the next step on.
    fn verdicts(out: &Path, name: &str, done: u64, values: &[Option<f64>]) -> (Vec<Verdict>, Observer) {
        let metric = Some(name.to_owned());
        let options = Watching { metric, stop_after: NonZeroU64::new(2), ..Watching::default() };
        let mut observer = Observer::new(&options, out, done).unwrap();
        let evaluations = values.iter().zip(done + 1..).map(|(value, step)| {
            let metrics = [(name.to_owned(), *value), ("other".to_owned(), Some(0.5))].into();
            observer.evaluated(Evaluation { step, metrics }).unwrap()
        });
        (evaluations.collect(), observer)
    }

    fn verdict(is_best: bool, stops: bool) -> Verdict {
        Verdict { is_best, stops }
    }

    #[test]
    fn evaluations_without_improvement_stop_a_training() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        let (best, no, stop) = (verdict(true, false), verdict(false, false), verdict(false, true));
        let rising = [Some(0.5), Some(0.7), Some(0.7), Some(0.8), Some(f64::NAN), None];
        assert_eq!(verdicts(out, "auc_is_click", 0, &rising).0, [best, best, no, best, no, stop]);
        assert_eq!(verdicts(out, "loss", 0, &[Some(0.5), Some(0.4), Some(0.6)]).0, [best, best, no]);
        assert_eq!(
            verdicts(out, "mean_squared_error_watch", 0, &[Some(1.0), Some(2.0), Some(3.0)]).0,
            [best, no, stop]
        );
        assert_eq!(verdicts(out, "auc", 0, &[None, None]).0, [no, stop]);
    }

    #[test]
    fn a_resumed_training_stops_where_one_that_was_not_killed_does() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        verdicts(out, "auc", 0, &[Some(0.5), Some(0.7), Some(0.6), Some(0.9)]);
        // The checkpoint is at step 3: the evaluation of step 4 is repeated.
        let (resumed, observer) = verdicts(out, "auc", 3, &[Some(0.6)]);
        assert_eq!(resumed, [verdict(false, true)]);
        assert_eq!(observer.best(), Some(Best { metric: "auc".to_owned(), value: 0.7, step: 2 }));
        assert!(observer.is_evaluated(3) && !observer.is_evaluated(5) && observer.is_over());
        assert!(verdicts(out, "auc", 4, &[]).1.is_over());
        // A training that starts at the first step ignores them.
        assert_eq!(verdicts(out, "auc", 0, &[]).1.best(), None);
        std::fs::write(out.join(EVALUATIONS), "{").unwrap();
        let failed = Observer::new(&Watching::default(), out, 1).map(drop).unwrap_err();
        assert!(failed.to_string().contains("evaluations.jsonl"), "{failed}");
    }

    #[test]
    fn an_unknown_metric_is_an_error_with_those_that_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let (_, observer) = verdicts(folder.path(), "auc_x", 0, &[]);
        let failed = observer.check_metric(["auc_a", "auc_b"].into_iter()).unwrap_err();
        assert!(failed.to_string().contains("expected one of auc_a, auc_b") && failed.is_usage(), "{failed}");
        observer.check_metric(["auc_x"].into_iter()).unwrap();
    }
}
