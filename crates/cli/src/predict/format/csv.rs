use super::{Encoder, Field};
use crate::predict::frame::{Data, Frame};
use crate::requests::{Kind, Value};
use csv::Writer;
use serde::Serialize;
use std::io::{self, Write};

/// One record per row, after a header.
pub struct Records {
    names: Vec<String>,
    writer: Writer<Vec<u8>>,
    /// The separator of a vector's elements.
    separator: u8,
    field: Vec<u8>,
}

impl Records {
    pub fn new(fields: &[Field], separator: u8) -> Self {
        let names = fields.iter().map(|field| field.name.clone()).collect();
        Self { names, writer: Writer::from_writer(Vec::new()), separator, field: Vec::new() }
    }
}

impl Encoder for Records {
    fn head(&self) -> io::Result<Vec<u8>> {
        let mut writer = Writer::from_writer(Vec::new());
        writer.write_record(&self.names)?;
        writer.into_inner().map_err(|error| error.into_error())
    }

    fn add(&mut self, frame: Frame, _: Option<&[Option<Kind>]>) -> io::Result<()> {
        for row in 0..frame.rows {
            for column in &frame.columns {
                self.field.clear();
                match column {
                    Data::Values(values) => put_value(&mut self.field, values.get(row))?,
                    Data::Integers(values) => put(&mut self.field, values.get(row))?,
                    Data::Doubles(values) => put(&mut self.field, values.get(row))?,
                    Data::Floats(values) => put(&mut self.field, values.get(row))?,
                    Data::Vectors { .. } => {
                        for (at, element) in column.vector(row).iter().enumerate() {
                            self.field.extend((at > 0).then_some(self.separator));
                            put(&mut self.field, Some(element))?;
                        }
                    }
                }
                self.writer.write_field(&self.field)?;
            }
            self.writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }

    fn take(&mut self, _: u64) -> io::Result<Vec<u8>> {
        let writer = std::mem::replace(&mut self.writer, Writer::from_writer(Vec::new()));
        writer.into_inner().map_err(|error| error.into_error())
    }

    fn foot(&self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

fn put(field: &mut Vec<u8>, value: Option<impl Serialize>) -> io::Result<()> {
    Ok(serde_json::to_writer(field, &value)?)
}

fn put_value(field: &mut Vec<u8>, value: Option<&Value>) -> io::Result<()> {
    match value {
        Some(Value::Text(text)) => field.extend_from_slice(text.as_bytes()),
        Some(value) => write!(field, "{value}")?,
        None => {}
    }
    Ok(())
}
