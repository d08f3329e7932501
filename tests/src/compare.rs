//! Compares results.

use rewire_graph::HostTensor;
use std::collections::BTreeMap;

/// Results by name.
pub type Results = BTreeMap<String, HostTensor>;

/// Tolerance of results.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// For floats, as `max|a - b| / max(floor, max|b|)`.
    pub relative: f64,
    /// The smallest magnitude that a difference is relative to.
    pub floor: f64,
}

impl Tolerance {
    /// Bit for bit.
    pub const EXACT: Self = Self { relative: 0.0, floor: 1.0 };
    /// f32 against the oracle.
    pub const SINGLE: Self = Self { relative: 2e-5, floor: 1.0 };
    /// Sums in f32 of products of f16, where an operand that a kernel computes is rounded to f16 before matrix hardware reads it.
    pub const MATRICES: Self = Self { relative: 1e-3, floor: 1.0 };
}

/// The difference of `actual`, if any. Integers and bools must be equal.
pub fn difference(actual: &HostTensor, expected: &HostTensor, tolerance: Tolerance) -> Option<String> {
    if actual.shape() != expected.shape() {
        return Some(format!("shape {:?} instead of {:?}", actual.shape(), expected.shape()));
    }
    if !expected.dtype().is_float() {
        let (a, b) = (actual.to_i64(), expected.to_i64());
        let at = a.iter().zip(&b).position(|(a, b)| a != b)?;
        return Some(format!("{} instead of {} at {}", a[at], b[at], place(expected.shape(), at)));
    }
    let (a, b) = (actual.to_f64(), expected.to_f64());
    let magnitude = b.iter().filter(|b| b.is_finite()).fold(tolerance.floor, |max, b| max.max(b.abs()));
    let error = |a: f64, b: f64| if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() / magnitude };
    let wrong = |a: f64, b: f64| {
        let error = error(a, b);
        error.is_nan() || error > tolerance.relative
    };
    let count = a.iter().zip(&b).filter(|(a, b)| wrong(**a, **b)).count();
    let first = a.iter().zip(&b).position(|(a, b)| wrong(*a, *b))?;
    let worst = (first..a.len()).max_by(|&x, &y| error(a[x], b[x]).total_cmp(&error(a[y], b[y]))).unwrap_or(first);
    Some(format!(
        "{count} of {} differ, first {} instead of {} at {}, worst {} instead of {} at {} (relative {:.2e})",
        a.len(),
        a[first],
        b[first],
        place(expected.shape(), first),
        a[worst],
        b[worst],
        place(expected.shape(), worst),
        error(a[worst], b[worst]),
    ))
}

fn place(shape: &[usize], flat: usize) -> String {
    let mut rest = flat;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let at = rest % extent.max(1);
            rest /= extent.max(1);
            at
        })
        .collect();
    index.reverse();
    format!("{index:?}")
}

/// The differences of a set of results, output by output.
pub fn differences(actual: &Results, expected: &Results, tolerance: Tolerance) -> Vec<String> {
    let mut found: Vec<String> = expected
        .iter()
        .filter_map(|(name, expected)| match actual.get(name) {
            Some(actual) => difference(actual, expected, tolerance).map(|what| format!("{name}: {what}")),
            None => Some(format!("{name}: missing")),
        })
        .collect();
    found.extend(actual.keys().filter(|name| !expected.contains_key(*name)).map(|name| format!("{name}: unexpected")));
    found
}
