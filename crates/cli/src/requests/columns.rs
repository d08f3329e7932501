//! Columns of a table that the model reads.

use rewire::rank::{Batch, Column as SchemaColumn, Columns, ColumnsError, Schema, User};
use std::ops::Range;

/// The role of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Labels,
    Contextual(String),
    History(String),
    Candidates(String),
}

impl Role {
    /// The role of a column by its path, and the number of path segments that name it.
    pub fn of(path: &[String], schema: &Schema) -> Option<(Self, usize)> {
        let [top, inner @ ..] = path else { return None };
        let known = |columns: &[SchemaColumn], name: &str| columns.iter().any(|column| column.name == name);
        match top.as_str() {
            "user" => return Some((Self::User, 1)),
            "labels" => return Some((Self::Labels, 1)),
            name if known(&schema.contextual, name) => return Some((Self::Contextual(name.to_owned()), 1)),
            _ => {}
        }
        let in_group = |group: &str, columns: &[SchemaColumn], role: fn(String) -> Self| {
            let (name, depth) = match top.strip_prefix(group)? {
                "" => (inner.first()?.as_str(), 2),
                rest => (rest.strip_prefix('.')?, 1),
            };
            known(columns, name).then(|| (role(name.to_owned()), depth))
        };
        in_group("history", &schema.history, Self::History)
            .or_else(|| in_group("candidates", &schema.candidates, Self::Candidates))
    }

    /// The name of the column.
    pub fn title(&self) -> String {
        match self {
            Self::User => "user".into(),
            Self::Labels => "labels".into(),
            Self::Contextual(name) => name.clone(),
            Self::History(name) => format!("history.{name}"),
            Self::Candidates(name) => format!("candidates.{name}"),
        }
    }

    /// True for columns with a list in every row.
    #[cfg(feature = "parquet")]
    pub fn is_list(&self) -> bool {
        !matches!(self, Self::User | Self::Contextual(_))
    }
}

/// Rows of a column, concatenated.
#[derive(Clone, Debug)]
pub struct Column {
    pub role: Role,
    /// Users of the rows, if the column contains them.
    pub users: Vec<User>,
    pub values: Vec<i64>,
    /// The start of each row's values, and the end of the last one.
    pub offsets: Vec<i64>,
}

impl Column {
    pub fn new(role: Role) -> Self {
        Self { role, users: vec![], values: vec![], offsets: vec![0] }
    }

    /// Keeps only the first rows.
    pub fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.values.truncate(self.offsets.last().map_or(0, |&end| end as usize));
        self.users.truncate(rows);
    }
}

/// Adds rows of columns to a batch.
pub fn extend<'a>(
    batch: &mut Batch,
    columns: impl Iterator<Item = &'a Column> + Clone,
    rows: Range<usize>,
) -> Result<(), ColumnsError> {
    let users = columns.clone().filter_map(|column| column.users.get(rows.clone())).flatten().cloned();
    let ends = rows.start..rows.end + 1;
    let columns = columns.fold(Columns::new(users), |all, column| {
        let offsets = column.offsets.get(ends.clone()).unwrap_or_default();
        let single = column.values.get(rows.clone()).unwrap_or_default();
        match &column.role {
            Role::User => all,
            Role::Labels => all.labels(offsets, column.values.as_slice()),
            Role::Contextual(name) => all.contextual(name, single),
            Role::History(name) => all.history(name, offsets, column.values.as_slice()),
            Role::Candidates(name) => all.candidates(name, offsets, column.values.as_slice()),
        }
    });
    batch.extend(&columns)
}
