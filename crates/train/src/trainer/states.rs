//! Parameters and states of a trainer.

use super::ranks::{Held, Ranks};
use super::{TrainError, Trainer};
use crate::step::{KeptMoment, names};
use rewire_graph::HostTensor;
use std::collections::BTreeMap;
use std::io;

impl Trainer {
    /// The current value of a state.
    pub(super) fn state(&self, name: &str) -> Result<HostTensor, TrainError> {
        match &self.ranks {
            Some(ranks) => ranks.get(name),
            None => Ok(self.session.state(name)?),
        }
    }

    /// Replaces a state; for a divided table, the rows of this rank.
    pub(super) fn set_state(&mut self, name: &str, tensor: HostTensor) -> Result<(), TrainError> {
        match &mut self.ranks {
            Some(ranks) => ranks.set(name, tensor),
            None => Ok(self.session.set_state(name, tensor)?),
        }
    }

    /// The first parameter with a non-finite element, in the model's order.
    pub(super) fn first_bad_parameter(&self) -> Option<String> {
        let is_bad = |name: &&String| match &self.ranks {
            Some(ranks) => ranks.is_finite(name).is_ok_and(|is_finite| !is_finite),
            None => self.session.state(name).is_ok_and(|tensor| tensor.first_non_finite().is_some()),
        };
        self.parameters.iter().find(is_bad).cloned()
    }

    /// Checks that all trained parameters are finite. Losses do not reveal this for the last step.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] names the first parameter that is not finite.
    pub fn check_parameters(&self) -> Result<(), TrainError> {
        match self.first_bad_parameter() {
            None => Ok(()),
            parameter => Err(TrainError::Diverged { step: self.steps, loss: self.progress.loss, parameter }),
        }
    }

    /// All parameters, frozen ones included, and states that the model sets, such as running statistics.
    ///
    /// # Errors
    /// [`TrainError::Run`] if they cannot be read.
    pub fn parameters(&self) -> Result<BTreeMap<String, HostTensor>, TrainError> {
        self.parameters_of(|_| true)
    }

    /// The parameters for which `is_asked` returns true. Parameters that ranks do not divide are read individually.
    ///
    /// # Errors
    /// As [`Trainer::parameters`].
    pub fn parameters_of(&self, is_asked: impl Fn(&str) -> bool) -> Result<BTreeMap<String, HostTensor>, TrainError> {
        let mut all = self.fixed.clone();
        all.retain(|name, _| is_asked(name));
        for name in self.parameters.iter().filter(|name| is_asked(name)) {
            all.insert(name.clone(), self.state(name)?);
        }
        Ok(all)
    }

    /// Names of trained parameters, and of states that the model sets. Together with the [frozen](Trainer::frozen)
    /// parameters they are the whole model.
    pub fn learned(&self) -> &[String] {
        &self.parameters
    }

    /// Shapes of the states by name.
    pub fn state_shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.states.iter().map(|(name, state)| (name.as_str(), state.shape.as_slice()))
    }

    /// Passes a state to `take` in blocks of whole rows, in order. Blocks of divided states have at most some MB. Of several ranks, only
    /// rank 0 calls `take`, but all must call this. The state of a parameter has the parameter's name.
    ///
    /// # Errors
    /// [`TrainError::Write`] if `take` fails; otherwise as [`Trainer::parameters`].
    pub fn stream(&self, name: &str, take: &mut dyn FnMut(&HostTensor) -> io::Result<()>) -> Result<(), TrainError> {
        match &self.ranks {
            Some(ranks) => ranks.stream(name, take),
            None => take(&self.session.state(name)?).map_err(TrainError::Write),
        }
    }

    /// True if tables are divided among ranks, so that no rank holds the whole model.
    pub fn is_divided(&self) -> bool {
        self.ranks.as_ref().is_some_and(Ranks::is_divided)
    }

    /// The frozen parameters.
    pub fn frozen(&self) -> &BTreeMap<String, HostTensor> {
        &self.fixed
    }

    /// The name of the state with a parameter's moving average, if there is one.
    pub fn average(&self, parameter: &str) -> Option<String> {
        Some(names::average(parameter)).filter(|name| self.states.contains_key(name))
    }

    /// The moving averages of the dense parameters, by name; empty without `ema` in the configuration.
    ///
    /// # Errors
    /// As [`Trainer::parameters`].
    pub fn averages(&self) -> Result<BTreeMap<String, HostTensor>, TrainError> {
        let mut all = BTreeMap::new();
        for name in &self.parameters {
            if let Some(average) = self.average(name) {
                all.insert(name.clone(), self.state(&average)?);
            }
        }
        Ok(all)
    }

    /// The rows of divided tables and their moments on this rank; no other rank has them.
    pub fn held(&self) -> Vec<Held<'_>> {
        self.ranks.iter().flat_map(|ranks| ranks.held(&self.moments)).collect()
    }

    /// The optimizer states of parameters.
    ///
    /// # Errors
    /// As [`Trainer::parameters`].
    pub fn moments(&self) -> Result<Vec<ParameterMoment>, TrainError> {
        self.moments_of(|_| true)
    }

    /// The optimizer states of the parameters for which `is_asked` returns true. States that ranks do not divide are read individually.
    ///
    /// # Errors
    /// As [`Trainer::parameters`].
    pub fn moments_of(&self, is_asked: impl Fn(&str) -> bool) -> Result<Vec<ParameterMoment>, TrainError> {
        let mut states: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
        let mut all = vec![];
        let asked = self.moments.iter().filter(|moment| is_asked(&moment.parameter));
        for KeptMoment { state, parameter, moment, start, shape } in asked {
            if !states.contains_key(state.as_str()) {
                states.insert(state, self.state(state)?.to_f32());
            }
            let count = shape.iter().product::<usize>();
            let values = states.get(state.as_str()).and_then(|values| values.get(*start..start + count));
            let tensor = HostTensor::f32(shape.clone(), values.unwrap_or_default())?;
            all.push(ParameterMoment { parameter: parameter.clone(), moment, tensor });
        }
        Ok(all)
    }

    /// All states that the next step depends on, except the number of steps: parameters, optimizer states, averages, and the ids of
    /// growing tables.
    ///
    /// # Errors
    /// As [`Trainer::parameters`].
    pub fn states(&self) -> Result<BTreeMap<String, HostTensor>, TrainError> {
        let mut all = self.ids();
        for name in self.states.keys() {
            all.insert(name.clone(), self.state(name)?);
        }
        Ok(all)
    }

    /// Resumes an earlier training of the same objective and configuration after `steps` steps. `states` returns the values
    /// of [`Trainer::states`] at that point, by name.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`] names a state that is missing or has another shape, [`TrainError::Ids`] invalid ids of growing tables.
    pub fn resume(&mut self, steps: u64, states: impl Fn(&str) -> Option<HostTensor>) -> Result<(), TrainError> {
        let (grown, mut all) = (self.saved_ids(&states)?, vec![]);
        for (name, state) in &self.states {
            let tensor = states(name).filter(|tensor| tensor.shape() == state.shape);
            let expected = || format!("{:?}", state.shape);
            let tensor = tensor.ok_or_else(|| TrainError::Checkpoint { name: name.clone(), expected: expected() })?;
            all.push((name.clone(), tensor));
        }
        for (name, tensor) in all {
            self.set_state(&name, tensor)?;
        }
        self.grown = grown;
        self.steps = steps;
        self.submitted.clear();
        Ok(())
    }
}

/// An optimizer state of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterMoment {
    /// The parameter.
    pub parameter: String,
    /// The name of the moment as in PyTorch, such as `exp_avg`, `exp_avg_sq`, `sum` or `momentum_buffer`.
    pub moment: &'static str,
    /// The values, in the parameter's shape or one per row.
    pub tensor: HostTensor,
}
