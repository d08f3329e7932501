//! Losses and metrics of imported models. Libraries built only for packages have no evaluators.

use crate::border::{Failure, Status, call, change, free, give, read, text};
use crate::options::{Options, given};
use rewire::predict::{self, Evaluated, Negatives};
use rewire::rank::RankError;
use rewire::weights::Weights;
use rewire_arrow::{ArrowArray, ArrowSchema, Table, TableError, table};
use std::ffi::{CString, c_char};
use std::path::Path;

/// Evaluates an imported model: the losses and metrics of its configuration. Any number of threads may start evaluations with
/// it.
#[derive(Debug)]
pub struct Evaluator {
    evaluator: predict::Evaluator,
    weights: Weights<'static>,
}

/// An evaluation, batch by batch.
#[derive(Debug)]
pub struct Evaluation {
    evaluator: predict::Evaluator,
    evaluation: predict::Evaluation,
    names: Vec<CString>,
    values: Vec<Value>,
}

/// A metric or a loss.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The reference's name.
    pub name: *const c_char,
    /// NaN if undefined.
    pub value: f64,
}

/// Metrics and losses in the order of the configuration. Valid until the evaluation is freed or queried again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// The metrics.
    pub metrics: *const Value,
    /// Number of metrics.
    pub metric_count: usize,
    /// The means of the losses over batches, weighted by the number of their labels.
    pub losses: *const Value,
    /// Number of losses.
    pub loss_count: usize,
    /// Number of rows.
    pub rows: u64,
}

/// Loads a package, or a folder with `config.json` and `model.safetensors`, for evaluation. `options` may be null. Not available in
/// libraries built only for packages.
///
/// # Safety
/// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_evaluator_load(
    path: *const c_char,
    options: *const Options,
    out: *mut *mut Evaluator,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (Path::new(text(path, "path")?), given(options)) };
        let loaded = predict::Evaluator::load(path, &options);
        let (evaluator, weights) = loaded.map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Evaluator { evaluator, weights }, out) }
    })
}

/// Batch size in rows: the `eval_batch_size` of the configuration, or else its `batch_size`; 0 for null.
///
/// # Safety
/// `evaluator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_evaluator_batch_size(evaluator: *const Evaluator) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(evaluator, "evaluator") }.map_or(0, |evaluator| evaluator.evaluator.batch_size())
}

/// Frees an evaluator. Its evaluations stay valid.
///
/// # Safety
/// `evaluator` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_evaluator_free(evaluator: *mut Evaluator) {
    // SAFETY: the caller's promise.
    unsafe { free(evaluator) }
}

/// Starts an evaluation.
///
/// # Safety
/// `evaluator` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_evaluation_new(evaluator: *const Evaluator, out: *mut *mut Evaluation) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let Evaluator { evaluator, weights } = unsafe { read(evaluator, "evaluator") }?;
        let evaluation = evaluator.begin(weights).map_err(|error| Failure::of(Status::Model)(&error))?;
        let evaluation = Evaluation { evaluator: evaluator.clone(), evaluation, names: vec![], values: vec![] };
        // SAFETY: the caller's promise.
        unsafe { give(evaluation, out) }
    })
}

/// Evaluates a batch: a table as for `rewire_predict_arrow`, with labels and groups. Models with sampled negatives also read a table with
/// one row of them; it is null for others. The caller keeps the tables.
///
/// # Safety
/// `evaluation` is null or a handle that no other thread uses during the call; the structures are null or valid for Arrow's C data
/// interface, not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_evaluation_add_arrow(
    evaluation: *mut Evaluation,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
    negatives_schema: *const ArrowSchema,
    negatives_array: *const ArrowArray,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let Evaluation { evaluator, evaluation, .. } = unsafe { change(evaluation, "evaluation") }?;
        let of_arrow = |table: Result<_, TableError>| table.map_err(|error| Failure::of(Status::Argument)(&error));
        // SAFETY: the caller's promise.
        let batch: Table<'_> = of_arrow(unsafe { table(schema, array, evaluator.columns()) })?;
        let negatives = match evaluator.negatives() {
            [] => None,
            // SAFETY: the caller's promise.
            names => Some(of_arrow(unsafe { table(negatives_schema, negatives_array, names) })?),
        };
        let negatives = negatives.as_ref().map(|table| Negatives { columns: &table.columns, row: 0 });
        evaluation.add(batch.rows, &batch.columns, negatives).map_err(|error| match error {
            RankError::Columns(_) => Failure::of(Status::Request)(&error),
            _ => Failure::of(Status::Run)(&error),
        })?;
        Ok(())
    })
}

/// Losses and metrics of all batches.
///
/// # Safety
/// `evaluation` is null or a handle that no other thread uses during the call, `out` points to a variable for the values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_evaluation_values(evaluation: *mut Evaluation, out: *mut Values) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (Evaluation { evaluation, names, values, .. }, out) =
            unsafe { (change(evaluation, "evaluation")?, change(out, "out")?) };
        let Evaluated { metrics, losses, rows } = evaluation.evaluated();
        let (metric_count, loss_count) = (metrics.len(), losses.len());
        let all: Vec<(String, Option<f64>)> = metrics.into_iter().chain(losses).collect();
        *names = all.iter().map(|(name, _)| CString::new(name.replace('\0', " ")).unwrap_or_default()).collect();
        let value = |(name, (_, value)): (&CString, &(String, Option<f64>))| Value {
            name: name.as_ptr(),
            value: value.unwrap_or(f64::NAN),
        };
        *values = names.iter().zip(&all).map(value).collect();
        let (metrics, losses) = values.split_at(metric_count);
        *out = Values { metrics: metrics.as_ptr(), metric_count, losses: losses.as_ptr(), loss_count, rows };
        Ok(())
    })
}

/// Frees an evaluation.
///
/// # Safety
/// `evaluation` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_evaluation_free(evaluation: *mut Evaluation) {
    // SAFETY: the caller's promise.
    unsafe { free(evaluation) }
}
