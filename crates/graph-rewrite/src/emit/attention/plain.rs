use super::{Variant, fill, reads_pairs};
use crate::emit::hook::Element;
use crate::emit::module::Module;
use crate::emit::{EmitError, ParsedKernel, Target, Tuning};
use crate::plan::Attention;

const THREADS: u32 = 128;
const THREAD_ROWS: u32 = 16;
/// Keys of a tile.
const KEYS: u32 = 32;
/// Elements of a row that are staged at once.
const CHUNK: usize = 32;
/// Groups of four in a row of a staged tile, padding included.
const PITCH: u32 = 9;
/// Sums of a thread, in groups of four, that fit its registers.
const MOST_SUMS: u32 = 32;

/// How queries and values are divided among threads and steps.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Queries of a thread.
    each: u32,
    /// Chunks of 32 columns of the values.
    value_chunks: u32,
}

impl Tile {
    pub fn new(kernel: &Attention, target: &Target, tuning: &Tuning) -> Result<Self, EmitError> {
        let value_chunks = kernel.v_width.div_ceil(CHUNK).max(1) as u32;
        if let Some(each) = tuning.rows_per_thread {
            return match each {
                1..=8 => Ok(Self { each, value_chunks }),
                got => {
                    let expected = "1 to 8".to_owned();
                    Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got })
                }
            };
        }
        let most = if target.software { 2 } else { 4 };
        let tiles = [4, 2].into_iter().filter(|each| *each <= most).map(|each| Self { each, value_chunks });
        let fits =
            |tile: &Self| tile.each * value_chunks <= MOST_SUMS && tile.bytes(kernel.softmax) <= target.workgroup_bytes;
        Ok(tiles.into_iter().find(fits).unwrap_or(Self { each: 1, value_chunks }))
    }

    /// Queries of a workgroup.
    pub fn rows(&self) -> u32 {
        self.each * THREAD_ROWS
    }

    /// Keys whose values are staged at once: as many as take the memory of a chunk of keys.
    fn value_keys(&self) -> u32 {
        let most = (KEYS / self.value_chunks).max(4);
        1 << most.ilog2()
    }

    /// Bytes of workgroup memory, with those of the mask's bounds.
    fn bytes(&self, softmax: bool) -> u32 {
        let staged = (KEYS * PITCH).max(self.value_keys() * self.value_chunks * 8);
        let statistics = if softmax { 3 * 4 * self.rows() } else { 0 };
        16 * (self.rows() * PITCH + staged) + statistics + 256
    }
}

/// Emits attention of multiply-adds.
pub(super) fn emit(kernel: &Attention, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
    let tile = Tile::new(kernel, module.target, tuning)?;
    let variables = vec![
        ("rows_per_thread", tile.each.into()),
        ("chunk", CHUNK.min(kernel.qk_width.next_multiple_of(4)).max(4).into()),
        ("value_chunks", tile.value_chunks.into()),
        ("value_keys", tile.value_keys().into()),
        ("softmax", kernel.softmax.into()),
        ("guarded", reads_pairs(kernel).into()),
    ];
    let rows = tile.rows();
    let variant = Variant { name: "attention.wgsl", threads: THREADS, element: Element::Float, rows, variables };
    fill(kernel, module, variant)
}
