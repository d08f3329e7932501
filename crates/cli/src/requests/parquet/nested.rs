//! A column of values, lists or lists of lists.

use super::super::{ColumnFault, Value};
use super::carried::Leaf;
use super::columns::check_carried;
use super::pages::Content;
use crate::tables::Nested;
use parquet::basic::Repetition;
use parquet::file::metadata::RowGroupMetaData;
use parquet::schema::types::SchemaDescriptor;

/// Maximum nesting of lists.
const DEPTH: usize = 2;

/// Reads a column row by row.
pub struct NestedCells {
    leaf: Leaf,
    /// The definition level of an entry of each list, the outermost first.
    entries: Vec<i16>,
    /// The definition level of a present value.
    value: i16,
}

impl NestedCells {
    /// The column at a position.
    pub fn new(schema: &SchemaDescriptor, position: usize) -> Result<Self, String> {
        let column = schema.column(position);
        let name = column.path().parts().first().cloned().unwrap_or_default();
        let unsigned = check_carried(&name, &column)?;
        let (mut node, mut level, mut entries) = (schema.root_schema(), 0, vec![]);
        for part in column.path().parts() {
            let inner = node.get_fields().iter().find(|field| field.name() == part);
            node = inner.ok_or_else(|| format!("the column `{name}` has no field `{part}`"))?;
            match node.get_basic_info().repetition() {
                Repetition::REQUIRED => {}
                Repetition::OPTIONAL => level += 1,
                Repetition::REPEATED => {
                    level += 1;
                    entries.push(level);
                }
            }
        }
        match entries.len() {
            0..=DEPTH => Ok(Self { leaf: Leaf::new(position, unsigned), entries, value: level }),
            depth => Err(format!("the column `{name}` has lists of {depth} levels: expected at most {DEPTH}")),
        }
    }

    /// Continues in a row group.
    pub fn begin(&mut self, content: &Content, group: &RowGroupMetaData) -> Result<(), String> {
        self.leaf.begin(content, group)
    }

    /// Skips rows of the row group.
    pub fn skip(&mut self, rows: usize) -> Result<(), ColumnFault> {
        self.leaf.skip(rows)
    }

    /// Reads the next row, `None` at the end of the row group.
    pub fn next(&mut self) -> Result<Option<Nested>, ColumnFault> {
        if self.entries.is_empty() {
            return Ok(self.leaf.one()?.map(Nested::One));
        }
        let Some(values) = self.leaf.next()? else { return Ok(None) };
        let mut values = values.into_iter();
        let levels = self.leaf.levels();
        let rows: Vec<(i16, i16)> =
            levels.definitions.iter().copied().zip(levels.repetitions.iter().copied()).collect();
        Ok(Some(self.assemble(&rows, 0, &mut values)))
    }

    /// The cell of levels that belong to one entry of a list at `depth`.
    fn assemble(&self, levels: &[(i16, i16)], depth: usize, values: &mut impl Iterator<Item = Value>) -> Nested {
        let null = || Nested::One(Value::Null);
        let Some((definition, _)) = levels.first() else { return null() };
        match self.entries.get(depth) {
            None if *definition == self.value => values.next().map_or_else(null, Nested::One),
            None => null(),
            Some(entry) if *definition < entry - 1 => null(),
            Some(entry) if *definition < *entry => Nested::List(vec![]),
            Some(_) => {
                let inner = |_: &(i16, i16), next: &(i16, i16)| usize::try_from(next.1).is_ok_and(|r| r > depth + 1);
                Nested::List(levels.chunk_by(inner).map(|entry| self.assemble(entry, depth + 1, values)).collect())
            }
        }
    }
}
