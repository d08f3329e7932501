//! Rewrites files of weights with deltas.

use super::{Delta, DeltaError};
use crate::weights::{Described, Weights, described, file_bytes, header};
use rewire_graph::{HostTensor, Ordered, TensorSizeError};
use rewire_runtime::{ParameterUpdate, RuntimeError};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// The tensors of a model in the form of its file, before deltas, and their layout. Tensors that are already in that
/// form are not copied.
pub(super) struct Rewritten<'a> {
    pub tensors: BTreeMap<String, HostTensor>,
    by_column: HashSet<&'a str>,
}

/// New values of a tensor in its storage type.
enum Stored {
    Whole(HostTensor),
    Rows(Vec<u32>, HostTensor),
}

fn in_memory(error: TensorSizeError) -> DeltaError {
    DeltaError::Runtime(RuntimeError::Memory { reason: error.to_string() })
}

impl<'a> Rewritten<'a> {
    /// The tensors of weights; some are to be stored by column.
    pub fn new(weights: &Weights<'_>, by_column: HashSet<&'a str>) -> Result<Self, DeltaError> {
        let mut tensors = BTreeMap::new();
        for name in weights.names() {
            let tensor = weights.laid(name, by_column.contains(name)).map_err(in_memory)?;
            tensors.extend(tensor.map(|tensor| (name.to_owned(), tensor)));
        }
        Ok(Self { tensors, by_column })
    }

    /// Moves some tensors out.
    pub fn split(&mut self, names: &HashSet<&str>) -> Self {
        let taken = std::mem::take(&mut self.tensors);
        let (moved, stay) = taken.into_iter().partition(|(name, _)| names.contains(name.as_str()));
        self.tensors = stay;
        Self { tensors: moved, by_column: self.by_column.clone() }
    }

    /// Checks that a delta fits.
    pub fn check(&self, delta: &Delta) -> Result<(), DeltaError> {
        delta.changes().parameters.iter().try_for_each(|(name, change)| self.stored(name, change).map(drop))
    }

    /// Bytes of the file.
    pub fn bytes(&self, metadata: &BTreeMap<String, String>) -> Result<usize, DeltaError> {
        let header = header(&self.described(), metadata)?;
        Ok(header.bytes.len() + header.content)
    }

    /// Writes the tensors at the current position of `file`.
    pub fn write(&self, file: &mut File, metadata: &BTreeMap<String, String>, deltas: &[PathBuf]) -> io::Result<()> {
        let described = self.described();
        let header = header(&described, metadata).map_err(io::Error::other)?;
        let places = header.write(file, &self.tensors)?;
        self.change(file, &places, deltas)
    }

    /// Writes the changes of one delta after the other at the offsets of the tensors, so that memory holds only one
    /// delta.
    pub fn change(&self, file: &mut File, places: &BTreeMap<&str, u64>, deltas: &[PathBuf]) -> io::Result<()> {
        for path in deltas {
            let delta = Delta::read(path).map_err(io::Error::other)?;
            for (name, change) in &delta.changes().parameters {
                let Some(start) = places.get(name.as_str()) else { continue };
                let stored = self.stored(name, change).map_err(io::Error::other)?;
                for (offset, bytes) in stored.ranges() {
                    file.seek(SeekFrom::Start(start + offset as u64))?;
                    file.write_all(&bytes)?;
                }
            }
        }
        Ok(())
    }

    fn described(&self) -> Described<'_> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), described(tensor))).ordered_map()
    }

    /// The stored form of a change.
    fn stored(&self, name: &str, change: &ParameterUpdate) -> Result<Stored, DeltaError> {
        let Some(before) = self.tensors.get(name) else { return Err(DeltaError::Unknown { name: name.to_owned() }) };
        let (by_column, mut shape) = (self.by_column.contains(name), before.shape().to_vec());
        if let (true, [.., rows, columns]) = (by_column, shape.as_mut_slice()) {
            std::mem::swap(rows, columns);
        }
        let stored = |tensor: &HostTensor, expected: Vec<usize>| {
            if tensor.shape() != expected {
                let actual = tensor.shape().to_vec();
                return Err(RuntimeError::ParameterShape { name: name.to_owned(), expected, actual }.into());
            }
            if let Some((element, value)) = tensor.first_non_finite() {
                let (name, value, dtype) = (name.to_owned(), value as f32, tensor.dtype());
                return Err(RuntimeError::ParameterValue { name, element, value, dtype }.into());
            }
            let laid = if by_column { tensor.clone().transposed().map_err(in_memory)? } else { tensor.clone() };
            laid.stored_as(before.dtype()).map_err(|error| DeltaError::from(RuntimeError::of_stored(name, error)))
        };
        match change {
            ParameterUpdate::Whole(tensor) => Ok(Stored::Whole(stored(tensor, shape)?)),
            ParameterUpdate::Rows { .. } if by_column => {
                Err(DeltaError::content(name, "it is stored by column: its rows cannot be replaced"))
            }
            ParameterUpdate::Rows { rows, values } => {
                let &[height, width] = shape.as_slice() else {
                    return Err(DeltaError::content(name, "it is not a table"));
                };
                match rows.iter().find(|row| **row as usize >= height) {
                    Some(row) => Err(DeltaError::content(name, format!("row {row} is not one of {height} rows"))),
                    None => Ok(Stored::Rows(rows.clone(), stored(values, vec![rows.len(), width])?)),
                }
            }
        }
    }
}

impl Stored {
    /// The ranges of bytes to replace in the tensor: offset and content.
    fn ranges(&self) -> Vec<(usize, Cow<'_, [u8]>)> {
        match self {
            Self::Whole(tensor) => vec![(0, file_bytes(tensor))],
            Self::Rows(rows, values) => {
                let row_bytes = (values.bytes().len() / rows.len().max(1)).max(1);
                let each = rows.iter().zip(values.bytes().chunks_exact(row_bytes));
                each.map(|(row, bytes)| (*row as usize * row_bytes, Cow::Borrowed(bytes))).collect()
            }
        }
    }
}
