mod check;
mod evaluate;

pub use check::{Check, Requirement};
pub(crate) use evaluate::total;

use super::{Op, arity, rank, same_size};
use crate::pointwise::BinaryOp;
use crate::{Dim, Layout, Type, TypeError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A function of the shape program: integers and vectors of integers on the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostOp {
    /// A scalar that is a size.
    Size(Dim),
    /// A vector of `len` equal entries, from a scalar operand.
    Fill(Dim),
    /// `0, 1, 2, ...`, `len` entries.
    Iota(Dim),
    /// Offsets `[n + 1]` of lengths `[n]`: 0 and the cumulative sums.
    Offsets,
    /// Lengths `[n]` of offsets `[n + 1]`.
    Lengths,
    /// The sum of a vector, a scalar.
    Sum,
    /// The largest entry of a vector and of 0, a scalar.
    Max,
    /// A function of two vectors, of two scalars, or of a vector and a scalar.
    Binary(BinaryOp),
    /// Checks a condition on its operands and returns the first one.
    Check {
        /// The condition.
        check: Check,
        /// The name of the first operand in error messages.
        argument: String,
    },
}

impl HostOp {
    /// The name used in drawings and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Size(_) => "size",
            Self::Fill(_) => "fill",
            Self::Iota(_) => "iota",
            Self::Offsets => "offsets",
            Self::Lengths => "lengths",
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Binary(op) => BinaryOp::name(*op),
            Self::Check { check, .. } => check.name(),
        }
    }
}

/// Why a host function has no value, or a check failed. Operands and entries count from 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// An entry of an operand is invalid.
    #[error("operand {operand}: expected {expected}, got {value} at element {entry}")]
    Entry {
        /// The operand.
        operand: usize,
        /// The first invalid entry.
        entry: usize,
        /// The valid values.
        expected: String,
        /// The value found.
        value: i64,
    },
    /// An operand has a wrong number of entries.
    #[error("operand {operand}: expected {expected} entries, got {actual}")]
    Length {
        /// The operand.
        operand: usize,
        /// The required number.
        expected: usize,
        /// The number found.
        actual: usize,
    },
    /// Wrong number of operands.
    #[error("expected {expected} operands, got {actual}")]
    Operands {
        /// The required number.
        expected: usize,
        /// The number found.
        actual: usize,
    },
    /// A size is negative, unknown or too large.
    #[error("the size {size} is negative or too large")]
    Size {
        /// The size.
        size: Dim,
    },
    /// A vector exceeds the size limit of the shape program.
    #[error("no memory for {entries} entries")]
    Memory {
        /// Entries of the vector.
        entries: usize,
    },
}

impl Op for HostOp {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn attributes(&self) -> serde_json::Value {
        match self {
            Self::Size(dim) | Self::Fill(dim) | Self::Iota(dim) => serde_json::json!(dim.to_string()),
            Self::Check { check, argument } => {
                serde_json::json!({ "argument": argument, "size": check.size().map(Dim::to_string) })
            }
            _ => serde_json::Value::Null,
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        for (position, ty) in inputs.iter().enumerate() {
            if ty.layout != Layout::Host || ty.rank() > 1 {
                return Err(TypeError::new(format!("operand {position}"), "a value of the shape program", ty));
            }
        }
        let shape = match self {
            Self::Size(_) => {
                arity::<0>(inputs)?;
                vec![]
            }
            Self::Fill(len) => {
                let [x] = arity(inputs)?;
                rank("x", &x, 0)?;
                vec![len.clone()]
            }
            Self::Iota(len) => {
                arity::<0>(inputs)?;
                vec![len.clone()]
            }
            Self::Offsets | Self::Lengths => {
                let [x] = arity(inputs)?;
                rank("x", &x, 1)?;
                let step = if *self == Self::Offsets { 1 } else { -1 };
                vec![x.shape[0].clone() + Dim::from(1) * step]
            }
            Self::Sum | Self::Max => {
                let [x] = arity(inputs)?;
                rank("x", &x, 1)?;
                vec![]
            }
            Self::Check { check: Check::AtMost, .. } => {
                let [a, b] = arity(inputs)?;
                if b.rank() > 0 && a.shape != b.shape {
                    same_size("b", "length", &b.shape[0], &a.shape.first().cloned().unwrap_or_default())?;
                }
                a.shape
            }
            Self::Check { check, .. } => match inputs {
                [first, ..] if inputs.len() == check.operands() => first.shape.clone(),
                _ => return Err(TypeError::new("operands", format!("{} values", check.operands()), inputs.len())),
            },
            Self::Binary(_) => {
                let [a, b] = arity(inputs)?;
                if a.rank() == 1 && b.rank() == 1 {
                    same_size("b", "length", &b.shape[0], &a.shape[0])?;
                }
                if a.rank() == 1 { a.shape } else { b.shape }
            }
        };
        Ok(vec![Type::host(shape)])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        match self {
            Self::Size(dim) | Self::Fill(dim) | Self::Iota(dim) => size(dim),
            Self::Check { check, .. } => check.size_mut().into_iter().for_each(size),
            _ => {}
        }
    }
}
