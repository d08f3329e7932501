use crate::EncodeError;
use std::borrow::Cow;
use std::ops::Range;

/// A column of a table. Its buffers are borrowed (from Arrow, numpy, or the app), or owned if values were converted
/// ([`Column::of_cells`]).
#[derive(Clone, Debug)]
pub struct Column<'a> {
    /// The values.
    pub data: Data<'a>,
    /// The rows that have a value.
    pub validity: Validity<'a>,
}

/// The values of a column. Offsets have one entry more than there are rows.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// 32-bit integers.
    I32(Cow<'a, [i32]>),
    /// 64-bit integers.
    I64(Cow<'a, [i64]>),
    /// 32-bit floats.
    F32(Cow<'a, [f32]>),
    /// 64-bit floats.
    F64(Cow<'a, [f64]>),
    /// UTF-8 strings.
    Text {
        /// The start of each row's string in `bytes`, and the end of the last one.
        offsets: Offsets<'a>,
        /// The strings of all rows.
        bytes: Cow<'a, [u8]>,
    },
    /// Lists.
    List {
        /// The start of each row's list in `items`, and the end of the last one.
        offsets: Offsets<'a>,
        /// The items of all rows.
        items: Box<Column<'a>>,
    },
    /// Maps from ids to weights.
    Map {
        /// The start of each row's map in `keys` and `values`, and the end of the last one.
        offsets: Offsets<'a>,
        /// The ids.
        keys: Box<Column<'a>>,
        /// The weights.
        values: Box<Column<'a>>,
    },
}

/// Offsets of either width.
#[derive(Clone, Debug)]
pub enum Offsets<'a> {
    /// 32-bit offsets.
    I32(Cow<'a, [i32]>),
    /// 64-bit offsets.
    I64(Cow<'a, [i64]>),
}

/// The rows that have a value.
#[derive(Clone, Debug)]
pub enum Validity<'a> {
    /// All rows.
    All,
    /// Rows whose bit is set, least significant bit first.
    Bits {
        /// The bits.
        bits: Cow<'a, [u8]>,
        /// Index of the first row's bit.
        start: usize,
    },
    /// Rows whose entry is true.
    Bools(Cow<'a, [bool]>),
}

/// The value of a row.
#[derive(Clone, Debug)]
pub enum Cell<'c> {
    /// A missing value.
    Null,
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A string.
    Text(&'c str),
    /// A list: a range of rows of its item column.
    List(&'c Column<'c>, Range<usize>),
    /// A map: a range of rows of its id column and its weight column.
    Map(&'c Column<'c>, &'c Column<'c>, Range<usize>),
}

impl Offsets<'_> {
    fn rows(&self) -> usize {
        match self {
            Self::I32(offsets) => offsets.len(),
            Self::I64(offsets) => offsets.len(),
        }
        .saturating_sub(1)
    }

    fn range(&self, row: usize) -> Option<Range<usize>> {
        let at = |index: usize| match self {
            Self::I32(offsets) => offsets.get(index).and_then(|&offset| usize::try_from(offset).ok()),
            Self::I64(offsets) => offsets.get(index).and_then(|&offset| usize::try_from(offset).ok()),
        };
        let (start, end) = (at(row)?, at(row + 1)?);
        (start <= end).then_some(start..end)
    }
}

impl Validity<'_> {
    /// True if the row is valid. Rows past the end of the mask count as valid.
    fn holds(&self, row: usize) -> bool {
        match self {
            Self::All => true,
            Self::Bits { bits, start } => {
                let bit = start + row;
                bits.get(bit / 8).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
            }
            Self::Bools(bools) => bools.get(row).copied().unwrap_or(true),
        }
    }
}

impl<'a> Column<'a> {
    /// A column without missing values.
    pub fn new(data: Data<'a>) -> Self {
        Self { data, validity: Validity::All }
    }

    /// True for a list column whose items are scalars. Items of other list columns are lists or strings.
    pub(crate) fn is_of_ids(&self) -> bool {
        matches!(&self.data, Data::List { items, .. } if !matches!(items.data, Data::List { .. } | Data::Text { .. }))
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        match &self.data {
            Data::I32(values) => values.len(),
            Data::I64(values) => values.len(),
            Data::F32(values) => values.len(),
            Data::F64(values) => values.len(),
            Data::Text { offsets, .. } | Data::List { offsets, .. } | Data::Map { offsets, .. } => offsets.rows(),
        }
    }

    /// The value of a row; `None` if offsets decrease or exceed the values, or a string is not UTF-8.
    pub fn cell(&self, row: usize) -> Option<Cell<'_>> {
        if !self.validity.holds(row) {
            return Some(Cell::Null);
        }
        Some(match &self.data {
            Data::I32(values) => Cell::Int(i64::from(*values.get(row)?)),
            Data::I64(values) => Cell::Int(*values.get(row)?),
            Data::F32(values) => Cell::Float(f64::from(*values.get(row)?)),
            Data::F64(values) => Cell::Float(*values.get(row)?),
            Data::Text { offsets, bytes } => Cell::Text(std::str::from_utf8(bytes.get(offsets.range(row)?)?).ok()?),
            Data::List { offsets, items } => Cell::List(items, within(offsets.range(row)?, items)?),
            Data::Map { offsets, keys, values } => {
                Cell::Map(keys, values, within(within(offsets.range(row)?, keys)?, values)?)
            }
        })
    }
}

fn within(range: Range<usize>, items: &Column<'_>) -> Option<Range<usize>> {
    (range.end <= items.rows()).then_some(range)
}

/// The number of rows of a table, which must be equal in all columns; 0 without columns.
///
/// # Errors
/// [`EncodeError::Rows`].
pub fn rows_of(columns: &[(&str, Column<'_>)]) -> Result<usize, EncodeError> {
    let Some((first, column)) = columns.first() else { return Ok(0) };
    let rows = column.rows();
    match columns.iter().find(|(_, other)| other.rows() != rows) {
        None => Ok(rows),
        Some((second, other)) => Err(EncodeError::Rows {
            first: (*first).to_owned(),
            second: (*second).to_owned(),
            rows: (rows, other.rows()),
        }),
    }
}
