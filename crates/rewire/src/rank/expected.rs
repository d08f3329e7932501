use super::Batch;
use super::cached::{Apart, place};
use super::runs::{InputTypes, Kept, Run, runs};
use super::sequence::{Capacity, layouts};
use super::{CancellationToken, Request, Schema};
use rewire_graph::TensorSizeError;
use rewire_runtime::ExpectedRun;
use std::fmt;
use std::sync::Arc;

/// Requests like the first ones that a ranker will get. Loading compiles the kernels that suit the sizes of their runs,
/// together; without them, the first calls compile some of these. Scores do not depend on it.
///
/// ```no_run
/// use rewire::rank::{ExpectedRequests, RankOptions, Ranker, Request};
/// let usual = Request::new("u1").history("item_id", vec![1; 500]).candidates("item_id", vec![1; 200]);
/// let options = RankOptions { expected: Some(ExpectedRequests::of(vec![usual])), ..RankOptions::default() };
/// let ranker = Ranker::load("model.rewire".as_ref(), &options)?;
/// # Ok::<(), rewire::rank::RankError>(())
/// ```
#[derive(Clone)]
pub struct ExpectedRequests(Arc<dyn Fn(&mut Batch) + Send + Sync>);

impl ExpectedRequests {
    /// These requests; those that do not fit the model are left out.
    pub fn of(requests: Vec<Request>) -> Self {
        Self::new(move |batch| requests.iter().for_each(|request| drop(batch.push(request))))
    }

    /// The requests with which `fill` fills an empty batch, which has the model's schema. It is called while the device
    /// opens.
    pub fn new(fill: impl Fn(&mut Batch) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    /// The first runs of these requests: all of them together, or the histories and then the candidates.
    pub(super) fn runs(&self, schema: Schema, reads: &Reads<'_>) -> Result<Vec<ExpectedRun>, TensorSizeError> {
        let mut batch = Batch::new(schema);
        (self.0)(&mut batch);
        let layouts = layouts(&batch, reads.capacity, reads.is_apart);
        let inputs = |run: Option<&Run<'_>>| run.map(|run| run.inputs(reads.inputs, &batch)).transpose();
        if !reads.is_apart {
            let first = inputs(runs(reads.capacity, &layouts, reads.most).first())?;
            return Ok(first.into_iter().map(|inputs| ExpectedRun { inputs, state_rows: 0 }).collect());
        }
        let mut kept = vec![Kept::default(); layouts.len()];
        let (requests, rows) = place((reads.capacity, reads.most), &layouts, 0, &mut kept);
        let cancellation = &CancellationToken::default();
        let apart = Apart { batch: &batch, layouts: &layouts, kept: &kept, most: reads.most, cancellation };
        let histories = inputs(apart.histories(requests.clone()).first())?;
        let candidates = inputs(apart.candidates(requests).first())?;
        let state_rows = rows.next_power_of_two();
        Ok(histories.into_iter().chain(candidates).map(|inputs| ExpectedRun { inputs, state_rows }).collect())
    }
}

impl fmt::Debug for ExpectedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExpectedRequests")
    }
}

/// How a model reads a batch.
pub(super) struct Reads<'a> {
    pub capacity: &'a Capacity,
    pub inputs: &'a InputTypes,
    /// Rows per run.
    pub most: usize,
    /// True if histories are computed separately from candidates.
    pub is_apart: bool,
}
