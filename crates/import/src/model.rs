use crate::ScalarType;
use rewire_graph::{Dim, Graph, HostTensor};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A model read from a file.
#[derive(Debug)]
pub struct ImportedModel {
    /// The graph. Inputs and outputs have the names of the file.
    pub graph: Graph,
    /// Parameters, buffers and constants by name, as far as the graph reads them.
    pub parameters: HashMap<String, HostTensor>,
    /// Buffers that the model updates, with their initial values. They are states of the graph.
    pub states: HashMap<String, HostTensor>,
    /// Tensors to bind for each run, in the order of the exported call.
    pub inputs: Vec<TensorSpec>,
    /// Results, in the order of the file.
    pub outputs: Vec<OutputSpec>,
    /// Buffers and inputs that the program mutates. Each names the graph's output with the new value.
    pub mutations: Vec<OutputSpec>,
}

/// A tensor to bind for each run.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The name.
    pub name: String,
    /// The element type.
    pub ty: ScalarType,
    /// The extents.
    pub shape: Vec<Dim>,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// The name in the file.
    pub name: String,
    /// The kind of result.
    pub kind: OutputKind,
}

/// Kinds of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// A tensor: the name of the graph's output, and the element type.
    Tensor(String, ScalarType),
    /// An integer computed from sizes: the name of the graph's output.
    Size(String),
    /// A constant integer.
    Integer(i64),
    /// A constant float.
    Float(f64),
    /// A constant bool.
    Bool(bool),
    /// None or a string.
    None,
}
