//! Trials that measure the tunings of a step.

use super::super::GpuKernels;
use super::size;
use crate::model::emitter::{candidates, families, suited};
use crate::session::Sizes;
use crate::tuning::{Bucket, Times, Trial};
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Step;

/// Tunings of a step that are being measured, at the sizes of a run.
#[derive(Debug)]
pub(crate) struct OpenTrial {
    pub bucket: Bucket,
    pub trial: Trial,
}

/// The result of a trial of a step's tunings.
pub(crate) struct Verdict {
    pub bucket: Bucket,
    pub candidates: usize,
    pub times: Times,
}

impl GpuKernels {
    /// The steps here without a measurement at the sizes of a run; with `again`, all steps here.
    pub fn unmeasured(&self, sizes: &Sizes, again: bool) -> Vec<usize> {
        let tunings = self.tunings.read();
        let steps = tunings.iter().enumerate().filter(|(position, _)| self.has(*position));
        let open = steps.filter(|(_, own)| again || own.known.get(&own.bucket(sizes)).is_none());
        open.map(|(position, _)| position).collect()
    }

    /// A trial of a step at the sizes of a run, or the one `under_way` if it is for these sizes. It tries tunings that
    /// sum in the model's order, or with `any_order` also others. `None` if there is only one tuning, which is
    /// recorded.
    pub fn open_trial(
        &self,
        (position, step): (usize, &Step),
        sizes: &Sizes,
        any_order: bool,
        under_way: Option<OpenTrial>,
    ) -> Option<OpenTrial> {
        let target = self.gpu.target();
        let any_order = any_order && self.tunings.base.matrices.is_none();
        let (bucket, tunings) = {
            let steps = self.tunings.read();
            let own = steps.get(position)?;
            let bucket = own.bucket(sizes);
            if let Some(trial) = under_way.filter(|trial| trial.bucket == bucket) {
                return Some(trial);
            }
            let suited = suited(own.base, &step.computation, target, size(sizes));
            let mut tunings = vec![own.known.get(&bucket).unwrap_or(suited)];
            let bases = if any_order { families(&step.computation, target) } else { vec![own.base] };
            for candidate in bases.iter().flat_map(|family| candidates(family, &step.computation, target)) {
                if !tunings.contains(&candidate) {
                    tunings.push(candidate);
                }
            }
            (bucket, tunings)
        };
        if let [only] = tunings[..] {
            if let Some(own) = self.tunings.write().get_mut(position) {
                own.learn(bucket, Some(only));
            }
            return None;
        }
        Some(OpenTrial { bucket, trial: Trial::new(tunings) })
    }

    /// Ends the trial of a step, which uses the better tuning from now on, and drops other kernels.
    pub fn conclude(&self, position: usize, OpenTrial { bucket, trial }: OpenTrial) -> Option<Verdict> {
        let times = trial.verdict();
        let stay = {
            let mut steps = self.tunings.write();
            let own = steps.get_mut(position)?;
            let taken = times.map_or(own.base, |times| times.after.0);
            own.base.matrices = taken.matrices;
            own.learn(bucket.clone(), Some(taken));
            [taken, own.base]
        };
        let was_tried = |tuning: &Tuning| trial.tunings.contains(tuning) && !stay.contains(tuning);
        self.cache.forget(|key| key.step == position && was_tried(&key.tuning));
        Some(Verdict { bucket, candidates: trial.tunings.len(), times: times? })
    }
}
