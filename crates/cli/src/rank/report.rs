use super::Fitted;
use rewire::rank::{Auc, Candidate, Ranked, Task, User};
use rewire::runtime::Report;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::time::{Duration, Instant};

/// The summary of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub users: u64,
    pub candidates: u64,
    /// From the start of the program to the end.
    pub seconds: f64,
    /// From the start of the program to the first scores.
    pub first_scores_seconds: f64,
    pub kernel: String,
    pub adapter: String,
    #[serde(serialize_with = "as_map")]
    pub auc: Vec<(String, Option<f64>)>,
    pub truncated_histories: u64,
    pub dropped_events: u64,
    pub split_users: u64,
    pub sorted_histories: u64,
}

#[derive(Serialize)]
pub struct SummaryLine<'a> {
    pub summary: &'a Summary,
}

/// A user's line of JSON.
#[derive(Serialize)]
pub struct UserLine<'a> {
    user: &'a User,
    candidates: Vec<CandidateLine<'a>>,
}

#[derive(Serialize)]
struct CandidateLine<'a> {
    item: i64,
    score: f64,
    logits: Logits<'a>,
}

struct Logits<'a> {
    tasks: &'a [String],
    values: &'a [f32],
}

impl Serialize for Logits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.tasks.iter().zip(self.values))
    }
}

fn as_map<S: Serializer>(pairs: &[(String, Option<f64>)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

impl<'a> UserLine<'a> {
    pub fn new(ranked: &'a Ranked, top: usize, tasks: &'a [String]) -> Self {
        let line = |candidate: &'a Candidate| CandidateLine {
            item: candidate.item,
            score: candidate.score,
            logits: Logits { tasks, values: &candidate.logits },
        };
        Self { user: &ranked.user, candidates: ranked.candidates.iter().take(top).map(line).collect() }
    }
}

/// Counts of a run, and its AUCs if there are labels.
pub struct Tally {
    tasks: Vec<Task>,
    auc: Vec<Auc>,
    labelled: bool,
    begun: Instant,
    first: Option<Duration>,
    pub users: u64,
    candidates: u64,
    pub fitted: Fitted,
}

impl Tally {
    /// Counts of a program that began at `begun`.
    pub fn new(tasks: &[Task], begun: Instant) -> Self {
        Self {
            tasks: tasks.to_vec(),
            auc: vec![Auc::default(); tasks.len()],
            labelled: false,
            begun,
            first: None,
            users: 0,
            candidates: 0,
            fitted: Fitted::default(),
        }
    }

    /// Counts a user, with the labels of the candidates.
    pub fn add(&mut self, ranked: &Ranked, labels: Option<&[i64]>) {
        self.count(ranked.candidates.len() as u64);
        self.fitted.add(ranked);
        let Some(labels) = labels else { return };
        self.labelled = true;
        for candidate in &ranked.candidates {
            let Some(label) = labels.get(candidate.position) else { continue };
            for ((task, auc), &logit) in self.tasks.iter().zip(&mut self.auc).zip(&candidate.logits) {
                auc.add(logit, label & task.bitmask != 0);
            }
        }
    }

    /// Counts the label of a candidate for a task.
    pub fn label(&mut self, task: usize, score: f32, is_positive: bool) {
        self.labelled = true;
        self.auc.get_mut(task).into_iter().for_each(|auc| auc.add(score, is_positive));
    }

    /// Counts a user with this many candidates.
    pub fn count(&mut self, candidates: u64) {
        self.first.get_or_insert_with(|| self.begun.elapsed());
        self.users += 1;
        self.candidates += candidates;
    }

    /// The AUC of every task, if there are labels.
    pub fn aucs(&self) -> Vec<(String, Option<f64>)> {
        let aucs = self.tasks.iter().zip(&self.auc).map(|(task, auc)| (task.name.clone(), auc.value()));
        if self.labelled { aucs.collect() } else { vec![] }
    }

    pub fn summary(&self, report: &Report) -> Summary {
        let seconds = self.begun.elapsed();
        Summary {
            users: self.users,
            candidates: self.candidates,
            seconds: seconds.as_secs_f64(),
            first_scores_seconds: self.first.unwrap_or(seconds).as_secs_f64(),
            kernel: report.kernel.to_string(),
            adapter: report.adapter.clone().unwrap_or_else(|| "cpu".into()),
            auc: self.aucs(),
            truncated_histories: self.fitted.truncated,
            dropped_events: self.fitted.dropped,
            split_users: self.fitted.split,
            sorted_histories: self.fitted.sorted,
        }
    }
}
