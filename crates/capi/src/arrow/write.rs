use super::{ArrowArray, ArrowSchema};
use crate::ranking::Columns;
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// What an exported array keeps until it is released.
struct ArrayParts {
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    _columns: Arc<Columns>,
}

/// What an exported schema keeps until it is released.
struct SchemaParts {
    format: CString,
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

fn structure(format: &str, name: &str, children: Vec<ArrowSchema>) -> ArrowSchema {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut parts = Box::new(SchemaParts { format: text(format), name: text(name), children });
    ArrowSchema {
        format: parts.format.as_ptr(),
        name: parts.name.as_ptr(),
        metadata: null(),
        flags: 0,
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    }
}

fn entries(columns: &Arc<Columns>, length: usize, buffers: &[*const c_void], children: Vec<ArrowArray>) -> ArrowArray {
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    // The first buffer tells nulls, of which there are none.
    let buffers = std::iter::once(null()).chain(buffers.iter().copied()).collect();
    let mut parts = Box::new(ArrayParts { buffers, children, _columns: columns.clone() });
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
    // SAFETY: Arrow has its consumers call this once, with the structure that `structure` made or a copy of it. Children are freed here,
    // and released unless they were moved out.
    unsafe {
        let Some(schema) = schema.as_mut() else { return };
        let parts = Box::from_raw(schema.private_data.cast::<SchemaParts>());
        for &child in &parts.children {
            if let Some(release) = (*child).release {
                release(child);
            }
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
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        array.release = None;
    }
}

/// The columns of a ranking of so many tasks.
pub(super) fn schema(tasks: usize) -> ArrowSchema {
    let list = |name: &str, item: ArrowSchema| structure("+L", name, vec![item]);
    let value = |format: &str| structure(format, "item", vec![]);
    let logits = structure(&format!("+w:{tasks}"), "item", vec![value("f")]);
    let lists = [("items", value("l")), ("positions", value("l")), ("scores", value("g")), ("logits", logits)];
    structure("+s", "", lists.map(|(name, item)| list(name, item)).into())
}

/// The columns of a ranking, where they are.
pub(super) fn array(columns: &Arc<Columns>) -> ArrowArray {
    let (rows, candidates) = (columns.offsets.len().saturating_sub(1), columns.items.len());
    let list = |item: ArrowArray| entries(columns, rows, &[columns.offsets.as_ptr().cast()], vec![item]);
    let values = |length: usize, first: *const c_void| entries(columns, length, &[first], vec![]);
    let logits = values(columns.logits.len(), columns.logits.as_ptr().cast());
    let lists = [
        values(candidates, columns.items.as_ptr().cast()),
        values(candidates, columns.positions.as_ptr().cast()),
        values(candidates, columns.scores.as_ptr().cast()),
        entries(columns, candidates, &[], vec![logits]),
    ];
    entries(columns, rows, &[], lists.map(list).into())
}
