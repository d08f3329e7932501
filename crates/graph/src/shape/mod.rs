//! The shape program: what is computed and checked on the host before each run.

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
    /// The name it has in the graph.
    pub name: String,
    /// The slot it fills.
    pub slot: HostSlot,
    /// `[]` or `[n]`.
    pub shape: Vec<Dim>,
}

/// What gives a symbol its value.
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
    /// A host value from others.
    Compute {
        /// The function.
        op: HostOp,
        /// What it reads.
        inputs: Vec<HostSlot>,
        /// What it fills.
        output: HostSlot,
    },
    /// A symbol from its source.
    Define {
        /// The symbol.
        symbol: Symbol,
        /// Where its value comes from.
        source: SymbolSource,
    },
    /// What must hold of host values, or no kernel runs.
    Check {
        /// What must hold.
        check: Check,
        /// Of what, in the order of the check.
        inputs: Vec<HostSlot>,
        /// What an error calls it: an argument, or the operator that needs it.
        argument: String,
    },
}

/// Sizes, lengths, offsets, totals and maxima, computed on the host before each run, and what must hold of them.
///
/// A check is made once for the same vectors, however many operators need it. Its operators are all that a kernel may
/// assume of host values: that a load stays within a tensor is proven from them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapeProgram {
    /// In order of evaluation.
    pub entries: Vec<ShapeEntry>,
    /// Number of slots.
    pub slots: usize,
    /// Inputs that choose rows of tables.
    #[serde(default)]
    pub ids: Vec<Ids>,
    /// Names of sizes for people, by symbol.
    #[serde(default)]
    pub names: Vec<String>,
}

impl ShapeProgram {
    /// A size in the names that people gave to what it is made of.
    pub fn display(&self, dim: &Dim) -> String {
        dim.display(|symbol| self.names.get(symbol.0 as usize).map(String::as_str))
    }

    /// What must hold of values, and of which.
    pub fn checks(&self) -> impl Iterator<Item = (&Check, &[HostSlot])> {
        self.entries.iter().filter_map(|entry| match entry {
            ShapeEntry::Check { check, inputs, .. } => Some((check, inputs.as_slice())),
            ShapeEntry::Compute { .. } | ShapeEntry::Define { .. } => None,
        })
    }
}
