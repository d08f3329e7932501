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
