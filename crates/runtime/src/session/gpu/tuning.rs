//! The tuning that each step runs with.

use super::step::Variant;
use super::{GpuSide, label, largest};
use crate::session::load::SessionOptions;
use crate::session::sizes::Sizes;
use crate::tuning::{Bucket, KernelTunings, Times, Trial, identity, symbols};
use crate::{Gpu, GpuError, RunError};
use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::emit::{EmitError, Target, Tuning, Windows, emit_with_windows};
use rewire_graph_rewrite::plan::{Plan, Step};

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

/// Why a step cannot run with a tuning.
enum Unsuitable {
    Kernel(EmitError),
    Device(GpuError),
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

    /// Lets a step run with a tuning, or again with its own.
    pub fn force(&mut self, position: usize, tuning: Option<Tuning>) {
        if let Some(own) = self.steps.get_mut(position) {
            own.forced = tuning;
        }
    }

    /// The trial of a step that is under way.
    pub fn trial(&mut self, position: usize) -> Option<&mut Trial> {
        self.steps.get_mut(position)?.trial.as_mut().map(|(_, trial)| trial)
    }

    /// Ends the trial of a step, which takes the better tuning from now on.
    pub fn conclude(&mut self, position: usize) -> Option<Verdict> {
        let own = self.steps.get_mut(position)?;
        let (bucket, trial) = own.trial.take()?;
        let times = trial.verdict()?;
        own.known.insert(bucket.clone(), times.after.0);
        own.base.matrices = times.after.0.matrices;
        Some(Verdict { bucket, candidates: trial.count, times })
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
        let base = Tuning { matrices: base.matrices.or(known.matrices), ..base };
        Self { base, symbols: symbols(&step.kernel), known, forced: None, trial: None }
    }

    fn bucket(&self, sizes: &Sizes) -> Bucket {
        Bucket::new(&self.symbols, |symbol| sizes.values.symbols.get(&symbol).copied())
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
    /// True if a step runs here.
    pub fn has(&self, position: usize) -> bool {
        matches!(self.steps.get(position), Some(Some(_)))
    }

    /// The tuning that a step ran with last.
    #[cfg(test)]
    pub fn tuning_of(&self, position: usize) -> Option<Tuning> {
        Some(self.steps.get(position)?.as_ref()?.tuning())
    }

    /// Begins trials of the steps that have several candidates; those under way at these sizes go on. Which orders of sums are
    /// tried: all of them, or only that of the session. Tunings that are known are measured again, or left.
    pub fn open_trials(&mut self, plan: &Plan, sizes: &Sizes, all: bool) -> Vec<usize> {
        let target = self.gpu.target().clone();
        let mut open = vec![];
        for (position, step) in plan.steps.iter().enumerate() {
            let on_device = self.has(position);
            let Some(own) = self.tunings.steps.get_mut(position).filter(|_| on_device) else { continue };
            let bucket = own.bucket(sizes);
            if !all && own.known.get(&bucket).is_some() {
                continue;
            }
            if own.trial.as_ref().is_none_or(|(sizes, _)| *sizes != bucket) {
                let suited = own.base.suited(&step.kernel, &target, size(sizes));
                let known = own.known.get(&bucket).unwrap_or(suited);
                let mut tunings = vec![known];
                let families = match all && self.tunings.base.matrices.is_none() {
                    true => Tuning::families(&step.kernel, &target),
                    false => vec![own.base],
                };
                for candidate in families.iter().flat_map(|family| family.candidates(&step.kernel, &target)) {
                    if !tunings.contains(&candidate) {
                        tunings.push(candidate);
                    }
                }
                own.trial = (tunings.len() > 1).then(|| (bucket, Trial::new(tunings)));
            }
            open.extend(own.trial.is_some().then_some(position));
        }
        open
    }

    /// Takes the kernels that suit the sizes of a run, and bind tensors above the binding limit in several windows.
    pub(super) async fn choose_kernels(&mut self, plan: &Plan, sizes: &Sizes) -> Result<(), RunError> {
        for (position, step) in plan.steps.iter().enumerate() {
            let Some(own) = self.tunings.steps.get(position).filter(|_| self.has(position)) else { continue };
            if let Some(tuning) = own.forced {
                let chosen = self.choose(position, step, tuning, sizes).await;
                chosen.map_err(|reason| reason.with_tuning(position, step, tuning))?;
                continue;
            }
            let suited = own.base.suited(&step.kernel, self.gpu.target(), size(sizes));
            if let Some((bucket, tuning)) = own.known(sizes) {
                match self.choose(position, step, tuning, sizes).await {
                    Ok(()) => continue,
                    Err(Unsuitable::Device(lost @ GpuError::Lost { .. })) => return Err(lost.into()),
                    Err(reason) => {
                        tracing::warn!("{}", reason.with_tuning(position, step, tuning));
                        self.tunings.steps[position].known.sizes.remove(&bucket);
                    }
                }
            }
            let chosen = self.choose(position, step, suited, sizes).await;
            chosen.map_err(|reason| reason.with_sizes(position, step, &self.gpu, largest(plan, step, sizes)))?;
        }
        Ok(())
    }

    /// Takes the kernel of a step for a tuning and the sizes of a run.
    async fn choose(&mut self, position: usize, step: &Step, tuning: Tuning, sizes: &Sizes) -> Result<(), Unsuitable> {
        let gpu = self.gpu.clone();
        let Some(own) = self.steps.get_mut(position).and_then(Option::as_mut) else { return Ok(()) };
        let windows = Windows::new(&step.kernel, gpu.target(), size(sizes));
        let variant = Variant { windows, tuning };
        if own.choose(&variant) {
            return Ok(());
        }
        let emitted = emit_with_windows(&step.kernel, gpu.target(), &tuning, &variant.windows);
        let kernel = emitted.map_err(Unsuitable::Kernel)?;
        let pipeline = self.pipelines.get(&gpu, &kernel, &label(step)).await.map_err(Unsuitable::Device)?;
        own.add(variant, kernel, pipeline);
        Ok(())
    }
}

impl Unsuitable {
    /// The tuning is at fault.
    fn with_tuning(self, position: usize, step: &Step, tuning: Tuning) -> RunError {
        let reason = match self {
            Self::Kernel(reason) => reason.to_string(),
            Self::Device(lost @ GpuError::Lost { .. }) => return lost.into(),
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
                reason: reason.to_string(),
            },
        }
    }
}

/// The sizes of a run.
fn size(sizes: &Sizes) -> impl Fn(&Dim) -> Option<u64> {
    |dim| u64::try_from(sizes.dim(dim).ok()?).ok()
}
