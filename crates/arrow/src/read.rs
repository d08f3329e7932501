use crate::{ArrowArray, ArrowSchema};
use rewire::rank::{Batch, Columns, ColumnsError, Integers, Schema, User};
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use thiserror::Error;

/// Why a table makes no requests.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// A column or a structure is not as it must be.
    #[error("`{name}`: expected {expected}")]
    Column {
        /// The column, or the part of Arrow's structures.
        name: String,
        /// What it must be.
        expected: String,
    },
    /// The columns make no requests of the model.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
}

impl TableError {
    pub(crate) fn new(name: &str, expected: impl Into<String>) -> Self {
        Self::Column { name: name.to_owned(), expected: expected.into() }
    }
}

/// Adds requests from a table: a struct array, a row a request. Its columns are `user` (text or integers of 64 bits; rows are named by their
/// position without it), features of users by their names, and lists `history.NAME` and `candidates.NAME`, or lists `NAME` in structs `history` and
/// `candidates`, of integers of 32 or 64 bits. Nothing may be null in what the model reads. The lists are read where they are; the
/// table stays the caller's.
///
/// # Errors
/// [`TableError`] names the column that is not good. Where columns are not good nothing is added; where the values of a request are not
/// good, it ends what is added.
///
/// # Safety
/// `schema` and `array` are null or as Arrow's C data interface has them; nobody changes or frees them meanwhile.
pub unsafe fn extend(
    batch: &mut Batch,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
) -> Result<(), TableError> {
    // SAFETY: the caller's promise.
    let table = unsafe { Field::new("", schema, array)? };
    let fields = table.columns()?;
    let user = fields.iter().find(|field| field.group.is_empty() && field.name == "user");
    let users = user.map_or_else(|| Ok((0..table.length as i64).map(User::Number).collect()), Field::users)?;
    let read: Vec<&Field> = fields.iter().filter(|field| field.is_read(batch.schema())).collect();
    let columns = read.into_iter().try_fold(Columns::new(users), |all, field| field.add_to(all))?;
    Ok(batch.extend(&columns)?)
}

/// A column, or a table of columns.
#[derive(Clone, Copy, Debug)]
struct Field<'a> {
    /// `history`, `candidates`, or empty for features of users.
    group: &'a str,
    name: &'a str,
    format: &'a str,
    schema: &'a ArrowSchema,
    array: &'a ArrowArray,
    /// The first entry that is meant, in the buffers.
    first: usize,
    length: usize,
}

fn count(value: i64) -> Result<usize, TableError> {
    usize::try_from(value).map_err(|_| TableError::new("array", "lengths and offsets from 0 on"))
}

/// What a pointer is of.
///
/// # Safety
/// It is null, or of a value that nobody changes or frees for `'a`.
unsafe fn read<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, TableError> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| TableError::new(name, "a structure"))
}

/// # Safety
/// The pointer is null, or of text that ends with a zero, which nobody changes or frees for `'a`.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, TableError> {
    // SAFETY: the caller's promise, and the pointer is not null.
    let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().ok()).flatten();
    text.ok_or_else(|| TableError::new(name, "UTF-8 that ends with a zero"))
}

/// # Safety
/// The pointer is of so many values, which nobody changes or frees for `'a`, or null.
unsafe fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], TableError> {
    match count {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(TableError::new(name, "values, since there is a count")),
        _ if !pointer.is_aligned() => Err(TableError::new(name, "values at a multiple of their size")),
        _ if count > isize::MAX as usize / size_of::<T>().max(1) => {
            Err(TableError::new(name, "as many as memory holds"))
        }
        // SAFETY: the caller's promise, and the pointer is aligned, not null, and of no more than an allocation holds.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

impl<'a> Field<'a> {
    /// # Safety
    /// Both are null or as Arrow's C data interface has them and stay so for `'a`.
    unsafe fn new(group: &'a str, schema: *const ArrowSchema, array: *const ArrowArray) -> Result<Self, TableError> {
        // SAFETY: the caller's promise.
        let (schema, array) = unsafe { (read(schema, "schema")?, read(array, "array")?) };
        if schema.release.is_none() || array.release.is_none() {
            return Err(TableError::new("array", "one that is not released"));
        }
        // SAFETY: the caller's promise; a name may be null.
        let (format, name) = unsafe { (text(schema.format, "format")?, text(schema.name, "name").unwrap_or("")) };
        let (first, length) = (count(array.offset)?, count(array.length)?);
        match first.checked_add(length).and_then(|end| end.checked_add(1)) {
            Some(_) => Ok(Self { group, name, format, schema, array, first, length }),
            None => Err(TableError::new(name, "a length and an offset that memory holds")),
        }
    }

    fn unlike(&self, expected: &str) -> TableError {
        TableError::new(&self.title(), format!("{expected}, not the Arrow format `{}`", self.format))
    }

    fn title(&self) -> String {
        let point = if self.group.is_empty() { "" } else { "." };
        format!("{}{point}{}", self.group, self.name)
    }

    fn is_read(&self, schema: &Schema) -> bool {
        let columns = match self.group {
            "history" => &schema.history,
            "candidates" => &schema.candidates,
            _ => &schema.contextual,
        };
        columns.iter().any(|column| column.name == self.name)
    }

    /// The same column with entries of the table alone.
    fn part(self, first: usize, length: usize) -> Result<Self, TableError> {
        match first.checked_add(length).is_some_and(|end| end <= self.length) {
            true => Ok(Self { first: self.first + first, length, ..self }),
            false => Err(TableError::new(&self.title(), "as many entries as the table")),
        }
    }

    fn child(&self, group: &'a str, at: usize) -> Result<Self, TableError> {
        let (schemas, arrays) = (self.schema.children, self.array.children);
        // SAFETY: children of a structure as Arrow has them are as many as it says.
        unsafe {
            let schemas = slice(schemas.cast_const(), count(self.schema.n_children)?, "schema")?;
            let arrays = slice(arrays.cast_const(), count(self.array.n_children)?, "array")?;
            match (schemas.get(at), arrays.get(at)) {
                (Some(&schema), Some(&array)) => Self::new(group, schema, array),
                _ => Err(self.unlike("a column with its child")),
            }
        }
    }

    /// The fields of a struct, for its entries alone.
    fn fields(&self, group: &'a str) -> Result<Vec<Self>, TableError> {
        let part = |at| self.child(group, at)?.part(self.first, self.length);
        (0..count(self.schema.n_children)?).map(part).collect()
    }

    /// The columns of a table, those in the structs of groups among them.
    fn columns(&self) -> Result<Vec<Self>, TableError> {
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

    fn buffer(&self, at: usize) -> Result<*const c_void, TableError> {
        // SAFETY: buffers of a structure as Arrow has them are as many as it says.
        let buffers = unsafe { slice(self.array.buffers.cast_const(), count(self.array.n_buffers)?, self.name) }?;
        buffers.get(at).copied().ok_or_else(|| self.unlike("a column with its buffers"))
    }

    /// Entries of a buffer.
    ///
    /// # Safety
    /// The buffer holds values of this type up to the end of `range`.
    unsafe fn values<T>(&self, buffer: usize, range: Range<usize>) -> Result<&'a [T], TableError> {
        let values = self.buffer(buffer)?.cast::<T>();
        if range.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { slice(values, range.end, &self.title()) }?.get(range).unwrap_or(&[]))
    }

    fn entries(&self) -> Range<usize> {
        self.first..self.first + self.length
    }

    fn check_nulls(&self) -> Result<(), TableError> {
        let (bits, entries) = (self.buffer(0)?, self.entries());
        let has_nulls = match self.array.null_count {
            0 => false,
            _ if bits.is_null() => false,
            _ => {
                // SAFETY: the buffer holds a bit an entry.
                let bits = unsafe { self.values::<u8>(0, 0..entries.end.div_ceil(8)) }?;
                entries.into_iter().any(|at| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 0))
            }
        };
        if has_nulls { Err(TableError::new(&self.title(), "no nulls")) } else { Ok(()) }
    }

    fn integers(&self) -> Result<Integers<'a>, TableError> {
        if !self.schema.dictionary.is_null() {
            return Err(self.unlike("no dictionary"));
        }
        self.check_nulls()?;
        // SAFETY: formats say what the buffer holds.
        unsafe {
            match self.format {
                "i" => Ok(self.values::<i32>(1, self.entries())?.into()),
                "I" => Ok(self.values::<u32>(1, self.entries())?.into()),
                "l" => Ok(self.values::<i64>(1, self.entries())?.into()),
                _ => Err(self.unlike("integers of 32 bits (`i`, `I`) or 64 (`l`)")),
            }
        }
    }

    fn users(&self) -> Result<Vec<User>, TableError> {
        if let "i" | "I" | "l" = self.format {
            let user = |number: i64| User::Number(number);
            return Ok(match self.integers()? {
                Integers::I32(numbers) => numbers.iter().map(|&number| user(number.into())).collect(),
                Integers::U32(numbers) => numbers.iter().map(|&number| user(number.into())).collect(),
                Integers::I64(numbers) => numbers.iter().map(|&number| user(number)).collect(),
            });
        }
        self.check_nulls()?;
        let offsets = self.offsets(["u", "U"], "text (`u`, `U`) or integers of 32 or 64 bits")?.to_vec();
        let end = offsets.last().copied().map_or(Ok(0), count)?;
        // SAFETY: the buffer of a text holds what its offsets tell.
        let bytes = unsafe { self.values::<u8>(2, 0..end)? };
        let name = |ends: &[i64]| {
            let range = count(ends[0]).ok()?..count(ends[1]).ok()?;
            std::str::from_utf8(bytes.get(range)?).ok().map(User::from)
        };
        let names = offsets.windows(2).map(name);
        names.collect::<Option<_>>().ok_or_else(|| TableError::new(self.name, "UTF-8 between ascending offsets"))
    }

    /// Offsets of entries, one more than entries; none where there are no entries.
    fn offsets(&self, [short, long]: [&str; 2], expected: &str) -> Result<Offsets<'a>, TableError> {
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

    fn add_to(&self, columns: Columns<'a>) -> Result<Columns<'a>, TableError> {
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
        let values = Self { name: self.name, ..self.child(self.group, 0)? }.integers()?;
        Ok(match self.group {
            "history" => columns.history(self.name, offsets, values),
            _ => columns.candidates(self.name, offsets, values),
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
