use super::{Emitter, Tiling};
use crate::coords::Coords;
use crate::device_function::{Combine, Element, function};
use crate::expr::Code;
use crate::module::Module;
use crate::registers;
use crate::store::store_point;
use crate::template::{Template, template};
use crate::value::WgslValue;
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph_rewrite::device::{PairReductionTile, Target};
use rewire_graph_rewrite::plan::Extent;
use rewire_graph_rewrite::schedule::{Attention, Bound, PairReduction, PairSum};

static TEMPLATE: Template = template!("pairs.wgsl");

const THREADS: u32 = 128;
/// Threads that share rows: each has four other rows of a tile, and four columns of every chunk of a sum.
const GROUPS: u32 = 8;
/// Columns of dot products, and weights of a row, that are staged at once.
const CHUNK: u32 = 32;
/// Largest number of columns staged at once if barriers cost more than memory.
const LONG_CHUNK: u32 = 128;
/// Rows per thread if twice as many threads share them: a thread then loads fewer operands per multiply-add.
const SHARED_ROWS: u32 = 8;
/// Largest number of accumulators of a thread, in groups of four, that fit in registers.
const MOST_SUMS: u32 = 32;

/// Largest number of columns of a row that has a sample of its own: the row, the scores and weights of its keys fit in
/// the memory of the smallest tile.
const SINGLE_WIDTH: usize = 256;

/// Steps of four keys whose elements a thread loads at once for a row that has a sample of its own.
const STEPS_TOGETHER: u32 = 4;

/// Registers, in groups of four, for the operands of a dot product's step, and for other rows in flight.
const FACTORS: u32 = 5;
const ON_THEIR_WAY: u32 = 2;
/// Registers for indices and loop counters.
const PLACES: u32 = 32;

/// The division of rows and other rows among threads and steps.
#[derive(Clone, Copy)]
pub(super) struct PlainTile {
    /// Rows per thread.
    each: u32,
    /// Threads that share rows.
    groups: u32,
    /// Columns of dot products that are staged at once.
    chunk: u32,
    /// True if a sum stages all other rows of a tile at once.
    few_barriers: bool,
    /// Registers of a thread, if they are few.
    registers: Option<u32>,
}

impl PlainTile {
    pub fn new(
        kernel: &Bound<'_, PairReduction>,
        target: &Target,
        wanted: Option<PairReductionTile>,
    ) -> Result<Self, EmitError> {
        let width = kernel.dots.iter().map(|dot| dot.width as u32).max().unwrap_or(1);
        let width = width.max(1).next_multiple_of(4);
        let each = wanted.map_or(1, |tile| tile.rows_per_thread);
        if !(1..=8).contains(&each) {
            let expected = "1 to 8".to_owned();
            return Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got: each });
        }
        let registers = registers::has_few(target).then(|| target.register_budget());
        let chunk = width.min(CHUNK);
        let tile = |each: u32| {
            let is_shared = each == SHARED_ROWS && registers.is_none() && allows_shared_rows(kernel, target);
            Self { each, groups: if is_shared { 2 * GROUPS } else { GROUPS }, chunk, few_barriers: false, registers }
        };
        let fits =
            |tile: &Self| tile.sums(kernel) * tile.each <= MOST_SUMS && tile.bytes(kernel) <= target.workgroup_bytes;
        if target.software {
            // Software drivers compile barriers slowly and hold no tile in registers.
            let few_barriers = Self { chunk: width.min(LONG_CHUNK), few_barriers: true, ..tile(each) };
            return Ok(if fits(&few_barriers) { few_barriers } else { tile(each) });
        }
        let holds = |tile: &Self| tile.needed(kernel) <= target.register_budget();
        let larger = [SHARED_ROWS, 4, 2].map(tile).into_iter();
        let mut larger = larger.filter(|tile| wanted.is_none() && (tile.each < SHARED_ROWS || tile.groups > GROUPS));
        Ok(larger.find(|tile| fits(tile) && holds(tile)).unwrap_or(tile(each)))
    }

    /// Accumulators of a thread, in groups of four, for each of its rows.
    fn sums(&self, kernel: &Bound<'_, PairReduction>) -> u32 {
        kernel.sums().map(|sum| chunks(sum, self.groups)).sum()
    }

    /// Registers of a thread: accumulators and dot products, operands of a step, other rows in flight, and indices.
    fn needed(&self, kernel: &Bound<'_, PairReduction>) -> u32 {
        let of_row = self.sums(kernel) + kernel.dots.len() as u32;
        4 * (self.each * of_row + FACTORS.max(self.each + 1) + ON_THEIR_WAY) + PLACES
    }

    /// Rows per workgroup.
    pub fn rows(&self) -> u32 {
        self.each * THREADS / self.groups
    }

    /// True if the sums of a thread and their elements of four other rows do not fit in registers.
    fn goes_by_key(&self, sum: &PairSum) -> bool {
        self.registers.is_some_and(|registers| 4 * chunks(sum, self.groups) * (self.each + 4) > registers)
    }

    /// Other rows per tile.
    fn others(&self) -> u32 {
        4 * self.groups
    }

    /// Groups of four in a row of a staged tile, or of weights, with padding.
    fn pitch(&self) -> u32 {
        self.chunk.max(CHUNK) / 4 + 1
    }

    /// Number of other rows whose elements of a sum are staged together, limited to the memory of a chunk of dot
    /// products.
    fn others_of(&self, sum: &PairSum) -> u32 {
        match self.few_barriers {
            true => self.others(),
            false => 1 << (CHUNK / chunks(sum, self.groups).max(1)).clamp(4, CHUNK).ilog2(),
        }
    }

    /// Size of the staged tile of other rows, in groups of four.
    fn key_tile(&self, kernel: &Bound<'_, PairReduction>) -> u32 {
        let elements = kernel.sums().map(|sum| self.others_of(sum) * chunks(sum, self.groups) * self.groups);
        elements.fold(self.others() * self.pitch(), u32::max)
    }

    /// Workgroup memory in bytes, including the bounds of the mask.
    fn bytes(&self, kernel: &Bound<'_, PairReduction>) -> u32 {
        let softmax = if kernel.softmax { 3 + u32::from(kernel.mask.is_some()) } else { 0 };
        let statistics = kernel.sums().filter(|sum| sum.element.is_none()).count() as u32;
        16 * (self.rows() * self.pitch() + self.key_tile(kernel)) + (softmax + statistics) * 4 * self.rows() + 256
    }
}

/// True if twice as many threads may share rows: all of them have columns of every sum, and weights need no other rows.
fn allows_shared_rows(kernel: &Bound<'_, PairReduction>, target: &Target) -> bool {
    let is_wide = |sum: &PairSum| sum.element.is_some_and(|element| element.width as u32 > CHUNK);
    !target.software && !kernel.softmax && kernel.sums().all(is_wide)
}

/// Number of chunks of a sum's elements, with four columns for each thread of a row.
fn chunks(sum: &PairSum, groups: u32) -> u32 {
    sum.element.map_or(0, |element| (element.width as u32).div_ceil(4 * groups).max(1))
}

/// A staged block of the other rows, or of the owners.
struct Piece {
    function: String,
    /// Number of columns of a row, and the first staged column and the number of staged columns in groups of four.
    width: usize,
    column: u32,
    groups: u32,
    /// The first row in the tile, and the number of rows.
    row: u32,
    rows: u32,
    /// The owners' columns for the same dot product.
    owner: Option<Box<Piece>>,
}

impl Piece {
    fn items(&self, threads: u32) -> u32 {
        (self.rows * self.groups).div_ceil(threads)
    }

    /// The template variables of a block, or of the end of the list of blocks if `None`.
    fn variable(piece: Option<&Self>, threads: u32) -> Variable {
        let Some(piece) = piece else { return Variable::from_pairs([("items", 0), ("owner", 0)]) };
        let owner = piece.owner.as_ref().map(|owner| Self::variable(Some(owner), threads));
        Variable::from_pairs([
            ("items", Variable::from(piece.items(threads))),
            ("function", piece.function.clone().into()),
            ("width", piece.width.into()),
            ("column", piece.column.into()),
            ("groups", piece.groups.into()),
            ("row", piece.row.into()),
            ("rows", piece.rows.into()),
            ("owner", owner.unwrap_or_else(|| false.into())),
        ])
    }
}

impl Emitter<'_> {
    /// Emits a pair reduction with multiply-adds.
    pub(super) fn plain(&self, module: Module, wanted: Option<PairReductionTile>) -> Result<ParsedKernel, EmitError> {
        let tile = PlainTile::new(self.kernel, module.target, wanted)?;
        let variables = self.plain_variables(&tile, module.target);
        let tiling = Tiling { template: &TEMPLATE, threads: THREADS, rows: tile.rows(), extension: None, variables };
        self.fill(module, tiling, |module| self.plain_hooks(module))
    }

    fn plain_variables(&self, tile: &PlainTile, target: &Target) -> Vec<(&'static str, Variable)> {
        let pieces: Vec<Vec<Piece>> = self.kernel.passes.iter().map(|pass| self.pieces(tile, pass)).collect();
        let threads = THREADS;
        let items = pieces.iter().flatten().map(|piece| piece.items(threads)).max().unwrap_or(0);
        let owner_items =
            if self.kernel.dots.is_empty() { 0 } else { (tile.rows() * tile.chunk / 4).div_ceil(threads) };
        let t = Variable::from_pairs([
            ("rows_per_thread", Variable::from(tile.each)),
            ("rows", tile.rows().into()),
            ("chunk", tile.chunk.into()),
            ("threads", threads.into()),
            ("groups", tile.groups.into()),
            ("weights", CHUNK.into()),
            ("keys", tile.others().into()),
            ("owner_items", owner_items.into()),
            ("owners_ahead", tile.registers.is_none().into()),
            ("pitch", tile.pitch().into()),
            ("key_tile", tile.key_tile(self.kernel).into()),
            ("items", items.into()),
            // Without loading ahead a shader is shorter, which software drivers compile faster.
            ("ahead", (!target.software).into()),
            ("held", registers::load_ahead(target).into()),
            ("guarded", self.reads_pairs().into()),
            ("rolled", registers::has_few(target).into()),
            ("softmax", self.kernel.softmax.into()),
        ]);
        let passes = self.kernel.passes.iter().zip(&pieces).enumerate();
        let passes = passes.map(|(number, (pass, pieces))| self.pass(tile, number, pass, pieces));
        let columns = self.columns().into_iter().map(|(column, width)| {
            let sums = self.weighted(column).map(|sum| Variable::from(sum.value)).collect::<Vec<_>>();
            Variable::from_pairs([
                ("axis", column.into()),
                ("width", width.into()),
                ("chunks", Variable::from(width.div_ceil(tile.others() as usize).max(1))),
                ("sums", sums.into()),
            ])
        });
        let statistics = self.statistics.iter().map(|sum| {
            let identity = Combine(sum.op).identity();
            Variable::from_pairs([("value", Variable::from(sum.value)), ("identity", identity.into())])
        });
        vec![
            ("t", t),
            ("single", self.single_row(target).unwrap_or_else(|| false.into())),
            ("passes", passes.collect::<Vec<_>>().into()),
            ("columns", columns.collect::<Vec<_>>().into()),
            ("statistics", statistics.collect::<Vec<_>>().into()),
            ("rowwise", self.outputs(None).next().is_some().into()),
        ]
    }

    /// The template variables for samples with one row, if a softmax has ragged rows. All threads then share the keys of a
    /// row; the usual tile computes the row once for each of its other rows. The order of sums depends only on the
    /// number of rows of the sample, so a sample's results do not depend on other samples.
    fn single_row(&self, target: &Target) -> Option<Variable> {
        let kernel = self.kernel;
        let Attention { dot, sum, element } = kernel.attention()?;
        let is_ragged = matches!(kernel.owners, Extent::Ragged { .. });
        let is_narrow = dot.width.max(element.width) <= SINGLE_WIDTH && dot.width > 0;
        if !kernel.softmax || !is_ragged || !is_narrow || self.outputs(None).next().is_some() {
            return None;
        }
        let groups = (element.width.div_ceil(4) as u32).next_power_of_two().max(4);
        let scores = (dot.width as u32).div_ceil(4);
        let steps = groups / 4;
        let together = if target.software || registers::has_few(target) { 1 } else { steps.min(STEPS_TOGETHER) };
        Some(Variable::from_pairs([
            ("dot", Variable::from(dot.value)),
            ("depth", dot.width.into()),
            ("chunks", (dot.width as u32).div_ceil(CHUNK).into()),
            ("sum", sum.value.into()),
            ("column", element.column.into()),
            ("width", element.width.into()),
            ("groups", groups.into()),
            ("share", THREADS.into()),
            ("steps", steps.into()),
            ("together", together.into()),
            ("scores", scores.into()),
            ("weights", (scores + THREADS / 4).into()),
            ("threads", THREADS.into()),
        ]))
    }

    /// The blocks of a tile's other rows that a pass stages, in order.
    fn pieces(&self, tile: &PlainTile, pass: &[PairSum]) -> Vec<Piece> {
        let read = self.read(pass);
        let dots = self.kernel.dots.iter().filter(|dot| read >> dot.value & 1 == 1);
        let columns = dots.flat_map(|dot| {
            (0..dot.width.max(1) as u32).step_by(tile.chunk as usize).map(|column| {
                let of = |side: &str, rows: u32, owner: Option<Box<Piece>>| Piece {
                    function: format!("{side}{}", dot.value),
                    width: dot.width,
                    column,
                    groups: tile.chunk / 4,
                    row: 0,
                    rows,
                    owner,
                };
                of("other", tile.others(), Some(Box::new(of("owner", tile.rows(), None))))
            })
        });
        let elements = pass.iter().filter_map(|sum| Some((sum, sum.element?))).flat_map(|(sum, element)| {
            let rows = tile.others_of(sum);
            (0..tile.others()).step_by(rows as usize).map(move |row| Piece {
                function: format!("element{}", sum.value),
                width: element.width,
                column: 0,
                groups: chunks(sum, tile.groups) * tile.groups,
                row,
                rows,
                owner: None,
            })
        });
        columns.chain(elements).collect()
    }

    fn pass(&self, tile: &PlainTile, number: usize, pass: &[PairSum], pieces: &[Piece]) -> Variable {
        let parts = |function: String, is_last: bool| {
            let own = pieces.iter().enumerate().filter(move |(_, piece)| piece.function == function);
            let part = |(at, piece): (usize, &Piece)| {
                let is_end = at + 1 == pieces.len();
                Variable::from_pairs([
                    ("at", Variable::from(piece.column + piece.row)),
                    ("own", Piece::variable(Some(piece), THREADS)),
                    ("following", Piece::variable(pieces.get(at + 1), THREADS)),
                    ("is_last", (is_last && is_end).into()),
                ])
            };
            Variable::from(own.map(part).collect::<Vec<_>>())
        };
        let read = self.read(pass);
        let dots = self.kernel.dots.iter().filter(|dot| read >> dot.value & 1 == 1).map(|dot| {
            Variable::from_pairs([
                ("value", Variable::from(dot.value)),
                ("width", dot.width.into()),
                ("parts", parts(format!("other{}", dot.value), false)),
            ])
        });
        let sums = pass.iter().enumerate().map(|(at, sum)| {
            let combine = Combine(sum.op);
            let is_last = at + 1 == pass.len();
            Variable::from_pairs([
                ("value", Variable::from(sum.value)),
                ("chunks", chunks(sum, tile.groups).into()),
                ("by_key", tile.goes_by_key(sum).into()),
                ("keys", tile.others_of(sum).into()),
                ("items", (tile.others_of(sum) * chunks(sum, tile.groups) * tile.groups).div_ceil(THREADS).into()),
                ("parts", parts(format!("element{}", sum.value), is_last)),
                ("hidden", self.hidden(sum).into()),
                ("join", combine.join("total", &combine.total("weights")).into()),
                ("is_last", is_last.into()),
            ])
        });
        let statistics: Vec<u8> = self.statistics(read).into_iter().map(|(value, ..)| value).collect();
        Variable::from_pairs([
            ("number", Variable::from(number)),
            ("first", Piece::variable(pieces.first(), THREADS)),
            ("dots", dots.collect::<Vec<_>>().into()),
            ("sums", sums.collect::<Vec<_>>().into()),
            ("reads", statistics.into_iter().map(Variable::from).collect()),
        ])
    }

    fn plain_hooks(&self, module: &mut Module) -> Result<String, EmitError> {
        let kernel = self.kernel;
        let entry = self.frame().entry(module);
        let (owner, other) = ((kernel.owner, "i"), (kernel.other, "j"));
        let row = |row: (u8, &str), column: u8| entry.clone().with(row.0, row.1).with(column, "d");
        let mut text = String::new();
        for dot in &kernel.dots {
            for (side, place, root) in [("owner", owner, dot.owner), ("other", other, dot.other)] {
                let name = (format!("{side}{}", dot.value), &row(place, dot.depth));
                text += &self.row(module, name, (dot.depth, dot.width), (root, Element::Float))?;
            }
        }
        let pair = entry.clone().with(owner.0, owner.1).with(other.0, other.1);
        text += &self.frame().keep(module, &pair)?;
        for (number, pass) in kernel.passes.iter().enumerate() {
            text += &self.weigh(module, &pair, (number, pass), |_| 1.0)?;
            for (sum, element) in pass.iter().filter_map(|sum| Some((sum, sum.element?))) {
                let name = (format!("element{}", sum.value), &row(other, element.column));
                text += &self.row(module, name, (element.column, element.width), (element.value, Element::Float))?;
            }
        }
        for (column, width) in self.columns() {
            text += &self.finish(module, &row(owner, column), (column, width))?;
        }
        Ok(text + &self.finish_rows(module, &entry.with(owner.0, owner.1))?)
    }

    /// The device function that writes outputs without columns; empty if there are none.
    fn finish_rows(&self, module: &mut Module, coords: &Coords) -> Result<String, EmitError> {
        let statistics = self.statistics(u32::MAX);
        let values: Vec<(u8, WgslValue)> = statistics.iter().map(|(value, _, known)| (*value, known.clone())).collect();
        let mut code = Code::point(coords, &values);
        self.outputs(None).try_for_each(|output| store_point(&mut code, module, output))?;
        let text = code.take();
        let more: String = statistics.into_iter().map(|(_, parameter, _)| parameter).collect();
        Ok(if text.is_empty() { text } else { function("finish_row", coords, &more, "", &text) })
    }
}
