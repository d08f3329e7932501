use super::{Nested, Rows, Table};
use crate::requests::{InputError, LARGEST, Progress, Value};
use rewire::rank::JsonError;
use serde_json::Value as Json;
use std::io::{BufRead, Read};

/// One object per line. Blank lines are skipped.
pub struct Lines<R> {
    file: String,
    reader: R,
    names: Vec<String>,
    line: u64,
    buffer: Vec<u8>,
    done: u64,
    length: Option<u64>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(file: String, reader: R, length: Option<u64>, names: &[String]) -> Self {
        Self { file, reader, names: names.to_vec(), line: 0, buffer: Vec::new(), done: 0, length }
    }

    /// Reads the next non-blank line into the buffer; false at the end.
    fn next(&mut self) -> Result<bool, InputError> {
        loop {
            self.buffer.clear();
            let read = (&mut self.reader).take(LARGEST).read_until(b'\n', &mut self.buffer);
            let read = read.map_err(|source| InputError::Read { file: self.file.clone(), source })?;
            self.line += 1;
            self.done += read as u64;
            if read as u64 == LARGEST {
                return Err(InputError::LongLine { file: self.file.clone(), line: self.line, limit: LARGEST });
            }
            if read == 0 || !self.buffer.trim_ascii().is_empty() {
                return Ok(read > 0);
            }
        }
    }

    fn object(&self) -> Result<Vec<Nested>, InputError> {
        let wrong = |reason: String, column| InputError::Line {
            file: self.file.clone(),
            line: self.line,
            source: Box::new(JsonError::Text { reason, column }),
        };
        let parsed = serde_json::from_slice(&self.buffer);
        let Json::Object(object) = parsed.map_err(|error| wrong(error.to_string(), error.column()))? else {
            return Err(wrong("expected an object with the columns of a row".to_owned(), 1));
        };
        let cell = |name: &String| {
            // A column may be requested twice.
            let value = object.get(name).cloned().unwrap_or(Json::Null);
            nested(value).ok_or_else(|| wrong(format!("`{name}` holds an object within a list or an object"), 1))
        };
        self.names.iter().map(cell).collect()
    }
}

impl<R: BufRead + Send> Table for Lines<R> {
    fn read(&mut self, rows: usize) -> Result<Rows, InputError> {
        let mut read = Rows::new(self.names.len());
        while read.count < rows && self.next()? {
            read.push(self.object()?);
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
        self.length.map(|all| Progress { done: self.done, all })
    }
}

/// A value as a cell. Keys of objects become integers if they are written as such.
pub fn nested(value: Json) -> Option<Nested> {
    Some(match value {
        Json::Array(items) => {
            let is_flat = |item: &Json| !item.is_object();
            let items = items.into_iter().map(|item| Some(item).filter(is_flat).and_then(nested));
            Nested::List(items.collect::<Option<_>>()?)
        }
        Json::Object(entries) => {
            let entry = |(key, value): (String, Json)| {
                let key = key.parse().map_or(Value::Text(key), Value::Integer);
                Some((key, scalar(value)?))
            };
            Nested::Map(entries.into_iter().map(entry).collect::<Option<_>>()?)
        }
        value => Nested::One(scalar(value)?),
    })
}

fn scalar(value: Json) -> Option<Value> {
    Some(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Integer(integer),
            (None, float) => Value::Float(float?),
        },
        Json::String(text) => Value::Text(text),
        Json::Array(_) | Json::Object(_) => return None,
    })
}
