//! Tables as streams of Arrow's IPC format.

mod requests;

pub use requests::{ranked, read as read_requests, vectors};

use super::error::{Fault, ServeError};
use super::rows::TableRows;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, Float32Array, ListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field};
use rewire::predict::{Lists, OwnedCell, Predicted, PredictedColumn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl From<ArrowError> for ServeError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow { reason: error.to_string() }
    }
}

/// Reads the parts of a table with up to `limit` rows. The library panics on some damaged streams; these are errors, too. The decoder
/// allocates no more than there are bytes.
fn parts(body: &[u8], limit: usize) -> Result<Vec<RecordBatch>, ServeError> {
    let read = || {
        let (mut decoder, mut rest) = (StreamDecoder::new(), Buffer::from(body));
        let (mut parts, mut rows) = (vec![], 0usize);
        while !rest.is_empty() {
            let Some(part) = decoder.decode(&mut rest)? else { continue };
            rows = rows.saturating_add(part.num_rows());
            if rows > limit {
                return Err(ServeError::RowsLimit { limit });
            }
            parts.push(part);
        }
        decoder.finish()?;
        Ok(parts)
    };
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ServeError::Arrow { reason: "it is damaged".to_owned() }))
}

/// Reads the columns of a model. Others are ignored, missing ones are null.
pub fn read(body: &[u8], names: &[String], limit: usize) -> Result<TableRows, Fault> {
    let (mut count, mut columns) = (0, vec![vec![]; names.len()]);
    for part in parts(body, limit)? {
        count += part.num_rows();
        for (name, column) in names.iter().zip(&mut columns) {
            match part.column_by_name(name) {
                Some(array) => column.extend(cells(name, array)?),
                None => column.extend((0..part.num_rows()).map(|_| OwnedCell::Null)),
            }
        }
    }
    TableRows::new(count, names, columns)
}

/// The cells of an array.
fn cells(name: &str, array: &dyn Array) -> Result<Vec<OwnedCell>, ServeError> {
    Ok(match array.data_type() {
        DataType::Null => vec![OwnedCell::Null; array.len()],
        DataType::Boolean => each(array.as_boolean().iter(), |value| OwnedCell::Int(i64::from(value))),
        DataType::Int8 => integers::<Int8Type>(array),
        DataType::Int16 => integers::<Int16Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::UInt8 => integers::<UInt8Type>(array),
        DataType::UInt16 => integers::<UInt16Type>(array),
        DataType::UInt32 => integers::<UInt32Type>(array),
        DataType::Float32 => each(array.as_primitive::<Float32Type>().iter(), |one| OwnedCell::Float(f64::from(one))),
        DataType::Float64 => each(array.as_primitive::<Float64Type>().iter(), OwnedCell::Float),
        DataType::Utf8 => each(array.as_string::<i32>().iter(), |text| OwnedCell::Text(text.to_owned())),
        DataType::LargeUtf8 => each(array.as_string::<i64>().iter(), |text| OwnedCell::Text(text.to_owned())),
        DataType::Utf8View => each(array.as_string_view().iter(), |text| OwnedCell::Text(text.to_owned())),
        DataType::List(_) => lists(name, array.as_list::<i32>().iter())?,
        DataType::LargeList(_) => lists(name, array.as_list::<i64>().iter())?,
        DataType::Map(..) => maps(name, array)?,
        other => {
            let reason = format!("`{name}` is {other}: expected integers, floats, strings, lists or maps of these");
            return Err(ServeError::Arrow { reason });
        }
    })
}

fn each<T>(values: impl Iterator<Item = Option<T>>, cell: impl Fn(T) -> OwnedCell) -> Vec<OwnedCell> {
    values.map(|value| value.map_or(OwnedCell::Null, &cell)).collect()
}

fn integers<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> Vec<OwnedCell> {
    let array: &PrimitiveArray<T> = array.as_primitive();
    each(array.iter(), |value| OwnedCell::Int(value.into()))
}

/// The cells of lists or maps. Without a type, their number is not limited by the number of bytes.
fn items(name: &str, array: &dyn Array) -> Result<Vec<OwnedCell>, ServeError> {
    match array.data_type() {
        DataType::Null => Err(ServeError::Arrow { reason: format!("`{name}` has lists of nulls without a type") }),
        _ => cells(name, array),
    }
}

fn lists(name: &str, lists: impl Iterator<Item = Option<ArrayRef>>) -> Result<Vec<OwnedCell>, ServeError> {
    let list = |list: Option<ArrayRef>| match list {
        Some(own) => items(name, &own).map(OwnedCell::List),
        None => Ok(OwnedCell::Null),
    };
    lists.map(list).collect()
}

fn maps(name: &str, array: &dyn Array) -> Result<Vec<OwnedCell>, ServeError> {
    let map = |entries: Option<arrow_array::StructArray>| match entries {
        Some(entries) => {
            let (keys, values) = (items(name, entries.column(0))?, items(name, entries.column(1))?);
            Ok(OwnedCell::Map(keys.into_iter().zip(values).collect()))
        }
        None => Ok(OwnedCell::Null),
    };
    array.as_map().iter().map(map).collect()
}

/// Predictions as a table, a row per prediction, with the row of the request in the last column, `row`.
pub fn write(outputs: &[PredictedColumn], predicted: Predicted) -> Result<Vec<u8>, ServeError> {
    let Predicted { counts, columns } = predicted;
    let mut arrays: Vec<(String, ArrayRef)> = vec![];
    for (output, Lists { ends, values }) in outputs.iter().zip(columns) {
        let values = Float32Array::from(values);
        let array: ArrayRef = match output.is_list {
            false => Arc::new(values),
            true => {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let lengths = ends.iter().zip(starts).map(|(end, start)| end - start);
                let item = Arc::new(Field::new_list_field(DataType::Float32, false));
                Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(values), None)?)
            }
        };
        arrays.push((output.name.clone(), array));
    }
    let rows = counts.iter().enumerate().flat_map(|(row, count)| std::iter::repeat_n(row as i64, *count));
    arrays.push(("row".to_owned(), Arc::new(rows.collect::<PrimitiveArray<Int64Type>>())));
    stream(arrays)
}

/// A table as a stream.
fn stream(columns: Vec<(String, ArrayRef)>) -> Result<Vec<u8>, ServeError> {
    let batch = RecordBatch::try_from_iter(columns)?;
    let mut bytes = vec![];
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema())?;
    writer.write(&batch)?;
    writer.finish()?;
    Ok(bytes)
}
