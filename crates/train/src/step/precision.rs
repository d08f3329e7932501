//! Mixed precision: operands and results of matmuls are stored in 16 bits.

use rewire_graph::op::{Cast, JaggedJaggedMatMul, JaggedMatMul, MatMul, Scores, WeightedSum};
use rewire_graph::{Copies, DType, Graph, GraphError, Layout, NodeId, Type, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Casts operands of matmuls to `dtype`, and stores results with a dynamic size, the activations, as `dtype`. Accumulators
/// and all other values stay `F32`.
pub(super) fn in_f16(graph: &Graph, dtype: DType) -> Result<Graph, GraphError> {
    let (mut f16, mut copies) = (Graph::of_model(graph), Copies::default());
    let mut converted = HashMap::new();
    for id in graph.order()? {
        if !is_product(graph, id) {
            copies.add(graph, id, &mut f16)?;
            continue;
        }
        let mut inputs = copies.find(&graph.inputs(id))?;
        for input in &mut inputs {
            if !f16.ty(*input).is_some_and(is_wide) {
                continue;
            }
            *input = match converted.get(input) {
                Some(half) => *half,
                None => {
                    let half = cast(&mut f16, *input, dtype)?;
                    converted.insert(*input, half);
                    half
                }
            };
        }
        let (old, copy) = (Value { node: id, port: 0 }, f16.add_copy(graph, id, &inputs)?);
        let mut result = Value { node: copy, port: 0 };
        if graph.ty(old).is_some_and(|ty| is_wide(ty) && ty.shape.iter().any(|extent| extent.as_const().is_none())) {
            let half = cast(&mut f16, result, dtype)?;
            result = cast(&mut f16, half, DType::F32)?;
            converted.insert(result, half);
        }
        copies.insert(old, result);
    }
    for (name, value) in graph.outputs() {
        for copy in copies.find(&[*value])? {
            f16.add_output(name, copy)?;
        }
    }
    f16.rebind_sizes(|value| copies.get(value));
    Ok(f16)
}

fn is_product(graph: &Graph, id: NodeId) -> bool {
    graph.op::<MatMul>(id).is_some()
        || graph.op::<JaggedMatMul>(id).is_some()
        || graph.op::<JaggedJaggedMatMul>(id).is_some()
        || graph.op::<Scores>(id).is_some()
        || graph.op::<WeightedSum>(id).is_some()
}

/// True for 32-bit storage.
fn is_wide(ty: &Type) -> bool {
    ty.dtype == DType::F32 && ty.layout == Layout::Device
}

fn cast(graph: &mut Graph, value: Value, dtype: DType) -> Result<Value, GraphError> {
    Ok(Value { node: graph.add(Arc::new(Cast { dtype }), &[value], "")?, port: 0 })
}
