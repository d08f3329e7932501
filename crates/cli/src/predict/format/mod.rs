//! Files of tables.

mod csv;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;

use super::PredictError;
use super::frame::{Data, Frame};
use crate::requests::Kind;
use std::io;
use std::path::Path;

/// Encodes rows as bytes. A file consists of the head, the results of `take` in order, and the foot.
pub trait Encoder {
    fn head(&self) -> io::Result<Vec<u8>>;

    /// Adds rows. `kinds` are the value types so far of columns of any type.
    fn add(&mut self, frame: Frame, kinds: Option<&[Option<Kind>]>) -> io::Result<()>;

    /// The bytes of the rows since the last call, to be written at `position` of the file.
    fn take(&mut self, position: u64) -> io::Result<Vec<u8>>;

    fn foot(&self) -> io::Result<Vec<u8>>;
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    /// Its type, as values without rows.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code))]
    pub data: Data,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    JsonLines,
    Csv,
    Parquet,
}

impl Format {
    /// The format for a file extension.
    pub fn of(path: &Path) -> Result<Self, PredictError> {
        let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
        match ending.to_str() {
            Some("jsonl" | "ndjson") => Ok(Self::JsonLines),
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            _ => Err(PredictError::Format { file: path.display().to_string() }),
        }
    }

    /// True if every value of a column has one type.
    pub fn has_types(self) -> bool {
        self == Self::Parquet
    }

    /// The encoder of a file. It continues after the rows of `foot`, if given, and uses `separator` in lists of CSV.
    pub fn encoder(
        self,
        fields: Vec<Field>,
        #[cfg_attr(not(feature = "parquet"), expect(unused_variables))] foot: Option<&[u8]>,
        separator: u8,
        file: &str,
    ) -> Result<Box<dyn Encoder>, PredictError> {
        match self {
            Self::JsonLines => Ok(Box::new(jsonl::Lines::new(&fields))),
            Self::Csv => Ok(Box::new(csv::Records::new(&fields, separator))),
            #[cfg(feature = "parquet")]
            Self::Parquet => {
                let groups = parquet::Groups::new(fields, foot);
                let damaged =
                    |reason: io::Error| PredictError::Damaged { file: file.to_owned(), reason: reason.to_string() };
                Ok(Box::new(groups.map_err(damaged)?))
            }
            #[cfg(not(feature = "parquet"))]
            Self::Parquet => Err(PredictError::NoParquet { file: file.to_owned() }),
        }
    }
}
