use super::batch::Group;
use super::{Batch, RequestError, User};
use std::ops::Range;
use thiserror::Error;

/// Integers owned by the caller.
#[derive(Clone, Copy, Debug)]
pub enum Integers<'a> {
    /// Signed 32-bit integers.
    I32(&'a [i32]),
    /// Signed 64-bit integers.
    I64(&'a [i64]),
    /// Unsigned 32-bit integers.
    U32(&'a [u32]),
}

/// Requests as columns of values and offsets, in the layout of Arrow and Parquet, one row per user.
///
/// The list of a row holds the values from its offset to the next one, so there is one offset more than rows. Columns that the model does
/// not read are ignored.
///
/// ```
/// use rewire::rank::{Batch, Column, Columns, Schema};
/// let schema = Schema {
///     contextual: vec![Column::ids("country", 5)],
///     history: vec![Column::ids("item", 10)],
///     candidates: vec![Column::ids("item", 10)],
/// };
/// let columns = Columns::new(["u1", "u2"])
///     .contextual("country", &[2, 4])
///     .history("item", &[0, 2, 2], &[3, 4])
///     .candidates("item", &[0, 1, 3], &[7, 9, 1]);
/// let mut batch = Batch::new(schema);
/// batch.extend(&columns)?;
/// assert_eq!((batch.len(), batch.events(1), batch.candidates(1)), (2, 0, 2));
/// # Ok::<(), rewire::rank::ColumnsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Columns<'a> {
    users: Vec<User>,
    columns: Vec<Column<'a>>,
    labels: Option<Column<'a>>,
}

#[derive(Clone, Debug)]
struct Column<'a> {
    group: Group,
    name: &'a str,
    /// `None` if every row has one value.
    offsets: Option<Integers<'a>>,
    values: Integers<'a>,
}

/// Why columns do not form valid requests.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColumnsError {
    /// A column has a wrong number of entries.
    #[error("`{column}` has {actual} {what}: expected {expected} for {rows} users")]
    Count {
        /// The column.
        column: String,
        /// Values or offsets.
        what: &'static str,
        /// The actual number.
        actual: usize,
        /// The expected number.
        expected: usize,
        /// Number of users.
        rows: usize,
    },
    /// Offsets decrease, or exceed the values.
    #[error(
        "`{column}` has the offsets {start} and {end} in row {row}: expected ascending ones within {values} values"
    )]
    Offsets {
        /// The column.
        column: String,
        /// The row, from 0.
        row: usize,
        /// Start of its list.
        start: i64,
        /// End of its list.
        end: i64,
        /// Number of values.
        values: usize,
    },
    /// A row does not fit the model.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl<'a> Columns<'a> {
    /// One row per user, without columns.
    pub fn new<U: Into<User>>(users: impl IntoIterator<Item = U>) -> Self {
        Self { users: users.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets a user feature, one value per row.
    #[must_use]
    pub fn contextual(self, name: &'a str, values: impl Into<Integers<'a>>) -> Self {
        self.with(Column { group: Group::Contextual, name, offsets: None, values: values.into() })
    }

    /// Sets a feature of past events, one list per row, oldest first.
    #[must_use]
    pub fn history(self, name: &'a str, offsets: impl Into<Integers<'a>>, values: impl Into<Integers<'a>>) -> Self {
        self.with(Column { group: Group::History, name, offsets: Some(offsets.into()), values: values.into() })
    }

    /// Sets a feature of candidates, one list per row.
    #[must_use]
    pub fn candidates(self, name: &'a str, offsets: impl Into<Integers<'a>>, values: impl Into<Integers<'a>>) -> Self {
        self.with(Column { group: Group::Candidates, name, offsets: Some(offsets.into()), values: values.into() })
    }

    /// Sets the action bits of the candidates. A row with an empty list has no labels.
    #[must_use]
    pub fn labels(mut self, offsets: impl Into<Integers<'a>>, values: impl Into<Integers<'a>>) -> Self {
        let (group, offsets) = (Group::Contextual, Some(offsets.into()));
        self.labels = Some(Column { group, name: "labels", offsets, values: values.into() });
        self
    }

    fn with(mut self, column: Column<'a>) -> Self {
        self.columns.retain(|known| (known.group, known.name) != (column.group, column.name));
        self.columns.push(column);
        self
    }
}

impl Batch {
    /// Adds requests, one per row.
    ///
    /// # Errors
    /// The first fault. A column with a wrong number of rows, or a missing column that the model reads, adds nothing. An invalid row stops
    /// at that row; the rows before it are added.
    pub fn extend(&mut self, columns: &Columns<'_>) -> Result<(), ColumnsError> {
        let Columns { users, columns, labels } = columns;
        columns.iter().chain(labels).try_for_each(|column| column.check_counts(users.len()))?;
        if let Some(user) = users.first() {
            let names: Vec<String> = columns.iter().map(Column::title).collect();
            let missing = |fault| RequestError { row: self.len(), user: user.clone(), fault };
            let names = names.iter().map(String::as_str).chain(["user"]);
            self.schema().check_names(names).map_err(missing)?;
        }
        let position = |column: &Column<'_>| self.schema().position(column.group, column.name);
        let read: Vec<_> = columns.iter().filter_map(|column| Some((position(column)?, column))).collect();
        for (number, user) in users.iter().enumerate() {
            let mut row = self.open();
            for (position, column) in &read {
                let range = column.range(number)?;
                if let Some(list) = row.begin(column.group, *position) {
                    column.values.append(range, list);
                }
            }
            if let Some(labels) = labels {
                let range = labels.range(number)?;
                let list = if range.is_empty() { None } else { row.begin_labels() };
                list.into_iter().for_each(|list| labels.values.append(range.clone(), list));
            }
            row.finish(user.clone())?;
        }
        Ok(())
    }
}

impl Column<'_> {
    fn title(&self) -> String {
        self.group.title(self.name)
    }

    fn check_counts(&self, rows: usize) -> Result<(), ColumnsError> {
        let (what, actual, expected) = match self.offsets {
            Some(offsets) => ("offsets", offsets.len(), rows + 1),
            None => ("values", self.values.len(), rows),
        };
        match actual == expected {
            true => Ok(()),
            false => Err(ColumnsError::Count { column: self.title(), what, actual, expected, rows }),
        }
    }

    /// The value range of a row.
    fn range(&self, row: usize) -> Result<Range<usize>, ColumnsError> {
        let Some(offsets) = self.offsets else { return Ok(row..row + 1) };
        let [start, end] = [row, row + 1].map(|at| offsets.get(at).unwrap_or(-1));
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(start), Ok(end)) if start <= end && end <= self.values.len() => Ok(start..end),
            _ => Err(ColumnsError::Offsets { column: self.title(), row, start, end, values: self.values.len() }),
        }
    }
}

impl Integers<'_> {
    fn len(self) -> usize {
        match self {
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U32(values) => values.len(),
        }
    }

    fn get(self, at: usize) -> Option<i64> {
        match self {
            Self::I32(values) => values.get(at).map(|&value| value.into()),
            Self::I64(values) => values.get(at).copied(),
            Self::U32(values) => values.get(at).map(|&value| value.into()),
        }
    }

    fn append(self, range: Range<usize>, list: &mut Vec<i64>) {
        // Slices are copied at once.
        match self {
            Self::I32(values) => {
                list.extend(values.get(range).unwrap_or_default().iter().map(|&value| i64::from(value)))
            }
            Self::I64(values) => list.extend_from_slice(values.get(range).unwrap_or_default()),
            Self::U32(values) => {
                list.extend(values.get(range).unwrap_or_default().iter().map(|&value| i64::from(value)))
            }
        }
    }
}

macro_rules! from_slices {
    ($($ty:ty => $kind:ident),*) => {$(
        impl<'a> From<&'a [$ty]> for Integers<'a> {
            fn from(values: &'a [$ty]) -> Self {
                Self::$kind(values)
            }
        }

        impl<'a> From<&'a Vec<$ty>> for Integers<'a> {
            fn from(values: &'a Vec<$ty>) -> Self {
                Self::$kind(values)
            }
        }

        impl<'a, const N: usize> From<&'a [$ty; N]> for Integers<'a> {
            fn from(values: &'a [$ty; N]) -> Self {
                Self::$kind(values)
            }
        }
    )*};
}

from_slices!(i32 => I32, i64 => I64, u32 => U32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::{batch, request, schema};

    const OFFSETS: &[i32] = &[0, 3, 3, 5];

    /// The columns of three requests: three events and two candidates, none and none, two and one.
    fn columns<'a>() -> Columns<'a> {
        Columns::new(["u"; 3])
            .contextual("age", &[1_u32, 1, 1])
            .history("item", OFFSETS, &[0_i64, 1, 2, 0, 1])
            .history("action", &[0_i64, 3, 3, 5], &[1; 5])
            .history("timestamp", OFFSETS, &[100, 101, 102, 100, 101])
            .candidates("item", &[0_u32, 2, 2, 3], &[0, 1, 0])
    }

    fn fault(columns: &Columns<'_>) -> (usize, String) {
        let mut batch = Batch::new(schema());
        let error = batch.extend(columns).unwrap_err();
        (batch.len(), error.to_string())
    }

    #[test]
    fn columns_and_requests_are_the_same_batch() {
        let requests = [request(3, 2), request(0, 0), request(2, 1)];
        let mut all = Batch::new(schema());
        all.extend(&columns().history("price", OFFSETS, &[0; 5])).unwrap();
        assert_eq!(all, batch(&requests));
        let labels = columns().labels(&[0, 2, 2, 2], &[7_i64, 8]);
        all.extend(&labels).unwrap();
        assert_eq!((all.len(), all.labels(3), all.labels(5)), (6, Some(&[7, 8][..]), None));
        all.extend(&Columns::new([] as [&str; 0])).unwrap();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn rows_before_a_fault_are_taken() {
        let bad = columns().candidates("item", &[0, 2, 2, 3], &[0, 1, 99]);
        let text = "user `u`: `candidates.item[0]` is 99, but the table `item` has 10 rows".to_owned();
        assert_eq!(fault(&bad), (2, text));
        let ragged = columns().history("action", &[0, 3, 4, 5], &[1; 5]);
        let text = "user `u`: `history.action` has length 1, but `history.item` has length 0".to_owned();
        assert_eq!(fault(&ragged), (1, text));
    }

    #[test]
    fn offsets_that_lead_nowhere_are_named() {
        let text =
            "`history.item` has the offsets 3 and 2 in row 1: expected ascending ones within 5 values".to_owned();
        assert_eq!(fault(&columns().history("item", &[0, 3, 2, 5], &[0; 5])), (1, text));
        for offsets in [[-1_i64, 3, 3, 5], [0, 6, 6, 6], [0, i64::MAX, 3, 5]] {
            assert_eq!(fault(&columns().history("item", &offsets, &[0; 5])).0, 0, "{offsets:?}");
        }
        let text = "`history.item` has 3 offsets: expected 4 for 3 users".to_owned();
        assert_eq!(fault(&columns().history("item", &[0, 3, 5], &[0; 5])), (0, text));
        let text = "`age` has 2 values: expected 3 for 3 users".to_owned();
        assert_eq!(fault(&columns().contextual("age", &[1, 1])), (0, text));
    }

    #[test]
    fn columns_that_are_missing_are_named() {
        let mut without = columns().history("items", OFFSETS, &[0; 5]);
        without.columns.retain(|column| column.title() != "history.item");
        let (added, text) = fault(&without);
        assert!(text.starts_with("user `u`: `history.item` (is it `history.items`?) is missing; "), "{text}");
        assert_eq!(added, 0);
    }
}
