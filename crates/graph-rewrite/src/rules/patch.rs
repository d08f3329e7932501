use rewire_graph::op::Input;
use rewire_graph::{Graph, GraphError, NodeId, Scope, Tensor, Type, Value};
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// A replacement of one value, accepted only if readers cannot tell the difference by type.
#[derive(Clone, Debug)]
pub struct Patch {
    root: Value,
    body: Graph,
    captures: BTreeMap<String, Value>,
}

/// Why a patch was rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// The new value has another type than the old one.
    #[error("the replacement has the type {actual}, what it replaces has {expected}")]
    Type {
        /// Type of the replaced value.
        expected: String,
        /// Type of the replacement.
        actual: String,
    },
    /// The replacement reads something it was not given.
    #[error("the replacement reads `{name}`, which is no capture of the pattern")]
    Capture {
        /// The name.
        name: String,
    },
    /// The replacement computes nothing, or is computed from what it replaces.
    #[error("the replacement {0}")]
    Malformed(&'static str),
    /// The graph rejects an operator of the replacement.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl Patch {
    /// A patch whose replacement is traced as a function of captures.
    ///
    /// # Errors
    /// [`GraphError`] of the trace of `replacement`.
    pub fn trace(
        graph: &Graph,
        root: Value,
        captures: &BTreeMap<String, Value>,
        replacement: impl Fn(&Scope, &[Tensor]) -> Tensor,
    ) -> Result<Self, GraphError> {
        let scope = Scope::within(graph);
        let inputs: Vec<Tensor> =
            captures.iter().filter_map(|(name, value)| Some(scope.capture(name, graph.ty(*value)?))).collect();
        let result = replacement(&scope, &inputs);
        let body = scope.finish_within(&[("root", result)])?;
        Ok(Self { root, body, captures: captures.clone() })
    }

    /// Puts the replacement into the graph and returns its nodes. The replaced nodes stay until nobody reads them.
    ///
    /// # Errors
    /// [`PatchError`] if types differ, the replacement reads what is no capture, or computes nothing. The graph keeps what
    /// was added until then; nobody reads it.
    pub fn land(self, graph: &mut Graph) -> Result<Vec<NodeId>, PatchError> {
        let Some((_, result)) = self.body.outputs().first() else {
            return Err(PatchError::Malformed("computes nothing"));
        };
        let show = |ty: Option<&Type>| ty.map_or_else(|| "nothing".to_owned(), Type::to_string);
        let (expected, actual) = (graph.ty(self.root).cloned(), self.body.ty(*result).cloned());
        if expected != actual {
            return Err(PatchError::Type { expected: show(expected.as_ref()), actual: show(actual.as_ref()) });
        }
        let path = graph.node(self.root.node).map_or_else(String::new, |node| node.path.clone());
        let mut moved: HashMap<NodeId, Value> = HashMap::new();
        let mut added = vec![];
        for id in self.body.order()? {
            let Some(node) = self.body.node(id) else { continue };
            if let Some(input) = node.op.downcast_ref::<Input>() {
                let capture = self.captures.get(&input.name).copied();
                moved.insert(id, capture.ok_or_else(|| PatchError::Capture { name: input.name.clone() })?);
                continue;
            }
            let inputs: Vec<Value> = self
                .body
                .inputs(id)
                .iter()
                .filter_map(|value| moved.get(&value.node).map(|to| Value { port: to.port.max(value.port), ..*to }))
                .collect();
            let copy = graph.add(node.op.clone(), &inputs, &path)?;
            moved.insert(id, Value { node: copy, port: 0 });
            added.push(copy);
        }
        let Some(&replacement) = moved.get(&result.node) else {
            return Err(PatchError::Malformed("computes nothing"));
        };
        if replacement == self.root {
            return Err(PatchError::Malformed("is what it replaces"));
        }
        graph.replace_except(self.root, replacement, &added);
        Ok(added)
    }
}
