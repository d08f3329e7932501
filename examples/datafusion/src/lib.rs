//! A model as a scalar function over list columns of [DataFusion](https://datafusion.apache.org).

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use rewire::rank::{Columns, ColumnsError, Integers, Ranker, Schema, User};
use std::sync::Arc;

/// The function `score`, with the arguments of [`call`]. It returns one list of scores per row, in the order of the candidates.
pub fn score(ranker: Ranker) -> ScalarUDF {
    let schema = ranker.schema().clone();
    let list = |item: DataType| DataType::List(Arc::new(Field::new("item", item, true)));
    let lists = schema.history.len() + schema.candidates.len();
    let arguments = std::iter::repeat_n(DataType::Int64, schema.contextual.len())
        .chain(std::iter::repeat_n(list(DataType::Int64), lists))
        .collect();
    let function = move |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        Ok(ColumnarValue::Array(scores(&ranker, &schema, &arrays)?))
    };
    create_udf("score", arguments, list(DataType::Float64), Volatility::Immutable, Arc::new(function))
}

/// A call of it in SQL: user features by name, followed by those of histories and candidates, fields of structs `history` and `candidates`.
pub fn call(schema: &Schema) -> String {
    let of = |group: &'static str, columns: &[rewire::rank::Column]| -> Vec<String> {
        columns.iter().map(|column| format!("get_field({group}, '{}')", column.name)).collect()
    };
    let users = schema.contextual.iter().map(|column| format!("\"{}\"", column.name)).collect();
    let all = [users, of("history", &schema.history), of("candidates", &schema.candidates)];
    format!("score({})", all.concat().join(", "))
}

fn scores(ranker: &Ranker, schema: &Schema, arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let rows = arrays.first().map_or(0, |array| array.len());
    let (mut arrays, mut lengths) = (arrays.iter(), vec![]);
    let mut columns = Columns::new((0..rows as i64).map(User::Number));
    for (column, array) in schema.contextual.iter().zip(&mut arrays) {
        columns = columns.contextual(&column.name, integers(&column.name, array)?);
    }
    for (column, array) in schema.history.iter().zip(&mut arrays) {
        let list = list(&column.name, array)?;
        columns = columns.history(&column.name, list.value_offsets(), integers(&column.name, list.values())?);
    }
    for (column, array) in schema.candidates.iter().zip(&mut arrays) {
        let list = list(&column.name, array)?;
        lengths = list.offsets().lengths().collect();
        columns = columns.candidates(&column.name, list.value_offsets(), integers(&column.name, list.values())?);
    }
    let mut batch = ranker.batch();
    batch.extend(&columns).map_err(|error: ColumnsError| external(error))?;
    let mut scores = Vec::with_capacity(lengths.iter().sum());
    for (ranked, length) in ranker.rank_batch(&batch).map_err(external)?.into_iter().zip(&lengths) {
        let mut row = vec![f64::NAN; *length];
        for candidate in ranked.candidates {
            row.get_mut(candidate.position).into_iter().for_each(|score| *score = candidate.score);
        }
        scores.extend(row);
    }
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let values = Arc::new(Float64Array::from(scores));
    Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, None)?))
}

fn list<'a>(name: &str, array: &'a ArrayRef) -> Result<&'a ListArray> {
    let list = array.as_list_opt::<i32>().filter(|list| list.null_count() == 0);
    list.ok_or_else(|| {
        DataFusionError::Execution(format!("`{name}`: expected lists without nulls, got {}", array.data_type()))
    })
}

fn integers<'a>(name: &str, array: &'a ArrayRef) -> Result<Integers<'a>> {
    let integers = array.as_primitive_opt::<Int64Type>().filter(|integers| integers.null_count() == 0);
    let values = integers.map(|integers| Integers::from(&integers.values()[..]));
    values.ok_or_else(|| {
        DataFusionError::Execution(format!("`{name}`: expected integers without nulls, got {}", array.data_type()))
    })
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
