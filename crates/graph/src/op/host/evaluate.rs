use super::check::at_least;
use super::{HostError, HostOp};
use crate::pointwise::BinaryOp;
use crate::{Dim, Scalar, Symbol};

/// The largest number of entries of a host vector.
const LIMIT: usize = 1 << 26;

impl HostOp {
    /// The value of the function. A scalar is a vector of one entry.
    ///
    /// # Errors
    /// [`HostError`]: a size that is negative, unknown or too large; offsets that descend; negative lengths; results
    /// that overflow 64 bits; vectors of different lengths; entries that fail a check.
    pub fn evaluate(
        &self,
        inputs: &[&[i64]],
        symbol: impl FnMut(Symbol) -> Option<i64>,
    ) -> Result<Vec<i64>, HostError> {
        let first = inputs.first().copied().unwrap_or_default();
        let second = inputs.get(1).copied().unwrap_or_default();
        match self {
            Self::Size(dim) => Ok(vec![extent(dim, symbol)? as i64]),
            Self::Fill(dim) => vector(extent(dim, symbol)?, |_| first.first().copied().unwrap_or(0)),
            Self::Iota(dim) => vector(extent(dim, symbol)?, |n| n),
            Self::Offsets => offsets(first),
            Self::Lengths => lengths(first),
            Self::Sum => total(first).map(|sum| vec![sum]),
            Self::Max => Ok(vec![first.iter().copied().fold(0, i64::max)]),
            Self::Binary(op) => binary(*op, first, second),
            Self::Check { check, .. } => check.verify(inputs, symbol).map(|()| first.to_vec()),
        }
    }
}

/// The value of a size.
pub(super) fn extent(dim: &Dim, symbol: impl FnMut(Symbol) -> Option<i64>) -> Result<usize, HostError> {
    dim.evaluate(symbol).ok_or_else(|| HostError::Size { size: dim.clone() })
}

/// The sum of a vector.
pub(crate) fn total(values: &[i64]) -> Result<i64, HostError> {
    let mut sum = 0i64;
    for (entry, &value) in values.iter().enumerate() {
        sum = sum.checked_add(value).ok_or_else(|| overflow(0, entry, value))?;
    }
    Ok(sum)
}

fn overflow(operand: usize, entry: usize, value: i64) -> HostError {
    HostError::Entry { operand, entry, expected: "a result of 64 bits".to_owned(), value }
}

fn vector(len: usize, entry: impl Fn(i64) -> i64) -> Result<Vec<i64>, HostError> {
    let mut entries = Vec::new();
    if len > LIMIT || entries.try_reserve_exact(len).is_err() {
        return Err(HostError::Memory { entries: len });
    }
    entries.extend((0..len as i64).map(entry));
    Ok(entries)
}

fn offsets(lengths: &[i64]) -> Result<Vec<i64>, HostError> {
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    let mut sum = 0i64;
    offsets.push(0);
    for (sample, &length) in lengths.iter().enumerate() {
        at_least(0, 0, sample, length)?;
        sum = sum.checked_add(length).ok_or_else(|| overflow(0, sample, length))?;
        offsets.push(sum);
    }
    Ok(offsets)
}

fn lengths(offsets: &[i64]) -> Result<Vec<i64>, HostError> {
    let length = |(entry, pair): (usize, &[i64])| match pair {
        &[start, end] => {
            at_least(start, 0, entry + 1, end)?;
            end.checked_sub(start).ok_or_else(|| overflow(0, entry + 1, end))
        }
        _ => Ok(0),
    };
    offsets.windows(2).enumerate().map(length).collect()
}

fn binary(op: BinaryOp, a: &[i64], b: &[i64]) -> Result<Vec<i64>, HostError> {
    let len = match (a, b) {
        (_, [_]) => a.len(),
        ([_], _) => b.len(),
        _ if a.len() == b.len() => a.len(),
        _ => return Err(HostError::Length { operand: 1, expected: a.len(), actual: b.len() }),
    };
    let entry = |n: usize| {
        let of = |values: &[i64]| values.get(n).or(values.first()).copied().unwrap_or(0);
        let (a, b) = (of(a), of(b));
        let value = match op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            _ => Some(op.evaluate_int(Scalar::I64, a, b)),
        };
        value.ok_or_else(|| overflow(0, n, a))
    };
    (0..len).map(entry).collect()
}
