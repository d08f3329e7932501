use super::description::RANKING;
use super::scorer::Scorer;
use super::{Batch, CancellationToken, Description, RankError, RankOptions, Ranked, Request, Schema};
use crate::delta::{Delta, DeltaError, ModelVersion};
use crate::package::Package;
use crate::weights::Weights;
use rewire_hstu::models::dlrm_hstu::Config;
use rewire_runtime::{Model, Refinement, Report, RunError, Tuned, block_on};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// A task of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// The name.
    pub name: String,
    /// The bits of an action that make it positive.
    pub bitmask: i64,
}

impl Task {
    /// The tasks of a configuration, in the order of logits.
    pub(super) fn all_of(config: &Config) -> Vec<Self> {
        let tasks = config.fusion_mtl_tower.task_configs.iter();
        tasks.map(|task| Self { name: task.task_name.clone(), bitmask: task.task_bitmask }).collect()
    }
}

/// A loaded ranking model. Clones share one copy of the parameters and kernels, and any number of threads may rank at the same
/// time; each concurrent call uses the memory of one run.
#[derive(Clone, Debug)]
pub struct Ranker {
    scorer: Arc<Scorer>,
    cancellation: CancellationToken,
}

impl Ranker {
    /// Loads a configuration and weights. Tracing and compiling run on the polling thread.
    ///
    /// # Errors
    /// [`RankError`] names the invalid key or tensor, or the reason why no device is available.
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

    /// Loads a package. Nothing is traced, rewritten or lowered; proving and compiling run on the polling thread.
    ///
    /// # Errors
    /// [`RankError`] names the invalid part of the package, or the reason why no device is available.
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

    /// The same model with a cancellation token: once `token` is cancelled, rankings end with [`RankError::Cancelled`] before their
    /// next run of [`RankOptions::batch_rows`] rows. This also applies to [`Caches`](super::Caches) created from it.
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

    /// The schema of the model's requests.
    pub fn schema(&self) -> &Schema {
        &self.scorer.schema
    }

    /// An empty batch for this model.
    pub fn batch(&self) -> Batch {
        Batch::new(self.scorer.schema.clone())
    }

    /// The tasks, in the order of logits.
    pub fn tasks(&self) -> &[Task] {
        &self.scorer.tasks
    }

    /// The inputs and outputs of the model, with an example request.
    pub fn describe(&self) -> Description {
        Description::of(RANKING, self.model().plan(), self.schema(), self.tasks(), self.max_seq_len())
    }

    /// The most rows of a sequence.
    pub fn max_seq_len(&self) -> usize {
        self.scorer.capacity.rows
    }

    /// Describes where the model runs. Its memory includes parameters and all idle runs.
    pub fn report(&self) -> Report {
        self.scorer.sessions.report(&self.scorer.model)
    }

    /// The underlying model: its inputs, parameters and kernels.
    pub fn model(&self) -> &Model {
        &self.scorer.model
    }

    /// The version of the parameters; `None` for a model that has none, to which no delta applies.
    pub fn version(&self) -> Option<ModelVersion> {
        self.scorer.served.version()
    }

    /// Applies the next delta while other threads rank. A call of [`Ranker::rank`] uses the parameters of one version
    /// for all of its runs. [`Caches`](super::Caches) recompute the histories of earlier versions.
    ///
    /// # Errors
    /// [`DeltaError`] if the delta does not follow the model's version or does not fit the model. The model is then
    /// unchanged.
    pub async fn update_async(&self, delta: &Delta) -> Result<(), DeltaError> {
        self.scorer.served.update(self.model(), delta).await?;
        self.scorer.sessions.follow();
        Ok(())
    }

    /// [`Ranker::update_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::update_async`].
    pub fn update(&self, delta: &Delta) -> Result<(), DeltaError> {
        block_on(self.update_async(delta))
    }

    /// Frees the memory of idle runs and of CPU kernels ([`Model::trim`]). The next runs allocate it again.
    pub fn trim(&self) {
        self.scorer.sessions.trim();
        self.model().trim();
    }

    /// Ranks the candidates of each request. Scores do not depend on the other requests of the batch.
    ///
    /// A history longer than [`Ranker::max_seq_len`] keeps its newest events, whatever the number of candidates. Candidates
    /// that do not fit next to it are split over several sequences; scores do not change, because candidates do not attend
    /// to each other and all have the time of the request. A history that is not in order of time is stably sorted by
    /// `timestamp`. [`Ranked`] reports all three.
    ///
    /// With [`RankOptions::workers`] a worker executes the whole call, and the future sleeps. Without them, the future
    /// waits for a device as [`Session::run_async`](rewire_runtime::Session::run_async) does, and CPU steps run on the
    /// polling thread.
    ///
    /// # Errors
    /// The first invalid request, or the failure of a run. In both cases nothing is ranked.
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
    /// [`RankError::Schema`] for a batch of another model; other errors are failures of the run.
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

    /// Measures tunings of one kernel on the first run of these requests until `budget` is spent, as
    /// [`Session::refine`](rewire_runtime::Session::refine) does. Later calls use the result. The future waits like that of
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

    /// Measures tunings of all kernels on the first run of a batch for about `budget`, as
    /// [`Session::tune`](rewire_runtime::Session::tune) does. Later calls use the result. The future waits like that of
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
