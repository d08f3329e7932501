use super::{Encoder, Field};
use crate::predict::frame::{Data, Frame};
use crate::requests::Kind;
use serde::Serialize;
use std::io;

/// One object per row.
pub struct Lines {
    /// The text before the value of each column.
    keys: Vec<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Lines {
    pub fn new(fields: &[Field]) -> Self {
        let key = |(at, field): (usize, &Field)| {
            let begin = if at == 0 { '{' } else { ',' };
            format!("{begin}{}:", serde_json::Value::from(field.name.as_str())).into_bytes()
        };
        Self { keys: fields.iter().enumerate().map(key).collect(), bytes: Vec::new() }
    }
}

impl Encoder for Lines {
    fn head(&self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn add(&mut self, frame: Frame, _: Option<&[Option<Kind>]>) -> io::Result<()> {
        for row in 0..frame.rows {
            for (key, column) in self.keys.iter().zip(&frame.columns) {
                self.bytes.extend_from_slice(key);
                match column {
                    Data::Values(values) => put(&mut self.bytes, values.get(row))?,
                    Data::Integers(values) => put(&mut self.bytes, values.get(row))?,
                    Data::Doubles(values) => put(&mut self.bytes, values.get(row))?,
                    Data::Floats(values) => put(&mut self.bytes, values.get(row))?,
                    Data::Vectors { .. } => put(&mut self.bytes, Some(column.vector(row)))?,
                }
            }
            self.bytes.extend_from_slice(b"}\n");
        }
        Ok(())
    }

    fn take(&mut self, _: u64) -> io::Result<Vec<u8>> {
        Ok(std::mem::take(&mut self.bytes))
    }

    fn foot(&self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

fn put(bytes: &mut Vec<u8>, value: Option<impl Serialize>) -> io::Result<()> {
    Ok(serde_json::to_writer(bytes, &value)?)
}
