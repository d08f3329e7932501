use super::{ShapeError, ShapeProgram};
use crate::{DType, HostTensor, Symbol};
use std::collections::BTreeMap;

impl ShapeProgram {
    /// Checks that ids on the host are rows of their tables. `tensor` returns a named input of the declared type and
    /// shape, or `None` to skip the check.
    ///
    /// # Errors
    /// [`ShapeError::Value`] names the input and the first id beyond a table.
    pub fn check_ids<'a>(
        &self,
        symbols: &BTreeMap<Symbol, i64>,
        tensor: impl Fn(&str) -> Option<&'a HostTensor>,
    ) -> Result<(), ShapeError> {
        self.ids.iter().try_for_each(|ids| {
            let rows = ids.rows.evaluate(|symbol| symbols.get(&symbol).copied());
            rows.zip(tensor(&ids.input)).map_or(Ok(()), |(rows, tensor)| check(&ids.input, tensor, rows))
        })
    }
}

fn check(input: &str, tensor: &HostTensor, rows: usize) -> Result<(), ShapeError> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let bytes = tensor.bytes();
    let offender = match tensor.dtype() {
        DType::I64 => first_outside(bytes, i64::from_le_bytes, rows),
        DType::I32 => first_outside(bytes, |id| i32::from_le_bytes(id).into(), rows),
        DType::U32 => first_outside(bytes, |id| u32::from_le_bytes(id).into(), rows),
        _ => None,
    };
    let Some((element, value)) = offender else { return Ok(()) };
    let expected = match rows {
        0 => "no id, since the table has no rows".to_owned(),
        rows => format!("0 to {}, the rows of the table", rows - 1),
    };
    let (what, inputs) = (format!("input `{input}`"), vec![input.to_owned()]);
    Err(ShapeError::Value { what, inputs, expected, element, value })
}

/// The first id that is not below `rows`, with its position.
fn first_outside<const N: usize>(bytes: &[u8], id: impl Fn([u8; N]) -> i64, rows: i64) -> Option<(usize, i64)> {
    let ids = bytes.as_chunks().0.iter().map(|&bytes| id(bytes));
    ids.enumerate().find(|(_, id)| !(0..rows).contains(id))
}
