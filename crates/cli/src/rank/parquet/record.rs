//! Rows of one column.

use super::columns::{Leaf, Role};
use super::pages::{Content, Pages};
use super::{MOST_VALUES, guarded};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::metadata::RowGroupMetaData;
use rewire::rank::{User, whole};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a column row by row.
pub struct Cells {
    pub leaf: Leaf,
    reader: ColumnReader,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    taken: Arc<AtomicU64>,
}

/// What a column has in a row.
pub enum Cell {
    Null,
    User(User),
    Integer(i64),
    List(Vec<i64>),
}

/// Values as they are stored, as far as they are there.
enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Texts(Vec<ByteArray>),
}

impl Cells {
    pub fn new(leaf: Leaf, content: &Content, group: &RowGroupMetaData) -> Result<Self, String> {
        let taken = Arc::new(AtomicU64::new(0));
        let reader = guarded(|| {
            let pages = Pages::of_column(content, group, leaf.position, taken.clone())?;
            Ok(get_column_reader(group.column(leaf.position).column_descr_ptr(), Box::new(pages)))
        })?;
        Ok(Self { leaf, reader, definitions: vec![], repetitions: vec![], taken })
    }

    /// The next row, and the number of values that were read for it; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(Cell, u64)>, String> {
        self.taken.store(0, Ordering::Relaxed);
        let unsigned = self.leaf.unsigned;
        let (definitions, repetitions) = (&mut self.definitions, &mut self.repetitions);
        let mut wide = |value: i32| if unsigned { i64::from(value as u32) } else { value.into() };
        let found = match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => row(reader, definitions, repetitions)?
                .map(|values| Values::Integers(values.into_iter().map(&mut wide).collect())),
            ColumnReader::Int64ColumnReader(reader) => row(reader, definitions, repetitions)?.map(Values::Integers),
            ColumnReader::FloatColumnReader(reader) => row(reader, definitions, repetitions)?
                .map(|values| Values::Floats(values.into_iter().map(f64::from).collect())),
            ColumnReader::DoubleColumnReader(reader) => row(reader, definitions, repetitions)?.map(Values::Floats),
            ColumnReader::ByteArrayColumnReader(reader) => row(reader, definitions, repetitions)?.map(Values::Texts),
            _ => return Err(format!("`{}` is of a type that cannot be read", self.leaf.name)),
        };
        let Some(values) = found else { return Ok(None) };
        let size = match &values {
            Values::Texts(texts) => texts.iter().map(|text| text.len() as u64 / 8 + 1).sum(),
            Values::Integers(_) | Values::Floats(_) => self.definitions.len() as u64,
        };
        self.cell(values).map(|cell| Some((cell, size)))
    }

    fn cell(&self, values: Values) -> Result<Cell, String> {
        let Leaf { name, role, entry, value, .. } = &self.leaf;
        let first = self.definitions.first().copied().unwrap_or(*value);
        let null = |expected: &str| Err(format!("`{name}` is null: expected {expected}"));
        if *role == Role::User {
            return if first < *value { null("a string or an integer") } else { self.user(values).map(Cell::User) };
        }
        let integers = self.integers(values)?;
        let Some(entry) = *entry else {
            return match integers.first() {
                Some(&integer) => Ok(Cell::Integer(integer)),
                None => null("an integer"),
            };
        };
        match self.definitions.as_slice() {
            [level] if *level < entry - 1 => {
                if *role == Role::Labels {
                    Ok(Cell::Null)
                } else {
                    null("a list of integers")
                }
            }
            [level] if *level < entry => Ok(Cell::List(vec![])),
            levels if levels.iter().all(|level| level == value) => Ok(Cell::List(integers)),
            _ => null("an integer"),
        }
    }

    fn user(&self, values: Values) -> Result<User, String> {
        match values {
            Values::Texts(texts) => {
                let bytes = texts.into_iter().next().map(|text| text.data().to_vec()).unwrap_or_default();
                String::from_utf8(bytes).map(User::Name).map_err(|_| "`user` is not UTF-8".to_owned())
            }
            values => {
                let integer = self.integers(values)?.first().copied();
                integer.map(User::Number).ok_or_else(|| "`user` is null: expected a string or an integer".to_owned())
            }
        }
    }

    fn integers(&self, values: Values) -> Result<Vec<i64>, String> {
        let name = &self.leaf.name;
        let wrong = |shown: String| format!("`{name}` is {shown}: expected an integer");
        match values {
            Values::Integers(values) => match values.iter().find(|value| self.leaf.unsigned && **value < 0) {
                Some(&value) => Err(wrong((value as u64).to_string())),
                None => Ok(values),
            },
            Values::Floats(values) => {
                values.into_iter().map(|value| whole(value).ok_or_else(|| wrong(value.to_string()))).collect()
            }
            Values::Texts(_) => Err(wrong("text".to_owned())),
        }
    }
}

/// The values of the next row of a column with their levels.
fn row<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    definitions: &mut Vec<i16>,
    repetitions: &mut Vec<i16>,
) -> Result<Option<Vec<T::T>>, String> {
    definitions.clear();
    repetitions.clear();
    let mut values = Vec::new();
    let (rows, ..) = guarded(|| reader.read_records(1, Some(definitions), Some(repetitions), &mut values))?;
    if values.len() as u64 > MOST_VALUES {
        return Err(format!("a list has more than {MOST_VALUES} entries"));
    }
    Ok((rows > 0).then_some(values))
}
