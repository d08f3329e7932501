//! Versions of a model's parameters.

use super::DeltaError;
use crate::weights::Weights;
use rewire_graph::HostTensor;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use twox_hash::XxHash3_128;

/// The metadata key of a model's version.
const VERSION: &str = "rewire.version";

/// The version of a model's parameters: the state that its first delta follows, and the latest delta.
///
/// Models keep it in the metadata of their weights, in folders and in packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelVersion {
    base: u128,
    number: u64,
    hash: u128,
}

impl ModelVersion {
    /// The version of a model without deltas: the hash of its tensors.
    pub fn base(tensors: &BTreeMap<String, HostTensor>) -> Self {
        let mut hasher = XxHash3_128::new();
        for (name, tensor) in tensors {
            hasher.write(format!("{name} {} {:?} ", tensor.dtype(), tensor.shape()).as_bytes());
            hasher.write(tensor.bytes());
        }
        let hash = hasher.finish_128();
        Self { base: hash, number: 0, hash }
    }

    /// The version of a model without deltas: the hash of the file of its tensors that `write` writes.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn base_of<E>(write: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<Self, E> {
        let mut hasher = Hasher(XxHash3_128::new());
        write(&mut hasher)?;
        let hash = hasher.0.finish_128();
        Ok(Self { base: hash, number: 0, hash })
    }

    /// The version in the metadata of weights.
    ///
    /// # Errors
    /// [`DeltaError::NoVersion`] if there is none.
    pub fn of(weights: &Weights<'_>) -> Result<Self, DeltaError> {
        let text = weights.metadata().get(VERSION).ok_or(DeltaError::NoVersion)?;
        text.parse().map_err(|_| DeltaError::content(VERSION, format!("`{text}` is not a version")))
    }

    /// The entry of a version in the metadata of weights, if there is one.
    pub(crate) fn entry<'a>(weights: &'a Weights<'_>) -> Option<(&'a String, &'a String)> {
        weights.metadata().get_key_value(VERSION)
    }

    /// Metadata of weights with this version.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(VERSION.to_owned(), self.to_string())])
    }

    /// The number of the latest delta; 0 before the first one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The version after a delta with this hash.
    pub(super) fn after(self, hash: u128) -> Self {
        Self { number: self.number + 1, hash, ..self }
    }

    /// Checks that a delta for the version `before` follows this version.
    pub(super) fn check_next(self, before: Self) -> Result<(), DeltaError> {
        if before == self {
            return Ok(());
        }
        let number = before.number + 1;
        match before.base == self.base {
            true if number <= self.number => Err(DeltaError::Applied { number, latest: self.number }),
            true if before.number > self.number => Err(DeltaError::Missing { number, needed: self.number + 1 }),
            _ => Err(DeltaError::Foreign { before, version: self }),
        }
    }
}

/// Hashes the bytes that are written.
struct Hasher(XxHash3_128);

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for ModelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{}-{:032x}", self.base, self.number, self.hash)
    }
}

impl FromStr for ModelVersion {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().unwrap_or("");
        let [base, number, hash] = [next(), next(), next()];
        let hex = |digits: &str| u128::from_str_radix(digits, 16);
        Ok(Self { base: hex(base)?, number: number.parse()?, hash: hex(hash)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_its_text() {
        let version = ModelVersion::base(&BTreeMap::from([("w".to_owned(), HostTensor::vector(&[1.5f32]))]));
        for version in [version, version.after(7), version.after(7).after(u128::MAX)] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for text in ["", "1-2", "1-2-x", "-1-2-3", "1-2-3-4"] {
            assert!(text.parse::<ModelVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn other_tensors_have_other_versions() {
        let of = |name: &str, shape: [usize; 2], value: f32| {
            ModelVersion::base(&BTreeMap::from([(name.to_owned(), HostTensor::f32(shape, &[value; 6]).unwrap())]))
        };
        let all = [of("w", [2, 3], 1.0), of("v", [2, 3], 1.0), of("w", [3, 2], 1.0), of("w", [2, 3], 2.0)];
        assert!((0..4).all(|a| (0..4).all(|b| (all[a] == all[b]) == (a == b))));
    }
}
