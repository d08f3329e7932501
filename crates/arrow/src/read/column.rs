//! Columns of any type, for imported models.

use super::TableError;
use super::field::{self, Field, count};
use rewire::predict::{Column, Data, Offsets, Validity};
use std::borrow::Cow;

impl<'a> Field<'a> {
    /// The column: borrowed if features can read its type, else converted.
    pub fn column(&self) -> Result<Column<'a>, TableError> {
        if self.has_dictionary() {
            return Err(self.wrong("no dictionary: decode the column first"));
        }
        if self.format() == "n" {
            let data = Data::I64(vec![0; self.length].into());
            return Ok(Column { data, validity: Validity::Bools(vec![false; self.length].into()) });
        }
        Ok(Column { data: self.data()?, validity: self.validity()? })
    }

    fn data(&self) -> Result<Data<'a>, TableError> {
        let entries = self.entries();
        // SAFETY: the format defines the type of the buffer.
        Ok(unsafe {
            match self.format() {
                "i" => Data::I32(self.values(1, entries)?.into()),
                "l" => Data::I64(self.values(1, entries)?.into()),
                "f" => Data::F32(self.values(1, entries)?.into()),
                "g" => Data::F64(self.values(1, entries)?.into()),
                "c" => self.converted::<i8>()?,
                "C" => self.converted::<u8>()?,
                "s" => self.converted::<i16>()?,
                "S" => self.converted::<u16>()?,
                "I" => self.converted::<u32>()?,
                "L" => self.converted::<u64>()?,
                "b" => Data::I64(self.bits(1)?),
                "u" | "U" => self.text()?,
                "vu" => self.text_of_views()?,
                "+l" | "+L" => Data::List { offsets: self.ends(["+l", "+L"])?, items: Box::new(self.items()?) },
                "+m" => self.map()?,
                format => match format.strip_prefix("+w:").and_then(|width| width.parse().ok()) {
                    Some(width) => self.fixed_lists(width)?,
                    None => return Err(self.unlike("integers, floats, text, lists or maps")),
                },
            }
        })
    }

    /// Integers of another width.
    ///
    /// # Safety
    /// The buffer holds values of this type.
    unsafe fn converted<T: Copy + TryInto<i64> + 'a>(&self) -> Result<Data<'a>, TableError> {
        // SAFETY: the caller's promise.
        let values = unsafe { self.values::<T>(1, self.entries()) }?;
        let wide = values.iter().map(|&value| value.try_into().ok()).collect::<Option<Vec<i64>>>();
        Ok(Data::I64(wide.ok_or_else(|| self.wrong("integers below 2^63"))?.into()))
    }

    /// The entries of a bitmap, as 0 and 1.
    fn bits(&self, buffer: usize) -> Result<Cow<'a, [i64]>, TableError> {
        let entries = self.entries();
        // SAFETY: the buffer holds one bit per entry.
        let bits = unsafe { self.values::<u8>(buffer, 0..entries.end.div_ceil(8)) }?;
        let bit = |at: usize| bits.get(at / 8).map_or(0, |byte| i64::from(byte >> (at % 8) & 1));
        Ok(entries.map(bit).collect())
    }

    fn validity(&self) -> Result<Validity<'a>, TableError> {
        Ok(match self.null_bits()? {
            Some(bits) => Validity::Bits { bits: bits.into(), start: self.entries().start },
            None => Validity::All,
        })
    }

    /// The start of each entry, and the end of the last one.
    fn ends(&self, formats: [&str; 2]) -> Result<Offsets<'a>, TableError> {
        Ok(match self.offsets(formats, "lists")? {
            _ if self.length == 0 => Offsets::I32((&[0]).into()),
            field::Offsets::Short(offsets) => Offsets::I32(offsets.into()),
            field::Offsets::Long(offsets) => Offsets::I64(offsets.into()),
        })
    }

    fn text(&self) -> Result<Data<'a>, TableError> {
        let offsets = self.ends(["u", "U"])?;
        let end = match &offsets {
            Offsets::I32(offsets) => offsets.last().map_or(0, |&end| i64::from(end)),
            Offsets::I64(offsets) => offsets.last().copied().unwrap_or_default(),
        };
        // SAFETY: a string column's buffer holds the bytes up to its last offset.
        let bytes = unsafe { self.values::<u8>(2, 0..count(end)?) }?;
        Ok(Data::Text { offsets, bytes: bytes.into() })
    }

    fn text_of_views(&self) -> Result<Data<'a>, TableError> {
        let (mut offsets, mut bytes) = (vec![0], String::new());
        for text in self.texts_of_views()? {
            bytes.push_str(text);
            offsets.push(bytes.len() as i64);
        }
        Ok(Data::Text { offsets: Offsets::I64(offsets.into()), bytes: bytes.into_bytes().into() })
    }

    fn items(&self) -> Result<Column<'a>, TableError> {
        self.inner(0)?.column()
    }

    fn fixed_lists(&self, width: usize) -> Result<Data<'a>, TableError> {
        let end = |entry: usize| entry.checked_mul(width).and_then(|end| i64::try_from(end).ok());
        let entries = self.entries();
        let offsets = (entries.start..=entries.end).map(end).collect::<Option<Vec<i64>>>();
        let offsets = offsets.ok_or_else(|| self.wrong("lists that memory holds"))?;
        Ok(Data::List { offsets: Offsets::I64(offsets.into()), items: Box::new(self.items()?) })
    }

    fn map(&self) -> Result<Data<'a>, TableError> {
        let entries = self.inner(0)?.fields("")?;
        let [keys, values] = entries.as_slice() else { return Err(self.wrong("a map of keys and values")) };
        let [keys, values] = [keys, values].map(|part| part.renamed(self.name).column());
        Ok(Data::Map { offsets: self.ends(["+m", ""])?, keys: Box::new(keys?), values: Box::new(values?) })
    }
}
