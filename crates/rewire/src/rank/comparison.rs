//! Compares the scores of two models.

use super::{Candidate, Ranked, Ranker, Schema, Task};
use rewire_graph::Arrange;
use rewire_metrics::Auc;
use thiserror::Error;

/// The number of top candidates whose order is compared.
const FIRST: usize = 10;

/// Why two models cannot be compared.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ComparisonError {
    /// The models have different tasks, or tasks with different bitmasks.
    #[error("the models have different tasks: {actual:?}, and {expected:?} in the model to compare with")]
    Tasks {
        /// Names and bitmasks of the model's tasks.
        actual: Vec<(String, i64)>,
        /// Those of the reference model.
        expected: Vec<(String, i64)>,
    },
    /// The models read different features, or have tables of different sizes.
    #[error("the models read different features: {actual:?}, and {expected:?} in the model to compare with")]
    Schema {
        /// The schema of the model.
        actual: Box<Schema>,
        /// The schema of the reference model.
        expected: Box<Schema>,
    },
    /// A user was ranked with different candidates.
    #[error("user {user}: {actual} candidates, and {expected} to compare with")]
    Candidates {
        /// Position of the user, from 0.
        user: u64,
        /// The number of candidates of the model.
        actual: usize,
        /// The number of candidates of the reference model.
        expected: usize,
    },
}

/// Differences of a task's logits between two models.
#[derive(Clone, Debug)]
pub struct Change {
    /// The task.
    pub task: Task,
    /// The largest absolute difference of a logit.
    pub largest: f64,
    sum: f64,
    count: u64,
    aucs: [Auc; 2],
}

impl Change {
    /// The mean absolute difference of a logit; 0 without candidates.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The AUC of the model and of the reference model, each `None` without a positive or a negative label.
    pub fn aucs(&self) -> [Option<f64>; 2] {
        self.aucs.each_ref().map(Auc::value)
    }
}

/// Differences of two models' scores for the same requests.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Differences of logits, one entry per task.
    pub tasks: Vec<Change>,
    /// Number of compared users.
    pub users: u64,
    /// Number of compared candidates.
    pub candidates: u64,
    /// Users whose top 10 candidates differ or are ordered differently.
    pub reordered: u64,
}

impl Comparison {
    /// Compares a model with a reference model; no requests are added yet.
    ///
    /// # Errors
    /// [`ComparisonError`] if the models have different tasks or schemas.
    pub fn new(model: &Ranker, against: &Ranker) -> Result<Self, ComparisonError> {
        let tasks = |ranker: &Ranker| -> Vec<(String, i64)> {
            ranker.tasks().iter().map(|task| (task.name.clone(), task.bitmask)).collect()
        };
        let (actual, expected) = (tasks(model), tasks(against));
        if actual != expected {
            return Err(ComparisonError::Tasks { actual, expected });
        }
        let (actual, expected) = (model.schema(), against.schema());
        if actual != expected {
            let [actual, expected] = [actual, expected].map(|schema| Box::new(schema.clone()));
            return Err(ComparisonError::Schema { actual, expected });
        }
        let change =
            |task: &Task| Change { task: task.clone(), largest: 0.0, sum: 0.0, count: 0, aucs: Default::default() };
        let tasks = model.tasks().iter().map(change).collect();
        Ok(Self { tasks, users: 0, candidates: 0, reordered: 0 })
    }

    /// Adds a user as ranked by both models, and the candidates' action bits, if known.
    ///
    /// # Errors
    /// [`ComparisonError::Candidates`].
    pub fn add(&mut self, ranked: &Ranked, against: &Ranked, labels: Option<&[i64]>) -> Result<(), ComparisonError> {
        let [mut own, mut other]: [Vec<&Candidate>; 2] =
            [ranked, against].map(|ranked| ranked.candidates.iter().collect());
        if own.len() != other.len() {
            let (actual, expected) = (own.len(), other.len());
            return Err(ComparisonError::Candidates { user: self.users, actual, expected });
        }
        let is_moved = |(a, b): (&&Candidate, &&Candidate)| a.position != b.position;
        self.reordered += u64::from(own.iter().zip(&other).take(FIRST).any(is_moved));
        self.users += 1;
        self.candidates += own.len() as u64;
        own.arrange_by_key(|candidate| candidate.position);
        other.arrange_by_key(|candidate| candidate.position);
        for (own, other) in own.into_iter().zip(other) {
            let label = labels.and_then(|labels| labels.get(own.position));
            for (change, logits) in self.tasks.iter_mut().zip(own.logits.iter().zip(&other.logits)) {
                change.add([*logits.0, *logits.1], label);
            }
        }
        Ok(())
    }
}

impl Change {
    fn add(&mut self, logits: [f32; 2], label: Option<&i64>) {
        let difference = f64::from(logits[0]) - f64::from(logits[1]);
        self.largest = self.largest.max(difference.abs());
        self.sum += difference.abs();
        self.count += 1;
        if let Some(label) = label {
            let is_positive = label & self.task.bitmask != 0;
            self.aucs.iter_mut().zip(logits).for_each(|(auc, logit)| auc.add(logit, is_positive));
        }
    }
}
