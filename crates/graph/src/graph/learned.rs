use super::{Copies, Graph, Node, NodeId, Value};
use crate::op::{Cast, Input, Role};
use crate::{DType, GraphError, Type};
use std::sync::Arc;

impl Graph {
    /// Replaces the parameters for which `is_learned` returns true by states of the same names, so that a run can
    /// change them. States are `F32` and are converted to the types of the parameters when read.
    ///
    /// A lookup reads the rows of a state before they are converted.
    ///
    /// # Errors
    /// [`GraphError::Shared`] if an input has the name of such a parameter.
    pub fn with_states(&self, is_learned: impl Fn(&str, &Type) -> bool) -> Result<Self, GraphError> {
        let (mut graph, mut copies) = (Self::of_model(self), Copies::default());
        for id in self.order()? {
            let Some(node) = self.node(id) else { continue };
            match node.op.role() {
                Role::Parameter(parameter) if is_learned(&parameter.name, &parameter.ty) => {
                    if self.ids().any(|id| matches!(self.role(id), Some(Role::Input(x)) if x.name == parameter.name)) {
                        return Err(GraphError::Shared { kind: "input", name: parameter.name.clone() });
                    }
                    let ty = Type { dtype: DType::F32, ..parameter.ty.clone() };
                    let state = graph.add(Arc::new(Input { name: parameter.name.clone(), ty }), &[], &node.path)?;
                    graph.add_state(&parameter.name);
                    copies.insert(Value { node: id, port: 0 }, Value { node: state, port: 0 });
                }
                _ => self.copy_reader(id, node, &mut graph, &mut copies)?,
            }
        }
        for (name, value) in &self.outputs {
            for copy in copies.find(&[*value])? {
                graph.add_output(name, copy)?;
            }
        }
        graph.rebind_sizes(|value| copies.get(value));
        Ok(graph)
    }

    /// Copies an operator, with states converted to the types that it expects.
    fn copy_reader(&self, id: NodeId, node: &Node, graph: &mut Self, copies: &mut Copies) -> Result<(), GraphError> {
        let is_lookup = node.op.is_lookup();
        let mut inputs = copies.find(&self.inputs(id))?;
        for (copy, old) in inputs.iter_mut().zip(self.inputs(id)) {
            *copy = if is_lookup { *copy } else { converted(graph, *copy, self.ty(old))? };
        }
        let copy = graph.add_copy(self, id, &inputs)?;
        for port in 0..node.types.len() as u32 {
            let (old, new) = (Value { node: id, port }, Value { node: copy, port });
            copies.insert(old, converted(graph, new, self.ty(old))?);
        }
        Ok(())
    }

    /// The part of this graph that computes the given values, with them as its outputs.
    ///
    /// # Errors
    /// [`GraphError::Dangling`] if the graph lacks one of the values.
    pub fn part_for(&self, outputs: &[(String, Value)]) -> Result<Self, GraphError> {
        let (mut graph, mut copies) = (Self::of_model(self), Copies::default());
        graph.states.clear();
        let needed = self.needed_by(outputs.iter().map(|(_, value)| value.node));
        for id in self.order()?.into_iter().filter(|id| needed.contains(id)) {
            copies.add(self, id, &mut graph)?;
        }
        for (name, value) in outputs {
            for copy in copies.find(&[*value])? {
                graph.add_output(name, copy)?;
            }
        }
        graph.id_inputs.clear();
        graph.rebind_sizes(|value| copies.get(value));
        Ok(graph)
    }
}

/// A value converted to the type in which it is read.
fn converted(graph: &mut Graph, value: Value, ty: Option<&Type>) -> Result<Value, GraphError> {
    match ty {
        Some(ty) if graph.ty(value).is_some_and(|own| own.dtype != ty.dtype) => {
            Ok(Value { node: graph.add(Arc::new(Cast { dtype: ty.dtype }), &[value], "")?, port: 0 })
        }
        _ => Ok(value),
    }
}
