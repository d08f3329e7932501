use super::RequestFault;
use super::batch::Group;

/// Rows of an embedding table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of the feature that has it.
    pub name: String,
    /// Number of rows; ids lie below it.
    pub rows: usize,
}

/// A feature of a request: one integer, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name, as in the model's configuration.
    pub name: String,
    /// The embedding table that its values index, if they do.
    pub table: Option<Table>,
    /// True if the model reads it; otherwise it may be left out.
    pub required: bool,
}

/// What a model reads from a [`Request`](super::Request).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl Schema {
    /// Checks the names of columns, such as `history.item_id` for a list and `country` for a feature of the user. Others than
    /// those that the model reads may be among them.
    ///
    /// # Errors
    /// [`RequestFault::Missing`] for the first column that the model reads and that is not there.
    pub fn check_names<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Result<(), RequestFault> {
        for group in [Group::Contextual, Group::History, Group::Candidates] {
            for column in self.group(group).iter().filter(|column| column.required) {
                let column = group.title(&column.name);
                if !names.clone().any(|name| name == column) {
                    let unread = names.filter(|name| !self.reads(name));
                    return Err(RequestFault::Missing { column, similar: None }.with_similar(unread));
                }
            }
        }
        Ok(())
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
