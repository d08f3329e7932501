//! Requests and their results as tables.

use super::{parts, stream};
use crate::serve::error::{Fault, ServeError};
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field};
use rewire::rank::{Batch, Columns, ColumnsError, Integers, Ranked, User, Vectors};
use std::sync::Arc;

/// Adds up to `limit` requests to a batch: a row each, with the columns `user`, user features by name, and lists `history.NAME` and
/// `candidates.NAME`, or lists `NAME` in structs `history` and `candidates`. Columns that the model does not read are ignored.
pub fn read(body: &[u8], mut batch: Batch, limit: usize) -> Result<Batch, Fault> {
    for part in parts(body, limit)? {
        let fields = fields(&part);
        let users = fields.iter().find(|field| field.group.is_empty() && field.name == "user");
        let first = batch.len() as i64;
        let users =
            users.map_or_else(|| Ok((first..).take(part.num_rows()).map(User::Number).collect()), Column::users)?;
        let is_read = |field: &&Column| match field.group.as_str() {
            "history" => batch.schema().history.iter().any(|column| column.name == field.name),
            "candidates" => batch.schema().candidates.iter().any(|column| column.name == field.name),
            _ => batch.schema().contextual.iter().any(|column| column.name == field.name),
        };
        let columns = fields.iter().filter(is_read).try_fold(Columns::new(users), |all, field| field.add_to(all))?;
        batch.extend(&columns).map_err(|error| match error {
            ColumnsError::Request(error) => Fault::from(error),
            other => ServeError::Arrow { reason: other.to_string() }.into(),
        })?;
    }
    Ok(batch)
}

/// A column of requests.
struct Column {
    /// `history`, `candidates`, or empty.
    group: String,
    name: String,
    array: ArrayRef,
}

/// The columns of a table, and those of the structs of groups.
fn fields(part: &RecordBatch) -> Vec<Column> {
    let mut all = vec![];
    for (field, array) in part.schema().fields().iter().zip(part.columns()) {
        let (group, name) = match field.name().split_once('.') {
            Some((group @ ("history" | "candidates"), name)) => (group, name),
            _ => ("", field.name().as_str()),
        };
        match array.as_struct_opt().filter(|_| ["history", "candidates"].contains(&name)) {
            Some(group) => all.extend(group.fields().iter().zip(group.columns()).map(|(field, array)| Column {
                group: name.to_owned(),
                name: field.name().clone(),
                array: array.clone(),
            })),
            None => all.push(Column { group: group.to_owned(), name: name.to_owned(), array: array.clone() }),
        }
    }
    all
}

impl Column {
    fn wrong(&self, array: &dyn Array, expected: &str) -> ServeError {
        let nulls = if array.null_count() > 0 { " with nulls" } else { "" };
        let point = if self.group.is_empty() { "" } else { "." };
        let reason = format!(
            "`{}{point}{}` is {}{nulls}: expected {expected} without nulls",
            self.group,
            self.name,
            array.data_type()
        );
        ServeError::Arrow { reason }
    }

    fn users(&self) -> Result<Vec<User>, ServeError> {
        let array = &*self.array;
        let users = match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().iter().flatten().map(User::from).collect(),
            DataType::LargeUtf8 => array.as_string::<i64>().iter().flatten().map(User::from).collect(),
            DataType::Utf8View => array.as_string_view().iter().flatten().map(User::from).collect(),
            DataType::Int64 => array.as_primitive::<Int64Type>().iter().flatten().map(User::Number).collect(),
            _ => return Err(self.wrong(array, "strings or 64-bit integers")),
        };
        match array.null_count() {
            0 => Ok(users),
            _ => Err(self.wrong(array, "strings or 64-bit integers")),
        }
    }

    fn add_to<'a>(&'a self, columns: Columns<'a>) -> Result<Columns<'a>, ServeError> {
        let name = self.name.as_str();
        if self.group.is_empty() {
            return Ok(columns.contextual(name, self.integers(&self.array)?));
        }
        let short = self.array.as_list_opt::<i32>().map(|lists| (Integers::I32(lists.value_offsets()), lists.values()));
        let long =
            || self.array.as_list_opt::<i64>().map(|lists| (Integers::I64(lists.value_offsets()), lists.values()));
        let Some((offsets, items)) = short.or_else(long).filter(|_| self.array.null_count() == 0) else {
            return Err(self.wrong(&self.array, "lists of integers"));
        };
        let items = self.integers(items)?;
        Ok(match self.group.as_str() {
            "history" => columns.history(name, offsets, items),
            _ => columns.candidates(name, offsets, items),
        })
    }

    fn integers<'a>(&self, array: &'a dyn Array) -> Result<Integers<'a>, ServeError> {
        let short = array.as_primitive_opt::<Int32Type>().map(|values| Integers::I32(values.values()));
        let long = || array.as_primitive_opt::<Int64Type>().map(|values| Integers::I64(values.values()));
        let unsigned = || array.as_primitive_opt::<UInt32Type>().map(|values| Integers::U32(values.values()));
        let values = short.or_else(long).or_else(unsigned).filter(|_| array.null_count() == 0);
        values.ok_or_else(|| self.wrong(array, "integers of 32 or 64 bits"))
    }
}

/// The candidates of all requests, a row each, best first per request: `request`, `user`, `item`, `score` and `logit_TASK`.
pub fn ranked(ranked: &[Ranked], tasks: &[String]) -> Result<Vec<u8>, ServeError> {
    let rows =
        || ranked.iter().enumerate().flat_map(|(request, one)| one.candidates.iter().map(move |row| (request, row)));
    let mut users = StringBuilder::new();
    ranked.iter().for_each(|one| one.candidates.iter().for_each(|_| users.append_value(one.user.to_string())));
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("request".to_owned(), Arc::new(rows().map(|(request, _)| request as i64).collect::<Int64Array>())),
        ("user".to_owned(), Arc::new(users.finish())),
        ("item".to_owned(), Arc::new(rows().map(|(_, row)| row.item).collect::<Int64Array>())),
        ("score".to_owned(), Arc::new(rows().map(|(_, row)| row.score).collect::<Float64Array>())),
    ];
    for (place, task) in tasks.iter().enumerate() {
        let logits: Float32Array = rows().map(|(_, row)| row.logits.get(place).copied()).collect();
        columns.push((format!("logit_{task}"), Arc::new(logits)));
    }
    stream(columns)
}

/// Vectors, a row each: `request`, `item`, null for vectors of users, and `vector`.
pub fn vectors(Vectors { width, values, of, .. }: Vectors) -> Result<Vec<u8>, ServeError> {
    let width = i32::try_from(width).map_err(|error| ServeError::Arrow { reason: error.to_string() })?;
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    let vectors = FixedSizeListArray::try_new(item, width, Arc::new(Float32Array::from(values)), None)?;
    stream(vec![
        ("request".to_owned(), Arc::new(of.iter().map(|(request, _)| *request as i64).collect::<Int64Array>())),
        ("item".to_owned(), Arc::new(of.iter().map(|(_, item)| *item).collect::<Int64Array>())),
        ("vector".to_owned(), Arc::new(vectors)),
    ])
}
