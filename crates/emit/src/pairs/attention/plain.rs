use super::{Attention, AttentionVariant, Score, fill, reads_pairs};
use crate::hook::Element;
use crate::module::Module;
use crate::template::{Template, template};
use crate::{EmitError, ParsedKernel};
use rewire_graph_rewrite::device::{Target, Tuning};

static TEMPLATE: Template = template!("attention.wgsl");

const THREADS: u32 = 128;
const THREAD_ROWS: u32 = 16;
/// Keys of a tile.
const KEYS: u32 = 32;
/// Elements of a row that are staged at once.
const CHUNK: u32 = 32;
/// The most where barriers cost more than memory.
const LONG_CHUNK: u32 = 128;
/// Sums of a thread, in groups of four, that fit its registers.
const MOST_SUMS: u32 = 32;

/// How queries and values are divided among threads and steps.
#[derive(Clone, Copy)]
pub(super) struct AttentionTile {
    /// Queries of a thread.
    each: u32,
    /// Elements of queries and keys that are staged at once.
    chunk: u32,
    /// Chunks of 32 columns of the values.
    value_chunks: u32,
    /// Keys whose values are staged at once.
    value_keys: u32,
}

impl AttentionTile {
    pub fn new(kernel: &Attention<'_>, target: &Target, tuning: &Tuning) -> Result<Self, EmitError> {
        let width = (kernel.parts.dot.width.max(1) as u32).next_multiple_of(4);
        let value_chunks = (kernel.parts.element.width as u32).div_ceil(CHUNK).max(1);
        // As many as take the memory of a chunk of keys.
        let value_keys = 1 << (KEYS / value_chunks).max(4).ilog2();
        let each = tuning.rows_per_thread.unwrap_or(1);
        if !(1..=8).contains(&each) {
            let expected = "1 to 8".to_owned();
            return Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got: each });
        }
        let tile = Self { each, chunk: width.min(CHUNK), value_chunks, value_keys };
        let fits = |tile: &Self| tile.each * value_chunks <= MOST_SUMS && tile.bytes(kernel) <= target.workgroup_bytes;
        if target.software {
            // Software drivers take long to compile a barrier, and hold no tile in registers.
            let few_barriers = Self { chunk: width.min(LONG_CHUNK), value_keys: KEYS, ..tile };
            return Ok(if fits(&few_barriers) { few_barriers } else { tile });
        }
        let larger = [4, 2].map(|each| Self { each, ..tile });
        let larger = larger.into_iter().filter(|_| tuning.rows_per_thread.is_none());
        Ok(larger.into_iter().find(fits).unwrap_or(tile))
    }

    /// Queries of a workgroup.
    pub fn rows(&self) -> u32 {
        self.each * THREAD_ROWS
    }

    /// Groups of four in a row of a staged tile, or of weights, padding included.
    fn pitch(&self) -> u32 {
        self.chunk.max(KEYS) / 4 + 1
    }

    /// Groups of four of the keys or values that are staged at once.
    fn key_tile(&self) -> u32 {
        (KEYS * self.pitch()).max(self.value_keys * self.value_chunks * 8)
    }

    /// Bytes of workgroup memory, with those of the mask's bounds.
    fn bytes(&self, kernel: &Attention<'_>) -> u32 {
        let words = if kernel.softmax { 3 + u32::from(kernel.mask.is_some()) } else { 0 };
        let statistics = words * 4 * self.rows();
        16 * (self.rows() * self.pitch() + self.key_tile()) + statistics + 256
    }
}

/// Emits attention of multiply-adds.
pub(super) fn emit(kernel: &Attention<'_>, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
    let tile = AttentionTile::new(kernel, module.target, tuning)?;
    let variables = vec![
        // Without, a shader is shorter, which a compiler for CPUs is the sooner done with.
        ("ahead", (!module.target.software).into()),
        ("rows_per_thread", tile.each.into()),
        ("chunk", tile.chunk.into()),
        ("pitch", tile.pitch().into()),
        ("key_tile", tile.key_tile().into()),
        ("value_chunks", tile.value_chunks.into()),
        ("value_keys", tile.value_keys.into()),
        ("softmax", kernel.softmax.into()),
        ("guarded", reads_pairs(kernel).into()),
    ];
    let rows = tile.rows();
    let (element, score) = (Element::Float, Score::Four);
    fill(kernel, module, AttentionVariant { template: &TEMPLATE, threads: THREADS, element, score, rows, variables })
}
