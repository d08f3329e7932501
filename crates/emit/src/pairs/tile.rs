//! Tiles of pair reductions with cooperative matrices.

use crate::EmitError;
use crate::registers;
use rewire_graph::limits::{MAX_AXES, MAX_VALUES};
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph_rewrite::device::{MatrixPairReductionTile, Target};
use rewire_graph_rewrite::schedule::{Analysis, Bound, PairReduction};

/// Padding of rows of staged tiles in f16 elements, and of rows of dot products in f32 elements.
const PADDING: u32 = 8;
const STAGE_PADDING: u32 = 4;
/// The widest head of attention whose queries and accumulators fit in the registers of a subgroup.
const WIDEST: u32 = 128;
/// Width of heads above which fewer subgroups have more rows each, which reads keys and values less often, or scores
/// are computed ahead.
const WIDE: u32 = 64;
/// Width of heads up to which registers suffice for more keys at once.
const NARROW: u32 = 32;
/// Largest number of elements of a row, with accumulators counted twice, that fit in the registers of a subgroup with
/// one row matrix.
const MOST_ELEMENTS: u32 = 800;
/// Largest numbers of elements of a row for which a workgroup with weights in registers has fewer subgroups with two
/// row matrices each.
const SOME_ELEMENTS: u32 = 400;
const FEW_ELEMENTS: u32 = 256;
/// Largest number of subgroups per workgroup, per row matrix of a subgroup, for which subgroups share rows.
const SUBGROUPS: u32 = 4;
/// Largest number of subgroups in a workgroup that uses all registers.
const MOST_SUBGROUPS: u32 = 8;
/// A coordinate that no nest uses; it replaces column coordinates when expressions are compared.
const COLUMNS: u8 = MAX_AXES as u8;
const _: () = assert!(COLUMNS as usize >= MAX_AXES && (COLUMNS as usize) < MAX_VALUES);

/// A tensor of the other rows, read once for dot products and sums.
pub(super) struct Other {
    pub root: ExprId,
    /// The coordinate of its columns.
    pub axis: u8,
    pub width: usize,
}

/// The division of a workgroup's rows and columns among subgroups and matrices.
pub(super) struct CooperativeTile {
    pub size: u32,
    /// Largest and smallest possible subgroup size.
    pub subgroup: u32,
    pub smallest: u32,
    /// Rows per workgroup, and row matrices per subgroup.
    pub rows: u32,
    pub row_matrices: u32,
    /// Columns per tile.
    pub keys: u32,
    /// Number of subgroups that share rows.
    pub split: u32,
    /// Number of row matrices whose dot products pass through workgroup memory at once.
    pub together: u32,
    /// The tensors of the other rows that are staged.
    pub others: Vec<Other>,
    /// Widths of dot products, rounded up to whole matrices.
    pub depths: Vec<u32>,
    /// Number of sums, and the width of the narrowest, rounded up to whole matrices.
    sums: u32,
    narrowest: u32,
    /// True if weights are computed in the registers that hold dot products.
    pub in_registers: bool,
    /// True if the dot products of the next tile are computed while the weights of the current tile are.
    pub products_ahead: bool,
    pub softmax: bool,
}

/// Default numbers of row matrices per subgroup and per workgroup, and of column matrices.
struct Suited {
    row_matrices: u32,
    subgroups: u32,
    keys: u32,
}

impl CooperativeTile {
    /// The tile for a pair reduction on cooperative matrices; `None` if the kernel is not a sum of f16 rows in one
    /// pass, does not fit in registers, or the target does not support them.
    pub fn new(
        kernel: &Bound<'_, PairReduction>,
        target: &Target,
        wanted: Option<MatrixPairReductionTile>,
    ) -> Result<Option<Self>, EmitError> {
        let Some((size, sizes)) = target.matrices_of_subgroups().filter(|_| kernel.allows_f16_operands()) else {
            return Ok(None);
        };
        let (subgroup, smallest, varying) = (sizes.max, sizes.min, sizes.one().is_none());
        let whole = |width: usize| (width.max(1) as u32).next_multiple_of(size);
        let depths: Vec<u32> = kernel.dots.iter().map(|dot| whole(dot.width)).collect();
        let columns = || kernel.sums().filter_map(|sum| sum.element.map(|element| whole(element.width)));
        let elements = depths.iter().sum::<u32>() + 2 * columns().sum::<u32>();
        let widest = depths.iter().copied().chain(columns()).max().unwrap_or(0);
        let is_attention = kernel.attention().is_some();
        let fits = if is_attention { widest <= WIDEST } else { elements <= MOST_ELEMENTS };
        if !fits {
            return Ok(None);
        }
        let (in_registers, softmax) = (target.matrix_elements && !varying, kernel.softmax);
        let suited = match is_attention {
            true => Suited::attention(widest, in_registers, softmax, registers::has_few(target)),
            false => Suited::several(elements, in_registers),
        };
        let row_matrices = match wanted.map_or(suited.row_matrices, |tile| tile.rows_per_thread) {
            got @ (1 | 2) => got,
            got => {
                return Err(EmitError::Tuning { parameter: "rows_per_thread", expected: "1 or 2".to_owned(), got });
            }
        };
        let unit = row_matrices * size;
        let subgroups = if is_attention && !in_registers { 8 / row_matrices } else { suited.subgroups };
        let rows = multiple("rows", wanted.map(|tile| tile.rows), unit, subgroups * unit)?;
        let keys = multiple("columns", wanted.map(|tile| tile.columns), size, suited.keys * size)?;
        if softmax && !in_registers && !(keys.is_power_of_two() && keys / 4 <= smallest) {
            let expected = format!("a power of two up to {}, since lanes share rows", 4 * smallest);
            return Err(EmitError::Tuning { parameter: "columns", expected, got: keys });
        }
        let narrowest = columns().min().unwrap_or(size);
        let whole_matrices = |split: &u32| [keys, narrowest].iter().all(|width| width.is_multiple_of(split * size));
        let few = |split: &u32| rows / unit * split <= SUBGROUPS * row_matrices;
        let shares = is_attention && !in_registers && !softmax && !varying;
        let split = [4, 2].into_iter().find(|split| shares && few(split) && whole_matrices(split)).unwrap_or(1);
        // Narrower heads are faster if more workgroups share the registers.
        let products_ahead = is_attention && in_registers && widest > WIDE && !softmax;
        let tile = Self {
            size,
            subgroup,
            smallest,
            rows,
            row_matrices,
            keys,
            split,
            together: if is_attention { row_matrices } else { 1 },
            others: others(kernel, products_ahead),
            depths,
            sums: kernel.sums().count() as u32,
            narrowest,
            in_registers,
            products_ahead,
            softmax,
        };
        Ok(tile.that_fits(target))
    }

    /// The tile, or one with fewer rows, which needs less workgroup memory.
    fn that_fits(mut self, target: &Target) -> Option<Self> {
        let unit = self.row_matrices * self.size;
        while self.bytes() > target.workgroup_bytes || self.threads() > target.invocations {
            if !self.rows.is_multiple_of(2 * unit) {
                return None;
            }
            self.rows /= 2;
        }
        Some(self)
    }

    /// Rows of a workgroup whose subgroups have one row matrix each.
    pub fn fewer_rows(&self) -> u32 {
        self.rows.min(MOST_SUBGROUPS * self.size)
    }

    /// True if all rows are narrow.
    pub fn is_narrow(&self) -> bool {
        self.others.iter().all(|other| other.width as u32 <= NARROW)
    }

    pub fn subgroups(&self) -> u32 {
        self.rows / (self.row_matrices * self.size) * self.split
    }

    pub fn threads(&self) -> u32 {
        self.subgroups() * self.subgroup
    }

    /// True if the subgroup size varies: a workgroup may have more and smaller subgroups than the tile assumes.
    pub fn varying(&self) -> bool {
        self.smallest < self.subgroup
    }

    /// Rows of weights in workgroup memory, for the largest possible number of subgroups.
    pub fn held_rows(&self) -> u32 {
        self.rows * (self.subgroup / self.smallest)
    }

    /// Number of buffers in a subgroup's stage: one per dot product if weights are computed from all of them at once,
    /// else one.
    pub fn stages(&self) -> u32 {
        if self.varying() && !self.softmax { self.depths.len() as u32 } else { 1 }
    }

    /// A width rounded up to whole matrices.
    pub fn whole(&self, width: usize) -> u32 {
        (width.max(1) as u32).next_multiple_of(self.size)
    }

    /// Length of a row of a staged tile, in groups of four.
    pub fn pitch(width: u32) -> u32 {
        (width + PADDING) / 4
    }

    /// Length of a staged row with this number of columns.
    pub fn pitch_of(&self, width: usize) -> u32 {
        Self::pitch(self.whole(width))
    }

    /// Number of column matrices that a subgroup accumulates.
    pub fn matrices(&self, width: usize) -> u32 {
        self.whole(width) / self.size / self.split
    }

    /// Number of columns whose weights a subgroup computes.
    pub fn part_keys(&self) -> u32 {
        self.keys / self.split
    }

    pub fn stage_pitch(&self) -> u32 {
        let columns = if self.in_registers { self.size } else { self.together * self.part_keys().max(self.size) };
        (columns + STAGE_PADDING) / 4
    }

    pub fn stage_length(&self) -> u32 {
        self.subgroups() * (self.subgroup / self.smallest) * self.stages() * self.size * self.stage_pitch()
    }

    /// Number of result matrices that are written together.
    pub fn result_matrices(&self) -> u32 {
        let columns = self.narrowest / self.size / self.split;
        let several = !self.in_registers && columns.is_multiple_of(self.together);
        if several { self.together } else { 1 }
    }

    /// Length of the weights of a sum in workgroup memory, in groups of four.
    pub fn weight_length(&self) -> u32 {
        if self.in_registers { 0 } else { self.held_rows() * Self::pitch(self.keys) }
    }

    pub fn weights_length(&self) -> u32 {
        self.sums * self.weight_length()
    }

    /// Length of a staged tile of the other rows.
    pub fn buffer_length(&self) -> u32 {
        self.base(self.others.len())
    }

    /// The start of staged tensor `number` in the memory of tiles.
    pub fn base(&self, number: usize) -> u32 {
        self.others.iter().take(number).map(|other| self.keys * self.pitch_of(other.width)).sum()
    }

    pub fn tile_length(&self) -> u32 {
        let buffers = if self.in_registers { 2 } else { 1 };
        (buffers * self.buffer_length()).max(self.rows * Self::pitch(self.size))
    }

    /// Number of columns of rows that are staged at once.
    pub fn chunk(&self, depth: u32) -> u32 {
        let fits = |matrices: &u32| self.rows * Self::pitch(matrices * self.size) <= self.tile_length();
        (1..=depth / self.size).rev().find(fits).unwrap_or(1) * self.size
    }

    /// Workgroup memory in bytes, excluding the bounds of the mask.
    fn bytes(&self) -> u32 {
        let pages = if self.in_registers { 32 * self.subgroups() } else { 0 };
        let shifts = if self.softmax { 8 * self.held_rows() } else { 0 };
        8 * (self.tile_length() + self.weights_length()) + 16 * self.stage_length() + pages + shifts + 256
    }

    /// The index in `others` of the tensor that equals `wanted`, for a dot product or a sum.
    pub fn place(&self, dag: &Dag, wanted: &Other, of_sum: bool) -> Option<usize> {
        let first = if of_sum && self.products_ahead { self.depths.len() } else { 0 };
        Some(first + place(self.others.get(first..)?, dag, wanted)?)
    }
}

/// Tiles worth measuring, for attention or for several sums.
pub(super) fn tiles(size: u32, is_attention: bool) -> Vec<MatrixPairReductionTile> {
    let tile = |rows_per_thread: u32, owners: u32, others: u32| MatrixPairReductionTile {
        rows: owners * size,
        columns: others * size,
        rows_per_thread,
    };
    let tiles = [1, 2].into_iter().flat_map(|others| [2, 4, 8].map(|owners| (owners, others)));
    let more: &[(u32, u32)] = if is_attention { &[(2, 4), (4, 4)] } else { &[] };
    let tiles = tiles.chain(more.iter().copied());
    let tiles = tiles.flat_map(|(owners, others)| [1, 2].map(|each| tile(each, owners, others)));
    tiles.chain(is_attention.then(|| tile(2, 16, 1))).collect()
}

/// The value that a tuning sets, a multiple of `unit`, or the default.
fn multiple(parameter: &'static str, wanted: Option<u32>, unit: u32, suited: u32) -> Result<u32, EmitError> {
    match wanted {
        Some(got) if got == 0 || !got.is_multiple_of(unit) || got > 8 * unit => {
            let expected = format!("a multiple of {unit} up to {}", 8 * unit);
            Err(EmitError::Tuning { parameter, expected, got })
        }
        _ => Ok(wanted.unwrap_or(suited)),
    }
}

impl Suited {
    fn attention(widest: u32, in_registers: bool, softmax: bool, few_registers: bool) -> Self {
        let (row_matrices, subgroups, keys) = match in_registers {
            false if widest > WIDE && !softmax && !few_registers => (2, 4, 1),
            false => (1, 8, 1),
            true if widest <= NARROW && softmax => (1, 8, 2),
            true if widest <= NARROW => (2, 4, 2),
            // The sums of exponentials need the registers for dot products computed ahead.
            true if widest > WIDE && softmax => (2, 8, 1),
            true => (2, 4, 1),
        };
        Self { row_matrices, subgroups, keys }
    }

    fn several(elements: u32, in_registers: bool) -> Self {
        match in_registers {
            true => Self {
                row_matrices: if elements > FEW_ELEMENTS { 1 } else { 2 },
                subgroups: if elements > SOME_ELEMENTS { MOST_SUBGROUPS } else { SUBGROUPS },
                keys: 2,
            },
            false => {
                Self { row_matrices: if elements > MOST_ELEMENTS / 2 { 1 } else { 2 }, subgroups: SUBGROUPS, keys: 1 }
            }
        }
    }
}

/// The tensors of the other rows that dot products and sums read. Tensors that differ only in their column coordinate
/// are merged. Dot products computed ahead have separate tiles.
fn others(kernel: &Bound<'_, PairReduction>, products_ahead: bool) -> Vec<Other> {
    let dag = &kernel.nest.body.dag;
    let dots = kernel.dots.iter().map(|dot| Other { root: dot.other, axis: dot.depth, width: dot.width });
    let elements = kernel.sums().filter_map(|sum| sum.element);
    let elements = elements.map(|element| Other { root: element.value, axis: element.column, width: element.width });
    dots.chain(elements).fold(vec![], |mut others: Vec<Other>, new| {
        if products_ahead || place(&others, dag, &new).is_none() {
            others.push(new);
        }
        others
    })
}

fn place(others: &[Other], dag: &Dag, wanted: &Other) -> Option<usize> {
    others.iter().position(|other| other.width == wanted.width && alike(dag, other, wanted))
}

/// True if two expressions differ only in their column coordinate.
fn alike(dag: &Dag, a: &Other, b: &Other) -> bool {
    let mut joint = Dag::new();
    let mut copy = |other: &Other| {
        let renamed = |dag: &mut Dag, expr: &Expr, _: &[ExprId]| match *expr {
            Expr::Coord(axis) if axis == other.axis => Some(dag.coord(COLUMNS, Some(other.width))),
            _ => None,
        };
        joint.graft(dag, &[other.root], renamed)
    };
    copy(a) == copy(b)
}
