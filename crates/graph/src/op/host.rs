use super::{Op, arity, rank, same_size};
use crate::pointwise::BinaryOp;
use crate::{Dim, Layout, Scalar, Symbol, Type, TypeError};
use serde::{Deserialize, Serialize};

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
    /// The first of two vectors or scalars, none of whose entries may be above that of the second. The name is what an
    /// error calls the first.
    AtMost(String),
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
            Self::AtMost(_) => "at_most",
        }
    }

    /// The value of the function, or why it has none. A scalar is a vector of one entry.
    ///
    /// # Errors
    /// A text: a size that is negative, unknown or too large; offsets that descend; lengths that are negative or overflow;
    /// vectors that differ in length; entries above their bound.
    pub fn evaluate(&self, inputs: &[&[i64]], symbol: impl FnMut(Symbol) -> Option<i64>) -> Result<Vec<i64>, String> {
        let first = inputs.first().copied().unwrap_or_default();
        let extent =
            |dim: &Dim, symbol| dim.evaluate(symbol).ok_or_else(|| format!("the size {dim} is negative or too large"));
        match self {
            Self::Size(dim) => Ok(vec![extent(dim, symbol)? as i64]),
            Self::Fill(dim) => vector(extent(dim, symbol)?, |_| first.first().copied().unwrap_or(0)),
            Self::Iota(dim) => vector(extent(dim, symbol)?, |n| n),
            Self::Offsets => offsets(first),
            Self::Lengths => first
                .windows(2)
                .map(|pair| match pair {
                    &[a, b] if b >= a => Ok(b - a),
                    _ => Err(format!("offsets must not descend, got {pair:?}")),
                })
                .collect(),
            Self::Sum => first
                .iter()
                .try_fold(0i64, |sum, &n| sum.checked_add(n))
                .map(|sum| vec![sum])
                .ok_or_else(|| "the sum overflows 64 bits".to_owned()),
            Self::Max => Ok(vec![first.iter().copied().fold(0, i64::max)]),
            Self::Binary(op) => binary(*op, first, inputs.get(1).copied().unwrap_or_default()),
            Self::AtMost(argument) => at_most(argument, first, inputs.get(1).copied().unwrap_or_default()),
        }
    }
}

/// Entries that a vector of the shape program may have.
const LIMIT: usize = 1 << 26;

fn vector(len: usize, entry: impl Fn(i64) -> i64) -> Result<Vec<i64>, String> {
    if len > LIMIT {
        return Err(format!("{len} entries are more than {LIMIT}"));
    }
    let mut entries = Vec::new();
    entries.try_reserve_exact(len).map_err(|_| format!("no memory for {len} entries"))?;
    entries.extend((0..len as i64).map(entry));
    Ok(entries)
}

fn offsets(lengths: &[i64]) -> Result<Vec<i64>, String> {
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    let mut sum = 0i64;
    offsets.push(0);
    for &length in lengths {
        if length < 0 {
            return Err(format!("lengths must not be negative, got {length}"));
        }
        sum = sum.checked_add(length).ok_or("the sum of lengths overflows 64 bits")?;
        offsets.push(sum);
    }
    Ok(offsets)
}

fn at_most(argument: &str, values: &[i64], bounds: &[i64]) -> Result<Vec<i64>, String> {
    if let Some(negative) = values.iter().find(|&&value| value < 0) {
        return Err(format!("{argument} must not be negative, got {negative}"));
    }
    let above = binary(BinaryOp::Gt, values, bounds)?;
    let Some(sample) = above.iter().position(|&above| above != 0) else { return Ok(values.to_vec()) };
    let entry = |of: &[i64]| of.get(sample).or(of.first()).copied().unwrap_or_default();
    Err(format!("{argument} must be at most {}, got {} in sample {sample}", entry(bounds), entry(values)))
}

fn binary(op: BinaryOp, a: &[i64], b: &[i64]) -> Result<Vec<i64>, String> {
    let evaluate = |a, b| op.evaluate_int(Scalar::I64, a, b);
    match (a, b) {
        (_, &[b]) => Ok(a.iter().map(|&a| evaluate(a, b)).collect()),
        (&[a], _) => Ok(b.iter().map(|&b| evaluate(a, b)).collect()),
        _ if a.len() == b.len() => Ok(a.iter().zip(b).map(|(&a, &b)| evaluate(a, b)).collect()),
        _ => Err(format!("vectors differ in length: {} and {}", a.len(), b.len())),
    }
}

impl Op for HostOp {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn attributes(&self) -> serde_json::Value {
        match self {
            Self::Size(dim) | Self::Fill(dim) | Self::Iota(dim) => serde_json::json!(dim.to_string()),
            Self::AtMost(argument) => serde_json::json!(argument),
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
            Self::AtMost(_) => {
                let [a, b] = arity(inputs)?;
                if b.rank() > 0 && a.shape != b.shape {
                    same_size("b", "length", &b.shape[0], &a.shape.first().cloned().unwrap_or_default())?;
                }
                a.shape
            }
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

    fn sizes(&self) -> Vec<Dim> {
        match self {
            Self::Size(dim) | Self::Fill(dim) | Self::Iota(dim) => vec![dim.clone()],
            _ => vec![],
        }
    }
}
