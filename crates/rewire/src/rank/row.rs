//! The request that is being added to a batch.

use super::batch::{Group, Rows};
use super::sequence::TIME;
use super::{RequestError, RequestFault, Schema, User};

/// Number of unknown names that are remembered for suggestions.
const REMEMBERED: usize = 64;

/// An unfinished request at the end of a batch. Dropping it unfinished removes it.
pub(super) struct OpenRow<'a> {
    schema: &'a Schema,
    rows: &'a mut Rows,
    /// Unknown columns.
    unread: Vec<String>,
}

impl<'a> OpenRow<'a> {
    pub fn new(schema: &'a Schema, rows: &'a mut Rows) -> Self {
        Self { schema, rows, unread: Vec::new() }
    }

    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Starts a column; `None` if it was already started.
    pub fn begin(&mut self, group: Group, position: usize) -> Option<&mut Vec<i64>> {
        self.rows.group_mut(group).begin(position)
    }

    /// Starts the labels; `None` if they were already started.
    pub fn begin_labels(&mut self) -> Option<&mut Vec<i64>> {
        self.rows.labels.begin(0)
    }

    /// Records a column that the model does not read.
    pub fn skip(&mut self, group: Group, name: &str) {
        if self.unread.len() < REMEMBERED {
            self.unread.push(group.title(name));
        }
    }

    /// Fills a column, if the model reads it.
    pub fn fill(&mut self, group: Group, name: &str, values: &[i64]) {
        match self.schema.position(group, name) {
            Some(position) => self.begin(group, position).into_iter().for_each(|list| list.extend(values)),
            None => self.skip(group, name),
        }
    }

    /// Checks the request and adds it to the batch.
    pub fn finish(self, user: User) -> Result<(), RequestError> {
        match self.missing(true).map_or_else(|| self.check(), Err) {
            Ok([history, candidates]) => {
                // Labels belong to candidates; a model that reads no candidates skips them.
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

    /// The fault of missing columns that the model reads.
    pub fn missing(&self, has_user: bool) -> Option<RequestFault> {
        let is_given = |group, at| self.rows.group(group).is_given(at);
        self.schema.missing(has_user, is_given, self.unread.iter().map(String::as_str))
    }

    /// Checks the given values. Returns the numbers of events and candidates.
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
    /// Checks that all candidates have the time of the request, if the model reads it.
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
