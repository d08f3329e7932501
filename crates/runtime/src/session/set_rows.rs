//! Changes of some rows of a state, such as those of a table in training.

use super::states::{Held, refused};
use super::{RunValue, Session};
use crate::RunError;
use crate::memory::Layout;
use rewire_graph::HostTensor;

impl Session {
    /// Replaces rows of a state, along its first dimension, for the next run: `values` has one row for each of `rows`.
    /// After the first run, only these rows are copied.
    ///
    /// # Errors
    /// [`RunError::State`] if the plan has no state of that name or the rows are outside of it, [`RunError::InputType`]
    /// and [`RunError::InputShape`] for invalid values, and [`RunError::StateLost`] if it was on a lost device.
    pub fn set_state_rows(&mut self, name: &str, rows: &[u32], values: &HostTensor) -> Result<(), RunError> {
        let model = self.model.clone();
        let dtype = self.declared(name)?.dtype;
        let shape = self.states.shapes(model.plan()).remove(name);
        if values.dtype() != dtype {
            let (name, expected) = (name.to_owned(), dtype.to_string());
            return Err(RunError::InputType { name, expected, actual: values.dtype() });
        }
        let Some((count, inner)) = shape.as_ref().and_then(|shape| shape.split_first()) else {
            return Err(refused(name, "it has no rows"));
        };
        let expected: Vec<usize> = std::iter::once(rows.len()).chain(inner.iter().copied()).collect();
        if values.shape() != expected {
            let (expected, actual) = (format!("{expected:?}"), values.shape().to_vec());
            return Err(RunError::InputShape { name: name.to_owned(), expected, actual });
        }
        if let Some(row) = rows.iter().find(|row| **row as usize >= *count) {
            return Err(refused(name, format!("it has {count} rows, but not row {row}")));
        }
        let one = Layout::new(values.dtype(), std::iter::once(1).chain(inner.iter().copied()).collect());
        let stride = if inner.is_empty() { values.bytes().len() / rows.len().max(1) } else { one.bytes() as usize };
        let padded = Layout::new(values.dtype(), expected).pad(values);
        let runs =
            runs(rows).map(|(first, places)| (first * stride, &padded[places.start * stride..places.end * stride]));
        self.write_rows(name, runs)
    }

    /// Writes bytes at offsets of a state in the layout of kernels.
    fn write_rows<'v>(
        &mut self,
        name: &str,
        mut runs: impl Iterator<Item = (usize, &'v [u8])>,
    ) -> Result<(), RunError> {
        let model = self.model.clone();
        let Some(buffer) = model.plan().states().remove(name) else { return Ok(()) };
        if let (Some(Held::Value(RunValue::Device(tensor))), Some(side)) = (self.states.held(name), &self.gpu) {
            runs.for_each(|(offset, bytes)| side.write(tensor, offset as u64, bytes));
            return Ok(());
        }
        self.states.bring(name, buffer)?;
        match self.states.held_mut(name) {
            Some(Held::Memory(memory)) => {
                let written = runs.try_for_each(|(offset, bytes)| memory.write_at(offset, bytes));
                written.map_err(|error| refused(name, error))
            }
            _ => Err(RunError::StateLost { name: name.to_owned() }),
        }
    }
}

/// A run of consecutive rows: the first row, and the positions of their values.
fn runs(rows: &[u32]) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let mut end = 0;
    rows.chunk_by(|a, b| a.checked_add(1) == Some(*b)).filter_map(move |run| {
        let start = end;
        end += run.len();
        Some((*run.first()? as usize, start..end))
    })
}
