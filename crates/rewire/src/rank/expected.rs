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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::{request, schema};
    use rewire_graph::DType;
    use rewire_runtime::RunValue;

    const CAPACITY: Capacity = Capacity { rows: 12, contextual: 2, rows_per_event: 1, candidate_room: 1 };

    fn runs_of(names: &[&str], is_apart: bool) -> Vec<ExpectedRun> {
        let spec = |name: &&str| ((*name).to_owned(), (!name.ends_with("lengths")).then_some(DType::U32));
        let inputs: Vec<_> = names.iter().map(spec).collect();
        let reads = Reads { capacity: &CAPACITY, inputs: &inputs, most: 12, is_apart };
        let invalid = Request::new("u");
        let expected = ExpectedRequests::of(vec![request(3, 4), invalid, request(1, 2), request(6, 5)]);
        expected.runs(schema(), &reads).unwrap()
    }

    fn values(run: &ExpectedRun, name: &str) -> Vec<i64> {
        match run.inputs.get(name) {
            Some(RunValue::Host(tensor)) => tensor.to_i64(),
            _ => panic!("{name} is missing"),
        }
    }

    #[test]
    fn requests_in_one_part_are_the_first_run() {
        let names = ["uih.lengths", "candidate.lengths", "candidate.item"];
        let [run] = &runs_of(&names, false)[..] else { panic!("one run is expected") };
        assert_eq!(values(run, "uih.lengths"), [3]);
        assert_eq!(values(run, "candidate.lengths"), [4]);
        assert_eq!(values(run, "candidate.item"), [0, 1, 2, 3]);
    }

    #[test]
    fn histories_and_candidates_apart_are_two_runs() {
        let names = ["uih.lengths", "uih.kept", "candidate.lengths", "history.lengths"];
        let [histories, candidates] = &runs_of(&names, true)[..] else { panic!("two runs are expected") };
        assert_eq!(values(histories, "uih.lengths"), [3, 1]);
        assert_eq!(values(histories, "uih.kept"), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(values(histories, "candidate.lengths").is_empty());
        assert!(values(candidates, "uih.lengths").is_empty());
        assert_eq!(values(candidates, "candidate.lengths"), [4, 2]);
        assert_eq!(values(candidates, "history.lengths"), [5, 3]);
        assert_eq!([histories.state_rows, candidates.state_rows], [8, 8]);
    }

    #[test]
    fn no_requests_are_no_runs() {
        let reads = Reads { capacity: &CAPACITY, inputs: &[], most: 12, is_apart: true };
        assert!(ExpectedRequests::of(vec![]).runs(schema(), &reads).unwrap().is_empty());
    }
}
