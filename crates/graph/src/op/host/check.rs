use super::HostError;
use super::evaluate::extent;
use crate::{Dim, Symbol};
use serde::{Deserialize, Serialize};

/// A condition on host vectors, checked before a run.
///
/// Proofs of index bounds rely on these checks: if vectors violate them, the run fails before any kernel starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Check {
    /// For `a`: every entry is a number of rows, `0 <= a[n] < 2^31`.
    Counts,
    /// For `a` and `bound`, a vector of the same length or a scalar: `0 <= a[n] <= bound[n]`.
    AtMost,
    /// For `a`: it has this many entries, all of which are 32-bit integers, as kernels read them.
    Words {
        /// Number of entries.
        count: Dim,
    },
    /// For `offsets`: the first is 0, they do not descend, and the last is the number of rows that they divide.
    Offsets {
        /// The number of rows.
        rows: Dim,
    },
    /// For `offsets` `[B + 1]`, `starts` `[B]` and the offsets `kept` `[B + 1]` of a part of the rows: for every sample
    /// `0 <= starts[b]` and `starts[b] + kept[b + 1] - kept[b] <= offsets[b + 1] - offsets[b]`.
    Slices,
    /// For `a`, `b` and `sum` of the same length: `sum[n] = a[n] + b[n]`.
    Sum,
}

/// A check of operands of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The condition.
    pub check: Check,
    /// The positions of the checked operands, in the order of the check.
    pub operands: Vec<usize>,
}

impl Requirement {
    /// Requires `check` for the operands at these positions.
    pub fn new(check: Check, operands: &[usize]) -> Self {
        Self { check, operands: operands.to_vec() }
    }

    /// Requires an operand to be the offsets that divide `rows` among samples.
    pub fn offsets(operand: usize, rows: &Dim) -> Self {
        Self::new(Check::Offsets { rows: rows.clone() }, &[operand])
    }
}

impl Check {
    /// The name used in drawings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::AtMost => "at_most",
            Self::Words { .. } => "words",
            Self::Offsets { .. } => "is_offsets",
            Self::Slices => "is_slices",
            Self::Sum => "is_sum",
        }
    }

    /// The number of vectors that it checks.
    pub fn operands(&self) -> usize {
        match self {
            Self::Counts | Self::Words { .. } | Self::Offsets { .. } => 1,
            Self::AtMost => 2,
            Self::Slices | Self::Sum => 3,
        }
    }

    /// The role of its operand `operand` in error messages; empty if the argument's name is enough.
    pub(crate) fn role(&self, operand: usize) -> &'static str {
        match (self, operand) {
            (Self::Counts | Self::AtMost, 0) => "",
            (Self::AtMost, _) => "bound",
            (Self::Slices, 1) => "starts",
            (Self::Slices, 2) => "lengths kept",
            (Self::Offsets { .. } | Self::Slices | Self::Sum, _) => "offsets",
            (Self::Counts | Self::Words { .. }, _) => "values",
        }
    }

    /// The size that it compares with.
    pub fn size(&self) -> Option<&Dim> {
        match self {
            Self::Words { count } => Some(count),
            Self::Offsets { rows } => Some(rows),
            _ => None,
        }
    }

    pub(super) fn size_mut(&mut self) -> Option<&mut Dim> {
        match self {
            Self::Words { count: size } | Self::Offsets { rows: size } => Some(size),
            _ => None,
        }
    }

    /// Checks vectors; a scalar is a vector of one entry.
    ///
    /// # Errors
    /// [`HostError`] names the first invalid entry, or the size without a value.
    pub fn verify(&self, vectors: &[&[i64]], symbol: impl FnMut(Symbol) -> Option<i64>) -> Result<(), HostError> {
        match (self, vectors) {
            (Self::Counts, &[values]) => counts(values),
            (Self::AtMost, &[values, bounds]) => at_most(values, bounds),
            (Self::Words { count }, &[values]) => words(values, extent(count, symbol)?),
            (Self::Offsets { rows }, &[values]) => {
                let rows = extent(rows, symbol)?;
                offsets(values, i64::try_from(rows).unwrap_or(i64::MAX))
            }
            (Self::Slices, &[offsets, starts, kept]) => slices(offsets, starts, kept),
            (Self::Sum, &[a, b, sum]) => sums(a, b, sum),
            _ => Err(HostError::Operands { expected: self.operands(), actual: vectors.len() }),
        }
    }
}

fn wrong(operand: usize, entry: usize, expected: impl ToString, value: i64) -> HostError {
    HostError::Entry { operand, entry, expected: expected.to_string(), value }
}

pub(super) fn at_least(least: i64, operand: usize, entry: usize, value: i64) -> Result<(), HostError> {
    if value >= least { Ok(()) } else { Err(wrong(operand, entry, format!("at least {least}"), value)) }
}

fn as_long(operand: usize, vector: &[i64], expected: usize) -> Result<(), HostError> {
    match vector.len() {
        actual if actual == expected => Ok(()),
        actual => Err(HostError::Length { operand, expected, actual }),
    }
}

fn counts(values: &[i64]) -> Result<(), HostError> {
    match values.iter().enumerate().find(|(_, value)| !(0..=i64::from(i32::MAX)).contains(*value)) {
        Some((entry, &value)) => Err(wrong(0, entry, "0 to 2147483647", value)),
        None => Ok(()),
    }
}

fn at_most(values: &[i64], bounds: &[i64]) -> Result<(), HostError> {
    if bounds.len() != 1 {
        as_long(1, bounds, values.len())?;
    }
    for ((entry, &value), bound) in values.iter().enumerate().zip(bounds.iter().cycle()) {
        at_least(0, 0, entry, value)?;
        if value > *bound {
            return Err(wrong(0, entry, format!("at most {bound}"), value));
        }
    }
    Ok(())
}

fn words(values: &[i64], count: usize) -> Result<(), HostError> {
    as_long(0, values, count)?;
    match values.iter().enumerate().find(|(_, value)| i32::try_from(**value).is_err()) {
        Some((entry, &value)) => Err(wrong(0, entry, "a 32-bit integer", value)),
        None => Ok(()),
    }
}

fn offsets(values: &[i64], rows: i64) -> Result<(), HostError> {
    let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
        return Err(HostError::Length { operand: 0, expected: 1, actual: 0 });
    };
    if first != 0 {
        return Err(wrong(0, 0, "0, where offsets begin", first));
    }
    let mut previous = 0;
    for (entry, &value) in values.iter().enumerate() {
        at_least(previous, 0, entry, value)?;
        previous = value;
    }
    if last != rows {
        return Err(wrong(0, values.len() - 1, format!("{rows}, the rows that the offsets divide"), last));
    }
    Ok(())
}

fn slices(offsets: &[i64], starts: &[i64], kept: &[i64]) -> Result<(), HostError> {
    as_long(0, offsets, starts.len() + 1)?;
    as_long(2, kept, starts.len() + 1)?;
    for (sample, ((rows, kept), &start)) in offsets.windows(2).zip(kept.windows(2)).zip(starts).enumerate() {
        let (&[from, to], &[first, end]) = (rows, kept) else { continue };
        let (rows, kept) = (to.saturating_sub(from), end.saturating_sub(first));
        at_least(0, 1, sample, start)?;
        let left = rows.saturating_sub(start);
        if kept > left {
            let expected = format!("at most {left}, the rows of the sample from row {start} on,");
            return Err(wrong(2, sample, expected, kept));
        }
    }
    Ok(())
}

fn sums(a: &[i64], b: &[i64], sum: &[i64]) -> Result<(), HostError> {
    as_long(1, b, a.len())?;
    as_long(2, sum, a.len())?;
    for (entry, ((&a, &b), &sum)) in a.iter().zip(b).zip(sum).enumerate() {
        match a.checked_add(b) {
            Some(expected) if expected == sum => {}
            expected => {
                let expected = expected.map_or_else(|| "a sum of 64 bits".to_owned(), |n| format!("{n} = {a} + {b}"));
                return Err(wrong(2, entry, expected, sum));
            }
        }
    }
    Ok(())
}
