use rewire_tables::Options;
use std::fmt;
use std::sync::Arc;

/// Tables that share a map from raw ids to rows. Each has a row more than the map has: the last one, which ids without a row read.
#[derive(Clone, Debug)]
pub struct GrowingTables {
    /// The name of the map.
    pub name: String,
    /// How ids are admitted and evicted.
    pub options: Options,
    /// The parameters.
    pub tables: Vec<String>,
    /// The inputs with their ids.
    pub inputs: Vec<String>,
    /// True if the last rows are trained.
    pub trains_default: bool,
    /// The rows of new ids.
    pub initial: InitialRows,
}

/// The initial values of a table's rows, by the name of the table and the row.
#[derive(Clone)]
pub struct InitialRows(Arc<InitialRow>);

type InitialRow = dyn Fn(&str, u32) -> Vec<f32> + Send + Sync;

impl InitialRows {
    /// Initial values by a function of the name of the table and the row.
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
