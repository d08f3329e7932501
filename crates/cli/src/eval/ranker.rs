//! Evaluation of rankers by the labels of their candidates.

use super::EvalError;
use crate::args::Eval;
use crate::error::CliError;
use crate::rank::load;
use crate::requests::{Chunk, InputError, Reading, Sizes, chunks, open, title};
use rewire::predict::Evaluated;
use rewire::rank::{Auc, GroupedAuc, NormalizedEntropy, RankOptions, Ranked, Task};

/// The metrics of a task.
struct TaskMetrics {
    task: Task,
    auc: Auc,
    grouped_auc: GroupedAuc<String>,
    normalized_entropy: NormalizedEntropy,
    cross_entropy: f64,
    candidates: u64,
}

/// AUC, mean AUC over users and normalized entropy of every task, and its cross entropy as a mean over candidates.
pub fn evaluate(options: &Eval, with: &RankOptions) -> Result<Evaluated, CliError> {
    let given = [("--negatives", options.negatives.is_some()), ("--batch", options.batch.is_some())];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(EvalError::Ranking { option }.into());
    }
    let ranker = load(Some(&options.model), with)?;
    let mut tasks: Vec<TaskMetrics> = ranker.tasks().iter().cloned().map(TaskMetrics::new).collect();
    let reading = Reading { empty: ranker.batch(), sizes: Sizes::default(), rejects: false, ahead: 2 };
    let mut rows = 0;
    for chunk in chunks(open(Some(&options.data), ranker.schema())?, reading)? {
        let Chunk { batch, end, .. } = chunk;
        for (request, ranked) in ranker.rank_batch(&batch)?.iter().enumerate() {
            let labels = batch.labels(request);
            let labels = labels.ok_or_else(|| EvalError::NoLabels { user: ranked.user.to_string() })?;
            tasks.iter_mut().enumerate().for_each(|(position, task)| task.add(position, ranked, labels));
            rows += 1;
        }
        end?;
    }
    if rows == 0 {
        return Err(InputError::Empty { file: title(Some(&options.data)) }.into());
    }
    let metrics = tasks.iter().flat_map(TaskMetrics::metrics).collect();
    Ok(Evaluated { metrics, losses: tasks.iter().map(TaskMetrics::loss).collect(), rows })
}

impl TaskMetrics {
    fn new(task: Task) -> Self {
        Self {
            task,
            auc: Auc::default(),
            grouped_auc: GroupedAuc::default(),
            normalized_entropy: NormalizedEntropy::default(),
            cross_entropy: 0.0,
            candidates: 0,
        }
    }

    /// Adds the candidates of a user, by the logits at `position`.
    fn add(&mut self, position: usize, ranked: &Ranked, labels: &[i64]) {
        let user = ranked.user.to_string();
        for candidate in &ranked.candidates {
            let label = labels.get(candidate.position).zip(candidate.logits.get(position));
            let Some((bits, &logit)) = label else { continue };
            let label = bits & self.task.bitmask != 0;
            self.auc.add(logit, label);
            self.grouped_auc.add(user.clone(), logit, label);
            self.normalized_entropy.add(logit.into(), label);
            let wrong = f64::from(if label { -logit } else { logit });
            self.cross_entropy += wrong.max(0.0) + (-wrong.abs()).exp().ln_1p();
            self.candidates += 1;
        }
    }

    fn metrics(&self) -> Vec<(String, Option<f64>)> {
        let values = [
            ("auc", self.auc.value()),
            ("grouped_auc", self.grouped_auc.value()),
            ("normalized_entropy", self.normalized_entropy.value()),
        ];
        values.into_iter().map(|(name, value)| (format!("{name}_{}", self.task.name), value)).collect()
    }

    fn loss(&self) -> (String, Option<f64>) {
        let mean = (self.candidates > 0).then(|| self.cross_entropy / self.candidates as f64);
        (format!("binary_cross_entropy_{}", self.task.name), mean)
    }
}
