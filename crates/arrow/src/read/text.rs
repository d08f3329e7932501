//! User names, as strings of any kind or as integers.

use super::TableError;
use super::field::{Field, count};
use rewire::rank::{Integers, User};

/// An entry of a view column: its length, followed by its bytes if they are few, else by four of them, a buffer and an offset
/// in it.
type View = [u8; 16];

/// Maximum bytes of an inline view.
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
            "vu" => {
                self.check_nulls()?;
                Ok(self.texts_of_views()?.into_iter().map(User::from).collect())
            }
            _ => self.texts(),
        }
    }

    fn texts(&self) -> Result<Vec<User>, TableError> {
        self.check_nulls()?;
        let offsets = self.offsets(["u", "U"], "text (`u`, `U`, `vu`) or integers of 32 or 64 bits")?.to_vec();
        let end = offsets.last().copied().map_or(Ok(0), count)?;
        // SAFETY: a string column's buffer holds the bytes up to its last offset.
        let bytes = unsafe { self.values::<u8>(2, 0..end)? };
        let name = |ends: &[i64]| text(bytes, count(ends[0]).ok()?, count(ends[1]).ok()?).map(User::from);
        let names = offsets.windows(2).map(name);
        names.collect::<Option<_>>().ok_or_else(|| self.wrong("UTF-8 between ascending offsets"))
    }

    /// Strings in the format of `polars`. The last buffer holds the sizes of the buffers with long strings.
    pub fn texts_of_views(&self) -> Result<Vec<&'a str>, TableError> {
        let buffers = self.buffers()?;
        let blocks = buffers.checked_sub(3).ok_or_else(|| self.wrong("views with their buffers"))?;
        // SAFETY: the buffers of a view column are the null bits, the views, blocks of bytes, and the size of each block.
        let (views, sizes) =
            unsafe { (self.values::<View>(1, self.entries())?, self.values::<i64>(buffers - 1, 0..blocks)?) };
        let blocks = sizes.iter().enumerate().map(|(at, &size)| {
            // SAFETY: as above.
            unsafe { self.values::<u8>(2 + at, 0..count(size)?) }
        });
        let blocks: Vec<&[u8]> = blocks.collect::<Result<_, _>>()?;
        let texts = views.iter().map(|view| in_view(view, &blocks));
        texts.collect::<Option<_>>().ok_or_else(|| self.wrong("UTF-8 within the bytes of views"))
    }
}

fn in_view<'a>(view: &'a View, blocks: &[&'a [u8]]) -> Option<&'a str> {
    let number = |at: usize| usize::try_from(i32::from_le_bytes(*view.get(at..)?.first_chunk()?)).ok();
    let length = number(0)?;
    match length <= INLINE {
        true => text(view, 4, 4 + length),
        false => text(blocks.get(number(8)?)?, number(12)?, number(12)?.checked_add(length)?),
    }
}

fn text(bytes: &[u8], begin: usize, end: usize) -> Option<&str> {
    std::str::from_utf8(bytes.get(begin..end)?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]
mod tests {
    use super::*;
    use crate::{ArrowArray, ArrowSchema};
    use std::ffi::{CStr, c_void};

    unsafe extern "C" fn release_schema(_: *mut ArrowSchema) {}
    unsafe extern "C" fn release_array(_: *mut ArrowArray) {}

    fn inline(text: &str) -> View {
        let mut view = [0; 16];
        view[..4].copy_from_slice(&(text.len() as i32).to_le_bytes());
        view[4..4 + text.len()].copy_from_slice(text.as_bytes());
        view
    }

    fn within(length: i32, block: i32, at: i32) -> View {
        let mut view = [0; 16];
        view[..4].copy_from_slice(&length.to_le_bytes());
        view[8..12].copy_from_slice(&block.to_le_bytes());
        view[12..].copy_from_slice(&at.to_le_bytes());
        view
    }

    /// Reads views from the second on, over two blocks.
    fn users(format: &CStr, views: &[View]) -> Result<Vec<User>, TableError> {
        let (blocks, sizes) =
            ([b"a first long name, ".as_slice(), "and größer than the others".as_bytes()], [19i64, 28]);
        let mut buffers: Vec<*const c_void> =
            vec![std::ptr::null(), views.as_ptr().cast(), blocks[0].as_ptr().cast(), blocks[1].as_ptr().cast()];
        buffers.push(sizes.as_ptr().cast());
        let schema = ArrowSchema { format: format.as_ptr(), release: Some(release_schema), ..ArrowSchema::empty() };
        let array = ArrowArray {
            length: views.len() as i64 - 1,
            offset: 1,
            n_buffers: buffers.len() as i64,
            buffers: buffers.as_mut_ptr(),
            release: Some(release_array),
            ..ArrowArray::empty()
        };
        unsafe { Field::new("", &schema, &array) }.unwrap().users()
    }

    #[test]
    fn views_are_texts_of_their_own_or_of_a_block() {
        let views = [inline("unread"), inline(""), inline("ü 12 bytes!"), within(17, 0, 0), within(24, 1, 4)];
        let expected = ["", "ü 12 bytes!", "a first long name", "größer than the others"].map(User::from);
        assert_eq!(users(c"vu", &views).unwrap(), expected);
    }

    #[test]
    fn views_beyond_their_blocks_are_refused() {
        let wrong = [
            within(13, 2, 0),
            within(20, 0, 0),
            within(13, 0, -1),
            within(-1, 0, 0),
            within(25, 1, 4),
            within(13, 1, 7),
            within(i32::MAX, 0, i32::MAX),
        ];
        for view in wrong {
            let error = users(c"vu", &[inline("unread"), view]).unwrap_err().to_string();
            assert!(error.contains("UTF-8 within the bytes of views"), "{error}");
        }
        assert!(users(c"vz", &[inline("unread"), inline("x")]).is_err());
    }
}
