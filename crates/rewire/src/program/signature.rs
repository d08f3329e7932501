use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::plan::Plan;
use rewire_import::{ImportedModel, OutputKind, OutputSpec, ScalarType};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The names of what a program takes and gives, in the order of its file, with the element types there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// Tensors that a run takes.
    pub inputs: Vec<TypedInput>,
    /// What a run gives.
    pub outputs: Vec<OutputSpec>,
    /// Buffers and inputs that a run changes.
    pub mutations: Vec<OutputSpec>,
}

/// A tensor that a run takes.
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
    /// It is always this.
    Known(usize),
    /// A run tells; by its formula.
    Open(String),
}

/// A tensor that a run takes or gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The element type.
    #[serde(rename = "dtype")]
    pub ty: ScalarType,
    /// Its extents.
    pub shape: Vec<Extent>,
    /// How it is stored.
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

    /// That of a plan whose file has no other types.
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

/// The inputs of a plan that takes the tensors of a signature.
pub(super) fn described(plan: &Plan, signature: &Signature) -> Vec<Port> {
    let port = |input: &TypedInput| {
        let known = plan.inputs().find(|known| known.name == input.name);
        let shape = known.as_ref().map(|known| extents(plan, known.shape)).unwrap_or_default();
        let dtype = known.map_or(input.ty.dtype(), |known| known.dtype);
        Port { name: input.name.clone(), ty: input.ty, shape, dtype }
    };
    signature.inputs.iter().map(port).collect()
}

/// The tensors that a plan gives by a signature, those that it changes last.
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
