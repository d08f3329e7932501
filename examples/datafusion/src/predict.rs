//! An imported model as a scalar function over columns of any type.

use crate::{external, list};
use datafusion::arrow::array::{Array, ArrayRef, Float32Array, ListArray, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion::arrow::ffi::to_ffi;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use rewire::predict::{Lists, PredictedColumn, Predictor};
use std::sync::Arc;

/// The function `predict` over tables with this schema, whose arguments are those of [`call_predict`]. It returns a struct with a field an output: a
/// number, a list for several classes or a vector, and of rankers of lists a list of either, in the order of the candidates.
///
/// # Errors
/// The table lacks a column that the model reads.
pub fn predict(predictor: Predictor, table: &Schema) -> Result<ScalarUDF> {
    let field = |name: &String| Ok(table.field_with_name(name)?.clone().with_data_type(read_type(table, name)?));
    let fields: Fields = predictor.columns().iter().map(field).collect::<Result<_>>()?;
    let types = predictor.columns().iter().map(|name| Ok(table.field_with_name(name)?.data_type().clone()));
    let (types, returned) = (types.collect::<Result<_>>()?, DataType::Struct(outputs(&predictor)));
    let function = move |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        Ok(ColumnarValue::Array(Arc::new(predictions(&predictor, &fields, &arrays)?)))
    };
    Ok(create_udf("predict", types, returned, Volatility::Immutable, Arc::new(function)))
}

/// A call of it in SQL.
pub fn call_predict(predictor: &Predictor) -> String {
    let names: Vec<String> = predictor.columns().iter().map(|name| format!("\"{name}\"")).collect();
    format!("predict({})", names.join(", "))
}

/// The type that a column is read in: text in one buffer, and others as they are.
fn read_type(table: &Schema, name: &str) -> Result<DataType> {
    Ok(match table.field_with_name(name)?.data_type() {
        DataType::Utf8View => DataType::LargeUtf8,
        other => other.clone(),
    })
}

fn outputs(predictor: &Predictor) -> Fields {
    let field = |output: &PredictedColumn| {
        let value = if output.is_list { list(DataType::Float32) } else { DataType::Float32 };
        let value = if predictor.item().is_some() { list(value) } else { value };
        Field::new(&output.name, value, false)
    };
    predictor.outputs().iter().map(field).collect()
}

fn predictions(predictor: &Predictor, fields: &Fields, arrays: &[ArrayRef]) -> Result<StructArray> {
    let read = arrays.iter().zip(fields).map(|(array, field)| cast(array, field.data_type()));
    let table = StructArray::try_new(fields.clone(), read.collect::<std::result::Result<_, _>>()?, None)?;
    let (array, schema) = to_ffi(&table.to_data())?;
    // SAFETY: both are structures of Arrow's C data interface, which stay as they are until predictions are made.
    let read = unsafe {
        rewire_arrow::table((&raw const schema).cast(), (&raw const array).cast(), predictor.columns()).map_err(external)?
    };
    let predicted = predictor.predict(read.rows, &read.columns).map_err(external)?;
    let column = |(Lists { ends, values }, output): (Lists, &PredictedColumn)| {
        let mut values: ArrayRef = Arc::new(Float32Array::from(values));
        if output.is_list {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            values = listed(ends.iter().zip(starts).map(|(end, start)| end - start), values)?;
        }
        if predictor.item().is_some() { listed(predicted.counts.iter().copied(), values) } else { Ok(values) }
    };
    let columns = predicted.columns.into_iter().zip(predictor.outputs()).map(column).collect::<Result<_>>()?;
    Ok(StructArray::try_new(outputs(predictor), columns, None)?)
}

fn listed(lengths: impl Iterator<Item = usize>, values: ArrayRef) -> Result<ArrayRef> {
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, None)?))
}
