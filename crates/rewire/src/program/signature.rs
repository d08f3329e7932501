use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::plan::Plan;
use rewire_import::{ImportedModel, OutputKind, OutputSpec, ScalarType};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The names of a program's inputs and outputs, in the order of its file, with the file's element types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// Inputs of a run.
    pub inputs: Vec<TypedInput>,
    /// Outputs of a run.
    pub outputs: Vec<OutputSpec>,
    /// Buffers and inputs that a run changes.
    pub mutations: Vec<OutputSpec>,
}

/// An input of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypedInput {
    /// The name.
    pub name: String,
    /// The element type.
    pub ty: ScalarType,
}

/// An extent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Extent {
    /// A constant.
    Known(usize),
    /// Known only in a run; given as a formula.
    Open(String),
}

/// An output of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The element type.
    #[serde(rename = "dtype")]
    pub ty: ScalarType,
    /// Its extents.
    pub shape: Vec<Extent>,
    /// Its storage type.
    #[serde(skip)]
    pub dtype: DType,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(extent) => extent.fmt(f),
            Self::Open(formula) => formula.fmt(f),
        }
    }
}

impl Signature {
    pub(super) fn of_import(model: &ImportedModel) -> Self {
        let inputs = model.inputs.iter().map(|spec| TypedInput { name: spec.name.clone(), ty: spec.ty });
        Self { inputs: inputs.collect(), outputs: model.outputs.clone(), mutations: model.mutations.clone() }
    }

    /// The signature of a plan whose file has no other types.
    pub(super) fn of_plan(plan: &Plan) -> Self {
        let inputs = plan.inputs().filter_map(|input| {
            Some(TypedInput { name: input.name.to_owned(), ty: ScalarType::of_dtype(input.dtype)? })
        });
        let outputs = plan.outputs.iter().filter_map(|output| {
            let kind = OutputKind::Tensor(output.name.clone(), ScalarType::of_dtype(output.dtype)?);
            Some(OutputSpec { name: output.name.clone(), kind })
        });
        Self { inputs: inputs.collect(), outputs: outputs.collect(), mutations: vec![] }
    }
}

/// The inputs of a plan, described by a signature.
pub(super) fn described(plan: &Plan, signature: &Signature) -> Vec<Port> {
    let port = |input: &TypedInput| {
        let known = plan.inputs().find(|known| known.name == input.name);
        let shape = known.as_ref().map(|known| extents(plan, known.shape)).unwrap_or_default();
        let dtype = known.map_or(input.ty.dtype(), |known| known.dtype);
        Port { name: input.name.clone(), ty: input.ty, shape, dtype }
    };
    signature.inputs.iter().map(port).collect()
}

/// The outputs of a plan, described by a signature; those that it changes come last.
pub(super) fn given(plan: &Plan, signature: &Signature) -> Vec<Port> {
    let port = |spec: &OutputSpec| {
        let OutputKind::Tensor(name, ty) = &spec.kind else { return None };
        let output = plan.outputs.iter().find(|output| output.name == *name);
        let state = || plan.states().into_iter().find(|(own, _)| own == name).map(|(_, buffer)| &buffer.shape);
        let shape = output.map(|output| &output.shape).or_else(state)?;
        Some(Port { name: spec.name.clone(), ty: *ty, shape: extents(plan, shape), dtype: ty.dtype() })
    };
    signature.outputs.iter().chain(&signature.mutations).filter_map(port).collect()
}

fn extents(plan: &Plan, shape: &[Dim]) -> Vec<Extent> {
    let extent = |dim: &Dim| dim.as_const().map_or_else(|| Extent::Open(plan.shapes.display(dim)), Extent::Known);
    shape.iter().map(extent).collect()
}
