mod columns;
mod decompress;
mod pages;
mod record;
#[cfg(test)]
mod tests;

use super::input::{InputError, LARGEST, Requests};
use columns::{Leaf, Role, leaves};
use pages::Content;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use record::{Cell, Cells};
use rewire::rank::{Column, Columns, Place, Request, Schema, User};
use std::cell::Cell as Mutable;
use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;

/// Values of a row at most, of eight bytes each.
const MOST_VALUES: u64 = LARGEST / 8;

/// Requests of a Parquet file with the columns of the JSON Lines form.
///
/// `history` and `candidates` are structs of lists, or each list is a column of its own, `history.item_id`.
pub struct Rows {
    file: String,
    reader: SerializedFileReader<Content>,
    content: Content,
    leaves: Vec<Leaf>,
    /// Row groups that were begun.
    groups: usize,
    /// The columns of the row group that is read.
    cells: Vec<Cells>,
    /// Rows of it that were not read.
    left: u64,
    row: u64,
    total: u64,
}

impl Rows {
    pub fn open(name: String, path: PathBuf, schema: &Schema) -> Result<Self, InputError> {
        let content = File::open(&path).and_then(Content::new);
        let content = content.map_err(|source| InputError::Read { file: name.clone(), source })?;
        let table = |reason: String| InputError::Table { file: name.clone(), reason };
        let reader = guarded(|| SerializedFileReader::new(content.clone())).map_err(table)?;
        let metadata = reader.metadata().file_metadata();
        let leaves = leaves(metadata.schema_descr(), schema).map_err(table)?;
        let total = u64::try_from(metadata.num_rows()).unwrap_or(0);
        Ok(Self { file: name, reader, content, leaves, groups: 0, cells: vec![], left: 0, row: 0, total })
    }

    fn read(&mut self, schema: &Schema) -> Result<Option<Request>, String> {
        while self.left == 0 {
            self.finish_group()?;
            if self.groups == self.reader.num_row_groups() {
                return match self.row <= self.total {
                    true => Err(format!("the table ends early: {} rows are announced", self.total)),
                    false => Ok(None),
                };
            }
            self.begin_group()?;
        }
        self.left -= 1;
        let mut parts = Parts::default();
        let mut taken = 0;
        for cells in &mut self.cells {
            let next = cells.next()?;
            let (cell, values) = next.ok_or_else(|| format!("the column `{}` ends early", cells.leaf.name))?;
            taken += values;
            if taken > MOST_VALUES {
                return Err(format!("the row takes more than {LARGEST} bytes"));
            }
            parts.insert(&cells.leaf.role, cell);
        }
        parts.request(schema, Place::Row(self.row)).map(Some)
    }

    fn begin_group(&mut self) -> Result<(), String> {
        let metadata = self.reader.metadata();
        let group = metadata.row_group(self.groups);
        self.left = u64::try_from(group.num_rows()).map_err(|_| "a row group has fewer than no rows")?;
        let cells = |leaf: &Leaf| Cells::new(leaf.clone(), &self.content, group);
        self.cells = self.leaves.iter().map(cells).collect::<Result<_, String>>()?;
        self.groups += 1;
        Ok(())
    }

    /// Checks that no column of the row group has more rows.
    fn finish_group(&mut self) -> Result<(), String> {
        for mut cells in std::mem::take(&mut self.cells) {
            if cells.next()?.is_some() {
                return Err(format!("the column `{}` has more rows than its row group", cells.leaf.name));
            }
        }
        Ok(())
    }
}

impl Requests for Rows {
    fn next(&mut self, schema: &Schema) -> Option<Result<Request, InputError>> {
        self.row += 1;
        let request = self.read(schema).transpose()?;
        Some(request.map_err(|reason| InputError::Row { file: self.file.clone(), row: self.row, reason }))
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((self.row, self.total))
    }
}

/// A request in the making.
#[derive(Default)]
struct Parts {
    user: Option<User>,
    labels: Option<Vec<i64>>,
    contextual: BTreeMap<String, i64>,
    history: Columns,
    candidates: Columns,
}

impl Parts {
    fn insert(&mut self, role: &Role, cell: Cell) {
        match (role, cell) {
            (Role::User, Cell::User(user)) => self.user = Some(user),
            (Role::Labels, Cell::List(values)) => self.labels = Some(values),
            (Role::Contextual(name), Cell::Integer(value)) => drop(self.contextual.insert(name.clone(), value)),
            (Role::History(name), Cell::List(values)) => drop(self.history.insert(name.clone(), values)),
            (Role::Candidates(name), Cell::List(values)) => drop(self.candidates.insert(name.clone(), values)),
            // Labels may be null.
            _ => {}
        }
    }

    fn request(self, schema: &Schema, place: Place) -> Result<Request, String> {
        let Self { user, labels, contextual, history, candidates } = self;
        let user = user.ok_or("the column `user` is missing")?;
        for (group, columns, lists) in
            [("history", &schema.history, &history), ("candidates", &schema.candidates, &candidates)]
        {
            let is_read = |columns: &[Column]| columns.iter().any(|column| column.required);
            if lists.is_empty() && is_read(columns) {
                return Err(format!("the column `{group}` is missing"));
            }
        }
        Ok(Request { user, place, contextual, history, candidates, labels })
    }
}

thread_local! {
    static GUARDED: Mutable<bool> = const { Mutable::new(false) };
}

/// Runs `read` on content of a file. The parquet crate panics on some damaged files; that becomes an error.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                print(info);
            }
        }));
    });
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(false);
    match result {
        Ok(result) => result.map_err(|error| reason(&error)),
        Err(_) => Err("the file is damaged, or has a column of a type that cannot be read".into()),
    }
}

fn reason(error: &ParquetError) -> String {
    let text = error.to_string();
    let prefixes = ["Parquet error: ", "NYI: "];
    prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(&text).to_owned()
}
