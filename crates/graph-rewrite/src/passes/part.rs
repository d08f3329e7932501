use rewire_graph::op::Input;
use rewire_graph::{Copies, Graph, GraphError, NodeId, Value};
use std::sync::Arc;

/// Some nodes of a graph as a separate graph, with the sizes of the whole.
pub(super) struct Part {
    /// Operands from other nodes are inputs.
    pub graph: Graph,
    /// Maps values of the whole to values of the part.
    pub copies: Copies,
}

impl Part {
    /// `nodes` must be in a topological order; `outputs` are values of these nodes.
    pub fn new(whole: &Graph, nodes: &[NodeId], outputs: &[Value]) -> Result<Self, GraphError> {
        let (mut graph, mut copies) = (Graph::of_model(whole), Copies::default());
        for &id in nodes {
            // The types of operands may have sizes that the node itself does not have.
            let operands = whole.inputs(id);
            let sizes: Vec<Value> = operands.iter().flat_map(|value| whole.size_values(value.node)).collect();
            for value in operands.into_iter().chain(sizes).chain(whole.size_values(id)) {
                if let (None, Some(ty)) = (copies.get(value), whole.ty(value)) {
                    let input = Input { name: format!("{}.{}", value.node.number(), value.port), ty: ty.clone() };
                    copies.insert(value, Value { node: graph.add(Arc::new(input), &[], "")?, port: 0 });
                }
            }
            copies.add(whole, id, &mut graph)?;
        }
        for (number, value) in copies.find(outputs)?.into_iter().enumerate() {
            graph.add_output(&number.to_string(), value)?;
        }
        graph.rebind_sizes(|value| copies.get(value));
        Ok(Self { graph, copies })
    }
}
