//! Backends that models run on.

use rewire_graph::{HostTensor, interpret};
use rewire_graph_rewrite::{lower, optimize};
use rewire_import::ImportedModel;
use rewire_runtime::{Inputs, Kernel, Model, ModelOptions, RunValue};
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Copy, PartialEq)]
pub enum Backend {
    Interpreter,
    Cpu,
    Gpu,
}

/// A model that is loaded on a backend.
pub enum Ready<'a> {
    Interpreted(&'a ImportedModel),
    Loaded(Box<Model>),
}

impl<'a> Ready<'a> {
    pub fn new(model: &'a ImportedModel, backend: Backend) -> Result<Self, String> {
        if backend == Backend::Interpreter {
            return Ok(Self::Interpreted(model));
        }
        let (fused, _) = optimize(model.graph.clone()).map_err(|error| format!("optimize: {error}"))?;
        let plan = lower(&fused).map_err(|error| format!("lower: {error}"))?;
        let kernel = if backend == Backend::Cpu { Kernel::Cpu } else { Kernel::Wgpu };
        let options = ModelOptions { kernel, ..ModelOptions::default() };
        let model = Model::load(plan, &model.parameters, options).map_err(|error| format!("load: {error}"))?;
        Ok(Self::Loaded(Box::new(model)))
    }

    /// Runs the model with inputs and states, and returns its outputs.
    pub fn run(
        &self,
        inputs: &HashMap<String, HostTensor>,
        states: &HashMap<String, HostTensor>,
    ) -> Result<BTreeMap<String, HostTensor>, String> {
        match self {
            Self::Interpreted(model) => {
                let mut all = inputs.clone();
                all.extend(states.iter().map(|(name, tensor)| (name.clone(), tensor.clone())));
                interpret(&model.graph, &all, &model.parameters).map_err(|error| error.to_string())
            }
            Self::Loaded(model) => {
                let mut session = model.session();
                for (name, tensor) in states {
                    session.set_state(name, tensor.clone()).map_err(|error| format!("state: {error}"))?;
                }
                let inputs: Inputs = inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
                let outputs = session.run(&inputs).map_err(|error| format!("run: {error}"))?;
                let tensors = outputs.into_iter().filter_map(|(name, value)| match value {
                    RunValue::Host(tensor) => Some((name, tensor)),
                    RunValue::Device(_) => None,
                });
                let mut results: BTreeMap<String, HostTensor> = tensors.collect();
                results.extend(session.states().map_err(|error| format!("states: {error}"))?);
                Ok(results)
            }
        }
    }
}
