use super::partition::Partition;
use rewire_graph::op::Fused;
use rewire_graph::{Graph, GraphError, NodeId, Value};
use std::collections::{BTreeSet, HashMap};

/// The operators of a kernel, producers first.
pub(super) struct Body {
    steps: Vec<BodyNode>,
    /// Positions in `steps`.
    results: Vec<usize>,
}

enum BodyNode {
    /// A value that the kernel reads.
    Operand(Value),
    /// An operator on earlier steps.
    Operator(NodeId, Vec<usize>),
}

impl Body {
    /// The body of a kernel that computes `results` of `nodes`. Free nodes at positions before `window` are read from
    /// memory.
    pub fn new(partition: &Partition, nodes: &BTreeSet<NodeId>, results: &[NodeId], window: usize) -> Self {
        let mut body = Self { steps: vec![], results: vec![] };
        let mut places: HashMap<Value, usize> = HashMap::new();
        for &id in results {
            let result = Value { node: id, port: 0 };
            let mut stack = vec![(result, false)];
            while let Some((value, complete)) = stack.pop() {
                if places.contains_key(&value) {
                    continue;
                }
                let inputs = partition.inputs(value.node);
                let step = if !partition.is_inside(nodes, window, value.node) {
                    BodyNode::Operand(value)
                } else if complete {
                    BodyNode::Operator(
                        value.node,
                        inputs.iter().filter_map(|input| places.get(input)).copied().collect(),
                    )
                } else {
                    stack.push((value, true));
                    stack.extend(inputs.iter().rev().map(|&input| (input, false)));
                    continue;
                };
                places.insert(value, body.steps.len());
                body.steps.push(step);
            }
            body.results.extend(places.get(&result));
        }
        body
    }

    /// A key that is equal for bodies with the same computation and types.
    pub fn form(&self, partition: &Partition) -> Vec<u32> {
        let mut form = vec![self.results.len() as u32];
        form.extend(self.results.iter().map(|&place| place as u32));
        for step in &self.steps {
            match step {
                BodyNode::Operand(value) => form.extend([0, partition.type_number(*value)]),
                BodyNode::Operator(id, inputs) => {
                    form.extend([1, partition.operator_number(*id), inputs.len() as u32]);
                    form.extend(inputs.iter().map(|&place| place as u32));
                }
            }
        }
        form
    }

    /// The body as a graph.
    pub fn graph(&self, graph: &Graph) -> Result<Graph, GraphError> {
        let (mut body, mut values, mut operands) = (Graph::new(), Vec::with_capacity(self.steps.len()), 0);
        for step in &self.steps {
            values.push(match step {
                BodyNode::Operand(value) => {
                    let ty = graph.ty(*value).cloned().ok_or_else(|| dangling(*value))?;
                    operands += 1;
                    Fused::add_operand(&mut body, operands - 1, ty)?
                }
                BodyNode::Operator(id, inputs) => {
                    let inputs: Vec<Value> = inputs.iter().filter_map(|&place| values.get(place)).copied().collect();
                    Value { node: body.add_copy(graph, *id, &inputs)?, port: 0 }
                }
            });
        }
        for (number, value) in self.results.iter().filter_map(|&place| values.get(place)).enumerate() {
            body.add_output(&number.to_string(), *value)?;
        }
        Ok(body)
    }

    /// The values of its operands.
    pub fn operands(&self) -> Vec<Value> {
        let operand = |step: &BodyNode| match step {
            BodyNode::Operand(value) => Some(*value),
            BodyNode::Operator(..) => None,
        };
        self.steps.iter().filter_map(operand).collect()
    }
}

fn dangling(value: Value) -> GraphError {
    GraphError::Dangling {
        node: "a fused operator".to_owned(),
        path: String::new(),
        detail: format!("node {}", value.node.number()),
    }
}
