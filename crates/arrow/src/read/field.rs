use super::TableError;
use crate::foreign::{read, slice, text};
use crate::{ArrowArray, ArrowSchema};
use rewire::rank::{Columns, Integers, Schema};
use std::ffi::c_void;
use std::ops::Range;

/// A column, or a table of columns.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// `history`, `candidates`, or empty for user features.
    pub group: &'a str,
    pub name: &'a str,
    format: &'a str,
    schema: &'a ArrowSchema,
    array: &'a ArrowArray,
    /// The first entry of the view, in the buffers.
    first: usize,
    pub length: usize,
}

pub fn count(value: i64) -> Result<usize, TableError> {
    usize::try_from(value).map_err(|_| TableError::new("array", "lengths and offsets from 0 on"))
}

impl<'a> Field<'a> {
    /// # Safety
    /// Both are null or valid structures of Arrow's C data interface, and stay so for `'a`.
    pub unsafe fn new(
        group: &'a str,
        schema: *const ArrowSchema,
        array: *const ArrowArray,
    ) -> Result<Self, TableError> {
        // SAFETY: the caller's promise.
        let (schema, array) = unsafe { (read(schema), read(array)) };
        let schema = schema.map_err(|expected| TableError::new("schema", expected))?;
        let array = array.map_err(|expected| TableError::new("array", expected))?;
        if schema.release.is_none() || array.release.is_none() {
            return Err(TableError::new("array", "one that is not released"));
        }
        // SAFETY: the caller's promise; a name may be null.
        let (format, name) = unsafe { (text(schema.format), text(schema.name).unwrap_or("")) };
        let format = format.map_err(|expected| TableError::new("format", expected))?;
        let (first, length) = (count(array.offset)?, count(array.length)?);
        match first.checked_add(length).and_then(|end| end.checked_add(1)) {
            Some(_) => Ok(Self { group, name, format, schema, array, first, length }),
            None => Err(TableError::new(name, "a length and an offset that memory holds")),
        }
    }

    pub fn unlike(&self, expected: &str) -> TableError {
        TableError::new(&self.title(), format!("{expected}, not the Arrow format `{}`", self.format))
    }

    pub fn format(&self) -> &'a str {
        self.format
    }

    /// The error of an unexpected column.
    pub fn wrong(&self, expected: &str) -> TableError {
        TableError::new(&self.title(), expected)
    }

    fn not(&self) -> impl Fn(&'static str) -> TableError + '_ {
        |expected| self.wrong(expected)
    }

    fn title(&self) -> String {
        let point = if self.group.is_empty() { "" } else { "." };
        format!("{}{point}{}", self.group, self.name)
    }

    pub fn is_read(&self, schema: &Schema) -> bool {
        let columns = match self.group {
            "history" => &schema.history,
            "candidates" => &schema.candidates,
            _ => &schema.contextual,
        };
        columns.iter().any(|column| column.name == self.name)
    }

    /// The same column, restricted to some entries.
    fn part(self, first: usize, length: usize) -> Result<Self, TableError> {
        match first.checked_add(length).is_some_and(|end| end <= self.length) {
            true => Ok(Self { first: self.first + first, length, ..self }),
            false => Err(self.wrong("as many entries as the table")),
        }
    }

    fn child(&self, group: &'a str, at: usize) -> Result<Self, TableError> {
        let (schemas, arrays) = (self.schema.children, self.array.children);
        // SAFETY: a valid structure has as many children as its count.
        unsafe {
            let schemas = slice(schemas.cast_const(), count(self.schema.n_children)?);
            let arrays = slice(arrays.cast_const(), count(self.array.n_children)?);
            let (schemas, arrays) = (schemas.map_err(self.not())?, arrays.map_err(self.not())?);
            match (schemas.get(at), arrays.get(at)) {
                (Some(&schema), Some(&array)) => Self::new(group, schema, array),
                _ => Err(self.unlike("a column with its child")),
            }
        }
    }

    /// A child; errors use the column's own name.
    pub fn inner(&self, at: usize) -> Result<Self, TableError> {
        Ok(self.child(self.group, at)?.renamed(self.name))
    }

    /// The same column by another name.
    pub fn renamed(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// The fields of a struct, restricted to its entries.
    pub fn fields(&self, group: &'a str) -> Result<Vec<Self>, TableError> {
        let part = |at| self.child(group, at)?.part(self.first, self.length);
        (0..count(self.schema.n_children)?).map(part).collect()
    }

    /// The columns of a table, including those in the structs of groups.
    pub fn columns(&self) -> Result<Vec<Self>, TableError> {
        if self.format != "+s" {
            return Err(self.unlike("a struct array"));
        }
        let mut columns = vec![];
        for field in self.fields("")? {
            match (field.name.split_once('.'), field.name) {
                (Some((group @ ("history" | "candidates"), name)), _) => columns.push(Self { group, name, ..field }),
                (None, group @ ("history" | "candidates")) if field.format == "+s" => {
                    field.check_nulls()?;
                    columns.extend(field.fields(group)?);
                }
                _ => columns.push(field),
            }
        }
        Ok(columns)
    }

    /// Number of buffers.
    pub fn buffers(&self) -> Result<usize, TableError> {
        count(self.array.n_buffers)
    }

    fn buffer(&self, at: usize) -> Result<*const c_void, TableError> {
        // SAFETY: a valid structure has as many buffers as its count.
        let buffers = unsafe { slice(self.array.buffers.cast_const(), self.buffers()?) }.map_err(self.not())?;
        buffers.get(at).copied().ok_or_else(|| self.unlike("a column with its buffers"))
    }

    /// Entries of a buffer.
    ///
    /// # Safety
    /// The buffer holds values of this type up to the end of `range`.
    pub unsafe fn values<T>(&self, buffer: usize, range: Range<usize>) -> Result<&'a [T], TableError> {
        let values = self.buffer(buffer)?.cast::<T>();
        if range.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { slice(values, range.end) }.map_err(self.not())?.get(range).unwrap_or(&[]))
    }

    pub fn entries(&self) -> Range<usize> {
        self.first..self.first + self.length
    }

    /// One bit per entry of the buffers, 0 for null; `None` if no entry is null.
    pub fn null_bits(&self) -> Result<Option<&'a [u8]>, TableError> {
        if self.array.null_count == 0 || self.buffer(0)?.is_null() {
            return Ok(None);
        }
        // SAFETY: the buffer holds one bit per entry.
        unsafe { self.values::<u8>(0, 0..self.entries().end.div_ceil(8)) }.map(Some)
    }

    pub fn has_dictionary(&self) -> bool {
        !self.schema.dictionary.is_null()
    }

    pub fn check_nulls(&self) -> Result<(), TableError> {
        let is_null = |bits: &[u8], at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 0);
        let has_nulls = self.null_bits()?.is_some_and(|bits| self.entries().any(|at| is_null(bits, at)));
        if has_nulls { Err(self.wrong("no nulls")) } else { Ok(()) }
    }

    pub fn integers(&self) -> Result<Integers<'a>, TableError> {
        if self.has_dictionary() {
            return Err(self.unlike("no dictionary"));
        }
        self.check_nulls()?;
        // SAFETY: the format defines the type of the buffer.
        unsafe {
            match self.format {
                "i" => Ok(self.values::<i32>(1, self.entries())?.into()),
                "I" => Ok(self.values::<u32>(1, self.entries())?.into()),
                "l" => Ok(self.values::<i64>(1, self.entries())?.into()),
                _ => Err(self.unlike("integers of 32 bits (`i`, `I`) or 64 (`l`)")),
            }
        }
    }

    /// Offsets of entries, one more than entries; empty if there are no entries.
    pub fn offsets(&self, [short, long]: [&str; 2], expected: &str) -> Result<Offsets<'a>, TableError> {
        let range = self.first..self.first + self.length + usize::from(self.length > 0);
        // SAFETY: the format defines the type of the buffer.
        unsafe {
            match self.format {
                format if format == short => Ok(Offsets::Short(self.values(1, range)?)),
                format if format == long => Ok(Offsets::Long(self.values(1, range)?)),
                _ => Err(self.unlike(expected)),
            }
        }
    }

    pub fn add_to(&self, columns: Columns<'a>) -> Result<Columns<'a>, TableError> {
        if self.group.is_empty() {
            return Ok(columns.contextual(self.name, self.integers()?));
        }
        self.check_nulls()?;
        const NONE: &[i32] = &[0];
        let offsets = match self.offsets(["+l", "+L"], "lists (`+l`, `+L`)")? {
            _ if self.length == 0 => NONE.into(),
            Offsets::Short(offsets) => Integers::from(offsets),
            Offsets::Long(offsets) => offsets.into(),
        };
        let values = self.inner(0)?.integers()?;
        Ok(match self.group {
            "history" => columns.history(self.name, offsets, values),
            _ => columns.candidates(self.name, offsets, values),
        })
    }
}

/// The start and end of each list.
#[derive(Clone, Copy, Debug)]
pub enum Offsets<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl Offsets<'_> {
    pub fn to_vec(self) -> Vec<i64> {
        match self {
            Self::Short(offsets) => offsets.iter().copied().map(i64::from).collect(),
            Self::Long(offsets) => offsets.to_vec(),
        }
    }
}
