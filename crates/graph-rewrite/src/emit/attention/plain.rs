use super::{Variant, fill};
use crate::emit::hook::Element;
use crate::emit::module::Module;
use crate::emit::{EmitError, ParsedKernel, Tuning};
use crate::plan::Attention;

const THREADS: u32 = 128;
const THREAD_ROWS: u32 = 16;
/// Bytes of workgroup memory that hold tiles of four rows a thread.
const LARGE: u32 = 28 << 10;
/// Elements of a row that are staged at once.
const CHUNK: usize = 32;

/// Emits attention of multiply-adds.
pub(super) fn emit(kernel: &Attention, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
    let large = module.target.workgroup_bytes >= LARGE && !module.target.software;
    let default = if large { 4 } else { 2 };
    let each = tuning.rows_per_thread.unwrap_or(default);
    if each == 0 || each > 8 {
        let expected = "1 to 8".to_owned();
        return Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got: each });
    }
    let variables = vec![
        ("rows_per_thread", each.into()),
        ("chunk", CHUNK.min(kernel.qk_width.next_multiple_of(4)).max(4).into()),
        ("value_chunks", kernel.v_width.div_ceil(CHUNK).into()),
        ("softmax", kernel.softmax.into()),
    ];
    let (threads, rows) = (THREADS, each * THREAD_ROWS);
    let variant = Variant { name: "attention.wgsl", threads, element: Element::Float, rows, variables };
    fill(kernel, module, variant)
}
