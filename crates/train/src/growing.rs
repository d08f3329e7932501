use rewire_tables::Options;
use std::fmt;
use std::sync::Arc;

/// Tables that share a map from raw ids to rows. Each has one row more than the map: the last row is for ids without a row.
#[derive(Clone, Debug)]
pub struct GrowingTables {
    /// The name of the map.
    pub name: String,
    /// How ids are admitted and evicted.
    pub options: Options,
    /// The parameter names of the tables.
    pub tables: Vec<String>,
    /// The names of the inputs with ids.
    pub inputs: Vec<String>,
    /// True if the last rows are trained.
    pub trains_default: bool,
    /// The initial values of rows for new ids.
    pub initial: InitialRows,
}

/// A function that returns the initial values of a table's row.
#[derive(Clone)]
pub struct InitialRows(Arc<InitialRow>);

type InitialRow = dyn Fn(&str, u32) -> Vec<f32> + Send + Sync;

impl InitialRows {
    /// Initial values from a function of the table's name and the row number.
    pub fn new(row: impl Fn(&str, u32) -> Vec<f32> + Send + Sync + 'static) -> Self {
        Self(Arc::new(row))
    }

    pub(crate) fn rows(&self, table: &str, rows: &[u32]) -> Vec<f32> {
        let mut all = vec![];
        rows.iter().for_each(|row| all.extend_from_slice(&(self.0)(table, *row)));
        all
    }
}

impl fmt::Debug for InitialRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InitialRows")
    }
}
