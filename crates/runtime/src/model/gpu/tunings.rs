//! The tuning of each step.

mod trials;

use super::{GpuKernels, label, largest};
use crate::model::emitter::{emit_variant, families, of_family, suited};
use crate::model::load::ModelOptions;
use crate::model::pipelines::{KernelKey, StepKernel, WantedKernel};
use crate::parallel::map;
use crate::session::Sizes;
use crate::tuning::{Bucket, KernelTunings, identity, symbols};
use crate::{Gpu, GpuError, RunError};
use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::device::{BindingChunks, Target, Tuning};
use rewire_graph_rewrite::plan::{Computation, Plan, Step};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use trials::{OpenTrial, Verdict};

/// Sizes up to this power of two influence the choice of tiles.
const LARGEST_SIZE: u32 = 24;

/// The tunings of the steps of a model.
#[derive(Debug)]
pub(crate) struct Tunings {
    /// The tuning with which the model was loaded.
    base: Tuning,
    steps: RwLock<Vec<StepTuning>>,
    /// Counts changes of the tunings.
    changes: AtomicU64,
}

/// The tunings of a step.
#[derive(Debug)]
struct StepTuning {
    /// For sizes without a measurement.
    base: Tuning,
    symbols: Vec<Symbol>,
    /// Symbols of all sizes that a choice may depend on.
    followed: Vec<Symbol>,
    known: KernelTunings,
    chosen: Mutex<HashMap<Vec<Option<i64>>, KernelKey>>,
}

/// Number of sizes for which a step caches the choice.
const REMEMBERED: usize = 256;

/// Why a step cannot run on the device with a tuning.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The kernel cannot be emitted.
    Kernel(String),
    /// The device rejects it.
    Device(GpuError),
}

/// The tuning of a step at the sizes of a run.
struct Choice<'a> {
    position: usize,
    step: &'a Step,
    key: KernelKey,
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
    /// The tunings of steps: from the options, else from their store, else those shipped with the model.
    pub fn new(gpu: &Gpu, steps: &[Step], options: &ModelOptions) -> Self {
        // Kernels that come with a model have no other tunings.
        let is_open = cfg!(feature = "emit") && options.tuning == Tuning::default();
        let store = options.tunings.as_ref().filter(|_| is_open);
        let stored = store.map(|store| store.load(gpu)).unwrap_or_default();
        let given = options.device_tunings.iter().find(|given| is_open && given.are_of(gpu));
        let known = |step: &Step| {
            if !is_open || stored.is_empty() && given.is_none() {
                return None;
            }
            let kernel = identity(&step.computation)?;
            let given = given.and_then(|given| given.kernels.get(&kernel)).cloned();
            match stored.get(&kernel) {
                Some(stored) => Some(given.unwrap_or_default().below(stored)),
                None => given,
            }
        };
        let own = |step: &Step| StepTuning::new(step, gpu.target(), options.tuning, known(step));
        let steps = RwLock::new(steps.iter().map(own).collect());
        Self { base: options.tuning, steps, changes: AtomicU64::new(0) }
    }

    /// The tuning of a step for sizes without a measurement.
    pub fn base(&self, position: usize) -> Tuning {
        self.read().get(position).map_or(self.base, |own| own.base)
    }

    /// The tunings of a step in runs of these sizes, as far as it has work there and each tensor fits in a binding.
    pub fn expected(&self, position: usize, step: &Step, target: &Target, runs: &[Sizes]) -> Vec<Tuning> {
        let steps = self.read();
        let Some(own) = steps.get(position) else { return vec![] };
        let whole = BindingChunks::of_constants(&step.computation, target);
        let fits = |sizes: &&Sizes| BindingChunks::new(&step.computation, target, size(sizes)) == whole;
        let runs = runs.iter().filter(|sizes| sizes.has_work(step)).filter(fits);
        distinct(runs.map(|sizes| own.choice(step, target, sizes, None).0))
    }

    /// Number of steps with measured tunings.
    pub fn measured(&self) -> usize {
        self.read().iter().filter(|own| !own.known.sizes.is_empty()).count()
    }

    /// Number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<StepTuning>> {
        self.steps.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<StepTuning>> {
        let steps = self.steps.write().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, Ordering::Release);
        steps
    }
}

impl StepTuning {
    fn new(step: &Step, target: &Target, base: Tuning, known: Option<KernelTunings>) -> Self {
        let has = |known: &KernelTunings| {
            let families = families(&step.computation, target);
            let has = families.iter().any(|family| family.matrices == known.matrices);
            if !has {
                tracing::warn!("{}: stored tunings are not used, they do not fit the kernel", label(step));
            }
            has
        };
        let known = known.filter(has).unwrap_or_default().in_order();
        let base = Tuning { matrices: base.matrices.or(known.matrices), ..base };
        let base = of_family(base, &step.computation, target);
        let symbols = symbols(&step.computation);
        let mut followed = symbols.clone();
        if let Computation::Nest(nest) = &step.computation {
            let extents = nest.axes.iter().filter_map(|axis| axis.extent.dense());
            followed.extend(extents.flat_map(Dim::terms).map(|(symbol, _)| symbol));
        }
        Self { base, symbols, followed, known, chosen: Mutex::default() }
    }

    fn bucket(&self, sizes: &Sizes) -> Bucket {
        Bucket::new(&self.symbols, |symbol| sizes.values.symbols.get(&symbol).copied())
    }

    /// The values of the sizes that a step depends on.
    fn values(&self, sizes: &Sizes) -> Vec<Option<i64>> {
        self.followed.iter().map(|symbol| sizes.values.symbols.get(symbol).copied()).collect()
    }

    /// The tuning for the sizes of a run.
    fn choice(&self, step: &Step, target: &Target, sizes: &Sizes, forced: Option<Tuning>) -> (Tuning, Reason) {
        match (forced, self.known(sizes)) {
            (Some(tuning), _) => (tuning, Reason::Forced),
            (None, Some((bucket, tuning))) => (tuning, Reason::Known(bucket)),
            (None, None) => (suited(self.base, &step.computation, target, size(sizes)), Reason::Suited),
        }
    }

    /// The tunings for all sizes.
    fn all(&self, step: &Step, target: &Target) -> Vec<Tuning> {
        let sizes = (0..LARGEST_SIZE).map(|power| 1i64 << power);
        let suited = sizes.map(|size| {
            let of_size = |dim: &Dim| u64::try_from(dim.evaluate(|_| Some(size))?).ok();
            suited(self.base, &step.computation, target, of_size)
        });
        // If all sizes are similar, samples are short.
        distinct(suited.chain([self.base]).chain(self.known.sizes.values().copied()))
    }

    /// Sets the tuning for some sizes, or removes it.
    fn learn(&mut self, bucket: Bucket, tuning: Option<Tuning>) {
        match tuning {
            Some(tuning) => self.known.insert(bucket, tuning),
            None => drop(self.known.sizes.remove(&bucket)),
        }
        self.chosen.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The cached choice for values of the step's sizes, made by `choose` on first use.
    fn remembered(&self, values: Vec<Option<i64>>, choose: impl FnOnce() -> KernelKey) -> KernelKey {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if chosen.len() >= REMEMBERED && !chosen.contains_key(&values) {
            chosen.clear();
        }
        chosen.entry(values).or_insert_with(choose).clone()
    }

    /// The measured tuning at the sizes of a run.
    fn known(&self, sizes: &Sizes) -> Option<(Bucket, Tuning)> {
        if self.known.sizes.is_empty() {
            return None;
        }
        let bucket = self.bucket(sizes);
        Some((bucket.clone(), self.known.get(&bucket)?))
    }
}

impl GpuKernels {
    /// The kernels by step for the sizes of a run; tensors above the binding limit are bound in chunks. Steps in
    /// `forced` use the tunings there.
    pub async fn choose(
        &self,
        plan: &Plan,
        sizes: &Sizes,
        forced: &HashMap<usize, Tuning>,
    ) -> Result<Vec<Option<Arc<StepKernel>>>, RunError> {
        let mut chosen = vec![None; plan.steps.len()];
        let mut open: Vec<usize> = (0..plan.steps.len()).filter(|&position| self.has(position)).collect();
        while !open.is_empty() {
            let new = self.find_chosen(plan, &open, (sizes, forced), &mut chosen);
            open = self.make_chosen(plan, new, sizes, &mut chosen).await?;
        }
        Ok(chosen)
    }

    /// Compiles the kernels of all steps for all sizes; returns the number of compiled kernels.
    pub async fn make_all(&self, steps: &[Step]) -> Result<usize, GpuError> {
        let target = self.gpu.target();
        let mut wanted: Vec<KernelKey> = vec![];
        for (own, (position, step)) in self.tunings.read().iter().zip(steps.iter().enumerate()) {
            if !self.has(position) {
                continue;
            }
            let windows = BindingChunks::of_constants(&step.computation, target);
            let keys = own.all(step, target).into_iter().map(|tuning| KernelKey {
                step: position,
                windows: windows.clone(),
                tuning,
            });
            wanted.extend(keys.filter(|key| self.cache.find(key).is_none()));
        }
        let emit = |key: KernelKey| WantedKernel {
            label: label(&steps[key.step]),
            kernel: emit_variant(&steps[key.step], target, &key.tuning, &key.windows).map_err(Refused::Kernel),
            key,
            lasting: true,
        };
        let mut count = 0;
        for made in self.cache.make(&self.gpu, map(wanted, emit)).await {
            match made {
                Ok(_) => count += 1,
                Err(Refused::Device(lost @ GpuError::Lost { .. })) => return Err(lost),
                // A run that needs it reports the error.
                Err(_) => {}
            }
        }
        self.store();
        Ok(count)
    }

    /// Finds the kernels of steps for the sizes of a run; returns the choices without a kernel.
    fn find_chosen<'a>(
        &self,
        plan: &'a Plan,
        open: &[usize],
        (sizes, forced): (&Sizes, &HashMap<usize, Tuning>),
        chosen: &mut [Option<Arc<StepKernel>>],
    ) -> Vec<Choice<'a>> {
        let target = self.gpu.target();
        let steps = self.tunings.read();
        let mut new = vec![];
        for &position in open {
            let (Some(step), Some(tunings)) = (plan.steps.get(position), steps.get(position)) else { continue };
            let forced = forced.get(&position).copied();
            if forced.is_none() && !sizes.has_work(step) {
                chosen[position] = self.any_kernel(position).cloned();
                continue;
            }
            let key = |tuning| KernelKey {
                step: position,
                windows: BindingChunks::new(&step.computation, target, size(sizes)),
                tuning,
            };
            let choice = || tunings.choice(step, target, sizes, forced);
            let key = match forced {
                Some(tuning) => key(tuning),
                None => tunings.remembered(tunings.values(sizes), || key(choice().0)),
            };
            match self.cache.find(&key) {
                Some(kernel) => chosen[position] = Some(kernel),
                None => new.push(Choice { position, step, key, reason: choice().1 }),
            }
        }
        new
    }

    /// Compiles the kernels of choices; returns the steps whose stored tunings do not fit, which have to choose again.
    async fn make_chosen(
        &self,
        plan: &Plan,
        choices: Vec<Choice<'_>>,
        sizes: &Sizes,
        chosen: &mut [Option<Arc<StepKernel>>],
    ) -> Result<Vec<usize>, RunError> {
        let target = self.gpu.target();
        let emit = |Choice { step, key, reason, .. }: &Choice| WantedKernel {
            key: key.clone(),
            label: label(step),
            kernel: emit_variant(step, target, &key.tuning, &key.windows).map_err(Refused::Kernel),
            lasting: !matches!(reason, Reason::Forced),
        };
        let wanted = map(choices.iter().collect(), emit);
        let made = self.cache.make(&self.gpu, wanted).await;
        let mut again = vec![];
        for (Choice { position, step, key: KernelKey { tuning, .. }, reason }, made) in choices.into_iter().zip(made) {
            let refused = match made {
                Ok(kernel) => {
                    chosen[position] = Some(kernel);
                    continue;
                }
                Err(Refused::Device(lost @ GpuError::Lost { .. })) => return Err(lost.into()),
                Err(refused) => refused,
            };
            match reason {
                Reason::Forced => return Err(refused.with_tuning(position, step, tuning)),
                Reason::Suited => {
                    return Err(refused.with_sizes(position, step, &self.gpu, largest(plan, step, sizes)));
                }
                Reason::Known(bucket) => {
                    tracing::warn!("{}", refused.with_tuning(position, step, tuning));
                    if let Some(own) = self.tunings.write().get_mut(position) {
                        own.learn(bucket, None);
                    }
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
    /// The error, caused by the tuning.
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

    /// The error, caused by the sizes of the run.
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

/// Each tuning once.
pub(crate) fn distinct(tunings: impl Iterator<Item = Tuning>) -> Vec<Tuning> {
    let mut all = vec![];
    for tuning in tunings {
        if !all.contains(&tuning) {
            all.push(tuning);
        }
    }
    all
}

/// The sizes of a run.
pub(crate) fn size(sizes: &Sizes) -> impl Fn(&Dim) -> Option<u64> {
    |dim| u64::try_from(sizes.dim(dim).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Layout;
    use crate::session::tests::product;
    use rewire_graph::DType;
    use rewire_graph_rewrite::device::SubgroupSizes;
    use rewire_graph_rewrite::plan::{Computation, Extent};
    use std::collections::BTreeMap;

    #[test]
    fn expected_runs_have_the_tunings_that_they_choose() {
        let (target, plan) = (Target::BASELINE, product());
        let step = &plan.steps[0];
        let run = |rows: i64| {
            let mut sizes = Sizes::fixed(vec![]);
            sizes.values.symbols = BTreeMap::from([(Symbol(0), rows)]);
            sizes.layouts = plan
                .buffers
                .iter()
                .map(|buffer| {
                    let extent = |dim: &Dim| dim.evaluate(|_| Some(rows)).unwrap();
                    Layout::new(buffer.dtype, buffer.shape.iter().map(extent).collect())
                })
                .collect();
            sizes
        };
        let mut own = StepTuning::new(step, &target, Tuning::default(), None);
        own.learn(own.bucket(&run(3)), Some(Tuning { matrices: Some(false), ..own.base }));
        let (base, steps) = (own.base, RwLock::new(vec![own]));
        let tunings = Tunings { base, steps, changes: AtomicU64::new(0) };
        let of =
            |rows: &[i64]| tunings.expected(0, step, &target, &rows.iter().map(|&rows| run(rows)).collect::<Vec<_>>());
        let chosen = |rows: i64| tunings.read()[0].choice(step, &target, &run(rows), None).0;
        assert_ne!(chosen(3), chosen(1 << 20));
        assert_eq!(of(&[3, 1 << 20, 3]), [chosen(3), chosen(1 << 20)]);
        assert_eq!(of(&[0]), []);
        assert_eq!(of(&[0, 3]), [chosen(3)]);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn the_order_of_sums_is_decided_for_all_sizes() {
        let target = Target {
            f16: true,
            subgroups: true,
            subgroup_size: SubgroupSizes::fixed(32),
            matrix: 16,
            ..Target::BASELINE
        };
        let mut plan = product();
        let step = &mut plan.steps[0];
        let Computation::Nest(kernel) = &mut step.computation else { panic!("a product is a nest") };
        let edited = kernel.edit(|nest| {
            nest.body.operands.iter_mut().for_each(|operand| operand.dtype = DType::F16);
            nest.axes[1].extent = Extent::Dense(32.into());
        });
        edited.unwrap();
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
