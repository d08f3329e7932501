//! Emission of kernels while the device opens.

use super::emitter::{ParsedKernel, emit_step, of_family, suited};
use super::gpu::{distinct, size};
use super::load::ModelOptions;
use crate::parallel::map;
use crate::session::Sizes;
use crate::{Kernel, PipelineStore};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::{Plan, Step};
use std::sync::{Mutex, PoisonError};

/// A kernel of a step for a target and a tuning, or why it cannot be emitted.
#[derive(Debug)]
struct Emitted {
    position: usize,
    target: Target,
    tuning: Tuning,
    kernel: Result<ParsedKernel, String>,
}

/// The kernels of a plan for the expected device.
#[derive(Debug, Default)]
pub(super) struct EmittedAhead(Mutex<Vec<Emitted>>);

impl EmittedAhead {
    /// Emits the kernels for [`ModelOptions::targets`], or for the latest device of [`ModelOptions::pipelines`], in
    /// parallel: those for unknown sizes, which identify the plan in the store, and those for the sizes of `expected` runs.
    pub fn of(plan: &Plan, expected: &[Sizes], options: &ModelOptions) -> Self {
        if options.device_kernel() == Kernel::Cpu {
            return Self::default();
        }
        let latest = options.pipelines.as_ref().filter(|_| options.targets.is_empty()).and_then(PipelineStore::target);
        let targets = options.targets.iter().chain(&latest);
        let tunings = |target: &Target, step: &Step| {
            let base = of_family(options.tuning, &step.computation, target);
            let suits = |sizes: &Sizes| suited(base, &step.computation, target, size(sizes));
            distinct([base].into_iter().chain(expected.iter().filter(|sizes| sizes.has_work(step)).map(suits)))
        };
        let steps = |target| plan.steps.iter().enumerate().map(move |(position, step)| (target, position, step));
        let wanted = targets.flat_map(steps).flat_map(|(target, position, step)| {
            tunings(target, step).into_iter().map(move |tuning| (target, position, step, tuning))
        });
        let emit = |(target, position, step, tuning): (&Target, usize, &Step, Tuning)| {
            let kernel = emit_step(options, position, step, target, &tuning);
            Emitted { position, target: target.clone(), tuning, kernel }
        };
        Self(Mutex::new(map(wanted.collect(), emit)))
    }

    /// Removes and returns the kernel of a step, if it was emitted for this target and tuning.
    pub fn take(&self, position: usize, target: &Target, tuning: &Tuning) -> Option<Result<ParsedKernel, String>> {
        let mut emitted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &Emitted| (known.position, &known.tuning, &known.target) == (position, tuning, target);
        let at = emitted.iter().position(is_it)?;
        Some(emitted.swap_remove(at).kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph::{DType, Scope};
    use rewire_graph_rewrite::{lower, optimize};

    #[test]
    fn kernels_are_there_for_the_targets_that_are_told() {
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, (scope.size("rows"), 6));
        let y = x.matmul(&scope.parameter("weight", DType::F32, [6, 5])).silu();
        let plan = lower(&optimize(scope.finish(&[("y", y)]).unwrap()).unwrap().0).unwrap();
        let step = &plan.steps[0];
        let targets = vec![Target { invocations: 512, ..Target::BASELINE }, Target::BASELINE];
        let options = ModelOptions { targets: targets.clone(), ..ModelOptions::default() };
        let ahead = EmittedAhead::of(&plan, &[], &options);
        let tuning = of_family(Tuning::default(), &step.computation, &Target::BASELINE);
        for target in &targets {
            let own = emit_step(&options, 0, step, target, &tuning).unwrap().kernel;
            assert_eq!(ahead.take(0, target, &tuning).unwrap().unwrap().kernel, own);
            assert!(ahead.take(0, target, &tuning).is_none());
        }
        let ahead = EmittedAhead::of(&plan, &[], &options);
        assert!(ahead.take(0, &Target { f16: true, ..Target::BASELINE }, &tuning).is_none());
        assert!(ahead.take(plan.steps.len(), &Target::BASELINE, &tuning).is_none());
        let ahead = EmittedAhead::of(&plan, &[], &ModelOptions { kernel: Kernel::Cpu, ..options });
        assert!(ahead.take(0, &Target::BASELINE, &tuning).is_none());
    }
}
