use super::{Emitter, Tiling};
use crate::coords::Coords;
use crate::expr::Code;
use crate::hook::{Combine, Element, function};
use crate::module::Module;
use crate::store::store_point;
use crate::template::{Template, template};
use crate::value::Emitted;
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::schedule::{Attention, Bound, PairSum, Pairs};

static TEMPLATE: Template = template!("pairs.wgsl");
static ATTENTION: Template = template!("attention.wgsl");

const THREADS: u32 = 128;
const THREAD_ROWS: u32 = 16;
/// Others of a tile.
const OTHERS: u32 = 32;
/// Columns that are staged at once.
const CHUNK: usize = 32;
/// The most where barriers cost more than memory.
const LONG_CHUNK: u32 = 128;
/// Groups of four in a row of a staged tile, or of weights, padding included.
const PITCH: u32 = 9;
/// Sums of a thread, in groups of four, that fit its registers beside products.
const MOST_SUMS: usize = 16;

/// Sums of a thread of attention, in groups of four, that fit its registers.
const MOST_ATTENTION_SUMS: u32 = 32;

/// How owners and what attention weighs are divided among threads and steps.
#[derive(Clone, Copy)]
pub(super) struct AttentionTile {
    /// Owners of a thread.
    each: u32,
    /// Columns of products that are staged at once.
    chunk: u32,
    /// Chunks of 32 columns of what is weighed.
    value_chunks: u32,
    /// Others of which these are staged at once.
    value_keys: u32,
}

impl AttentionTile {
    pub fn new(
        kernel: &Bound<'_, Pairs>,
        attention: Attention<'_>,
        target: &Target,
        tuning: &Tuning,
    ) -> Result<Self, EmitError> {
        let width = (attention.dot.width.max(1) as u32).next_multiple_of(4);
        let value_chunks = (attention.element.width as u32).div_ceil(CHUNK as u32).max(1);
        // As many as take the memory of a chunk of keys.
        let value_keys = 1 << (OTHERS / value_chunks).max(4).ilog2();
        let each = tuning.rows_per_thread.unwrap_or(1);
        if !(1..=8).contains(&each) {
            let expected = "1 to 8".to_owned();
            return Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got: each });
        }
        let tile = Self { each, chunk: width.min(CHUNK as u32), value_chunks, value_keys };
        let fits = |tile: &Self| {
            tile.each * value_chunks <= MOST_ATTENTION_SUMS && tile.bytes(kernel) <= target.workgroup_bytes
        };
        if target.software {
            // Software drivers take long to compile a barrier, and hold no tile in registers.
            let few_barriers = Self { chunk: width.min(LONG_CHUNK), value_keys: OTHERS, ..tile };
            return Ok(if fits(&few_barriers) { few_barriers } else { tile });
        }
        let larger = [4, 2].map(|each| Self { each, ..tile });
        let larger = larger.into_iter().filter(|_| tuning.rows_per_thread.is_none());
        Ok(larger.into_iter().find(fits).unwrap_or(tile))
    }

    /// Owners of a workgroup.
    pub fn rows(&self) -> u32 {
        self.each * THREAD_ROWS
    }

    /// Groups of four in a row of a staged tile, or of weights, padding included.
    fn pitch(&self) -> u32 {
        self.chunk.max(OTHERS) / 4 + 1
    }

    /// Groups of four of the others that are staged at once.
    fn key_tile(&self) -> u32 {
        (OTHERS * self.pitch()).max(self.value_keys * self.value_chunks * 8)
    }

    /// Bytes of workgroup memory, with those of the mask's bounds.
    fn bytes(&self, kernel: &Bound<'_, Pairs>) -> u32 {
        let words = if kernel.softmax { 3 + u32::from(kernel.mask.is_some()) } else { 0 };
        let statistics = words * 4 * self.rows();
        16 * (self.rows() * self.pitch() + self.key_tile()) + statistics + 256
    }
}

/// Owners of a thread.
fn rows_per_thread(kernel: &Bound<'_, Pairs>, target: &Target, tuning: &Tuning) -> Result<u32, EmitError> {
    let sums: usize = kernel.sums().filter_map(|sum| sum.element).map(|element| element.width.div_ceil(CHUNK)).sum();
    let statistics = kernel.sums().count() as u32;
    let bytes = |each: u32| 16 * PITCH * (each * THREAD_ROWS + OTHERS) + 4 * each * THREAD_ROWS * statistics + 256;
    let fits = |each: &u32| *each as usize * sums <= MOST_SUMS && bytes(*each) <= target.workgroup_bytes;
    // Software drivers take long to compile, and hold no tile in registers.
    let choices: &[u32] = if target.software { &[2, 1] } else { &[4, 2, 1] };
    let suited = choices.iter().copied().find(fits).unwrap_or(1);
    match tuning.rows_per_thread.unwrap_or(suited) {
        each @ 1..=4 => Ok(each),
        got => Err(EmitError::Tuning { parameter: "rows_per_thread", expected: "1 to 4".to_owned(), got }),
    }
}

impl Emitter<'_> {
    /// Emits pairs of multiply-adds.
    pub(super) fn plain(&self, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        if let Some(attention) = self.kernel.attention() {
            return self.plain_attention(attention, module, tuning);
        }
        let each = rows_per_thread(self.kernel, module.target, tuning)?;
        let variables = self.plain_variables(each);
        let tiling =
            Tiling { template: &TEMPLATE, threads: THREADS, rows: each * THREAD_ROWS, extension: None, variables };
        self.fill(module, tiling, |module| self.plain_hooks(module))
    }

    fn plain_attention(
        &self,
        attention: Attention<'_>,
        module: Module,
        tuning: &Tuning,
    ) -> Result<ParsedKernel, EmitError> {
        let tile = AttentionTile::new(self.kernel, attention, module.target, tuning)?;
        let variables = vec![
            // Without, a shader is shorter, which a compiler for CPUs is the sooner done with.
            ("ahead", (!module.target.software).into()),
            ("rows_per_thread", tile.each.into()),
            ("chunk", tile.chunk.into()),
            ("pitch", tile.pitch().into()),
            ("key_tile", tile.key_tile().into()),
            ("value_chunks", tile.value_chunks.into()),
            ("value_keys", tile.value_keys.into()),
            ("softmax", self.kernel.softmax.into()),
            ("guarded", self.reads_pairs().into()),
            ("dot", attention.dot.value.into()),
            ("sum", attention.sum.value.into()),
            ("column", attention.element.column.into()),
            ("width", attention.dot.width.into()),
            ("columns", attention.element.width.into()),
        ];
        let tiling = Tiling { template: &ATTENTION, threads: THREADS, rows: tile.rows(), extension: None, variables };
        self.fill(module, tiling, |module| self.plain_hooks(module))
    }

    fn plain_variables(&self, each: u32) -> Vec<(&'static str, Variable)> {
        let chunks = |width: usize| Variable::from(width.div_ceil(CHUNK).max(1));
        let pass = |pass: &Vec<PairSum>| {
            let read = self.read(pass);
            let dots = self.kernel.dots.iter().filter(|dot| read >> dot.value & 1 == 1);
            let dots = dots.map(|dot| Variable::from_pairs([("value", usize::from(dot.value)), ("width", dot.width)]));
            let statistics: Vec<u8> = self.statistics(read).into_iter().map(|(value, ..)| value).collect();
            Variable::from_pairs([
                ("dots", dots.collect::<Vec<_>>()),
                ("reads", statistics.into_iter().map(Variable::from).collect()),
                ("sums", pass.iter().map(|sum| self.sum(sum)).collect()),
            ])
        };
        let columns = self.columns().into_iter().map(|(column, width)| {
            let sums = self.weighted(column).map(|sum| Variable::from(sum.value)).collect::<Vec<_>>();
            Variable::from_pairs([
                ("axis", column.into()),
                ("width", width.into()),
                ("chunks", chunks(width)),
                ("sums", sums.into()),
            ])
        });
        let statistics = self.statistics.iter().map(|sum| {
            let identity = Combine(sum.op).identity();
            Variable::from_pairs([("value", Variable::from(sum.value)), ("identity", identity.into())])
        });
        vec![
            ("rows_per_thread", each.into()),
            ("pitch", PITCH.into()),
            ("passes", self.kernel.passes.iter().map(pass).collect::<Vec<_>>().into()),
            ("columns", columns.collect::<Vec<_>>().into()),
            ("statistics", statistics.collect::<Vec<_>>().into()),
            ("rowwise", self.outputs(None).next().is_some().into()),
        ]
    }

    fn sum(&self, sum: &PairSum) -> Variable {
        let combine = Combine(sum.op);
        let width = sum.element.map_or(0, |element| element.width);
        Variable::from_pairs([
            ("value", Variable::from(sum.value)),
            ("width", width.into()),
            ("chunks", width.div_ceil(CHUNK).into()),
            ("join", combine.join("total", &combine.total("weights")).into()),
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

    /// The hook that writes what has no columns; empty where there is nothing.
    fn finish_rows(&self, module: &mut Module, coords: &Coords) -> Result<String, EmitError> {
        let statistics = self.statistics(u32::MAX);
        let values: Vec<(u8, Emitted)> = statistics.iter().map(|(value, _, known)| (*value, known.clone())).collect();
        let mut code = Code::point(coords, &values);
        self.outputs(None).try_for_each(|output| store_point(&mut code, module, output))?;
        let text = code.take();
        let more: String = statistics.into_iter().map(|(_, parameter, _)| parameter).collect();
        Ok(if text.is_empty() { text } else { function("finish_row", coords, &more, "", &text) })
    }
}
