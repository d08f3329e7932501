//! The states that a session holds between runs.

use super::sizes::check_words;
use super::{CpuSide, Inputs, Outputs, RunValue, Session, Shapes};
use crate::cpu::Memory;
use crate::memory::Layout;
use crate::{RunError, block_on};
use rewire_graph::{DType, Dim, HostTensor, Ordered, nearest_names};
use rewire_graph_rewrite::plan::{Buffer, Plan};
use std::collections::{BTreeMap, HashSet};

/// The states of a session that were set, by name. Others are zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct States(BTreeMap<String, Held>);

#[derive(Clone, Debug)]
pub(super) enum Held {
    Value(RunValue),
    /// A run on the CPU writes it in place.
    Memory(Memory),
    /// It was on a lost device, or with a worker that dropped its work.
    Lost,
}

impl States {
    /// The value of a state, if set.
    pub fn held(&self, name: &str) -> Option<&Held> {
        self.0.get(name)
    }

    /// [`States::held`], to be changed.
    pub fn held_mut(&mut self, name: &str) -> Option<&mut Held> {
        self.0.get_mut(name)
    }

    /// Records that values on the device are lost.
    pub fn lose_device(&mut self) {
        for held in self.0.values_mut().filter(|held| matches!(held, Held::Value(RunValue::Device(_)))) {
            *held = Held::Lost;
        }
    }

    /// True if no state is on a device.
    pub fn outlive_a_device(&self) -> bool {
        !self.0.values().any(|held| matches!(held, Held::Value(RunValue::Device(_))))
    }

    /// The placeholder states of a session while a worker has its states.
    pub fn stand_in(&self) -> Self {
        let held = |held: &Held| match held {
            Held::Memory(_) => Held::Lost,
            other => other.clone(),
        };
        Self(self.0.iter().map(|(name, own)| (name.clone(), held(own))).ordered_map())
    }

    /// Moves the states that a run writes in place to the CPU.
    pub fn lend(&mut self, plan: &Plan, cpu: &mut CpuSide) {
        for (name, id) in plan.states_in_place() {
            match self.0.remove(name) {
                Some(Held::Memory(memory)) => cpu.lend_state(id, memory),
                other => self.0.extend(other.map(|held| (name.to_owned(), held))),
            }
        }
    }

    /// Moves back the states that [`States::lend`] moved.
    pub fn take_back(&mut self, plan: &Plan, cpu: &mut CpuSide) {
        let lent = plan.states_in_place().filter_map(|(name, id)| Some((name.to_owned(), cpu.return_state(id)?)));
        self.0.extend(lent.map(|(name, memory)| (name, Held::Memory(memory))));
    }

    /// Takes the states from the outputs of a run.
    pub fn take(&mut self, plan: &Plan, outputs: &mut Outputs) {
        for name in plan.states().into_keys() {
            self.0.extend(outputs.take(name).map(|value| (name.to_owned(), Held::Value(value))));
        }
    }

    /// Replaces the value of a state.
    pub fn hold(&mut self, name: &str, value: RunValue) {
        self.0.insert(name.to_owned(), Held::Value(value));
    }

    /// Moves a state to memory that a run on the CPU writes in place.
    pub(super) fn bring(&mut self, name: &str, buffer: &Buffer) -> Result<(), RunError> {
        if !matches!(self.0.get(name), Some(Held::Memory(_)))
            && let RunValue::Host(tensor) = self.get(name, buffer)?
        {
            let memory = Memory::from_host(&tensor).map_err(|error| refused(name, error))?;
            self.0.insert(name.to_owned(), Held::Memory(memory));
        }
        Ok(())
    }

    /// The shapes of all states of a plan.
    pub fn shapes(&self, plan: &Plan) -> Shapes {
        let held = |name: &str, buffer: &Buffer| match self.0.get(name) {
            Some(Held::Value(value)) => value.shape().to_vec(),
            Some(Held::Memory(memory)) => memory.shape().to_vec(),
            Some(Held::Lost) | None => initial_shape(buffer),
        };
        plan.states().into_iter().map(|(name, buffer)| (name.to_owned(), held(name, buffer))).ordered_map()
    }

    /// The value of a state.
    pub(super) fn get(&self, name: &str, buffer: &Buffer) -> Result<RunValue, RunError> {
        match self.0.get(name) {
            Some(Held::Value(value)) => Ok(value.clone()),
            Some(Held::Memory(memory)) => memory.to_host().map(RunValue::Host).map_err(|error| refused(name, error)),
            Some(Held::Lost) => Err(RunError::StateLost { name: name.to_owned() }),
            None => {
                let zeros = HostTensor::zeros(buffer.dtype, initial_shape(buffer));
                zeros.map(RunValue::Host).map_err(|error| refused(name, error))
            }
        }
    }
}

impl Session {
    /// The current value of a state: set by the latest successful run, or by [`Session::set_state`].
    ///
    /// Every session has its own states; a new session begins with zeros. The sessions of one model can therefore serve
    /// users with a cache each, or hold the optimizer moments of one training.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope};
    /// use rewire_graph_rewrite::{lower, optimize};
    /// use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};
    ///
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[4.into()]);
    /// let sum = &scope.state("sum", DType::F32, &[4.into()]) + &x;
    /// scope.set_state("sum", &sum);
    /// let plan = lower(&optimize(scope.finish(&[])?)?.0)?;
    ///
    /// let model = Model::load(plan, (), ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() })?;
    /// let mut session = model.session();
    /// let x = Inputs::new().with("x", HostTensor::f32(vec![4], &[1.0, 2.0, 3.0, 4.0])?);
    /// session.run(&x)?;
    /// session.run(&x)?;
    /// assert_eq!(session.state("sum")?.to_f32(), [2.0, 4.0, 6.0, 8.0]);
    /// session.set_state("sum", HostTensor::f32(vec![4], &[0.5; 4])?)?;
    /// assert_eq!(model.session().state("sum")?.to_f32(), [0.0; 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::State`] if the plan has no state of that name, [`RunError::StateLost`] if it was on a lost device,
    /// and [`RunError::Gpu`] if it cannot be read.
    pub async fn state_async(&self, name: &str) -> Result<HostTensor, RunError> {
        match self.state_value(name)? {
            RunValue::Host(tensor) => Ok(tensor),
            RunValue::Device(tensor) => self.read_async(&tensor).await,
        }
    }

    /// The current value of a state, on the device if it is there. Runs may write its memory in place, so it is an input
    /// for runs that are submitted before the session's next one.
    ///
    /// # Errors
    /// As [`Session::state_async`].
    pub fn state_value(&self, name: &str) -> Result<RunValue, RunError> {
        self.states.get(name, self.declared(name)?)
    }

    /// [`Session::state_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::state_async`].
    pub fn state(&self, name: &str) -> Result<HostTensor, RunError> {
        block_on(self.state_async(name))
    }

    /// All states by name, for instance to save them in a file: `rewire::weights` writes and reads safetensors.
    ///
    /// # Errors
    /// As [`Session::state_async`].
    pub async fn states_async(&self) -> Result<BTreeMap<String, HostTensor>, RunError> {
        let mut all = BTreeMap::new();
        for name in self.plan().states().into_keys() {
            all.insert(name.to_owned(), self.state_async(name).await?);
        }
        Ok(all)
    }

    /// [`Session::states_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::state_async`].
    pub fn states(&self) -> Result<BTreeMap<String, HostTensor>, RunError> {
        block_on(self.states_async())
    }

    /// Sets the value of a state for the next run.
    ///
    /// # Errors
    /// [`RunError::State`] if the plan has no state of that name; [`RunError::InputType`], [`RunError::InputShape`] and
    /// [`RunError::InputValue`] if the tensor is invalid.
    pub fn set_state(&mut self, name: &str, tensor: HostTensor) -> Result<(), RunError> {
        let buffer = self.declared(name)?;
        let fits = |(dim, &actual): (&Dim, &usize)| dim.as_const().is_none_or(|extent| extent == actual);
        let fits = buffer.shape.len() == tensor.shape().len() && buffer.shape.iter().zip(tensor.shape()).all(fits);
        let (expected, name) = (self.plan().shapes.expected(&buffer.shape, &BTreeMap::new()), name.to_owned());
        if tensor.dtype() != buffer.dtype {
            return Err(RunError::InputType { name, expected: buffer.dtype.to_string(), actual: tensor.dtype() });
        }
        if !fits {
            return Err(RunError::InputShape { name, expected, actual: tensor.shape().to_vec() });
        }
        match tensor.dtype() {
            DType::U32 => check_words(&name, &tensor, i32::MAX as u32)?,
            DType::Bool => check_words(&name, &tensor, 1)?,
            _ => {}
        }
        self.states.hold(&name, RunValue::Host(tensor));
        Ok(())
    }

    /// Grows states with an app-defined first extent to at least `rows` rows. A state that has fewer becomes zeros.
    ///
    /// # Errors
    /// [`RunError::Gpu`] or [`RunError::State`] if memory cannot be allocated.
    pub async fn reserve_states_async(&mut self, rows: usize) -> Result<(), RunError> {
        self.follow();
        let result = self.reserve(rows).await;
        match self.recover(&result, true).await? {
            true => self.reserve(rows).await,
            false => result,
        }
    }

    async fn reserve(&mut self, rows: usize) -> Result<(), RunError> {
        let (model, held) = (self.model.clone(), self.states.shapes(self.model.plan()));
        for (name, buffer) in model.plan().states() {
            let is_open = buffer.shape.first().is_some_and(|dim| dim.as_const().is_none());
            let is_enough = held.get(name).and_then(|shape| shape.first()).is_some_and(|&held| held >= rows);
            if !is_open || is_enough {
                continue;
            }
            let mut shape = initial_shape(buffer);
            shape.iter_mut().take(1).for_each(|extent| *extent = rows);
            let zeros = match &self.gpu {
                Some(side) => Held::Value(RunValue::Device(side.zeros(Layout::new(buffer.dtype, shape)).await?)),
                None => Held::Memory(Memory::new(buffer.dtype, &shape).map_err(|error| refused(name, error))?),
            };
            self.states.0.insert(name.to_owned(), zeros);
        }
        Ok(())
    }

    /// [`Session::reserve_states_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::reserve_states_async`].
    pub fn reserve_states(&mut self, rows: usize) -> Result<(), RunError> {
        block_on(self.reserve_states_async(rows))
    }

    /// Resets all states to zeros.
    pub fn reset_states(&mut self) {
        self.states = States::default();
    }

    /// The inputs of a run together with the states. States are on the device if there is one, and stay there.
    pub(super) async fn with_states(&mut self, inputs: &Inputs) -> Result<Inputs, RunError> {
        let model = self.model.clone();
        let (mut all, mut values) = (inputs.clone(), vec![]);
        self.states.shapes(model.plan()).iter().for_each(|(name, shape)| all.hold(name, shape));
        let in_place: HashSet<&str> = model.plan().states_in_place().map(|(name, _)| name).collect();
        for (name, buffer) in model.plan().states() {
            if inputs.get(name).is_some() {
                let reason = "it is a state: set it with `Session::set_state`".to_owned();
                return Err(RunError::InputPlace { name: name.to_owned(), reason });
            }
            if self.gpu.is_none() && in_place.contains(name) {
                self.states.bring(name, buffer)?;
                continue;
            }
            let value = match (self.states.get(name, buffer)?, &self.gpu) {
                (RunValue::Host(tensor), Some(side)) => RunValue::Device(side.keep(&tensor).await?),
                (value, _) => value,
            };
            match &value {
                RunValue::Host(tensor) => all.insert(name, tensor.clone()),
                RunValue::Device(tensor) => all.insert_device(name, tensor.clone()),
            }
            if self.gpu.is_some() && model.plan().outputs.iter().any(|output| output.name == name) {
                all.keep_on_device(name);
            }
            values.push((name.to_owned(), Held::Value(value)));
        }
        // If the device is lost meanwhile, states keep their values.
        self.states.0.extend(values);
        Ok(all)
    }

    /// The declaration of a state.
    pub(super) fn declared(&self, name: &str) -> Result<&Buffer, RunError> {
        let states = self.plan().states();
        states.get(name).copied().ok_or_else(|| {
            let known = nearest_names(name, states.keys().copied()).join(", ");
            let reason = format!("it does not exist: the plan has {}", if known.is_empty() { "none" } else { &known });
            RunError::State { name: name.to_owned(), reason }
        })
    }
}

pub(super) fn refused(name: &str, reason: impl ToString) -> RunError {
    RunError::State { name: name.to_owned(), reason: reason.to_string() }
}

/// The shape of a state before it is set.
fn initial_shape(buffer: &Buffer) -> Vec<usize> {
    buffer.shape.iter().map(|dim| dim.as_const().unwrap_or(1)).collect()
}
