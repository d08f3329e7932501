use crate::{ArrowArray, ArrowSchema};
use std::any::Any;
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// A column of an exported table, or the items of its lists.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    name: String,
    format: String,
    length: usize,
    /// The borrowed contents of the buffers after the null buffer.
    buffers: Vec<&'a [u8]>,
    items: Option<Box<Column<'a>>>,
}

/// Types of values in columns.
pub trait Value: Copy {
    /// Arrow's name of the type.
    const FORMAT: &'static str;
}

impl Value for i64 {
    const FORMAT: &'static str = "l";
}

impl Value for f32 {
    const FORMAT: &'static str = "f";
}

impl Value for f64 {
    const FORMAT: &'static str = "g";
}

fn bytes<T: Value>(values: &[T]) -> &[u8] {
    // SAFETY: the value types have no uninitialized bytes, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

impl<'a> Column<'a> {
    /// Values, one per row.
    pub fn values<T: Value>(name: &str, values: &'a [T]) -> Self {
        let (format, length) = (T::FORMAT.to_owned(), values.len());
        Self { name: name.to_owned(), format, length, buffers: vec![bytes(values)], items: None }
    }

    /// Strings, one per row: the bytes between two offsets, with one offset more than rows.
    pub fn texts(name: &str, offsets: &'a [i64], text: &'a str) -> Self {
        let buffers = vec![bytes(offsets), text.as_bytes()];
        Self { name: name.to_owned(), format: "U".to_owned(), length: rows(offsets), buffers, items: None }
    }

    /// Lists, one per row: the items between two offsets, with one offset more than rows.
    pub fn lists(name: &str, offsets: &'a [i64], items: Self) -> Self {
        let (format, items) = ("+L".to_owned(), Some(Box::new(items)));
        Self { name: name.to_owned(), format, length: rows(offsets), buffers: vec![bytes(offsets)], items }
    }

    /// Lists of `width` items, one per row.
    pub fn fixed_lists(name: &str, width: usize, items: Self) -> Self {
        let length = items.length.checked_div(width).unwrap_or(0);
        let (format, items) = (format!("+w:{width}"), Some(Box::new(items)));
        Self { name: name.to_owned(), format, length, buffers: vec![], items }
    }

    fn schema(&self) -> ArrowSchema {
        schema(&self.format, &self.name, self.items.iter().map(|items| items.schema()))
    }

    fn array(&self, owner: &Owner) -> ArrowArray {
        let buffers = self.buffers.iter().map(|buffer| buffer.as_ptr().cast());
        array(owner, self.length, buffers, self.items.iter().map(|items| items.array(owner)))
    }
}

fn rows(offsets: &[i64]) -> usize {
    offsets.len().saturating_sub(1)
}

/// Exports columns as a table, a struct array of `rows` rows, without a copy: it keeps `owner` alive, from which they borrow. The consumer
/// calls `release` of both structures.
pub fn export<T: Send + Sync + 'static>(
    owner: &Arc<T>,
    rows: usize,
    columns: impl for<'a> FnOnce(&'a T) -> Vec<Column<'a>>,
) -> (ArrowSchema, ArrowArray) {
    let (columns, owner) = (columns(owner), owner.clone() as Owner);
    let of_table = schema("+s", "", columns.iter().map(Column::schema));
    (of_table, array(&owner, rows, [], columns.iter().map(|column| column.array(&owner))))
}

/// Columns are nullable like those of most tables, because joining tables requires equal types.
const NULLABLE: i64 = 2;

type Owner = Arc<dyn Any + Send + Sync>;

/// The data of an exported array until it is released.
struct ArrayParts {
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    _owner: Owner,
}

/// The data of an exported schema until it is released.
struct SchemaParts {
    format: CString,
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

fn boxed<T>(children: impl IntoIterator<Item = T>) -> Vec<*mut T> {
    children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect()
}

fn schema(format: &str, name: &str, children: impl IntoIterator<Item = ArrowSchema>) -> ArrowSchema {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let mut parts = Box::new(SchemaParts { format: text(format), name: text(name), children: boxed(children) });
    ArrowSchema {
        format: parts.format.as_ptr(),
        name: parts.name.as_ptr(),
        metadata: null(),
        flags: NULLABLE,
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    }
}

fn array(
    owner: &Owner,
    length: usize,
    buffers: impl IntoIterator<Item = *const c_void>,
    children: impl IntoIterator<Item = ArrowArray>,
) -> ArrowArray {
    // The first buffer is the null buffer; no entry is null.
    let buffers = std::iter::once(null()).chain(buffers).collect();
    let mut parts = Box::new(ArrayParts { buffers, children: boxed(children), _owner: owner.clone() });
    ArrowArray {
        length: length as i64,
        null_count: 0,
        offset: 0,
        n_buffers: parts.buffers.len() as i64,
        n_children: parts.children.len() as i64,
        buffers: parts.buffers.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: an Arrow consumer calls this once, with the structure that `schema` created or a copy of it. Children are freed here,
    // and released unless they were moved out.
    unsafe {
        let Some(schema) = schema.as_mut() else { return };
        let parts = Box::from_raw(schema.private_data.cast::<SchemaParts>());
        for &child in &parts.children {
            drop(Box::from_raw(child));
        }
        schema.release = None;
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as in `release_schema`.
    unsafe {
        let Some(array) = array.as_mut() else { return };
        let parts = Box::from_raw(array.private_data.cast::<ArrayParts>());
        for &child in &parts.children {
            drop(Box::from_raw(child));
        }
        array.release = None;
    }
}
