//! The tuning that each step runs with.

use super::step::{GpuStep, Variant};
use super::{GpuSide, label, largest};
use crate::session::load::SessionOptions;
use crate::session::pipelines::WantedPipeline;
use crate::session::sizes::Sizes;
use crate::tuning::{Bucket, KernelTunings, Times, Trial, identity, symbols};
use crate::{Gpu, GpuError, RunError};
use rayon::prelude::*;
use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::emit::{Target, Tuning, Windows, emit_with_windows};
use rewire_graph_rewrite::plan::{Plan, Step};
use std::collections::HashSet;

/// The tunings of the steps of a session.
#[derive(Debug)]
pub(crate) struct Tunings {
    /// What the session was loaded with.
    base: Tuning,
    steps: Vec<StepTuning>,
}

/// The tunings of a step.
#[derive(Debug)]
struct StepTuning {
    /// For sizes that nothing is known of.
    base: Tuning,
    symbols: Vec<Symbol>,
    known: KernelTunings,
    /// Goes before all others.
    forced: Option<Tuning>,
    trial: Option<(Bucket, Trial)>,
}

/// A verdict on the tunings of a step.
pub(crate) struct Verdict {
    pub bucket: Bucket,
    pub candidates: usize,
    pub times: Times,
}

/// Why a step cannot run on the device with a tuning.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no kernel.
    Kernel(String),
    /// The device does not take it.
    Device(GpuError),
}

/// What a step is to run with at the sizes of a run.
struct Choice<'a> {
    position: usize,
    step: &'a Step,
    variant: Variant,
    reason: Reason,
}

/// Why a tuning is chosen.
enum Reason {
    Forced,
    /// It was measured.
    Known(Bucket),
    Suited,
}

impl Tunings {
    /// The tunings of some steps: those of the options, or else of their store.
    pub fn new(gpu: &Gpu, steps: &[Step], options: &SessionOptions) -> Self {
        let store = options.tunings.as_ref().filter(|_| options.tuning == Tuning::default());
        let stored = store.map(|store| store.load(gpu)).unwrap_or_default();
        let known = |step: &Step| match stored.is_empty() {
            true => None,
            false => stored.get(&identity(&step.kernel)?).cloned(),
        };
        let own = |step: &Step| StepTuning::new(step, gpu.target(), options.tuning, known(step));
        Self { base: options.tuning, steps: steps.iter().map(own).collect() }
    }

    /// The tuning of a step for sizes that nothing is known of.
    pub fn base(&self, position: usize) -> Tuning {
        self.steps.get(position).map_or(self.base, |own| own.base)
    }

    fn force(&mut self, position: usize, tuning: Option<Tuning>) {
        if let Some(own) = self.steps.get_mut(position) {
            own.forced = tuning;
        }
    }

    /// The trial of a step that is under way.
    pub fn trial(&mut self, position: usize) -> Option<&mut Trial> {
        self.steps.get_mut(position)?.trial.as_mut().map(|(_, trial)| trial)
    }

    /// Steps with tunings that were measured.
    pub fn measured(&self) -> usize {
        self.steps.iter().filter(|own| !own.known.sizes.is_empty()).count()
    }
}

impl StepTuning {
    fn new(step: &Step, target: &Target, base: Tuning, known: Option<KernelTunings>) -> Self {
        let has = |known: &KernelTunings| {
            let families = Tuning::families(&step.kernel, target);
            let has = families.iter().any(|family| family.matrices == known.matrices);
            if !has {
                tracing::warn!("{}: stored tunings are not used, they do not fit the kernel", label(step));
            }
            has
        };
        let known = known.filter(has).unwrap_or_default();
        let base = Tuning { matrices: base.matrices.or(known.matrices), ..base }.of_family(&step.kernel, target);
        Self { base, symbols: symbols(&step.kernel), known, forced: None, trial: None }
    }

    fn bucket(&self, sizes: &Sizes) -> Bucket {
        Bucket::new(&self.symbols, |symbol| sizes.values.symbols.get(&symbol).copied())
    }

    /// The tuning for the sizes of a run.
    fn choice(&self, step: &Step, target: &Target, sizes: &Sizes) -> (Tuning, Reason) {
        match (self.forced, self.known(sizes)) {
            (Some(tuning), _) => (tuning, Reason::Forced),
            (None, Some((bucket, tuning))) => (tuning, Reason::Known(bucket)),
            (None, None) => (self.base.suited(&step.kernel, target, size(sizes)), Reason::Suited),
        }
    }

    /// What was measured at the sizes of a run.
    fn known(&self, sizes: &Sizes) -> Option<(Bucket, Tuning)> {
        if self.known.sizes.is_empty() {
            return None;
        }
        let bucket = self.bucket(sizes);
        Some((bucket.clone(), self.known.get(&bucket)?))
    }
}

impl GpuSide {
    /// Lets a step run with a tuning, or again with its own.
    pub fn force(&mut self, position: usize, tuning: Option<Tuning>) {
        self.tunings.force(position, tuning);
        self.prepared = None;
    }

    /// True if a step runs here.
    pub fn has(&self, position: usize) -> bool {
        matches!(self.steps.get(position), Some(Some(_)))
    }

    /// The tuning that a step ran with last.
    #[cfg(test)]
    pub fn tuning_of(&self, position: usize) -> Option<Tuning> {
        Some(self.steps.get(position)?.as_ref()?.tuning())
    }

    /// The steps here that nothing is known of at the sizes of a run; with `again`, all steps here.
    pub fn unmeasured(&self, sizes: &Sizes, again: bool) -> Vec<usize> {
        let steps = self.tunings.steps.iter().enumerate().filter(|(position, _)| self.has(*position));
        let open = steps.filter(|(_, own)| again || own.known.get(&own.bucket(sizes)).is_none());
        open.map(|(position, _)| position).collect()
    }

    /// Begins the trial of a step at the sizes of a run; one that is under way goes on. It tries tunings that add in the order of
    /// the session, or with `families` in any. False if there is nothing to choose from, which is known from then on.
    pub fn open_trial(&mut self, position: usize, step: &Step, sizes: &Sizes, families: bool) -> bool {
        let target = self.gpu.target();
        let families = families && self.tunings.base.matrices.is_none();
        let Some(own) = self.tunings.steps.get_mut(position) else { return false };
        let bucket = own.bucket(sizes);
        if own.trial.as_ref().is_some_and(|(sizes, _)| *sizes == bucket) {
            return true;
        }
        let suited = own.base.suited(&step.kernel, target, size(sizes));
        let mut tunings = vec![own.known.get(&bucket).unwrap_or(suited)];
        let families = if families { Tuning::families(&step.kernel, target) } else { vec![own.base] };
        for candidate in families.iter().flat_map(|family| family.candidates(&step.kernel, target)) {
            if !tunings.contains(&candidate) {
                tunings.push(candidate);
            }
        }
        if let [only] = tunings[..] {
            own.known.insert(bucket, only);
            return false;
        }
        own.trial = Some((bucket, Trial::new(tunings)));
        true
    }

    /// Ends the trial of a step, which takes the better tuning from now on, and lets go of the kernels of others.
    pub fn conclude(&mut self, position: usize) -> Option<Verdict> {
        let own = self.tunings.steps.get_mut(position)?;
        let (bucket, trial) = own.trial.take()?;
        let times = trial.verdict();
        let taken = times.map_or(own.base, |times| times.after.0);
        own.known.insert(bucket.clone(), taken);
        own.base.matrices = taken.matrices;
        let stay = [taken, own.base];
        self.prepared = None;
        let others: Vec<Tuning> = trial.tunings.iter().copied().filter(|tuning| !stay.contains(tuning)).collect();
        if let Some(Some(own)) = self.steps.get_mut(position) {
            own.forget(&others);
        }
        let used: HashSet<&str> = self.steps.iter().flatten().flat_map(GpuStep::shaders).collect();
        self.pipelines.keep(|wgsl| used.contains(wgsl));
        Some(Verdict { bucket, candidates: trial.tunings.len(), times: times? })
    }

    /// Takes the kernels that suit the sizes of a run, and bind tensors above the binding limit in several windows.
    pub(super) async fn choose_kernels(&mut self, plan: &Plan, sizes: &Sizes) -> Result<(), RunError> {
        let mut open: Vec<usize> = (0..plan.steps.len()).filter(|&position| self.has(position)).collect();
        while !open.is_empty() {
            let new = self.choose(plan, &open, sizes);
            open = self.make_chosen(plan, new, sizes).await?;
        }
        Ok(())
    }

    /// Takes the kernels of some steps for the sizes of a run; the choices that there are no kernels of yet.
    fn choose<'a>(&mut self, plan: &'a Plan, open: &[usize], sizes: &Sizes) -> Vec<Choice<'a>> {
        let target = self.gpu.target();
        let mut new = vec![];
        for &position in open {
            let (Some(step), Some(tunings)) = (plan.steps.get(position), self.tunings.steps.get(position)) else {
                continue;
            };
            let (tuning, reason) = tunings.choice(step, target, sizes);
            let variant = Variant { windows: Windows::new(&step.kernel, target, size(sizes)), tuning };
            if let Some(Some(own)) = self.steps.get_mut(position)
                && !own.choose(&variant)
            {
                new.push(Choice { position, step, variant, reason });
            }
        }
        new
    }

    /// Makes the kernels of choices; the steps whose stored tunings do not fit, and which have to choose again.
    async fn make_chosen(
        &mut self,
        plan: &Plan,
        choices: Vec<Choice<'_>>,
        sizes: &Sizes,
    ) -> Result<Vec<usize>, RunError> {
        let target = self.gpu.target();
        let emit = |Choice { step, variant, reason, .. }: &Choice| WantedPipeline {
            label: label(step),
            kernel: emit_with_windows(&step.kernel, target, &variant.tuning, &variant.windows)
                .map_err(|error| Refused::Kernel(error.to_string())),
            lasting: !matches!(reason, Reason::Forced),
        };
        let wanted: Vec<_> = choices.par_iter().map(emit).collect();
        let made = self.pipelines.get(&self.gpu, wanted).await;
        let mut again = vec![];
        for (Choice { position, step, variant, reason }, made) in choices.into_iter().zip(made) {
            let refused = match made {
                Ok((kernel, pipeline)) => {
                    if let Some(Some(own)) = self.steps.get_mut(position) {
                        own.add(variant, kernel, pipeline);
                    }
                    continue;
                }
                Err(Refused::Device(lost @ GpuError::Lost { .. })) => return Err(lost.into()),
                Err(refused) => refused,
            };
            match reason {
                Reason::Forced => return Err(refused.with_tuning(position, step, variant.tuning)),
                Reason::Suited => {
                    return Err(refused.with_sizes(position, step, &self.gpu, largest(plan, step, sizes)));
                }
                Reason::Known(bucket) => {
                    tracing::warn!("{}", refused.with_tuning(position, step, variant.tuning));
                    self.tunings.steps[position].known.sizes.remove(&bucket);
                    again.push(position);
                }
            }
        }
        Ok(again)
    }
}

impl From<GpuError> for Refused {
    fn from(reason: GpuError) -> Self {
        Self::Device(reason)
    }
}

impl Refused {
    /// The tuning is at fault.
    fn with_tuning(self, position: usize, step: &Step, tuning: Tuning) -> RunError {
        let reason = match self {
            Self::Kernel(reason) => reason,
            Self::Device(reason) => reason.to_string(),
        };
        RunError::Tuning {
            step: position,
            name: step.name.clone(),
            path: step.path.clone(),
            tuning: tuning.to_string(),
            reason,
        }
    }

    /// The sizes of the run are at fault.
    fn with_sizes(self, position: usize, step: &Step, gpu: &Gpu, (tensor, bytes): (String, u64)) -> RunError {
        match self {
            Self::Device(reason) => reason.into(),
            Self::Kernel(reason) => RunError::Binding {
                step: position,
                name: step.name.clone(),
                path: step.path.clone(),
                tensor,
                bytes,
                limit: gpu.target().binding_bytes,
                reason,
            },
        }
    }
}

/// The sizes of a run.
fn size(sizes: &Sizes) -> impl Fn(&Dim) -> Option<u64> {
    |dim| u64::try_from(sizes.dim(dim).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::product;
    use rewire_graph::DType;
    use rewire_graph_rewrite::plan::{Extent, Kernel};

    #[test]
    fn the_order_of_sums_is_decided_for_all_sizes() {
        let target = Target { f16: true, subgroups: true, subgroup_size: 32, matrix: 16, ..Target::BASELINE };
        let mut plan = product();
        let step = &mut plan.steps[0];
        if let Kernel::Nest(nest) = &mut step.kernel {
            nest.body.operands.iter_mut().for_each(|operand| operand.dtype = DType::F16);
            nest.axes[1].extent = Extent::Dense(32.into());
        }
        let of = |base, matrices| {
            let bucket = Bucket::new(&[], |_| None);
            let mut known = KernelTunings::default();
            known.insert(bucket, Tuning { matrices, ..Tuning::default() });
            StepTuning::new(step, &target, base, Some(known))
        };
        let plain = Tuning { matrices: Some(false), ..Tuning::default() };
        assert_eq!(StepTuning::new(step, &target, Tuning::default(), None).base.matrices, Some(true));
        assert_eq!(of(Tuning::default(), Some(false)).base.matrices, Some(false));
        assert_eq!(of(Tuning::default(), Some(true)).base.matrices, Some(true));
        assert_eq!(of(plain, Some(true)).base.matrices, Some(false));
        let undecided = of(Tuning::default(), None);
        assert!(undecided.known.sizes.is_empty() && undecided.base.matrices == Some(true));
    }
}
