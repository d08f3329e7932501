use super::{Carry, Cell, ColumnFault, InputError, LARGEST, Progress, Requests, missing_column};
use rewire::rank::{Batch, JsonError};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead, Read};

/// Requests from JSON Lines. Blank lines are skipped.
pub struct Lines<R> {
    file: String,
    reader: R,
    line: u64,
    buffer: Vec<u8>,
    done: u64,
    length: Option<u64>,
    carry: Carry,
    /// By column, the cells of the added requests.
    cells: Vec<Vec<Cell>>,
    /// By column, true if a request had it.
    known: Vec<bool>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(file: String, reader: R, length: Option<u64>, carry: Carry) -> Self {
        let cells = vec![Vec::new(); carry.names.len()];
        let known = vec![false; carry.names.len()];
        Self { file, reader, line: 0, buffer: Vec::new(), done: 0, length, carry, cells, known }
    }

    /// Reads a line into the buffer; false at the end.
    fn read_line(&mut self) -> Result<bool, InputError> {
        self.buffer.clear();
        let read = (&mut self.reader).take(LARGEST).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| InputError::Read { file: self.file.clone(), source })?;
        self.line += u64::from(read > 0);
        if read as u64 == LARGEST {
            let (file, line) = (self.file.clone(), self.line);
            return Err(InputError::LongLine { file, line, limit: LARGEST });
        }
        self.done += read as u64;
        if self.line == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
        }
        Ok(read > 0)
    }

    /// Adds the request of the line, if its copied columns are valid.
    fn add(&mut self, batch: &mut Batch) -> Result<(), InputError> {
        let (file, line) = (&self.file, self.line);
        let unread = |source| InputError::Line { file: file.clone(), line, source: Box::new(source) };
        if self.carry.names.is_empty() && self.carry.kinds.is_none() {
            return batch.push_json(&self.buffer).map_err(unread);
        }
        let mut one = batch.emptied();
        one.push_json(&self.buffer).map_err(unread)?;
        let cells = cells_of(&self.buffer, &self.carry.names).map_err(unread)?;
        self.known.iter_mut().zip(&cells).for_each(|(known, cell)| *known |= cell.is_some());
        if let Some((_, name)) = self.known.iter().zip(&self.carry.names).find(|(known, _)| !**known) {
            let names = names_of(&self.buffer);
            let reason = missing_column(name, names.iter().map(String::as_str));
            return Err(InputError::Table { file: file.clone(), reason: format!("{reason} up to line {line}") });
        }
        let fault = |column: &str, fault| InputError::Column {
            file: file.clone(),
            row: line,
            column: column.to_owned(),
            fault,
        };
        one.users().iter().try_for_each(|user| self.carry.check_user(user)).map_err(|error| fault("user", error))?;
        let mut taken = Vec::with_capacity(cells.len());
        for (column, cell) in cells.into_iter().enumerate() {
            let cell = cell.ok_or(ColumnFault::Missing);
            let cell = cell.and_then(|cell| self.carry.take(column, cell, one.candidates(0)));
            let name = self.carry.names.get(column).map_or("", String::as_str);
            taken.push(cell.map_err(|error| fault(name, error))?);
        }
        batch.append(&one, 0);
        self.cells.iter_mut().zip(taken).for_each(|(cells, cell)| cells.push(cell));
        Ok(())
    }
}

impl<R: BufRead + Send> Requests for Lines<R> {
    fn read(&mut self, batch: &mut Batch, entries: usize) -> Result<bool, InputError> {
        let end = batch.len() + batch.entries() + entries;
        while batch.len() + batch.entries() < end {
            if !self.read_line()? {
                return Ok(false);
            }
            if !self.buffer.trim_ascii().is_empty() {
                self.add(batch)?;
            }
        }
        Ok(true)
    }

    fn take_carried(&mut self) -> Vec<Vec<Cell>> {
        self.cells.iter_mut().map(std::mem::take).collect()
    }

    fn carry(&self) -> &Carry {
        &self.carry
    }

    fn row(&self) -> u64 {
        self.line
    }

    fn skip(&mut self, rows: u64) -> Result<(), InputError> {
        for _ in 0..rows {
            self.read_line()?;
        }
        // The run that read these lines has already found every column.
        self.known.fill(rows > 0);
        Ok(())
    }

    fn text(&self) -> Option<Cow<'_, str>> {
        Some(String::from_utf8_lossy(self.buffer.trim_ascii()))
    }

    fn progress(&self) -> Option<Progress> {
        self.length.map(|length| Progress { done: self.done, all: length })
    }
}

/// The names of the columns of a line.
fn names_of(line: &[u8]) -> Vec<String> {
    let Ok(Value::Object(object)) = serde_json::from_slice(line) else { return vec![] };
    let names = object.iter().flat_map(|(name, value)| match value {
        Value::Object(group) => group.keys().map(|key| format!("{name}.{key}")).collect(),
        _ => vec![name.clone()],
    });
    names.collect()
}

/// The cells of a line by name; `None` if the key is missing.
fn cells_of(line: &[u8], names: &[String]) -> Result<Vec<Option<Cell>>, JsonError> {
    let mut found = vec![None; names.len()];
    let mut json = serde_json::Deserializer::from_slice(line);
    Cells { group: None, names, found: &mut found }.deserialize(&mut json).map_err(|error| {
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned();
        JsonError::Text { reason, column: error.column() }
    })?;
    Ok(found)
}

/// Finds cells in an object or in a nested object.
struct Cells<'a> {
    group: Option<&'a str>,
    names: &'a [String],
    found: &'a mut [Option<Cell>],
}

impl<'de> DeserializeSeed<'de> for Cells<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Cells<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { group, names, found } = self;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let name = group.map_or_else(|| key.clone(), |group| format!("{group}.{key}").into());
            let place = names.iter().position(|known| *known == name).and_then(|at| found.get_mut(at));
            if let Some(place) = place {
                let cell = map.next_value().map_err(|error| A::Error::custom(format!("`{name}`: {error}")))?;
                *place = Some(cell);
            } else if group.is_none() && ["history", "candidates"].contains(&key.as_ref()) {
                map.next_value_seed(Cells { group: Some(&key), names, found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::rank::{Column, Schema};

    fn read(text: &[u8]) -> (usize, Result<bool, String>) {
        let schema = Schema { candidates: vec![Column::ids("item", 10)], ..Schema::default() };
        let (mut lines, mut batch) = (Lines::new("file".into(), text, None, Carry::default()), Batch::new(schema));
        let end = lines.read(&mut batch, 1000).map_err(|error| rewire::describe(&error));
        (batch.len(), end)
    }

    const LINE: &str = r#"{"user":"u","history":{},"candidates":{"item":[1]}}"#;

    #[test]
    fn lines_are_counted() {
        assert_eq!(read(format!("\u{feff}{LINE}\r\n\n  \n{LINE}").as_bytes()), (2, Ok(false)));
        let (users, error) = read(format!("{LINE}\n\n  \n{}", LINE.replace('1', "10")).as_bytes());
        let expected = "file:4: user `u`: `candidates.item[0]` is 10, but the table `item` has 10 rows";
        assert_eq!((users, error), (1, Err(expected.to_owned())));
    }

    #[test]
    fn faults_name_the_line() {
        let (users, error) = read(format!("{LINE}\nnot json\n").as_bytes());
        let error = error.unwrap_err();
        assert!(users == 1 && error.starts_with("file:2: expected ident"), "{error}");
    }

    #[test]
    fn an_empty_text_has_no_requests() {
        assert_eq!(read(b""), (0, Ok(false)));
        assert_eq!(read(b"\n\n"), (0, Ok(false)));
    }

    #[test]
    fn a_batch_is_filled_no_further_than_it_is_asked_for() {
        let schema = Schema { candidates: vec![Column::ids("item", 10)], ..Schema::default() };
        let text = format!("{LINE}\n").repeat(5);
        let mut lines = Lines::new("file".into(), text.as_bytes(), None, Carry::default());
        let sizes = [(); 3].map(|()| {
            let mut batch = Batch::new(schema.clone());
            let more = lines.read(&mut batch, 3).unwrap();
            (batch.len(), more)
        });
        assert_eq!(sizes, [(2, true), (2, true), (1, false)]);
    }
}
