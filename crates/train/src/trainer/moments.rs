//! Optimizer states of another training.

use super::{TrainError, Trainer, on_cpu};
use crate::Optimizer;
use crate::step::{KeptMoment, names};
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Inputs, Model};
use std::collections::BTreeMap;

/// Fewest steps after which an unchanged state is taken for constant.
const SETTLED: u64 = 8;

impl Trainer {
    /// Sets the optimizer states of a training that made `steps` steps. `read` returns a moment of a parameter, named as in
    /// [`ParameterMoment`](super::ParameterMoment); `None` leaves it. All ranks must call it before the first step.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`] names a moment of another shape; else the errors of `read` and of [`Trainer::parameters`].
    pub fn begin_moments<E: From<TrainError>>(
        &mut self,
        steps: u64,
        read: impl Fn(&str, &str) -> Result<Option<HostTensor>, E>,
    ) -> Result<(), E> {
        let mut by_state: BTreeMap<String, Vec<KeptMoment>> = BTreeMap::new();
        for moment in &self.moments {
            by_state.entry(moment.state.clone()).or_default().push(moment.clone());
        }
        let mut is_read = false;
        for (state, moments) in by_state {
            let mut found = vec![];
            for moment in moments {
                let Some(tensor) = read(&moment.parameter, moment.moment)? else { continue };
                if tensor.shape() != moment.shape {
                    let (name, expected) = (moment.state, format!("{:?}", moment.shape));
                    return Err(TrainError::Checkpoint { name, expected }.into());
                }
                found.push((moment, tensor));
            }
            if !found.is_empty() {
                is_read = true;
                self.set_moments(&state, found)?;
            }
        }
        if is_read { Ok(self.advance_shared(steps)?) } else { Ok(()) }
    }

    /// Sets moments that are ranges of a state.
    fn set_moments(&mut self, name: &str, moments: Vec<(KeptMoment, HostTensor)>) -> Result<(), TrainError> {
        let shape = self.states.get(name).map(|state| state.shape.clone()).unwrap_or_default();
        if let [(own, tensor)] = moments.as_slice()
            && own.shape == shape
        {
            return self.set_state(name, tensor.clone());
        }
        let mut values = self.state(name)?.to_f32();
        for (KeptMoment { start, .. }, tensor) in &moments {
            values[*start..*start + tensor.len()].copy_from_slice(&tensor.to_f32());
        }
        self.set_state(name, HostTensor::f32(shape, &values)?)
    }

    /// Sets the states that parameters share, such as Adam's bias corrections.
    fn advance_shared(&mut self, steps: u64) -> Result<(), TrainError> {
        let batches = self.config.gradient_accumulation_steps.get() as u64 / self.config.step_batches() as u64;
        let mut kinds = vec![(names::SPARSE.to_owned(), self.config.sparse_optimizer.build()?, steps)];
        for (kind, scheduled) in self.config.dense_optimizers() {
            kinds.push((kind, scheduled.build()?, steps / batches));
        }
        for (kind, optimizer, steps) in kinds {
            for (name, value) in advanced(&optimizer, &kind, steps)? {
                if self.states.contains_key(&name) {
                    self.set_state(&name, value)?;
                }
            }
        }
        Ok(())
    }
}

/// The shared states of an optimizer after some steps, by the arithmetic of the steps.
fn advanced(optimizer: &Optimizer, kind: &str, steps: u64) -> Result<BTreeMap<String, HostTensor>, TrainError> {
    let shared = optimizer.shared();
    if shared.is_empty() {
        return Ok(BTreeMap::new());
    }
    let scope = Scope::new();
    let names: Vec<String> = shared.iter().map(|moment| names::shared(moment.name, kind)).collect();
    let before: Vec<_> = names.iter().map(|name| scope.state(name, DType::F32, [1])).collect();
    for (name, after) in names.iter().zip(optimizer.advance(&before)) {
        scope.set_state(name, after.reshape([1]));
    }
    let plan = lower(&optimize(scope.finish(&[]).map_err(crate::StepError::from)?)?.0)?;
    let mut session = Model::load(plan, |_: &str| None, on_cpu())?.session();
    for (name, moment) in names.iter().zip(&shared) {
        session.set_state(name, HostTensor::vector(&[moment.initial]))?;
    }
    let mut latest = session.states()?;
    for step in 0..steps {
        session.run(&Inputs::new())?;
        let after = session.states()?;
        if step > SETTLED && after == latest {
            break;
        }
        latest = after;
    }
    Ok(latest)
}
