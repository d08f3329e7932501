use crate::ScalarType;
use rewire_graph::{Dim, Graph, HostTensor};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A model from a file.
#[derive(Debug)]
pub struct ImportedModel {
    /// Its operators; the inputs and outputs have the names of the file.
    pub graph: Graph,
    /// Parameters, buffers and constants that the graph reads, by name.
    pub parameters: HashMap<String, HostTensor>,
    /// Buffers that the model changes, with their first values: states of the graph.
    pub states: HashMap<String, HostTensor>,
    /// Tensors that a run binds, in the order of the call.
    pub inputs: Vec<TensorSpec>,
    /// Results in the order of the file.
    pub outputs: Vec<OutputSpec>,
    /// The name of the graph's output for each buffer or input that the program changes.
    pub mutations: Vec<OutputSpec>,
}

/// A tensor that a run binds.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The name.
    pub name: String,
    /// The element type in PyTorch.
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
    /// A tensor: the output of the graph of this name, and the element type in PyTorch.
    Tensor(String, ScalarType),
    /// An integer that is computed from sizes: the output of the graph of this name.
    Size(String),
    /// An integer that is part of the program.
    Integer(i64),
    /// A float that is part of the program.
    Float(f64),
    /// A bool that is part of the program.
    Bool(bool),
    /// None, or a string.
    None,
}
