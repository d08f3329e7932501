use super::{Column, RequestError, RequestFault, Schema};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Lists of equal length by feature.
pub type Columns = BTreeMap<String, Vec<i64>>;

/// Who a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    /// A name.
    Name(String),
    /// A number.
    Number(i64),
}

/// Where a request was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not from a file.
    #[default]
    Memory,
    /// A line of a text file, from 1.
    Line(u64),
    /// A row of a table, from 1.
    Row(u64),
}

/// A user, what the user did, and candidates to rank for them.
///
/// Column names are those of the model's configuration; `action` (bits), `watchtime` (seconds) and `timestamp`
/// (epoch seconds) are reserved.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The user.
    pub user: User,
    /// Where it came from, for messages.
    pub place: Place,
    /// Features of the user.
    pub contextual: BTreeMap<String, i64>,
    /// Past events, oldest first; every list may be empty.
    pub history: Columns,
    /// Candidates; `timestamp` is the time of the request.
    pub candidates: Columns,
    /// What became of each candidate, as action bits.
    pub labels: Option<Vec<i64>>,
}

impl From<&str> for User {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => serializer.serialize_str(name),
            Self::Number(number) => serializer.serialize_i64(*number),
        }
    }
}

impl Request {
    /// Number of past events, by the first list.
    pub fn events(&self) -> usize {
        self.history.values().next().map_or(0, Vec::len)
    }

    /// Number of candidates, by the first list.
    pub fn len(&self) -> usize {
        self.candidates.values().next().map_or(0, Vec::len)
    }

    /// True if there are no candidates.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that the request holds what a model reads: every column, lists of equal length, ids in range.
    ///
    /// # Errors
    /// The first fault, with the user and the place it came from.
    pub fn check(&self, schema: &Schema) -> Result<(), RequestError> {
        self.first_fault(schema).map_or(Ok(()), |fault| Err(self.error(fault)))
    }

    pub(super) fn error(&self, fault: RequestFault) -> RequestError {
        RequestError { user: self.user.clone(), place: self.place, fault }
    }

    fn first_fault(&self, schema: &Schema) -> Option<RequestFault> {
        let contextual = || schema.contextual.iter().find_map(|column| self.contextual_fault(column));
        let labels = self.labels.as_ref().filter(|labels| labels.len() != self.len());
        contextual()
            .or_else(|| columns_fault("history", &schema.history, &self.history))
            .or_else(|| columns_fault("candidates", &schema.candidates, &self.candidates))
            .or_else(|| {
                labels.map(|labels| RequestFault::Lengths {
                    column: "labels".into(),
                    actual: labels.len(),
                    other: "candidates".into(),
                    expected: self.len(),
                })
            })
    }

    fn contextual_fault(&self, column: &Column) -> Option<RequestFault> {
        match self.contextual.get(&column.name) {
            Some(&value) => id_fault(&column.name, column, None, value),
            None => column.required.then(|| RequestFault::Missing { column: column.name.clone() }),
        }
    }
}

fn columns_fault(group: &str, columns: &[Column], values: &Columns) -> Option<RequestFault> {
    let mut first = None;
    for column in columns {
        let name = format!("{group}.{}", column.name);
        let Some(list) = values.get(&column.name) else {
            if column.required {
                return Some(RequestFault::Missing { column: name });
            }
            continue;
        };
        let fault = list.iter().enumerate().find_map(|(at, &value)| id_fault(&name, column, Some(at), value));
        if fault.is_some() {
            return fault;
        }
        first.get_or_insert((name, list.len()));
    }
    let (other, expected) = first?;
    let ragged = values.iter().find(|(_, list)| list.len() != expected);
    ragged.map(|(name, list)| RequestFault::Lengths {
        column: format!("{group}.{name}"),
        actual: list.len(),
        other,
        expected,
    })
}

fn id_fault(name: &str, column: &Column, position: Option<usize>, value: i64) -> Option<RequestFault> {
    let table = column.table.as_ref()?;
    let valid = usize::try_from(value).is_ok_and(|id| id < table.rows);
    (!valid).then(|| RequestFault::OutOfRange {
        column: name.to_owned(),
        position,
        value,
        table: table.name.clone(),
        rows: table.rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::{request, schema};

    fn fault(change: impl FnOnce(&mut Request)) -> String {
        let mut request = request(3, 2);
        change(&mut request);
        request.check(&schema()).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_request_is_good() {
        assert_eq!(request(3, 2).check(&schema()), Ok(()));
        assert_eq!(request(0, 0).check(&schema()), Ok(()));
    }

    #[test]
    fn an_id_out_of_range_is_named() {
        let text = fault(|r| r.candidates.get_mut("item").unwrap()[1] = 10);
        assert_eq!(text, "user `u` (line 7): `candidates.item[1]` is 10, but the table `item` has 10 rows");
        let text = fault(|r| r.contextual.insert("age".into(), -1).map_or((), drop));
        assert_eq!(text, "user `u` (line 7): `age` is -1, but the table `age` has 4 rows");
    }

    #[test]
    fn ragged_lists_are_named() {
        let text = fault(|r| r.history.get_mut("action").unwrap().truncate(1));
        assert_eq!(text, "user `u` (line 7): `history.action` has length 1, but `history.item` has length 3");
        let text = fault(|r| r.labels = Some(vec![1]));
        assert_eq!(text, "user `u` (line 7): `labels` has length 1, but `candidates` has length 2");
    }

    #[test]
    fn missing_columns_are_named() {
        assert!(fault(|r| drop(r.history.remove("action"))).ends_with("`history.action` is missing"));
        assert!(fault(|r| r.contextual.clear()).ends_with("`age` is missing"));
    }
}
