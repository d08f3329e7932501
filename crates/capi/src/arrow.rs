//! Tables through Arrow's C data interface.

use crate::batch::Batch;
use crate::border::{Failure, Status, call, change, read};
use crate::ranking::Ranking;
use rewire_arrow::{ArrowArray, ArrowSchema, Column, TableError, export, extend};

/// Adds requests from a table: a struct array, a row a request. Its columns are `user` (text or integers; rows are named by their
/// position without it), features of users by their names, and lists `history.NAME` and `candidates.NAME`, or lists `NAME` in structs `history` and
/// `candidates`, of integers of 32 or 64 bits. Nothing may be null in what the model reads. The lists are read where they are; the table stays
/// the caller's.
///
/// # Safety
/// `batch` is null or a handle that nobody else uses meanwhile; `schema` and `array` are null or as Arrow's C data interface has them, not
/// released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_extend_arrow(
    batch: *mut Batch,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let batch = unsafe { change(batch, "batch") }?;
        // SAFETY: the caller's promise.
        unsafe { extend(&mut batch.batch, schema, array) }.map_err(|error| match &error {
            TableError::Column { .. } => Failure::of(Status::Argument)(&error),
            _ => Failure::of(Status::Request)(&error),
        })
    })
}

/// Hands a ranking out as a table, without a copy: a struct array, a row a request, of the large lists `items`, `positions`, `scores` and `logits`, best
/// first; a candidate's logits are a list of fixed size. Who takes it calls `release` of both; it outlives the ranking.
///
/// # Safety
/// `ranking` is null or a handle; `schema` and `array` are places for structures, which are overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranking_export(
    ranking: *const Ranking,
    schema: *mut ArrowSchema,
    array: *mut ArrowArray,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let Ranking { columns, tasks } = unsafe { read(ranking, "ranking") }?;
        if schema.is_null() || array.is_null() {
            return Err(Failure::argument("schema, array", "places in memory"));
        }
        let (of_table, table) = export(columns, columns.offsets.len().saturating_sub(1), |columns| {
            let logits = Column::fixed_lists("item", *tasks, Column::values("item", &columns.logits));
            let items = [
                ("items", Column::values("item", &columns.items)),
                ("positions", Column::values("item", &columns.positions)),
                ("scores", Column::values("item", &columns.scores)),
                ("logits", logits),
            ];
            items.map(|(name, items)| Column::lists(name, &columns.offsets, items)).into()
        });
        // SAFETY: the caller's promise, and neither is null.
        unsafe {
            schema.write(of_table);
            array.write(table);
        }
        Ok(())
    })
}
