//! Collects the results of a program.

use super::frame::Frame;
use super::inputs::Inputs;
use super::schema::{Argument, OutputSpec, Signature};
use crate::array::Array;
use crate::model::OutputSpec as Output;
use crate::value::{Number, Value};
use crate::{ImportError, OutputKind, ScalarType, TensorSpec, Unsupported};
use rewire_graph::Tensor;
use std::collections::BTreeMap;

/// Results and mutated buffers.
#[derive(Default)]
pub(super) struct Results {
    /// Outputs of the graph by name.
    pub tensors: Vec<(String, Tensor)>,
    pub outputs: Vec<Output>,
    pub mutations: Vec<Output>,
}

/// Collects the results after all nodes have been lowered, and sets the states.
pub(super) fn collect(frame: &mut Frame<'_>, signature: &Signature, inputs: &Inputs) -> Result<Results, ImportError> {
    if frame.graph.outputs.len() != signature.output_specs.len() {
        return Err(ImportError::program("outputs", "their number differs from the signature"));
    }
    let mut results = Results::default();
    let mut changed: BTreeMap<String, Array> = BTreeMap::new();
    for (argument, spec) in frame.graph.outputs.iter().zip(&signature.output_specs) {
        match spec {
            OutputSpec::UserOutput(_) | OutputSpec::LossOutput(_) => {
                let output = results.output(frame, argument)?;
                results.outputs.push(output);
            }
            OutputSpec::BufferMutation { arg, buffer_name } => {
                if let Value::Tensor(array) = frame.read(&arg.name)? {
                    changed.insert(buffer_name.clone(), array);
                }
            }
            OutputSpec::UserInputMutation { arg, user_input_name } => {
                results.mutation(frame, &arg.name, user_input_name)?;
            }
            OutputSpec::Token(_) => {}
            OutputSpec::ParameterMutation { parameter_name } => {
                return Err(ImportError::program(parameter_name, "the program changes a parameter"));
            }
            OutputSpec::GradientToParameter(_) | OutputSpec::GradientToUserInput(_) => {
                return Err(ImportError::program("outputs", "a program that trains"));
            }
        }
    }
    for TensorSpec { name, .. } in &inputs.specs {
        if frame.is_written(name) {
            results.mutation(frame, name, name)?;
        }
    }
    for (name, buffer) in &inputs.state_names {
        if !changed.contains_key(buffer)
            && let Value::Tensor(array) = frame.read(name)?
        {
            changed.insert(buffer.clone(), array);
        }
    }
    for (buffer, array) in changed {
        frame.cx.scope.set_state(&buffer, &array.tensor);
        let kind = OutputKind::Tensor(buffer.clone(), array.ty);
        results.mutations.push(Output { name: buffer, kind });
    }
    Ok(results)
}

impl Results {
    /// Adds the final value of an input that the program mutates, unless it is already a result.
    fn mutation(&mut self, frame: &mut Frame<'_>, value: &str, input: &str) -> Result<(), ImportError> {
        let is_known = self.mutations.iter().any(|known| known.name == input);
        if let (false, Value::Tensor(array)) = (is_known, frame.read(value)?) {
            self.add(value, array.tensor);
            let kind = OutputKind::Tensor(value.to_owned(), array.ty);
            self.mutations.push(Output { name: input.to_owned(), kind });
        }
        Ok(())
    }

    fn output(&mut self, frame: &mut Frame<'_>, argument: &Argument) -> Result<Output, ImportError> {
        let name = name_of(argument).unwrap_or_default();
        let kind = match frame.value(argument)? {
            Value::Tensor(array) if array.ty == ScalarType::C64 => {
                return Err(unsupported(&name, "complex numbers"));
            }
            Value::Unsupported(reason) => return Err(unsupported(&name, reason)),
            Value::Tensor(array) => {
                self.add(&name, array.tensor);
                OutputKind::Tensor(name.clone(), array.ty)
            }
            Value::Number(Number::Int(size)) => match size.as_const() {
                Some(value) => OutputKind::Integer(value),
                None => {
                    let host = frame.cx.sizes.borrow_mut().host(&size);
                    let unknown = || ImportError::program(&name, "a size that no input determines");
                    self.add(&name, host.ok_or_else(unknown)?);
                    OutputKind::Size(name.clone())
                }
            },
            Value::Number(Number::Float(value)) => OutputKind::Float(value),
            Value::Number(Number::Bool(value)) => OutputKind::Bool(value),
            Value::Number(Number::Computed(_)) => {
                return Err(ImportError::program(&name, "a float that is computed from sizes as a result"));
            }
            Value::None | Value::String(_) | Value::List(_) => OutputKind::None,
        };
        Ok(Output { name, kind })
    }

    fn add(&mut self, name: &str, tensor: Tensor) {
        if self.tensors.iter().all(|(known, _)| known != name) {
            self.tensors.push((name.to_owned(), tensor));
        }
    }
}

fn unsupported(name: &str, content: &str) -> ImportError {
    let mut unsupported = Unsupported::default();
    unsupported.add("output", &format!("`{name}` is of {content}"), "");
    ImportError::Unsupported(unsupported)
}

fn name_of(argument: &Argument) -> Option<String> {
    use super::schema::SymArgument;
    match argument {
        Argument::AsTensor(name) => Some(name.name.clone()),
        Argument::AsSymInt(SymArgument::AsName(name))
        | Argument::AsSymFloat(SymArgument::AsName(name))
        | Argument::AsSymBool(SymArgument::AsName(name)) => Some(name.clone()),
        _ => None,
    }
}
