//! The request that a batch takes next.

use super::batch::{Group, Rows};
use super::sequence::TIME;
use super::{RequestError, RequestFault, Schema, User};

/// Names that the model does not read which are remembered, for what may have been meant by them.
const REMEMBERED: usize = 64;

/// A request in the making, at the end of a batch. Dropped before it is finished it leaves no trace.
pub(super) struct OpenRow<'a> {
    schema: &'a Schema,
    rows: &'a mut Rows,
    /// Columns that were given and are not read.
    unread: Vec<String>,
}

impl<'a> OpenRow<'a> {
    pub fn new(schema: &'a Schema, rows: &'a mut Rows) -> Self {
        Self { schema, rows, unread: Vec::new() }
    }

    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Begins a column; `None` if it was begun before.
    pub fn begin(&mut self, group: Group, position: usize) -> Option<&mut Vec<i64>> {
        self.rows.group_mut(group).begin(position)
    }

    /// Begins the labels; `None` if they were begun before.
    pub fn begin_labels(&mut self) -> Option<&mut Vec<i64>> {
        self.rows.labels.begin(0)
    }

    /// Tells of a column that the model does not read.
    pub fn skip(&mut self, group: Group, name: &str) {
        if self.unread.len() < REMEMBERED {
            self.unread.push(group.title(name));
        }
    }

    /// Takes a column, if the model reads it.
    pub fn fill(&mut self, group: Group, name: &str, values: &[i64]) {
        match self.schema.position(group, name) {
            Some(position) => self.begin(group, position).into_iter().for_each(|list| list.extend(values)),
            None => self.skip(group, name),
        }
    }

    /// Checks the request and makes it a part of the batch.
    pub fn finish(self, user: User) -> Result<(), RequestError> {
        match self.missing(true).map_or_else(|| self.check(), Err) {
            Ok([history, candidates]) => {
                // Labels are of candidates: a model that reads none skips them.
                let has_candidates = !self.schema.candidates.is_empty();
                let labels = self.rows.labels.open_list(0).filter(|_| has_candidates).map_or(0, <[i64]>::len);
                self.rows.contextual.close(1);
                self.rows.history.close(history);
                self.rows.candidates.close(candidates);
                self.rows.labels.close(labels);
                self.rows.users.push(user);
                Ok(())
            }
            Err(fault) => Err(RequestError { row: self.rows.users.len(), user, fault }),
        }
    }

    /// The fault of columns that the model reads and the request does not have.
    pub fn missing(&self, has_user: bool) -> Option<RequestFault> {
        let is_given = |group, at| self.rows.group(group).is_given(at);
        self.schema.missing(has_user, is_given, self.unread.iter().map(String::as_str))
    }

    /// Checks the values that are there. Returns the numbers of events and candidates.
    fn check(&self) -> Result<[usize; 2], RequestFault> {
        let (schema, rows) = (self.schema, &self.rows);
        rows.contextual.check(Group::Contextual, &schema.contextual)?;
        let history = rows.history.check(Group::History, &schema.history)?;
        let candidates = rows.candidates.check(Group::Candidates, &schema.candidates)?;
        self.check_time()?;
        let labels = rows.labels.open_list(0).filter(|_| !schema.candidates.is_empty());
        match labels.map(<[i64]>::len).filter(|labels| *labels != candidates) {
            None => Ok([history, candidates]),
            Some(actual) => Err(RequestFault::Lengths {
                column: "labels".into(),
                actual,
                other: "candidates".into(),
                expected: candidates,
            }),
        }
    }
}

impl OpenRow<'_> {
    /// Checks that all candidates have the time of the request, where the model reads it.
    fn check_time(&self) -> Result<(), RequestFault> {
        let columns = &self.schema.candidates;
        let Some(time) = columns.iter().position(|column| column.name == TIME && column.required) else {
            return Ok(());
        };
        let Some(&[expected, ref others @ ..]) = self.rows.candidates.open_list(time) else { return Ok(()) };
        match others.iter().zip(1..).find(|(time, _)| **time != expected) {
            None => Ok(()),
            Some((&actual, position)) => {
                Err(RequestFault::Times { column: Group::Candidates.title(TIME), position, actual, expected })
            }
        }
    }
}

impl Drop for OpenRow<'_> {
    fn drop(&mut self) {
        let Rows { contextual, history, candidates, labels, .. } = &mut *self.rows;
        [contextual, history, candidates, labels].into_iter().for_each(|lists| lists.discard());
    }
}
