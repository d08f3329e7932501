use rewire_graph::Symbol;
pub use rewire_graph::op::HostOp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A value of the shape program, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostSlot(pub u32);

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
}

/// Sizes, lengths, offsets, totals and maxima, computed on the host before each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapeProgram {
    /// In order of evaluation.
    pub entries: Vec<ShapeEntry>,
    /// Number of slots.
    pub slots: usize,
}

/// What a shape program computed.
#[derive(Clone, Debug, Default)]
pub struct ShapeValues {
    /// By slot.
    pub slots: Vec<Vec<i64>>,
    /// By symbol.
    pub symbols: BTreeMap<Symbol, i64>,
}

/// Why a shape program failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// The program refers to a slot or input that has no value.
    #[error("the shape program reads {what}, which has no value: bind every input of the plan")]
    Unbound {
        /// What is missing.
        what: String,
    },
    /// A host operator failed.
    #[error("the shape program cannot compute {op}: {reason}")]
    Op {
        /// The operator.
        op: String,
        /// Why.
        reason: String,
    },
}

impl ShapeProgram {
    /// Runs the program. `inputs` fills slots of host inputs; `extent` is the extent of a named input.
    ///
    /// # Errors
    /// [`ShapeError`] names the slot or input without a value, or the function that has none for its operands.
    pub fn run(
        &self,
        inputs: impl IntoIterator<Item = (HostSlot, Vec<i64>)>,
        extent: impl Fn(&str, usize) -> Option<usize>,
    ) -> Result<ShapeValues, ShapeError> {
        let mut slots: Vec<Option<Vec<i64>>> = vec![None; self.slots];
        for (slot, value) in inputs {
            if let Some(place) = slots.get_mut(slot.0 as usize) {
                *place = Some(value);
            }
        }
        let mut symbols = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                ShapeEntry::Compute { op, inputs, output } => {
                    let operands = inputs.iter().map(|&slot| read(&slots, slot)).collect::<Result<Vec<_>, _>>()?;
                    let value = op
                        .evaluate(&operands, |symbol| symbols.get(&symbol).copied())
                        .map_err(|reason| ShapeError::Op { op: op.name().to_owned(), reason })?;
                    if let Some(place) = slots.get_mut(output.0 as usize) {
                        *place = Some(value);
                    }
                }
                ShapeEntry::Define { symbol, source } => {
                    let value = match source {
                        SymbolSource::Extent { input, axis } => extent(input, *axis)
                            .and_then(|n| i64::try_from(n).ok())
                            .ok_or_else(|| ShapeError::Unbound { what: format!("input `{input}`") })?,
                        SymbolSource::Total(slot) => {
                            read(&slots, *slot)?.iter().fold(0i64, |a, &b| a.saturating_add(b))
                        }
                        SymbolSource::Scalar(slot) => read(&slots, *slot)?.first().copied().unwrap_or(0),
                    };
                    symbols.insert(*symbol, value);
                }
            }
        }
        Ok(ShapeValues { slots: slots.into_iter().map(Option::unwrap_or_default).collect(), symbols })
    }
}

fn read(slots: &[Option<Vec<i64>>], slot: HostSlot) -> Result<&[i64], ShapeError> {
    slots
        .get(slot.0 as usize)
        .and_then(Option::as_deref)
        .ok_or_else(|| ShapeError::Unbound { what: format!("host slot {}", slot.0) })
}
