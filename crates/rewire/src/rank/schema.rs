use super::batch::Group;
use super::error::MissingColumn;
use super::{Request, RequestFault};
use rewire_graph::{Ordered, similar_name};
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows of an embedding table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Name of the feature that uses it.
    pub name: String,
    /// Number of rows; ids must be smaller.
    pub rows: usize,
}

/// A feature of a request: one integer, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Name, as in the model's configuration.
    pub name: String,
    /// The embedding table that its values index, if any.
    pub table: Option<Table>,
    /// True if the model reads it; otherwise it is optional.
    pub required: bool,
}

/// The columns that a model reads from a [`Request`](super::Request).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Schema {
    /// Features of the user, one id each, in the order of the model's tokens.
    pub contextual: Vec<Column>,
    /// Features of past events, lists of equal length.
    pub history: Vec<Column>,
    /// Features of candidates, lists of equal length. The first is the item.
    pub candidates: Vec<Column>,
}

impl Column {
    /// A column of ids.
    pub fn ids(name: &str, rows: usize) -> Self {
        Self { name: name.to_owned(), table: Some(Table { name: name.to_owned(), rows }), required: true }
    }

    /// A column of numbers.
    pub fn numbers(name: &str, required: bool) -> Self {
        Self { name: name.to_owned(), table: None, required }
    }

    /// A valid value, distinct for each `number` while the table has rows.
    fn example(&self, number: i64) -> i64 {
        match (&self.table, self.name.as_str()) {
            (Some(table), _) => i64::try_from(table.rows).map_or(number, |rows| number % rows.max(1)),
            (None, "timestamp") => 1_700_000_000 + 60 * number,
            (None, "watchtime") => 30,
            (None, _) => 1,
        }
    }
}

impl Schema {
    /// Checks the names of a table's columns, such as `user`, `country` for a user feature and `history.item_id` for a list.
    /// Additional names are allowed.
    ///
    /// # Errors
    /// [`RequestFault::Missing`] with all missing columns that the model reads, including `user`.
    pub fn check_names<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Result<(), RequestFault> {
        let is_there = |wanted: &str| names.clone().any(|name| name == wanted);
        let is_given = |group: Group, at: usize| {
            self.group(group).get(at).is_some_and(|column| is_there(&group.title(&column.name)))
        };
        let unread = names.clone().filter(|name| !self.reads(name));
        self.missing(is_there("user"), is_given, unread).map_or(Ok(()), Err)
    }

    /// The fault of a request that lacks columns. `unread` are its columns that the model does not read.
    pub(super) fn missing<'a>(
        &self,
        has_user: bool,
        is_given: impl Fn(Group, usize) -> bool,
        unread: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<RequestFault> {
        let user = (!has_user).then(|| "user".to_owned());
        let columns = Group::ALL.into_iter().flat_map(|group| {
            let is_given = &is_given;
            let columns = self.group(group).iter().enumerate();
            columns
                .filter(move |(at, column)| column.required && !is_given(group, *at))
                .map(move |(_, c)| group.title(&c.name))
        });
        let columns: Vec<MissingColumn> = user
            .into_iter()
            .chain(columns)
            .map(|column| MissingColumn { similar: similar_name(&column, unread.clone()).map(str::to_owned), column })
            .collect();
        (!columns.is_empty()).then(|| RequestFault::Missing { columns, example: Box::new(self.example()) })
    }

    /// An example with all columns that the model needs, to be copied: two events and two candidates.
    pub fn example(&self) -> Request {
        let lists = |group: Group, first: i64| -> BTreeMap<String, Vec<i64>> {
            let columns = self.group(group).iter().filter(|column| column.required);
            let values = |column: &Column| {
                // Candidates belong to one request, which has one time.
                let is_time = group == Group::Candidates && column.name == "timestamp";
                vec![column.example(first), column.example(if is_time { first } else { first + 1 })]
            };
            columns.map(|column| (column.name.clone(), values(column))).ordered_map()
        };
        let contextual = self.contextual.iter().filter(|column| column.required);
        Request {
            user: "u1".into(),
            contextual: contextual.map(|column| (column.name.clone(), column.example(1))).ordered_map(),
            history: lists(Group::History, 1),
            candidates: lists(Group::Candidates, 3),
            labels: None,
        }
    }

    pub(super) fn group(&self, group: Group) -> &[Column] {
        match group {
            Group::Contextual => &self.contextual,
            Group::History => &self.history,
            Group::Candidates => &self.candidates,
        }
    }

    /// The position of a column in its group.
    pub(super) fn position(&self, group: Group, name: &str) -> Option<usize> {
        self.group(group).iter().position(|column| column.name == name)
    }

    fn reads(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some(("history", name)) => self.position(Group::History, name).is_some(),
            Some(("candidates", name)) => self.position(Group::Candidates, name).is_some(),
            _ => self.position(Group::Contextual, name).is_some(),
        }
    }
}
