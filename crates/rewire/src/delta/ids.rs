//! Changes of the ids of tables that grow, as tensors.

use super::{DeltaError, NONE};
use crate::weights::Weights;
use rewire_graph::{HostTensor, TensorSizeError};
use rewire_tables::{MapChanges, Placed, RowUse};

/// The kinds of tensors.
pub(super) const IDS: &str = "ids/";
pub(super) const USED: &str = "used/";
pub(super) const STEPS: &str = "steps/";

/// The tensors of changes of a table's ids, by name.
pub(super) fn tensors(table: &str, changes: &MapChanges) -> Result<[(String, HostTensor); 3], TensorSizeError> {
    let MapChanges { steps, placed, used } = changes;
    let ids = placed.iter().flat_map(|own| [i64::from(own.row), own.id, own.evicted.unwrap_or(NONE)]);
    let uses = used.iter().flat_map(|own| [own.row, own.count, own.last]);
    let steps = i64::try_from(*steps).unwrap_or(i64::MAX);
    Ok([
        (format!("{IDS}{table}"), HostTensor::i64([placed.len(), 3], &ids.collect::<Vec<_>>())?),
        (format!("{USED}{table}"), HostTensor::u32([used.len(), 3], &uses.collect::<Vec<_>>())?),
        (format!("{STEPS}{table}"), HostTensor::vector(&[steps])),
    ])
}

/// The changes of a table's ids in a file.
pub(super) fn changes(table: &str, weights: &Weights<'_>) -> Result<MapChanges, DeltaError> {
    let (ids, used, steps) = (format!("{IDS}{table}"), format!("{USED}{table}"), format!("{STEPS}{table}"));
    let three = |tensor: &HostTensor| matches!(tensor.shape(), [_, 3]);
    let wrong = |key: &str, expected: &str| DeltaError::content(key, format!("expected {expected}"));
    let words: Option<Vec<i64>> = weights.get(&ids)?.filter(three).and_then(|tensor| tensor.values());
    let words = words.ok_or_else(|| wrong(&ids, "I64 [n, 3]"))?;
    let placed = words.as_chunks().0.iter().map(|&[row, id, evicted]| {
        let row = u32::try_from(row).map_err(|_| wrong(&ids, &format!("a row, got {row}")))?;
        Ok(Placed { row, id, evicted: Some(evicted).filter(|evicted| *evicted != NONE) })
    });
    let placed = placed.collect::<Result<_, DeltaError>>()?;
    let words: Option<Vec<u32>> = weights.get(&used)?.filter(three).and_then(|tensor| tensor.values());
    let words = words.ok_or_else(|| wrong(&used, "U32 [n, 3]"))?;
    let uses = words.as_chunks().0.iter().map(|&[row, count, last]| RowUse { row, count, last }).collect();
    let count: Option<Vec<i64>> = weights.get(&steps)?.and_then(|tensor| tensor.values());
    match count.as_deref() {
        Some([count]) if *count >= 0 => Ok(MapChanges { steps: count.unsigned_abs(), placed, used: uses }),
        _ => Err(wrong(&steps, "I64 [1], from 0")),
    }
}
