use super::{Nested, Rows, Table};
use crate::requests::{InputError, Progress, Value};
use csv::{Reader, ReaderBuilder, StringRecord};
use std::io::BufRead;

/// CSV with a header. Every field is a string, an empty one null: its feature interprets it.
pub struct Records<R> {
    file: String,
    reader: Reader<R>,
    length: u64,
    /// The field of each column.
    places: Vec<usize>,
    record: StringRecord,
    row: u64,
}

impl<R: BufRead> Records<R> {
    pub fn new(file: String, text: R, length: u64, names: &[String]) -> Result<Self, InputError> {
        let mut reader = ReaderBuilder::new().from_reader(text);
        let table = |reason: String| InputError::Table { file: file.clone(), reason };
        let header = reader.headers().map_err(|error| table(error.to_string()))?.clone();
        let place = |name: &String| {
            let known = |field: &str| field.trim_start_matches('\u{feff}').trim() == name;
            header.iter().position(known).ok_or_else(|| table(format!("the column `{name}` is missing")))
        };
        let places = names.iter().map(place).collect::<Result<_, _>>()?;
        Ok(Self { file, reader, length, places, record: StringRecord::new(), row: 0 })
    }

    fn next(&mut self) -> Result<bool, InputError> {
        self.row += 1;
        self.reader.read_record(&mut self.record).map_err(|error| InputError::Table {
            file: self.file.clone(),
            reason: format!("row {} cannot be read: {error}", self.row),
        })
    }
}

impl<R: BufRead + Send> Table for Records<R> {
    fn read(&mut self, rows: usize) -> Result<Rows, InputError> {
        let mut read = Rows::new(self.places.len());
        while read.count < rows && self.next()? {
            let field = |place: &usize| match self.record.get(*place).unwrap_or_default() {
                "" => Value::Null,
                text => Value::Text(text.to_owned()),
            };
            read.push(self.places.iter().map(field).map(Nested::One));
        }
        Ok(read)
    }

    fn skip(&mut self, rows: u64) -> Result<u64, InputError> {
        let mut skipped = 0;
        while skipped < rows && self.next()? {
            skipped += 1;
        }
        Ok(skipped)
    }

    fn progress(&self) -> Option<Progress> {
        Some(Progress { done: self.reader.position().byte().min(self.length), all: self.length })
    }
}
