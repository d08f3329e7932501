use super::builder::Builder;
use super::computation::{result, ty};
use crate::error::NotLowerable;
use crate::plan::{Computation, Custom};
use rewire_graph::op::custom::Operator;
use rewire_graph::{Graph, Layout, NodeId, Type};
use std::sync::Arc;

/// The kernel of a custom operator, which must be the only operator of its body.
pub(super) fn custom(body: &Graph, node: NodeId) -> Result<Computation, NotLowerable> {
    let found = body.node(node).ok_or("an operator of the body does not exist")?;
    let forms = found.op.custom().ok_or("it has no custom kernel")?;
    let [own] = found.types.as_slice() else {
        return Err(format!(
            "{} has {} results, an operator with its own kernel has one",
            found.op.name(),
            found.types.len()
        )
        .into());
    };
    let at = Builder::new(body);
    let inputs = body.inputs(node);
    let operands = inputs.iter().map(|value| at.operand(value.node).map(|position| position as u16));
    let operands = operands.collect::<Option<Vec<u16>>>();
    let operands =
        operands.ok_or_else(|| format!("an operand of {} is computed in the same kernel", found.op.name()))?;
    if !matches!(body.outputs(), [(_, value)] if *value == result(node)) {
        return Err(format!("{} has a custom kernel", found.op.name()).into());
    }
    let types = inputs.iter().map(|value| ty(body, *value)).collect::<Result<Vec<Type>, _>>()?;
    if types.iter().chain([own]).any(|ty| ty.layout == Layout::Scores) || own.layout == Layout::Host {
        return Err(format!("{} reads or writes a value that is not stored on the device", found.op.name()).into());
    }
    let types: Vec<Type> = types.into_iter().map(Custom::arithmetic).collect();
    let shader = forms.shader(&types.iter().collect::<Vec<_>>(), &Custom::arithmetic(own.clone()));
    Ok(Computation::Custom(Custom {
        body: at.nest.body,
        operator: Operator::new(Arc::clone(&found.op)),
        operands,
        dtype: own.dtype,
        shape: own.shape.clone(),
        shader,
    }))
}
