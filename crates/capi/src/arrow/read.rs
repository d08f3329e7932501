use super::{ArrowArray, ArrowSchema};
use crate::border::{Failure, read, slice, text};
use rewire::rank::{Columns, Integers, Schema, User};
use std::ffi::c_void;
use std::ops::Range;

/// A column, or a table of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub name: &'a str,
    format: &'a str,
    schema: &'a ArrowSchema,
    array: &'a ArrowArray,
    /// The first entry that is meant, in the buffers.
    first: usize,
    length: usize,
}

/// Users without names.
pub(super) fn numbered(rows: usize) -> Vec<User> {
    (0..rows as i64).map(User::Number).collect()
}

fn count(value: i64) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| Failure::argument("array", "lengths and offsets from 0 on"))
}

impl<'a> Field<'a> {
    /// # Safety
    /// Both are null or as Arrow's C data interface has them, not released, and stay so for `'a`.
    pub(super) unsafe fn new(schema: *const ArrowSchema, array: *const ArrowArray) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        let (schema, array) = unsafe { (read(schema, "schema")?, read(array, "array")?) };
        if schema.release.is_none() || array.release.is_none() {
            return Err(Failure::argument("array", "one that is not released"));
        }
        // SAFETY: the caller's promise; a name may be null.
        let (format, name) = unsafe { (text(schema.format, "format")?, text(schema.name, "name").unwrap_or("")) };
        Ok(Self { name, format, schema, array, first: count(array.offset)?, length: count(array.length)? })
    }

    fn unlike(&self, expected: &str) -> Failure {
        Failure::argument(self.name, &format!("{expected}, not the Arrow format `{}`", self.format))
    }

    /// The group of a column, and the feature.
    fn feature(&self) -> (&'a str, &'a str) {
        match self.name.split_once('.') {
            Some((group @ ("history" | "candidates"), name)) => (group, name),
            _ => ("", self.name),
        }
    }

    pub(super) fn is_read(&self, schema: &Schema) -> bool {
        let (group, name) = self.feature();
        let columns = match group {
            "history" => &schema.history,
            "candidates" => &schema.candidates,
            _ => &schema.contextual,
        };
        columns.iter().any(|column| column.name == name)
    }

    /// The same column with entries of the table alone.
    fn part(self, first: usize, length: usize) -> Result<Self, Failure> {
        match first.checked_add(length).is_some_and(|end| end <= self.length) {
            true => Ok(Self { first: self.first + first, length, ..self }),
            false => Err(Failure::argument(self.name, "as many entries as the table")),
        }
    }

    fn child(&self, at: usize) -> Result<Self, Failure> {
        let (schemas, arrays) = (self.schema.children, self.array.children);
        // SAFETY: children of a structure as Arrow has them are as many as it says.
        unsafe {
            let schemas = slice(schemas.cast_const(), count(self.schema.n_children)?, "schema")?;
            let arrays = slice(arrays.cast_const(), count(self.array.n_children)?, "array")?;
            match (schemas.get(at), arrays.get(at)) {
                (Some(&schema), Some(&array)) => Self::new(schema, array),
                _ => Err(self.unlike("a column with its child")),
            }
        }
    }

    /// The rows of a table, and its columns.
    pub(super) fn rows(&self) -> Result<(usize, Vec<Self>), Failure> {
        if self.format != "+s" {
            return Err(self.unlike("a struct array"));
        }
        let children = 0..count(self.schema.n_children)?;
        let part = |at| self.child(at)?.part(self.first, self.length);
        Ok((self.length, children.map(part).collect::<Result<_, _>>()?))
    }

    fn buffer(&self, at: usize) -> Result<*const c_void, Failure> {
        // SAFETY: buffers of a structure as Arrow has them are as many as it says.
        let buffers = unsafe { slice(self.array.buffers.cast_const(), count(self.array.n_buffers)?, self.name) }?;
        buffers.get(at).copied().ok_or_else(|| self.unlike("a column with its buffers"))
    }

    /// Entries of a buffer.
    ///
    /// # Safety
    /// The buffer holds values of this type up to the end of `range`.
    unsafe fn values<T>(&self, buffer: usize, range: Range<usize>) -> Result<&'a [T], Failure> {
        let values = self.buffer(buffer)?.cast::<T>();
        if range.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { slice(values, range.end, self.name) }?.get(range).unwrap_or(&[]))
    }

    /// # Safety
    /// The structure is as Arrow has it.
    unsafe fn check_nulls(&self) -> Result<(), Failure> {
        let (bits, range) = (self.buffer(0)?, self.first..self.first + self.length);
        let has_nulls = match self.array.null_count {
            0 => false,
            _ if bits.is_null() => false,
            _ => {
                // SAFETY: the buffer holds a bit an entry.
                let bits = unsafe { self.values::<u8>(0, 0..range.end.div_ceil(8)) }?;
                range.clone().any(|at| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 0))
            }
        };
        if has_nulls { Err(Failure::argument(self.name, "no nulls")) } else { Ok(()) }
    }

    /// # Safety
    /// The structure is as Arrow has it.
    unsafe fn integers(&self) -> Result<Integers<'a>, Failure> {
        if !self.schema.dictionary.is_null() {
            return Err(self.unlike("no dictionary"));
        }
        let range = self.first..self.first + self.length;
        // SAFETY: the caller's promise, and formats say what the buffer holds.
        unsafe {
            self.check_nulls()?;
            match self.format {
                "i" => Ok(self.values::<i32>(1, range)?.into()),
                "I" => Ok(self.values::<u32>(1, range)?.into()),
                "l" => Ok(self.values::<i64>(1, range)?.into()),
                _ => Err(self.unlike("integers of 32 bits (`i`, `I`) or 64 (`l`)")),
            }
        }
    }

    /// # Safety
    /// The structure is as Arrow has it.
    pub(super) unsafe fn users(&self, rows: usize) -> Result<Vec<User>, Failure> {
        if self.format == "l" {
            // SAFETY: the caller's promise.
            let numbers = unsafe {
                self.check_nulls()?;
                self.values::<i64>(1, self.first..self.first + rows)?
            };
            return Ok(numbers.iter().copied().map(User::Number).collect());
        }
        let offsets = self.offsets(["u", "U"], "text (`u`, `U`) or integers of 64 bits (`l`)")?.to_vec();
        let end = offsets.last().copied().map_or(Ok(0), count)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe {
            self.check_nulls()?;
            self.values::<u8>(2, 0..end)?
        };
        let name = |ends: &[i64]| {
            let range = count(ends[0]).ok()?..count(ends[1]).ok()?;
            std::str::from_utf8(bytes.get(range)?).ok().map(User::from)
        };
        let names = offsets.windows(2).map(name);
        names.collect::<Option<_>>().ok_or_else(|| Failure::argument(self.name, "UTF-8 between ascending offsets"))
    }

    /// Offsets of entries, one more than entries; none where there are no entries.
    fn offsets(&self, [short, long]: [&str; 2], expected: &str) -> Result<Offsets<'a>, Failure> {
        let range = self.first..self.first + self.length + usize::from(self.length > 0);
        // SAFETY: the format says what the buffer holds.
        unsafe {
            match self.format {
                format if format == short => Ok(Offsets::Short(self.values(1, range)?)),
                format if format == long => Ok(Offsets::Long(self.values(1, range)?)),
                _ => Err(self.unlike(expected)),
            }
        }
    }

    /// # Safety
    /// The structure is as Arrow has it.
    pub(super) unsafe fn add_to(&self, columns: Columns<'a>, rows: usize) -> Result<Columns<'a>, Failure> {
        let (group, name) = self.feature();
        if group.is_empty() {
            // SAFETY: the caller's promise.
            return Ok(columns.contextual(name, unsafe { self.integers() }?));
        }
        // SAFETY: the caller's promise.
        let values = unsafe {
            self.check_nulls()?;
            self.child(0)?.integers()?
        };
        const NONE: &[i32] = &[0];
        let offsets = match self.offsets(["+l", "+L"], "lists (`+l`, `+L`)")? {
            _ if rows == 0 => NONE.into(),
            Offsets::Short(offsets) => Integers::from(offsets),
            Offsets::Long(offsets) => offsets.into(),
        };
        Ok(match group {
            "history" => columns.history(name, offsets, values),
            _ => columns.candidates(name, offsets, values),
        })
    }
}

/// Where lists begin and end.
#[derive(Clone, Copy, Debug)]
enum Offsets<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl Offsets<'_> {
    fn to_vec(self) -> Vec<i64> {
        match self {
            Self::Short(offsets) => offsets.iter().copied().map(i64::from).collect(),
            Self::Long(offsets) => offsets.to_vec(),
        }
    }
}
