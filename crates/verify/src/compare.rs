use rewire_graph::HostTensor;
use thiserror::Error;

/// Why a computed tensor cannot be compared with its reference, or differs although it must be equal.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Mismatch {
    /// An output is missing.
    #[error("`{name}` is missing")]
    Missing {
        /// The output.
        name: String,
    },
    /// The shapes differ.
    #[error("`{name}` has shape {actual:?}: expected {expected:?}")]
    Shape {
        /// The output.
        name: String,
        /// The reference's shape.
        expected: Vec<usize>,
        /// The computed shape.
        actual: Vec<usize>,
    },
    /// One tensor has floats, the other does not.
    #[error("`{name}` is {actual}: expected {expected}")]
    Kind {
        /// The output.
        name: String,
        /// The reference's element type.
        expected: String,
        /// The computed element type.
        actual: String,
    },
    /// An element is infinite or not a number.
    #[error("`{name}` is {value} at element {element}")]
    NotFinite {
        /// The output.
        name: String,
        /// Row-major index of the first such element.
        element: usize,
        /// Its value.
        value: f64,
    },
    /// Elements that must be equal are not.
    #[error("`{name}` is {actual} at element {element}: expected {expected} exactly")]
    Unequal {
        /// The output.
        name: String,
        /// Row-major index of the first such element. For rows with a scale, index of the first such byte.
        element: usize,
        /// The reference's value.
        expected: f64,
        /// The computed value.
        actual: f64,
    },
}

/// The error of a computed tensor relative to its reference: the larger of `‖out-ref‖/‖ref‖` and `max|out-ref|/max|ref|`. If the
/// reference is all zeros, the absolute error.
///
/// Integers must be equal, as must rows with a scale (byte for byte), and floats if `exact` is set. A scalar is compared as shape `[1]`.
///
/// ```
/// use rewire_verify::relative_error;
/// use rewire_graph::HostTensor;
/// let reference = HostTensor::f32(vec![2], &[3.0, 4.0])?;
/// let out = HostTensor::f32(vec![2], &[3.0, 4.5])?;
/// assert_eq!(relative_error("y", &out, &reference, false), Ok(0.125));
/// # Ok::<(), rewire_graph::TensorSizeError>(())
/// ```
///
/// # Errors
/// [`Mismatch`] if the tensors cannot be compared, or differ although they must be equal.
pub fn relative_error(name: &str, out: &HostTensor, reference: &HostTensor, exact: bool) -> Result<f64, Mismatch> {
    let name = || name.to_owned();
    let scalar = out.shape().is_empty() && reference.shape() == [1];
    if out.shape() != reference.shape() && !scalar {
        return Err(Mismatch::Shape {
            name: name(),
            expected: reference.shape().to_vec(),
            actual: out.shape().to_vec(),
        });
    }
    if out.dtype().is_float() != reference.dtype().is_float() {
        let (expected, actual) = (reference.dtype().to_string(), out.dtype().to_string());
        return Err(Mismatch::Kind { name: name(), expected, actual });
    }
    if !reference.dtype().format().is_written() && out.dtype() == reference.dtype() {
        let pairs = out.bytes().iter().zip(reference.bytes());
        return equal(name(), pairs.map(|(a, b)| (a == b, f64::from(*a), f64::from(*b))));
    }
    if !reference.dtype().is_float() {
        let pairs = out.to_i64().into_iter().zip(reference.to_i64());
        return equal(name(), pairs.map(|(a, b)| (a == b, a as f64, b as f64)));
    }
    let (out, reference) = (out.to_f64(), reference.to_f64());
    if let Some((element, &value)) = out.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(Mismatch::NotFinite { name: name(), element, value });
    }
    if exact {
        return equal(name(), out.iter().zip(&reference).map(|(&a, &b)| (a == b, a, b)));
    }
    Ok(distance(&out, &reference))
}

fn equal(name: String, pairs: impl Iterator<Item = (bool, f64, f64)>) -> Result<f64, Mismatch> {
    match pairs.enumerate().find(|(_, (equal, ..))| !equal) {
        Some((element, (_, actual, expected))) => Err(Mismatch::Unequal { name, element, expected, actual }),
        None => Ok(0.0),
    }
}

fn distance(out: &[f64], reference: &[f64]) -> f64 {
    let difference = || out.iter().zip(reference).map(|(a, b)| a - b);
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |max: f64, v| max.max(v.abs()));
    let scale = largest(&mut reference.iter().copied());
    if scale == 0.0 {
        return largest(&mut difference());
    }
    let mean = norm(&mut difference()) / norm(&mut reference.iter().copied());
    mean.max(largest(&mut difference()) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(out: &[f32], reference: &[f32]) -> Result<f64, Mismatch> {
        let tensor = |values: &[f32]| HostTensor::f32(vec![values.len()], values).unwrap();
        relative_error("y", &tensor(out), &tensor(reference), false)
    }

    #[test]
    fn the_larger_measure_counts() {
        assert_eq!(error(&[1.0, 1.0], &[1.0, 1.0]), Ok(0.0));
        assert_eq!(error(&[1.5, 1.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 1.0]), Ok(0.5));
        assert_eq!(error(&[3.0, 4.0], &[0.0, 0.0]), Ok(4.0));
        assert_eq!(error(&[], &[]), Ok(0.0));
    }

    #[test]
    fn what_cannot_be_compared_fails() {
        assert!(matches!(error(&[1.0], &[1.0, 1.0]), Err(Mismatch::Shape { .. })));
        assert!(matches!(error(&[f32::NAN], &[1.0]), Err(Mismatch::NotFinite { element: 0, .. })));
        assert!(matches!(error(&[1.0, f32::INFINITY], &[1.0, 2.0]), Err(Mismatch::NotFinite { element: 1, .. })));
        let integers = HostTensor::lengths(&[1, 2]);
        let floats = HostTensor::f32(vec![2], &[1.0, 2.0]).unwrap();
        assert!(matches!(relative_error("y", &integers, &floats, false), Err(Mismatch::Kind { .. })));
    }

    #[test]
    fn integers_and_moved_data_must_be_equal() {
        let big = (1 << 60) + 1;
        let (a, b) = (HostTensor::lengths(&[big]), HostTensor::lengths(&[big - 1]));
        assert!(matches!(relative_error("y", &a, &b, false), Err(Mismatch::Unequal { element: 0, .. })));
        assert_eq!(relative_error("y", &a, &a, false), Ok(0.0));
        let floats = |v| HostTensor::f32(vec![1], &[v]).unwrap();
        assert!(matches!(relative_error("y", &floats(1.0), &floats(1.0000001), true), Err(Mismatch::Unequal { .. })));
    }

    #[test]
    fn a_scalar_stands_for_one_entry() {
        let scalar = HostTensor::lengths(&[7]).reshape(vec![]).unwrap();
        assert_eq!(relative_error("y", &scalar, &HostTensor::lengths(&[7]), false), Ok(0.0));
    }
}
