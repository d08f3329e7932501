use super::scorer::Scorer;
use super::{Batch, CancellationToken, RankError, RankOptions, Ranked, Request, Schema};
use crate::package::Package;
use crate::weights::Weights;
use rewire_hstu::models::dlrm_hstu::Config;
use rewire_runtime::{Model, Refinement, Report, RunError, Tuned, block_on};
use std::sync::Arc;
use std::time::Duration;

/// A task of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The name.
    pub name: String,
    /// The bits of an action that make it positive.
    pub bitmask: i64,
}

/// A ranking model, ready to run. Clones share it, and any number of threads rank with it at the same time: parameters and kernels
/// are there once, and every call that is under way has the memory of a run.
#[derive(Clone, Debug)]
pub struct Ranker {
    scorer: Arc<Scorer>,
    cancellation: CancellationToken,
}

impl Ranker {
    /// Takes a configuration and weights. Tracing and compiling take the thread that polls.
    ///
    /// # Errors
    /// [`RankError`] names the key or tensor that is not good, or what is missing for a device.
    pub async fn new_async(config: &Config, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        Ok(Self::of(Scorer::new(config, weights, options).await?))
    }

    /// [`Ranker::new_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::new_async`].
    pub fn new(config: &Config, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::new_async(config, weights, options))
    }

    /// Takes a package. Nothing is traced, rewritten or lowered; proving and compiling take the thread that polls.
    ///
    /// # Errors
    /// [`RankError`] names the part of the package that is not good, or what is missing for a device.
    pub async fn from_package_async(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        Ok(Self::of(Scorer::of_package(package, options).await?))
    }

    /// [`Ranker::from_package_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::from_package_async`].
    pub fn from_package(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::from_package_async(package, options))
    }

    fn of(scorer: Scorer) -> Self {
        Self { scorer: Arc::new(scorer), cancellation: CancellationToken::default() }
    }

    /// The same model, whose rankings end with [`RankError::Cancelled`] once `token` is cancelled. They end before the next of the runs
    /// that a batch takes, each of [`RankOptions::batch_rows`] rows; so do those of [`Caches`](super::Caches) that are made of it.
    #[must_use]
    pub fn with_cancellation(&self, token: &CancellationToken) -> Self {
        Self { scorer: self.scorer.clone(), cancellation: token.clone() }
    }

    pub(super) fn scorer(&self) -> &Arc<Scorer> {
        &self.scorer
    }

    pub(super) fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// What the model reads from a request.
    pub fn schema(&self) -> &Schema {
        &self.scorer.schema
    }

    /// No requests yet, for this model.
    pub fn batch(&self) -> Batch {
        Batch::new(self.scorer.schema.clone())
    }

    /// The tasks, in the order of logits.
    pub fn tasks(&self) -> &[Task] {
        &self.scorer.tasks
    }

    /// Rows that a sequence has at most.
    pub fn max_seq_len(&self) -> usize {
        self.scorer.capacity.rows
    }

    /// What it runs on. The memory is that of parameters and of all runs that are not under way.
    pub fn report(&self) -> Report {
        self.scorer.sessions.report(&self.scorer.model)
    }

    /// The model itself: its inputs, parameters and kernels.
    pub fn model(&self) -> &Model {
        &self.scorer.model
    }

    /// Frees the memory of runs that are not under way, and what kernels on the CPU keep ([`Model::trim`]). The next runs take it again.
    pub fn trim(&self) {
        self.scorer.sessions.trim();
        self.model().trim();
    }

    /// Ranks the candidates of each request. Scores do not depend on what else is ranked with them.
    ///
    /// A history too long for [`Ranker::max_seq_len`] keeps its newest events, whatever the number of
    /// candidates. Candidates that do not fit beside it are split over several sequences, which changes no score, as
    /// candidates do not see each other; the time of the request is that of the last candidate. A history that is not
    /// in order of time is sorted by `timestamp`, equal times as given. [`Ranked`] tells all three.
    ///
    /// With [`RankOptions::workers`] all work is done on one of them, and the future sleeps. Without, the future waits for a device as
    /// [`Session::run_async`](rewire_runtime::Session::run_async) does, and steps on the CPU take the thread that polls it.
    ///
    /// # Errors
    /// The first request that does not fit the model, or what failed while it ran. Nothing is ranked then.
    pub async fn rank_async(&self, requests: &[Request]) -> Result<Vec<Ranked>, RankError> {
        self.rank_batch_async(&self.filled(requests)?).await
    }

    /// [`Ranker::rank_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::rank_async`].
    pub fn rank(&self, requests: &[Request]) -> Result<Vec<Ranked>, RankError> {
        block_on(self.rank_async(requests))
    }

    /// [`Ranker::rank_async`] for the requests of a batch.
    ///
    /// # Errors
    /// [`RankError::Schema`] for a batch of another model, or what failed while it ran.
    pub async fn rank_batch_async(&self, batch: &Batch) -> Result<Vec<Ranked>, RankError> {
        self.check(batch)?;
        let Some(workers) = &self.model().options().workers else {
            return self.scorer.rank(batch, &self.cancellation).await;
        };
        let (Self { scorer, cancellation }, batch) = (self.clone(), batch.clone());
        workers.run(move || block_on(scorer.rank(&batch, &cancellation))).await.map_err(RunError::from)?
    }

    /// [`Ranker::rank_batch_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::rank_batch_async`].
    pub fn rank_batch(&self, batch: &Batch) -> Result<Vec<Ranked>, RankError> {
        block_on(self.rank_batch_async(batch))
    }

    /// Measures tunings of one kernel in runs with these requests, the first run of them, until `budget` is spent, as
    /// [`Session::refine`](rewire_runtime::Session::refine) does. Later calls rank with what is found. The future waits as that of
    /// [`Ranker::rank_async`].
    ///
    /// # Errors
    /// As [`Ranker::rank_async`], and those of [`Session::refine_async`](rewire_runtime::Session::refine_async).
    pub async fn refine_async(&self, requests: &[Request], budget: Duration) -> Result<Refinement, RankError> {
        let batch = self.filled(requests)?;
        let Some(workers) = &self.model().options().workers else { return self.scorer.refine(&batch, budget).await };
        let scorer = self.scorer.clone();
        workers.run(move || block_on(scorer.refine(&batch, budget))).await.map_err(RunError::from)?
    }

    /// [`Ranker::refine_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::refine_async`].
    pub fn refine(&self, requests: &[Request], budget: Duration) -> Result<Refinement, RankError> {
        block_on(self.refine_async(requests, budget))
    }

    /// Measures tunings of all kernels in runs with the requests of a batch, the first run of them, for about `budget`, as
    /// [`Session::tune`](rewire_runtime::Session::tune) does. Later calls rank with what is found. The future waits as that of
    /// [`Ranker::rank_async`].
    ///
    /// # Errors
    /// As [`Ranker::rank_batch_async`], and those of [`Session::tune_async`](rewire_runtime::Session::tune_async).
    pub async fn tune_async(&self, batch: &Batch, budget: Duration) -> Result<Vec<Tuned>, RankError> {
        self.check(batch)?;
        let Some(workers) = &self.model().options().workers else { return self.scorer.tune(batch, budget).await };
        let (scorer, batch) = (self.scorer.clone(), batch.clone());
        workers.run(move || block_on(scorer.tune(&batch, budget))).await.map_err(RunError::from)?
    }

    /// [`Ranker::tune_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::tune_async`].
    pub fn tune(&self, batch: &Batch, budget: Duration) -> Result<Vec<Tuned>, RankError> {
        block_on(self.tune_async(batch, budget))
    }

    fn filled(&self, requests: &[Request]) -> Result<Batch, RankError> {
        let mut batch = self.batch();
        requests.iter().try_for_each(|request| batch.push(request))?;
        Ok(batch)
    }

    fn check(&self, batch: &Batch) -> Result<(), RankError> {
        match std::ptr::eq(batch.schema(), self.schema()) || batch.schema() == self.schema() {
            true => Ok(()),
            false => Err(RankError::Schema),
        }
    }
}
