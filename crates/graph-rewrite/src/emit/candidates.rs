//! Tunings that are worth a measurement.

use super::{Target, Tuning, attention, emit, matmul, reduce};
use crate::plan::Kernel;
use crate::schedule::{Product, Reduction, Schedule};
use std::collections::HashSet;

/// Tiles of products of multiply-adds: rows, columns, depth, and rows of a thread.
const TILES: [[u32; 4]; 34] = [
    [128, 128, 16, 16],
    [32, 32, 64, 2],
    [16, 32, 64, 1],
    [16, 32, 64, 2],
    [64, 64, 16, 8],
    [64, 64, 16, 4],
    [64, 64, 32, 8],
    [128, 64, 16, 8],
    [64, 128, 16, 8],
    [128, 128, 16, 8],
    [32, 128, 16, 4],
    [32, 64, 16, 4],
    [32, 32, 16, 4],
    [32, 32, 32, 2],
    // Few rows.
    [16, 128, 16, 2],
    [16, 64, 16, 1],
    [16, 32, 16, 1],
    [16, 32, 32, 1],
    [4, 32, 64, 1],
    [4, 64, 32, 1],
    [4, 128, 16, 1],
    [4, 256, 16, 1],
    // Few columns.
    [64, 32, 16, 4],
    [128, 32, 16, 4],
    [64, 16, 16, 4],
    [64, 16, 32, 1],
    [256, 16, 16, 4],
    [16, 16, 64, 1],
    [64, 4, 16, 1],
    [128, 4, 16, 1],
    [256, 4, 16, 1],
    [64, 4, 32, 1],
    [64, 4, 64, 1],
    [16, 4, 64, 1],
];

/// Multiples of a cooperative matrix that a tile may have across.
const MATRICES: [u32; 4] = [1, 2, 4, 8];

impl Tuning {
    /// Tunings of a kernel that are worth a measurement, this one first. What it sets stays as it is. Each is emitted, and no
    /// two have the same shader.
    ///
    /// All of them add in the order of this one: every element of a result is the same sum, to the bit, whichever is
    /// taken. So a choice among them may follow the sizes of a run. That holds since
    /// - a product runs over `k` in order whatever its tile, and attention over the keys; tiles that are skipped would add 0,
    /// - as many threads share a row of a reduction,
    /// - cooperative matrices and multiply-adds, which add in different orders, do not mix: [`Tuning::families`] has both.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// use rewire_graph_rewrite::emit::{Target, Tuning};
    /// use rewire_graph_rewrite::{lower, optimize};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[scope.size("rows"), 64.into()]);
    /// let weight = scope.parameter("weight", DType::F32, &[64.into(), 96.into()]);
    /// let plan = lower(&optimize(scope.finish(&[("y", x.matmul(&weight))])?)?.0)?;
    /// let candidates = Tuning::default().candidates(&plan.steps[0].kernel, &Target::BASELINE);
    /// assert_eq!(candidates[0], Tuning::default());
    /// assert!(candidates.len() > 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn candidates(&self, kernel: &Kernel, target: &Target) -> Vec<Self> {
        let base = self.of_family(kernel, target);
        let cooperative = base.matrices == Some(true);
        let proposals = match kernel.nest().map(Schedule::of) {
            Some(Ok(Schedule::Map(_))) => maps(),
            Some(Ok(Schedule::Reduction(kernel))) => reductions(&kernel, target, &base),
            Some(Ok(Schedule::Product(kernel))) if cooperative => products_of_matrices(&kernel, target.matrix),
            Some(Ok(Schedule::Product(kernel))) => products(&kernel),
            Some(Ok(Schedule::Attention(_))) if cooperative => attention_of_matrices(target.matrix),
            Some(Ok(Schedule::Attention(_))) => {
                [1, 2, 4, 8].map(|rows| Self { rows_per_thread: Some(rows), ..Self::default() }).into()
            }
            Some(Ok(Schedule::Pairs(_))) => {
                [1, 2, 4].map(|rows| Self { rows_per_thread: Some(rows), ..Self::default() }).into()
            }
            Some(Ok(Schedule::Fold(_)) | Err(_)) | None => vec![],
        };
        let short = |proposal: &Self| !target.software || proposal.is_short();
        let mut shaders = HashSet::new();
        let mut differs =
            |tuning: &Self| emit(kernel, target, tuning).is_ok_and(|emitted| shaders.insert(emitted.wgsl));
        let proposals = proposals.into_iter().filter(short).map(|proposal| base.or(proposal));
        let tunings = std::iter::once(base).chain(proposals);
        tunings.filter(|tuning| differs(tuning)).collect()
    }

    /// This tuning with the choice between cooperative matrices and multiply-adds made, where a kernel has both.
    #[must_use]
    pub fn of_family(self, kernel: &Kernel, target: &Target) -> Self {
        let cooperative = match kernel.nest().map(Schedule::of) {
            Some(Ok(Schedule::Product(kernel))) => matmul::is_cooperative(&kernel, target, &self),
            Some(Ok(Schedule::Attention(kernel))) => attention::is_cooperative(&kernel, target, &self),
            _ => false,
        };
        Self { matrices: self.matrices.or(cooperative.then_some(true)), ..self }
    }

    /// The tunings that add in orders of their own: cooperative matrices and multiply-adds where a kernel has both, else one.
    /// Which is taken may follow the widths of a kernel and the target, and never the sizes of a run.
    pub fn families(kernel: &Kernel, target: &Target) -> Vec<Self> {
        let base = Self::default().of_family(kernel, target);
        match base.matrices {
            Some(_) => [true, false].map(|matrices| Self { matrices: Some(matrices), ..base }).into(),
            None => vec![base],
        }
    }

    /// True if it makes a short shader, which is soon compiled.
    fn is_short(&self) -> bool {
        self.rows_per_thread.is_none_or(|rows| rows <= 4) && self.groups_per_thread.is_none_or(|groups| groups == 1)
    }

    /// What it sets, and what only `other` sets.
    fn or(self, other: Self) -> Self {
        Self {
            threads: self.threads.or(other.threads),
            groups_per_thread: self.groups_per_thread.or(other.groups_per_thread),
            rows: self.rows.or(other.rows),
            columns: self.columns.or(other.columns),
            depth: self.depth.or(other.depth),
            rows_per_thread: self.rows_per_thread.or(other.rows_per_thread),
            parts: self.parts.or(other.parts),
            split_sums: self.split_sums.or(other.split_sums),
            matrices: self.matrices.or(other.matrices),
        }
    }
}

fn maps() -> Vec<Tuning> {
    let each = |groups| {
        let tuning =
            move |threads| Tuning { threads: Some(threads), groups_per_thread: Some(groups), ..Tuning::default() };
        [64, 128, 256].map(tuning)
    };
    [1, 2, 4].into_iter().flat_map(each).collect()
}

/// Workgroups of other sizes with as many threads a row.
fn reductions(kernel: &Reduction<'_>, target: &Target, base: &Tuning) -> Vec<Tuning> {
    let shared = |tuning: &Tuning| reduce::row_threads(kernel, target, tuning).ok();
    let sizes = [32, 64, 128, 256, 512, 1024].map(|threads| Tuning { threads: Some(threads), ..Tuning::default() });
    sizes.into_iter().filter(|tuning| shared(tuning) == shared(base)).collect()
}

/// True if a tile is neither much wider than an extent, nor narrow without need.
fn suits(tile: u32, extent: Option<usize>, narrow: u64) -> bool {
    let (tile, extent) = (u64::from(tile), extent.map_or(u64::MAX, |extent| extent as u64));
    tile < extent.max(2).saturating_mul(4) && tile * 2 >= extent.min(narrow)
}

/// Rows and columns, where they are known.
fn extents(kernel: &Product<'_>) -> (Option<usize>, Option<usize>) {
    (kernel.m.dense().and_then(|m| m.as_const()), kernel.n.as_const())
}

fn products(kernel: &Product<'_>) -> Vec<Tuning> {
    let (m, n) = extents(kernel);
    let tiles = TILES.into_iter().filter(|[rows, columns, ..]| suits(*rows, m, 4) && suits(*columns, n, 64));
    let tuning = |[rows, columns, depth, each]: [u32; 4]| Tuning {
        rows: Some(rows),
        columns: Some(columns),
        depth: Some(depth),
        rows_per_thread: Some(each),
        ..Tuning::default()
    };
    tiles.map(tuning).collect()
}

fn products_of_matrices(kernel: &Product<'_>, size: u32) -> Vec<Tuning> {
    let (m, n) = extents(kernel);
    let across = |extent| MATRICES.map(|count| count * size).into_iter().filter(move |tile| suits(*tile, extent, 4));
    let tile = |rows| move |columns| Tuning { rows: Some(rows), columns: Some(columns), ..Tuning::default() };
    across(m).flat_map(|rows| across(n).map(tile(rows))).collect()
}

fn attention_of_matrices(size: u32) -> Vec<Tuning> {
    let tile = |each: u32, queries: u32, keys: u32| Tuning {
        rows: Some(queries * size),
        columns: Some(keys * size),
        rows_per_thread: Some(each),
        ..Tuning::default()
    };
    let tiles = [1, 2].into_iter().flat_map(|keys| [2, 4, 8].map(|queries| (queries, keys))).chain([(2, 4), (4, 4)]);
    tiles.flat_map(|(queries, keys)| [1, 2].map(|each| tile(each, queries, keys))).collect()
}
