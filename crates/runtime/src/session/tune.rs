//! Measuring the tunings of kernels on the device of a session.

use super::sizes::Sizes;
use super::{Detail, Inputs, Lane, Session};
use crate::model::{OpenTrial, Verdict};
use crate::tuning::{Bucket, Trial, identity};
use crate::{RunError, block_on};
use rewire_graph::Arrange;
use rewire_graph_rewrite::cost::HardwareModel;
use rewire_graph_rewrite::device::Tuning;
use std::time::Duration;
use web_time::Instant;

/// The measured times of a kernel's tunings.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Position in the plan.
    pub step: usize,
    /// Name of the step.
    pub name: String,
    /// Module path of the step.
    pub path: String,
    /// The sizes that it is for, as powers of two: each size is at most this number and above half of it.
    pub sizes: String,
    /// Number of tunings measured.
    pub candidates: usize,
    /// The old tuning.
    pub before: Tuning,
    /// Its median time.
    pub before_time: Duration,
    /// The new tuning.
    pub after: Tuning,
    /// Its median time.
    pub after_time: Duration,
}

/// The result of a call of [`Session::refine`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refinement {
    /// The kernel whose tuning was determined by this call.
    pub tuned: Option<Tuned>,
    /// Number of kernels not measured yet at these sizes.
    pub rest: usize,
}

impl Session {
    /// Forces a step on the device to run with a tuning, for instance one of [`Model::candidate_tunings`], from the session's
    /// next run on; `None` restores its own. If the tuning does not fit the kernel, the run fails with
    /// [`RunError::Tuning`].
    ///
    /// [`Model::candidate_tunings`]: crate::Model::candidate_tunings
    pub fn force(&mut self, step: usize, tuning: Option<Tuning>) {
        if let Some(side) = &mut self.gpu {
            side.force(step, tuning);
        }
    }

    /// Measures tunings of one kernel in runs with these inputs until `budget` is spent, and switches to the fastest.
    /// Call it while the app is idle, with typical inputs. A kernel may take several calls; each continues after the
    /// previous one and measures at least once. Kernels are measured in order of cost, the most expensive first, until
    /// [`Refinement::rest`] is 0. Results stay identical to the bit, and states are unchanged.
    ///
    /// Results apply to all later runs of all the model's sessions whose sizes round up to the same powers of two. They
    /// are stored in [`crate::ModelOptions::tunings`]. On the CPU there is nothing to refine.
    ///
    /// ```
    /// use rewire_graph_rewrite::plan::Plan;
    /// use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};
    /// use std::time::Duration;
    /// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    /// let mut session = Model::load(Plan::default(), (), options)?.session();
    /// while session.refine(&Inputs::new(), Duration::from_millis(20))?.rest > 0 {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::run_async`]; [`RunError::NoTimes`] if the device cannot time its kernels; [`RunError::NotKept`] if
    /// the store cannot be written, in which case the session still uses the results.
    pub async fn refine_async(&mut self, inputs: &Inputs, budget: Duration) -> Result<Refinement, RunError> {
        if let Some(workers) = self.workers() {
            return self.lent(workers, inputs, move |session, inputs| session.refine(inputs, budget)).await;
        }
        let begun = Instant::now();
        self.follow();
        let sizes = self.sizes_of(inputs, &self.states.shapes(self.plan()))?;
        let mut rest = self.unmeasured(inputs, &sizes, false)?.into_iter();
        let Some(step) = rest.find(|step| self.open_trial(*step, &sizes, false)) else {
            return Ok(Refinement::default());
        };
        loop {
            if self.measure(inputs, &[step]).await?.is_empty() {
                let tuned = self.conclude(&[step])?.pop();
                return Ok(Refinement { tuned, rest: rest.len() });
            }
            if begun.elapsed() >= budget {
                return Ok(Refinement { tuned: None, rest: rest.len() + 1 });
            }
        }
    }

    /// [`Session::refine_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::refine_async`].
    pub fn refine(&mut self, inputs: &Inputs, budget: Duration) -> Result<Refinement, RunError> {
        block_on(self.refine_async(inputs, budget))
    }

    /// Measures tunings of all kernels in runs with these inputs, including measured ones, for about `budget`, and
    /// switches to the fastest. It also compares cooperative matrices with multiply-adds. If that choice changes, the
    /// rounding of results changes, too, in the same way at all sizes.
    ///
    /// Results are stored like those of [`Session::refine`]; if the store cannot be written, it fails before measuring.
    /// Every candidate runs at least a few times, regardless of the budget.
    ///
    /// # Errors
    /// As [`Session::refine_async`].
    pub async fn tune_async(&mut self, inputs: &Inputs, budget: Duration) -> Result<Vec<Tuned>, RunError> {
        if let Some(workers) = self.workers() {
            return self.lent(workers, inputs, move |session, inputs| session.tune(inputs, budget)).await;
        }
        let begun = Instant::now();
        self.follow();
        if let (Some(store), Some(side)) = (&self.model.options().tunings, &self.gpu) {
            store.keep(side.gpu(), vec![])?;
        }
        let sizes = self.sizes_of(inputs, &self.states.shapes(self.plan()))?;
        let mut all = self.unmeasured(inputs, &sizes, true)?;
        all.retain(|step| self.open_trial(*step, &sizes, true));
        let mut open = all.clone();
        while !open.is_empty() {
            open = self.measure(inputs, &open).await?;
            if begun.elapsed() >= budget && self.are_sampled(&open) {
                break;
            }
        }
        self.conclude(&all)
    }

    /// [`Session::tune_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::tune_async`].
    pub fn tune(&mut self, inputs: &Inputs, budget: Duration) -> Result<Vec<Tuned>, RunError> {
        block_on(self.tune_async(inputs, budget))
    }

    /// Has the kernels of the latest run measured in the background, if the options ask for it and some are not.
    pub(super) fn refine_later(&self, inputs: &Inputs) {
        let (Some(refiner), Some(side), Some(sizes)) = (self.model.refiner(), &self.gpu, &self.sizes) else { return };
        if refiner.may_measure(self.model.options(), side.gpu(), || side.bytes())
            && !side.kernels().unmeasured(sizes, false).is_empty()
        {
            refiner.measure(&self.model, inputs);
        }
    }

    /// The steps on the device without a measurement at these sizes, or all, the most expensive first.
    fn unmeasured(&self, inputs: &Inputs, sizes: &Sizes, again: bool) -> Result<Vec<usize>, RunError> {
        let Some(side) = &self.gpu else { return Ok(vec![]) };
        let mut open = side.kernels().unmeasured(sizes, again);
        let counts = self.counts(inputs)?;
        let seconds = |step: &usize| HardwareModel::TYPICAL.seconds(&counts.get(*step).copied().unwrap_or_default());
        open.arrange_by(|a, b| seconds(b).total_cmp(&seconds(a)));
        Ok(open)
    }

    fn open_trial(&mut self, step: usize, sizes: &Sizes, any_order: bool) -> bool {
        let (Some(side), Some(own)) = (&mut self.gpu, self.model.plan().steps.get(step)) else { return false };
        let under_way = side.trials.remove(&step);
        let trial = side.kernels().open_trial((step, own), sizes, any_order, under_way);
        let open = trial.is_some();
        side.trials.extend(trial.map(|trial| (step, trial)));
        open
    }

    /// Runs once, with the next candidate of each of these steps; returns the steps that are not done.
    async fn measure(&mut self, inputs: &Inputs, steps: &[usize]) -> Result<Vec<usize>, RunError> {
        self.force_all(steps, |session, step| session.trial(step, |trial| trial.next())?);
        let mut in_place = vec![];
        for name in self.plan().states_in_place().map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            in_place.push((self.state_async(&name).await?, name));
        }
        let states = self.states.clone();
        let run = self.run_timed_async(inputs, Detail::Steps).await;
        self.states = states;
        in_place.into_iter().try_for_each(|(tensor, name)| self.set_state(&name, tensor))?;
        self.force_all(steps, |_, _| None);
        match run {
            Ok((_, profile)) => {
                let timed = profile.spans.iter().filter(|span| span.lane == Lane::Gpu);
                let times: Vec<_> = timed.filter_map(|span| Some((span.step?, span.duration))).collect();
                for &step in steps {
                    let time = times.iter().find(|(timed, _)| *timed == step).ok_or_else(|| self.no_times())?.1;
                    self.trial(step, |trial| trial.record(time));
                }
            }
            Err(RunError::Tuning { step, .. }) => drop(self.trial(step, |trial| trial.reject())),
            Err(error) => return Err(error),
        }
        let mut open = steps.to_vec();
        open.retain(|&step| self.trial(step, |trial| trial.is_done()) == Some(false));
        Ok(open)
    }

    fn force_all(&mut self, steps: &[usize], tuning: impl Fn(&mut Self, usize) -> Option<Tuning>) {
        for &step in steps {
            let tuning = tuning(self, step);
            self.force(step, tuning);
        }
    }

    fn trial<T>(&mut self, step: usize, with: impl FnOnce(&mut Trial) -> T) -> Option<T> {
        self.gpu.as_mut()?.trials.get_mut(&step).map(|OpenTrial { trial, .. }| with(trial))
    }

    fn are_sampled(&mut self, steps: &[usize]) -> bool {
        steps.iter().all(|&step| self.trial(step, |trial| trial.is_sampled()).unwrap_or(true))
    }

    /// Applies the results for some steps, in plan order, and stores them.
    fn conclude(&mut self, steps: &[usize]) -> Result<Vec<Tuned>, RunError> {
        let (mut tuned, mut found): (Vec<Tuned>, Vec<(String, Bucket, Tuning)>) = (vec![], vec![]);
        let Some(side) = &mut self.gpu else { return Ok(tuned) };
        for &position in steps {
            let Some(trial) = side.trials.remove(&position) else { continue };
            let (Some(verdict), Some(step)) =
                (side.kernels().conclude(position, trial), self.model.plan().steps.get(position))
            else {
                continue;
            };
            let Verdict { bucket, candidates, times } = verdict;
            tuned.push(Tuned {
                step: position,
                name: step.name.clone(),
                path: step.path.clone(),
                sizes: bucket.to_string(),
                candidates,
                before: times.before.0,
                before_time: times.before.1,
                after: times.after.0,
                after_time: times.after.1,
            });
            // The other candidates keep the order of their sums.
            let kept = identity(&step.computation).filter(|_| times.after.0.keeps_order());
            found.extend(kept.map(|kernel| (kernel, bucket, times.after.0)));
        }
        if let (Some(store), false) = (&self.model.options().tunings, found.is_empty()) {
            store.keep(side.gpu(), found)?;
        }
        tuned.arrange_by_key(|tuned| tuned.step);
        Ok(tuned)
    }

    fn no_times(&self) -> RunError {
        RunError::NoTimes { device: self.report().adapter.unwrap_or_else(|| "cpu".to_owned()) }
    }
}
