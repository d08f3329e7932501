use super::User;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A user, the user's history, and candidates to rank for the user.
///
/// Column names are those of the model's configuration; `action` (bits), `watchtime` (seconds) and `timestamp` (epoch
/// seconds) are reserved. Columns that the model does not read are ignored.
///
/// ```
/// use rewire::rank::{Batch, Column, Request, Schema};
/// let schema = Schema {
///     contextual: vec![Column::ids("country", 5)],
///     history: vec![Column::ids("item", 10)],
///     candidates: vec![Column::ids("item", 10)],
/// };
/// let request = Request::new("u1").contextual("country", 2).history("item", [3, 4]).candidates("item", [7, 9, 1]);
/// let mut batch = Batch::new(schema);
/// batch.push(&request)?;
/// assert_eq!((batch.len(), batch.events(0), batch.candidates(0)), (1, 2, 3));
/// # Ok::<(), rewire::rank::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The user.
    pub user: User,
    /// Features of the user.
    #[serde(flatten)]
    pub contextual: BTreeMap<String, i64>,
    /// Past events by feature, oldest first: lists of equal length; any list may be empty.
    pub history: BTreeMap<String, Vec<i64>>,
    /// Candidates by feature: lists of equal length. `timestamp` is the time of the request and must be the same for
    /// all candidates, because models measure times relative to it. Use a separate request for each time.
    pub candidates: BTreeMap<String, Vec<i64>>,
    /// The action bits of each candidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<i64>>,
}

impl Request {
    /// A request without events and candidates.
    pub fn new(user: impl Into<User>) -> Self {
        Self {
            user: user.into(),
            contextual: BTreeMap::new(),
            history: BTreeMap::new(),
            candidates: BTreeMap::new(),
            labels: None,
        }
    }

    /// Sets a user feature.
    #[must_use]
    pub fn contextual(mut self, name: &str, value: i64) -> Self {
        self.contextual.insert(name.to_owned(), value);
        self
    }

    /// Sets a feature of past events, one entry per event, oldest first.
    #[must_use]
    pub fn history(mut self, name: &str, values: impl Into<Vec<i64>>) -> Self {
        self.history.insert(name.to_owned(), values.into());
        self
    }

    /// Sets a feature of candidates, one entry per candidate.
    #[must_use]
    pub fn candidates(mut self, name: &str, values: impl Into<Vec<i64>>) -> Self {
        self.candidates.insert(name.to_owned(), values.into());
        self
    }

    /// Sets the action bits of each candidate.
    #[must_use]
    pub fn labels(mut self, values: impl Into<Vec<i64>>) -> Self {
        self.labels = Some(values.into());
        self
    }
}

/// A line of JSON Lines that [`Batch::push_json`](super::Batch::push_json) parses.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
