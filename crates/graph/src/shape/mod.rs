//! The shape program: values computed and checked on the host before each run.

mod build;
mod ids;
mod run;

pub use build::HostProgram;
pub use run::{ShapeError, ShapeValues};

use crate::op::{Check, HostOp};
use crate::{Dim, Ids, Symbol};
use serde::{Deserialize, Serialize};

/// A value of the shape program, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostSlot(pub u32);

/// A named input that the shape program reads on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostInput {
    /// Its name in the graph.
    pub name: String,
    /// The slot it fills.
    pub slot: HostSlot,
    /// `[]` or `[n]`.
    pub shape: Vec<Dim>,
}

/// The source of a symbol's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SymbolSource {
    /// The extent of a named input.
    Extent {
        /// The input's name.
        input: String,
        /// The dimension.
        axis: usize,
    },
    /// The sum of a host vector.
    Total(HostSlot),
    /// A host scalar.
    Scalar(HostSlot),
}

/// One line of the shape program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ShapeEntry {
    /// A host value computed from others.
    Compute {
        /// The function.
        op: HostOp,
        /// Its operands.
        inputs: Vec<HostSlot>,
        /// The slot of its value.
        output: HostSlot,
    },
    /// The value of a symbol.
    Define {
        /// The symbol.
        symbol: Symbol,
        /// The source of its value.
        source: SymbolSource,
    },
    /// A condition on host values. If it fails, no kernel runs.
    Check {
        /// The condition.
        check: Check,
        /// The checked slots, in the order of the check.
        inputs: Vec<HostSlot>,
        /// The name in error messages: an argument, or the operator that requires the check.
        argument: String,
    },
}

/// Sizes, lengths, offsets, totals and maxima, computed on the host before each run, and the checks on them.
///
/// The same vectors are checked once, regardless of the number of operators that require it. Kernels may assume nothing
/// about host values beyond these checks: the proofs that loads stay in range rely on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapeProgram {
    /// In order of evaluation.
    pub entries: Vec<ShapeEntry>,
    /// Number of slots.
    pub slots: usize,
    /// Inputs that hold row ids of tables.
    #[serde(default)]
    pub ids: Vec<Ids>,
    /// Names of sizes for messages, by symbol.
    #[serde(default)]
    pub names: Vec<String>,
}

impl ShapeProgram {
    /// Displays a size with the names of its symbols.
    pub fn display(&self, dim: &Dim) -> String {
        dim.display(|symbol| self.names.get(symbol.0 as usize).map(String::as_str))
    }

    /// The checks, each with the slots it checks.
    pub fn checks(&self) -> impl Iterator<Item = (&Check, &[HostSlot])> {
        self.entries.iter().filter_map(|entry| match entry {
            ShapeEntry::Check { check, inputs, .. } => Some((check, inputs.as_slice())),
            ShapeEntry::Compute { .. } | ShapeEntry::Define { .. } => None,
        })
    }
}
