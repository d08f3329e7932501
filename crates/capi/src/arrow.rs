//! Tables through Arrow's C data interface.

use crate::batch::Batch;
use crate::border::{Failure, Status, call, change, read};
use crate::ranking::Ranking;
use rewire_arrow::{ArrowArray, ArrowSchema, Column, TableError, export, extend};

/// Adds requests from a table: a struct array, one row per request. Its columns are `user` (strings or integers; without it, rows are named
/// by their position), user features by name, and lists `history.NAME` and `candidates.NAME`, or lists `NAME` in structs `history` and
/// `candidates`, of 32-bit or 64-bit integers. Columns that the model reads must not contain nulls. The lists are read in place; the caller
/// keeps the table.
///
/// # Safety
/// `batch` is null or a handle that no other thread uses during the call; `schema` and `array` are null or valid structures of Arrow's C
/// data interface, not released.
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

/// Exports a ranking as a table without a copy: a struct array, one row per request, of the large lists `items`, `positions`, `scores` and
/// `logits`, best first; a candidate's logits are a fixed-size list. The caller releases both structures with `release`; they may outlive
/// the ranking.
///
/// # Safety
/// `ranking` is null or a handle; `schema` and `array` point to structures, which are overwritten.
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
