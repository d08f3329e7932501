use super::{Emitter, Tiling};
use crate::coords::Coords;
use crate::expr::Code;
use crate::hook::{Element, float, function};
use crate::module::Module;
use crate::staged_rows::StagedRows;
use crate::template::{Template, template};
use crate::value::Emitted;
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph::limits::MAX_AXES;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph_rewrite::device::{Extension, Target, Tuning};
use rewire_graph_rewrite::schedule::{Analysis, Bound, PairSum, Pairs};

static TEMPLATE: Template = template!("pairs_cooperative.wgsl");

/// Halves by which rows of staged tiles are padded, and floats by which those of products are.
const PADDING: u32 = 8;
const STAGE_PADDING: u32 = 4;
/// Halves of an owner, its sums counted twice, that fit the registers of a subgroup with a matrix of owners.
const MOST_HALVES: u32 = 800;
/// Subgroups of a workgroup.
const SUBGROUPS: u32 = 4;
/// Matrices of others in the tiles of a workgroup whose weights stay in registers.
const OTHERS_OF_REGISTERS: u32 = 2;
/// Halves of an owner up to which such a workgroup has fewer subgroups, and these two matrices of owners.
const SOME_HALVES: u32 = 400;
const FEW_HALVES: u32 = 256;
/// A coordinate that no nest has, which columns are named by where expressions are compared.
const COLUMNS: u8 = MAX_AXES as u8;

/// What pairs read of the others, once for products and sums.
struct Other {
    root: ExprId,
    /// The coordinate of its columns.
    axis: u8,
    width: usize,
}

/// How a workgroup's owners and others are divided among subgroups and matrices.
pub(super) struct CooperativePairsTile {
    size: u32,
    subgroup: u32,
    /// Owners of a workgroup, and of a subgroup in matrices.
    rows: u32,
    row_matrices: u32,
    /// Others of a tile.
    keys: u32,
    /// What is staged of the others.
    others: Vec<Other>,
    /// Widths of products, in whole matrices.
    depths: Vec<u32>,
    sums: u32,
    /// Weights are computed in the registers that hold products.
    in_registers: bool,
}

impl CooperativePairsTile {
    /// The tile for pairs that take cooperative matrices: sums of halves in one pass, on a target that has them.
    pub fn new(kernel: &Bound<'_, Pairs>, target: &Target, tuning: &Tuning) -> Result<Option<Self>, EmitError> {
        let Some((size, subgroup)) = target.cooperative().filter(|_| kernel.takes_halves()) else { return Ok(None) };
        let whole = |width: usize| (width.max(1) as u32).next_multiple_of(size);
        let depths: Vec<u32> = kernel.dots.iter().map(|dot| whole(dot.width)).collect();
        let columns: u32 = kernel.sums().filter_map(|sum| sum.element.map(|element| whole(element.width))).sum();
        let halves = depths.iter().sum::<u32>() + 2 * columns;
        if halves > MOST_HALVES {
            return Ok(None);
        }
        let in_registers = target.matrix_elements;
        let suited = if halves > if in_registers { FEW_HALVES } else { MOST_HALVES / 2 } { 1 } else { 2 };
        let row_matrices = match tuning.rows_per_thread.unwrap_or(suited) {
            got @ (1 | 2) => got,
            got => {
                return Err(EmitError::Tuning { parameter: "rows_per_thread", expected: "1 or 2".to_owned(), got });
            }
        };
        let count = |parameter, wanted: Option<u32>, unit: u32, default: u32| match wanted {
            Some(got) if got == 0 || got % unit != 0 || got > 8 * unit => {
                let expected = format!("a multiple of {unit} up to {}", 8 * unit);
                Err(EmitError::Tuning { parameter, expected, got })
            }
            _ => Ok(wanted.unwrap_or(default)),
        };
        let unit = row_matrices * size;
        let (subgroups, keys) = match in_registers {
            true => (if halves > SOME_HALVES { 2 * SUBGROUPS } else { SUBGROUPS }, OTHERS_OF_REGISTERS * size),
            false => (SUBGROUPS, size),
        };
        let rows = count("rows", tuning.rows, unit, subgroups * unit)?;
        let keys = count("columns", tuning.columns, size, keys)?;
        let (others, sums) = (others(kernel), kernel.sums().count() as u32);
        let mut tile = Self { size, subgroup, rows, row_matrices, keys, others, depths, sums, in_registers };
        while tile.bytes() > target.workgroup_bytes || tile.threads() > target.invocations {
            if tuning.rows.is_some() || !tile.rows.is_multiple_of(2 * unit) {
                return Ok(None);
            }
            tile.rows /= 2;
        }
        Ok(Some(tile))
    }

    fn subgroups(&self) -> u32 {
        self.rows / (self.row_matrices * self.size)
    }

    fn threads(&self) -> u32 {
        self.subgroups() * self.subgroup
    }

    fn whole(&self, width: usize) -> u32 {
        (width.max(1) as u32).next_multiple_of(self.size)
    }

    /// Length of a row of a staged tile, in groups of four.
    fn pitch(width: u32) -> u32 {
        (width + PADDING) / 4
    }

    fn stage_pitch(&self) -> u32 {
        (if self.in_registers { self.size } else { self.keys } + STAGE_PADDING) / 4
    }

    fn stage_length(&self) -> u32 {
        self.subgroups() * self.size * self.stage_pitch()
    }

    fn weight_length(&self) -> u32 {
        if self.in_registers { 0 } else { self.rows * Self::pitch(self.keys) }
    }

    /// Length of a tile of the others.
    fn buffer_length(&self) -> u32 {
        self.base(self.others.len())
    }

    /// Where the others of a number begin in the memory of tiles.
    fn base(&self, number: usize) -> u32 {
        self.others.iter().take(number).map(|other| self.keys * Self::pitch(self.whole(other.width))).sum()
    }

    fn tile_length(&self) -> u32 {
        let buffers = if self.in_registers { 2 } else { 1 };
        (buffers * self.buffer_length()).max(self.rows * Self::pitch(self.size))
    }

    /// Columns of owners that are staged at once.
    fn chunk(&self, depth: u32) -> u32 {
        let fits = |matrices: &u32| self.rows * Self::pitch(matrices * self.size) <= self.tile_length();
        (1..=depth / self.size).rev().find(fits).unwrap_or(1) * self.size
    }

    /// Bytes of workgroup memory, but for the bounds of the mask.
    fn bytes(&self) -> u32 {
        let pages = if self.in_registers { 32 * self.subgroups() } else { 0 };
        8 * (self.tile_length() + self.sums * self.weight_length()) + 16 * self.stage_length() + pages + 256
    }
}

/// What the products and sums of a kernel read of the others, without what is the same but for the name of its columns.
fn others(kernel: &Bound<'_, Pairs>) -> Vec<Other> {
    let dag = &kernel.nest.body.dag;
    let dots = kernel.dots.iter().map(|dot| Other { root: dot.other, axis: dot.depth, width: dot.width });
    let elements = kernel.sums().filter_map(|sum| sum.element);
    let elements = elements.map(|element| Other { root: element.value, axis: element.column, width: element.width });
    dots.chain(elements).fold(vec![], |mut others: Vec<Other>, new| {
        if place(&others, dag, &new).is_none() {
            others.push(new);
        }
        others
    })
}

/// The number of the others that are the same.
fn place(others: &[Other], dag: &Dag, wanted: &Other) -> Option<usize> {
    others.iter().position(|other| other.width == wanted.width && alike(dag, other, wanted))
}

/// True if two expressions are the same but for the coordinate of their columns.
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

/// The power of two that is nearest to what constants make of the weights of a sum: halves are left to hold the rest.
fn scale(dag: &Dag, weight: ExprId) -> f32 {
    let (mut factors, mut product) = (vec![weight], 1.0f32);
    while let Some(factor) = factors.pop() {
        match *dag.expr(factor) {
            Expr::Float(bits) => product *= f32::from_bits(bits),
            Expr::Binary(BinaryOp::Mul, a, b) => factors.extend([a, b]),
            Expr::Select(_, a, hidden) if *dag.expr(hidden) == Expr::Float(0) => factors.push(a),
            _ => {}
        }
    }
    let exponent = product.abs().log2().round();
    if exponent.is_finite() { exponent.clamp(-64.0, 64.0).exp2() } else { 1.0 }
}

/// Tiles of matrices.
pub(super) fn candidates(size: u32) -> Vec<Tuning> {
    let tile = |each: u32, owners: u32, others: u32| Tuning {
        rows: Some(owners * size),
        columns: Some(others * size),
        rows_per_thread: Some(each),
        ..Tuning::default()
    };
    let tiles = [1, 2].into_iter().flat_map(|others| [2, 4, 8].map(|owners| (owners, others)));
    tiles.flat_map(|(owners, others)| [1, 2].map(|each| tile(each, owners, others))).collect()
}

impl Emitter<'_> {
    /// Emits pairs of cooperative matrices.
    pub(super) fn cooperative(&self, tile: &CooperativePairsTile, module: Module) -> Result<ParsedKernel, EmitError> {
        let variables = self.cooperative_variables(tile);
        let extension = tile.in_registers.then_some(Extension::Elements);
        let tiling = Tiling { template: &TEMPLATE, threads: tile.threads(), rows: tile.rows, extension, variables };
        self.fill(module, tiling, |module| self.cooperative_hooks(tile, module))
    }

    fn cooperative_variables(&self, tile: &CooperativePairsTile) -> Vec<(&'static str, Variable)> {
        let dag = &self.kernel.nest.body.dag;
        let number = |root, axis, width| place(&tile.others, dag, &Other { root, axis, width }).unwrap_or(0);
        let pitch = |width: usize| CooperativePairsTile::pitch(tile.whole(width));
        let others = tile.others.iter().enumerate().map(|(number, other)| {
            let staged = StagedRows {
                name: &format!("other{number}"),
                rows: tile.keys,
                width: other.width,
                depth: tile.whole(other.width),
                pitch: pitch(other.width),
                base: tile.base(number),
                threads: tile.threads(),
                side_by_side: false,
            };
            staged.variable()
        });
        let dots = self.kernel.dots.iter().zip(&tile.depths).map(|(dot, &depth)| {
            let chunk = tile.chunk(depth);
            Variable::from_pairs([
                ("value", Variable::from(dot.value)),
                ("width", dot.width.into()),
                ("depth", depth.into()),
                ("chunk", chunk.into()),
                ("pitch", CooperativePairsTile::pitch(chunk).into()),
                ("items", (tile.rows * chunk / 4).div_ceil(tile.threads()).into()),
                ("base", tile.base(number(dot.other, dot.depth, dot.width)).into()),
                ("tile_pitch", pitch(dot.width).into()),
            ])
        });
        let sum = |position: u32, sum: &PairSum| {
            let (at, width) = sum
                .element
                .map_or((0, 0), |element| (number(element.value, element.column, element.width), element.width));
            Variable::from_pairs([
                ("value", Variable::from(sum.value)),
                ("matrices", (tile.whole(width) / tile.size).into()),
                ("base", (position * tile.weight_length()).into()),
                ("tile_base", tile.base(at).into()),
                ("tile_pitch", pitch(width).into()),
                ("scale", format!("{:?}", scale(dag, sum.weight)).into()),
            ])
        };
        let sums = (0..).zip(self.kernel.sums()).map(|(position, own)| sum(position, own));
        let columns = self.columns().into_iter().map(|(axis, width)| {
            let sums: Vec<Variable> = self.weighted(axis).map(|own| sum(0, own)).collect();
            Variable::from_pairs([
                ("axis", Variable::from(axis)),
                ("width", width.into()),
                ("matrices", (tile.whole(width) / tile.size).into()),
                ("sums", sums.into()),
            ])
        });
        let stage_groups = tile.size * tile.keys / 4;
        vec![
            ("size", tile.size.into()),
            ("subgroup", tile.subgroup.into()),
            ("row_matrices", tile.row_matrices.into()),
            ("keys", tile.keys.into()),
            ("in_registers", tile.in_registers.into()),
            ("subgroups", tile.subgroups().into()),
            ("buffer_length", tile.buffer_length().into()),
            ("weight_pitch", CooperativePairsTile::pitch(tile.keys).into()),
            ("weight_length", (tile.sums * tile.weight_length()).into()),
            ("tile_length", tile.tile_length().into()),
            ("stage_pitch", tile.stage_pitch().into()),
            ("stage_length", tile.stage_length().into()),
            ("stage_groups", stage_groups.into()),
            ("stage_items", stage_groups.div_ceil(tile.subgroup).into()),
            ("result_items", (tile.size * tile.size / 4).div_ceil(tile.subgroup).into()),
            ("tiles", others.collect::<Vec<_>>().into()),
            ("dots", dots.collect::<Vec<_>>().into()),
            ("sums", sums.collect::<Vec<_>>().into()),
            ("columns", columns.collect::<Vec<_>>().into()),
        ]
    }

    /// The hook that weighs a pair for a sum, `gain` times.
    fn weigh_one(&self, module: &mut Module, pair: &Coords, sum: &PairSum, gain: f32) -> Result<String, EmitError> {
        let products = self.products(u32::MAX).into_iter().map(|value| (value, format!("product{value}")));
        let products: Vec<(u8, String)> = products.collect();
        let values: Vec<_> = products.iter().map(|(value, name)| (*value, Emitted::Uniform(name.clone()))).collect();
        let mut code = Code::point(pair, &values);
        code.restrict("kept".to_owned());
        if let Some(mask) = self.kernel.mask {
            code.learn(mask, Emitted::Uniform("kept".to_owned()));
        }
        float(module, "the weight of a pair", sum.weight)?;
        let weight = code.eval_one(module, sum.weight)?.first();
        let scaled = if gain == 1.0 { weight } else { format!("{weight} * {gain:?}f") };
        code.line(&format!("return select(0.0f, {scaled}, kept);"));
        let more: String = products.iter().map(|(_, name)| format!(", {name}: f32")).collect();
        Ok(function(&format!("weigh{}", sum.value), pair, &format!(", kept: bool{more}"), "f32", &code.take()))
    }

    fn cooperative_hooks(&self, tile: &CooperativePairsTile, module: &mut Module) -> Result<String, EmitError> {
        let kernel = self.kernel;
        let entry = self.frame().entry(module);
        let row = |row: (u8, &str), column: u8| entry.clone().with(row.0, row.1).with(column, "d");
        let (owner, other) = ((kernel.owner, "i"), (kernel.other, "j"));
        let mut text = String::new();
        for dot in &kernel.dots {
            let name = (format!("owner{}", dot.value), &row(owner, dot.depth));
            text += &self.row(module, name, (dot.depth, dot.width), (dot.owner, Element::Half))?;
        }
        for (number, staged) in tile.others.iter().enumerate() {
            let name = (format!("other{number}"), &row(other, staged.axis));
            text += &self.row(module, name, (staged.axis, staged.width), (staged.root, Element::Half))?;
        }
        let pair = entry.clone().with(owner.0, owner.1).with(other.0, other.1);
        let gain = |sum: &PairSum| scale(&kernel.nest.body.dag, sum.weight).recip();
        match tile.in_registers {
            true => {
                text += &self.frame().keep_one(module, &pair)?;
                for sum in kernel.sums() {
                    text += &self.weigh_one(module, &pair, sum, gain(sum))?;
                }
            }
            false => {
                text += &self.frame().keep(module, &pair)?;
                for (number, pass) in kernel.passes.iter().enumerate() {
                    text += &self.weigh(module, &pair, (number, pass), gain)?;
                }
            }
        }
        for (column, width) in self.columns() {
            text += &self.finish(module, &row(owner, column), (column, width))?;
        }
        Ok(text)
    }
}
