//! Tiles of rows of f16 in workgroup memory, as `staged_rows.wgsl` loads and stores them.

use minijinja::Value as Variable;

/// A tile of rows that a workgroup stages, four f16 values at a time.
pub(super) struct StagedRows<'n> {
    /// The function that loads four f16 values of a row.
    pub name: &'n str,
    pub rows: u32,
    pub width: usize,
    /// The width rounded up to whole matrices.
    pub depth: u32,
    /// Length of a row in workgroup memory, in groups of four, and the start of the tile.
    pub pitch: u32,
    pub base: u32,
    /// Invocations that stage it.
    pub threads: u32,
    /// True if an invocation loads two neighbouring groups, so that drivers load 16 bytes at once. Requires an even
    /// number of groups per invocation.
    pub side_by_side: bool,
}

impl StagedRows<'_> {
    /// The template variables.
    pub fn variable(&self) -> Variable {
        let items = (self.rows * self.depth / 4).div_ceil(self.threads);
        let pairs = self.side_by_side && items.is_multiple_of(2) && items * self.threads == self.rows * self.depth / 4;
        Variable::from_pairs([
            ("name", Variable::from(self.name)),
            ("rows", self.rows.into()),
            ("width", self.width.into()),
            ("depth", self.depth.into()),
            ("pitch", self.pitch.into()),
            ("base", self.base.into()),
            ("threads", self.threads.into()),
            ("items", items.into()),
            ("neighbours", (1 + u32::from(pairs)).into()),
        ])
    }
}
