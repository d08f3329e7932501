//! Names of users, as text of any kind or as integers.

use super::TableError;
use super::field::{Field, count};
use rewire::rank::{Integers, User};

/// An entry of a column of views: its length, then its bytes where they are few, else four of them, a buffer and a place in it.
type View = [u8; 16];

/// Bytes that a view holds itself.
const INLINE: usize = 12;

impl<'a> Field<'a> {
    pub fn users(&self) -> Result<Vec<User>, TableError> {
        let user = |number: i64| User::Number(number);
        match self.format() {
            "i" | "I" | "l" => Ok(match self.integers()? {
                Integers::I32(numbers) => numbers.iter().map(|&number| user(number.into())).collect(),
                Integers::U32(numbers) => numbers.iter().map(|&number| user(number.into())).collect(),
                Integers::I64(numbers) => numbers.iter().map(|&number| user(number)).collect(),
            }),
            "vu" => self.views(),
            _ => self.texts(),
        }
    }

    fn texts(&self) -> Result<Vec<User>, TableError> {
        self.check_nulls()?;
        let offsets = self.offsets(["u", "U"], "text (`u`, `U`, `vu`) or integers of 32 or 64 bits")?.to_vec();
        let end = offsets.last().copied().map_or(Ok(0), count)?;
        // SAFETY: the buffer of a text holds what its offsets tell.
        let bytes = unsafe { self.values::<u8>(2, 0..end)? };
        let name = |ends: &[i64]| named(bytes, count(ends[0]).ok()?, count(ends[1]).ok()?);
        let names = offsets.windows(2).map(name);
        names.collect::<Option<_>>().ok_or_else(|| self.wrong("UTF-8 between ascending offsets"))
    }

    /// Text as `polars` has it. The last buffer has the sizes of those in which long texts lie.
    fn views(&self) -> Result<Vec<User>, TableError> {
        self.check_nulls()?;
        let buffers = self.buffers()?;
        let blocks = buffers.checked_sub(3).ok_or_else(|| self.wrong("views with their buffers"))?;
        // SAFETY: the buffers of views are the bits of nulls, the views, blocks of bytes, and the size of each of these.
        let (views, sizes) =
            unsafe { (self.values::<View>(1, self.entries())?, self.values::<i64>(buffers - 1, 0..blocks)?) };
        let blocks = sizes.iter().enumerate().map(|(at, &size)| {
            // SAFETY: as above.
            unsafe { self.values::<u8>(2 + at, 0..count(size)?) }
        });
        let blocks: Vec<&[u8]> = blocks.collect::<Result<_, _>>()?;
        let names = views.iter().map(|view| in_view(view, &blocks));
        names.collect::<Option<_>>().ok_or_else(|| self.wrong("UTF-8 within the bytes of views"))
    }
}

fn in_view(view: &View, blocks: &[&[u8]]) -> Option<User> {
    let number = |at: usize| Some(usize::try_from(i32::from_le_bytes(*view.get(at..)?.first_chunk()?)).ok()?);
    let length = number(0)?;
    match length <= INLINE {
        true => named(view, 4, 4 + length),
        false => named(blocks.get(number(8)?)?, number(12)?, number(12)?.checked_add(length)?),
    }
}

fn named(bytes: &[u8], begin: usize, end: usize) -> Option<User> {
    std::str::from_utf8(bytes.get(begin..end)?).ok().map(User::from)
}
