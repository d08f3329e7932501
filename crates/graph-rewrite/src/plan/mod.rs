//! The lowered form: steps in order, buffers, the shape program. It is target-independent and serializable.

mod computation;
mod custom;
mod early;
mod groups;
mod limits;
mod lookups;
mod quantize;
mod scheduled;
mod slots;
mod states;
mod storage;
mod types;

pub use crate::error::PlanError;
pub use computation::{Computation, Written};
pub use custom::Custom;
pub(crate) use limits::{BINDINGS, LARGEST_POOLED};
pub use lookups::Lookup;
pub use scheduled::ScheduledNest;
pub use slots::{Lifetime, SlotPlan};
pub use storage::{Precision, Table};

pub use rewire_graph::Ids;
pub use rewire_graph::nest::{Accumulation, Axis, Body, Extent, MemorySpace, Nest, Operand, Output};
pub use rewire_graph::op::ReduceOp;
pub use rewire_graph::op::{Check, HostOp};
pub use rewire_graph::shape::{HostInput, HostSlot, ShapeEntry, ShapeError, ShapeProgram, ShapeValues, SymbolSource};

use rewire_graph::op::{Registry, RegistryError};
use rewire_graph::{DType, Dim, Ordered};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A buffer of a [`Plan`], by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// The source of a buffer's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// Bound by name for each run.
    Input(String),
    /// Held by a session under a name between runs, initially zeros. A run sets it to the output of the same name, if
    /// there is one.
    State(String),
    /// Bound by name when the session is loaded; resident from then on.
    Parameter(String),
    /// Part of the plan. Elements as little-endian bytes, row major, unpadded.
    Constant(Vec<u8>),
    /// Written by a step of [`Plan::load`] after parameters are bound; resident from then on.
    Load,
    /// Written by a step.
    Step,
}

impl Source {
    /// The name of an input or a state, whose tensor may differ between runs.
    pub fn run_name(&self) -> Option<&str> {
        match self {
            Self::Input(name) | Self::State(name) => Some(name),
            _ => None,
        }
    }

    /// True if the content stays the same after a session is loaded.
    pub fn is_resident(&self) -> bool {
        matches!(self, Self::Parameter(_) | Self::Constant(_) | Self::Load)
    }
}

/// A tensor in memory.
///
/// Elements are row major, with the last dimension padded to a multiple of four, so that rows start at whole vectors.
/// The content of the padding is unspecified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Element type in memory.
    pub dtype: DType,
    /// Logical shape; empty for a scalar, which is stored as one padded row.
    pub shape: Vec<Dim>,
    /// The source of the content.
    pub source: Source,
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// A readable name: the main operator and the operators fused into it.
    pub name: String,
    /// Module path of the main operator, `_stu_module._stu_layers.0`; empty at top level.
    pub path: String,
    /// The computation.
    pub computation: Computation,
    /// One binding per operand of the kernel's body, in order.
    pub reads: Vec<Binding>,
    /// The buffers that [`Output::target`] indexes.
    pub writes: Vec<BufferId>,
}

/// The binding of an operand of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Binding {
    /// A tensor in memory.
    Buffer(BufferId),
    /// A host vector or scalar.
    Host(HostSlot),
}

/// A named result of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOutput {
    /// Its name in the graph.
    pub name: String,
    /// Its buffer or host value.
    pub value: Binding,
    /// Element type; host values are `I64`.
    pub dtype: DType,
    /// Logical shape.
    pub shape: Vec<Dim>,
}

/// A value that callers bind by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named<'a> {
    /// The name.
    pub name: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Logical shape; sizes that a run determines are symbols.
    pub shape: &'a [Dim],
}

/// A graph lowered to steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Values computed and checked on the host before each run.
    pub shapes: ShapeProgram,
    /// Inputs that the shape program reads.
    pub host_inputs: Vec<HostInput>,
    /// All tensors.
    pub buffers: Vec<Buffer>,
    /// Parameters stored by column: the bound tensor has the last two dimensions of the buffer swapped.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub by_column: BTreeSet<BufferId>,
    /// Parameters stored in groups: the last two dimensions of the buffer are one of the bound tensor.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub in_groups: BTreeSet<BufferId>,
    /// Steps that a session computes once from parameters, in order, on the CPU: merged weights of layers, for
    /// instance.
    pub load: Vec<Step>,
    /// Dispatches in order.
    pub steps: Vec<Step>,
    /// Named results.
    pub outputs: Vec<PlanOutput>,
}

impl Plan {
    /// Restores the CPU implementations of user-defined functions and custom operators from a registry. A plan read
    /// from a file lacks them.
    ///
    /// # Errors
    /// [`RegistryError`] names the first one that is not registered.
    pub fn bind(&mut self, registry: &Registry) -> Result<(), RegistryError> {
        let mut steps = self.load.iter_mut().chain(&mut self.steps);
        steps.try_for_each(|step| match &mut step.computation {
            Computation::Custom(custom) => custom.bind(registry),
            other => other.body_mut().dag.bind(registry),
        })
    }

    /// Values bound by name for each run. Inputs that the host reads have type `I64` and accept any integers.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, (scope.size("rows"), 8));
    /// let weight = scope.parameter("weight", DType::F16, [8, 4]);
    /// let (graph, _) = rewire_graph_rewrite::optimize(scope.finish(&[("y", x.matmul(&weight))])?)?;
    /// let plan = rewire_graph_rewrite::lower(&graph)?;
    /// let inputs: Vec<_> = plan.inputs().map(|x| (x.name, x.dtype, x.shape.len())).collect();
    /// assert_eq!(inputs, [("x", DType::F32, 2)]);
    /// let weights: Vec<_> = plan.parameters().map(|weight| (weight.name, weight.dtype)).collect();
    /// assert_eq!(weights, [("weight", DType::F16)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inputs(&self) -> impl Iterator<Item = Named<'_>> {
        let host =
            self.host_inputs.iter().map(|input| Named { name: &input.name, dtype: DType::I64, shape: &input.shape });
        host.chain(self.named(|source| match source {
            Source::Input(name) => Some(name),
            _ => None,
        }))
    }

    /// Values bound by name when the plan is loaded.
    pub fn parameters(&self) -> impl Iterator<Item = Named<'_>> {
        self.named(|source| match source {
            Source::Parameter(name) => Some(name),
            _ => None,
        })
    }

    /// Names of the parameters that are stored by column ([`Plan::by_column`]).
    pub fn parameters_by_column(&self) -> impl Iterator<Item = &str> {
        self.names(&self.by_column)
    }

    /// Names of the parameters that are stored in groups ([`Plan::in_groups`]).
    pub fn parameters_in_groups(&self) -> impl Iterator<Item = &str> {
        self.names(&self.in_groups)
    }

    fn names<'a>(&'a self, ids: &'a BTreeSet<BufferId>) -> impl Iterator<Item = &'a str> {
        ids.iter().filter_map(|id| match &self.buffer(*id)?.source {
            Source::Parameter(name) => Some(name.as_str()),
            _ => None,
        })
    }

    fn named<'a>(&'a self, name: impl Fn(&'a Source) -> Option<&'a String>) -> impl Iterator<Item = Named<'a>> {
        self.buffers.iter().filter_map(move |buffer| {
            Some(Named { name: name(&buffer.source)?, dtype: buffer.dtype, shape: &buffer.shape })
        })
    }

    /// The states of sessions, by name, in order of names.
    pub fn states(&self) -> BTreeMap<&str, &Buffer> {
        let states = self.buffers.iter().filter_map(|buffer| match &buffer.source {
            Source::State(name) => Some((name.as_str(), buffer)),
            _ => None,
        });
        states.ordered_map()
    }

    /// True for the buffer of a state.
    pub fn is_state(&self, id: BufferId) -> bool {
        self.buffer(id).is_some_and(|buffer| matches!(buffer.source, Source::State(_)))
    }

    /// The states that steps write in place, with their buffers.
    pub fn states_in_place(&self) -> impl Iterator<Item = (&str, BufferId)> {
        let written = self.steps.iter().flat_map(|step| &step.writes);
        written.filter_map(|id| match &self.buffer(*id)?.source {
            Source::State(name) => Some((name.as_str(), *id)),
            _ => None,
        })
    }

    /// The buffer with an id of this plan.
    pub fn buffer(&self, id: BufferId) -> Option<&Buffer> {
        self.buffers.get(id.0 as usize)
    }
}
