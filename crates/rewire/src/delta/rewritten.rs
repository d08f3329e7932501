//! Rewrites files of weights with deltas.

use super::{Delta, DeltaError};
use crate::weights::{Described, Weights, described, file_bytes, header};
use rewire_graph::{HostTensor, Ordered, TensorSizeError};
use rewire_graph_rewrite::plan::Plan;
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
    layouts: Layouts<'a>,
}

/// Names of the tensors that are stored by column ([`Plan::by_column`]) and in groups ([`Plan::in_groups`]).
#[derive(Clone, Debug, Default)]
pub(super) struct Layouts<'a> {
    by_column: HashSet<&'a str>,
    in_groups: HashSet<&'a str>,
}

impl<'a> Layouts<'a> {
    pub fn of(plan: &'a Plan) -> Self {
        Self { by_column: plan.parameters_by_column().collect(), in_groups: plan.parameters_in_groups().collect() }
    }
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
    pub fn new(weights: &Weights<'_>, layouts: Layouts<'a>) -> Result<Self, DeltaError> {
        let mut tensors = BTreeMap::new();
        for name in weights.names() {
            let tensor = weights.laid(name, layouts.by_column.contains(name)).map_err(in_memory)?;
            tensors.extend(tensor.map(|tensor| (name.to_owned(), tensor)));
        }
        Ok(Self { tensors, layouts })
    }

    /// Moves some tensors out.
    pub fn split(&mut self, names: &HashSet<&str>) -> Self {
        let taken = std::mem::take(&mut self.tensors);
        let (moved, stay) = taken.into_iter().partition(|(name, _)| names.contains(name.as_str()));
        self.tensors = stay;
        Self { tensors: moved, layouts: self.layouts.clone() }
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
        let Layouts { by_column, in_groups } = &self.layouts;
        let (by_column, in_groups, mut shape) =
            (by_column.contains(name), in_groups.contains(name), before.shape().to_vec());
        if let (true, [_, .., groups, group]) = (in_groups, shape.as_mut_slice()) {
            *groups *= *group;
            shape.pop();
        }
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
            let laid = if in_groups { laid.in_groups(before.shape()) } else { Ok(laid) };
            let laid = laid.and_then(|laid| laid.stored_as(before.dtype()));
            laid.map_err(|error| DeltaError::from(RuntimeError::of_stored(name, error)))
        };
        match change {
            ParameterUpdate::Whole(tensor) => Ok(Stored::Whole(stored(tensor, shape)?)),
            ParameterUpdate::Rows { .. } if by_column => {
                Err(DeltaError::content(name, "it is stored by column: its rows cannot be replaced"))
            }
            ParameterUpdate::Rows { rows, values } => {
                let (&[height, width], false) = (shape.as_slice(), in_groups) else {
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
