use super::Scheduled;
use super::coords::Coords;
use super::error::CpuError;
use super::lanes::{Grid, Lanes, Row, tile_rows};
use super::machine::{AnchorLanes, Machine, RowInputs};
use super::memory::Memory;
use super::operand::Env;
use super::panel::{Panel, PanelMachine, fill};
use super::product::{Matrix, Panels};
use super::program::{AnchorValue, Program};
use super::scratch::{reserve, room};
use super::store::{Stores, Target, Writer};
use super::vectors::exp;
use super::visible::{Block, KEYS, RowsAndKeys, VisibleTiles, range};
use pulp::{Arch, Simd, WithSimd};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Dag, Expr, ExprId, Interval, Intervals};
use rewire_graph_rewrite::schedule::Attention;
use std::ops::Range;
use std::sync::Arc;

/// Keys whose scores are in memory at once, at most.
const SPAN: usize = 512;
/// Mask values that are kept for the next heads, about.
const MASK: usize = 1 << 18;

/// Jagged attention.
#[derive(Clone, Debug)]
pub(super) struct CompiledAttention {
    dag: Dag,
    space: RowsAndKeys,
    widths: Widths,
    axes: Axes,
    softmax: bool,
    q: Panel,
    k: Panel,
    v: Panel,
    score: Program,
    mask: Option<(Program, Intervals)>,
    /// The mask depends on the head.
    head_matters: bool,
    stores: Stores,
}

/// Columns of queries and keys, and of values.
#[derive(Clone, Copy, Debug)]
struct Widths {
    qk: usize,
    v: usize,
}

/// Coordinates.
#[derive(Clone, Copy, Debug)]
struct Axes {
    count: usize,
    head: Option<u8>,
    row: usize,
    key: usize,
}

struct Worker<'a> {
    env: &'a Env<'a>,
    /// Extents of the axes of samples.
    samples: Vec<usize>,
    q: PanelMachine<'a>,
    k: PanelMachine<'a>,
    v: PanelMachine<'a>,
    /// Sample and head of `keys` and `values`.
    current: Option<(usize, usize)>,
    keys: Panels,
    values: Panels,
    score: Machine<'a>,
    mask: Option<Machine<'a>>,
    epilogue: Writer<'a>,
    targets: Vec<Target<'a>>,
    known: Vec<Interval>,
    visible: Visible,
    coords: Coords,
    products: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f32>,
    softmax: Vec<Softmax>,
    arch: Arch,
}

/// The largest score of a row so far, and the sum of weights relative to it.
#[derive(Clone, Copy, Debug)]
struct Softmax {
    largest: f32,
    sum: f32,
    /// True if a key counts.
    counts: bool,
}

impl Softmax {
    const NO_KEYS: Self = Self { largest: f32::MIN, sum: 0.0, counts: false };
}

/// Neighbouring keys, none of which is masked or some of which are.
#[derive(Clone, Debug)]
struct KeyTile {
    keys: Range<usize>,
    masked: bool,
    /// Where the mask of the first row begins, if some are masked.
    mask: usize,
    /// From one row's mask to the next.
    stride: usize,
}

/// What the rows of a block see, in spans of keys.
#[derive(Clone, Debug)]
struct VisibleBlock {
    row: usize,
    spans: Arc<Vec<Vec<KeyTile>>>,
}

/// What blocks of one sample see, which its heads share unless the mask depends on them.
#[derive(Clone, Debug, Default)]
struct Visible {
    /// Sample, and head if it matters.
    of: Option<(usize, usize)>,
    blocks: Vec<VisibleBlock>,
    /// By row and key of tiles, 1 where the mask is true.
    mask: Vec<i32>,
}

impl CompiledAttention {
    pub(super) fn new(kernel: &Attention<'_>) -> Result<Self, CpuError> {
        let (body, outputs) = (&kernel.nest.body, &kernel.nest.outputs);
        let dag = &body.dag;
        let value = |sum: u8| {
            move |dag: &Dag, id: ExprId| match *dag.expr(id) {
                Expr::Value(position) if position == sum && dag.scalar(id) == Scalar::F32 => Some(AnchorValue::Lane(0)),
                _ => None,
            }
        };
        let (row, key, depth, column) = (kernel.row, kernel.key, kernel.depth, kernel.column);
        if dag.scalar(kernel.score) != Scalar::F32 || kernel.mask.is_some_and(|mask| dag.scalar(mask) != Scalar::Bool) {
            let reason = "its score is no float or its mask no truth value".to_owned();
            return Err(CpuError::Unsupported { kernel: "attention", reason });
        }
        Ok(Self {
            q: Panel::new(body, kernel.q, (row, depth), Some(kernel.qk_width))?,
            k: Panel::new(body, kernel.k, (key, depth), Some(kernel.qk_width))?,
            v: Panel::new(body, kernel.v, (key, column), Some(kernel.v_width))?,
            score: Program::compile(dag, &body.operands, &[kernel.score], key, &value(0))?,
            mask: match kernel.mask {
                Some(mask) => {
                    let program = Program::compile(dag, &body.operands, &[mask], key, &|_, _| None)?;
                    Some((program, Intervals::along(dag, mask, key)))
                }
                None => None,
            },
            head_matters: kernel.mask.zip(kernel.head).is_some_and(|(mask, head)| dag.coords(mask) >> head & 1 == 1),
            stores: Stores::compile(body, outputs, column, None, &value(kernel.sum()))?,
            dag: dag.clone(),
            space: RowsAndKeys {
                samples: kernel.samples.clone(),
                heads: kernel.heads,
                rows: kernel.rows.clone(),
                keys: kernel.keys.clone(),
            },
            widths: Widths { qk: kernel.qk_width, v: kernel.v_width },
            axes: Axes { count: kernel.nest.axes.len(), head: kernel.head, row: row.into(), key: key.into() },
            softmax: kernel.softmax,
        })
    }

    fn block(&self, worker: &mut Worker<'_>, block: Block) -> Result<(), CpuError> {
        let Widths { qk: qk_width, v: v_width } = self.widths;
        worker.coords.set_row(block.sample, &worker.samples);
        if let Some(head) = self.axes.head {
            worker.coords.set(head.into(), block.head);
        }
        let spans = self.visible_block(worker, block)?;
        self.copy_sample(worker, block)?;
        let Worker { q, keys, values, score, visible, coords, products, weights, sums, softmax, arch, .. } = worker;
        let out_stride = v_width.next_multiple_of(Panels::width(v_width));
        let sums = room(sums, block.rows * out_stride)?;
        sums.fill(0.0);
        softmax.clear();
        softmax.resize(block.rows, Softmax::NO_KEYS);
        let queries = q.matrix(coords, block.row, (block.rows, qk_width), None)?;
        for span in spans.iter() {
            let (first, last) = (span[0].keys.start, span[span.len() - 1].keys.end);
            // Whole panels from the first on, so that rows of scores lie one after the other.
            let panel = keys.panel_of(first);
            let (count, skip, stride) = (last - first, first - panel, (last - panel).next_multiple_of(KEYS));
            let (products, weights) = (room(products, block.rows * stride)?, room(weights, block.rows * stride)?);
            keys.multiply(products, stride, queries, (panel, last, 0), false)?;
            coords.count(self.axes.row, block.row);
            let lanes = &[AnchorLanes { data: products, stride, origin: panel }];
            let inputs = RowInputs { rows: block.rows, coords: coords.all(), lanes, ..RowInputs::default() };
            fill(score, inputs, (panel, stride), (weights, stride));
            for tile in span.iter().filter(|tile| tile.masked) {
                let mask = Lanes::Strided(visible.mask.get(tile.mask..).unwrap_or(&[]), tile.stride);
                let out = weights.get_mut(tile.keys.start - panel..).unwrap_or(&mut []);
                let grid = Grid { rows: block.rows, points: tile.keys.len() };
                let nothing = if self.softmax { f32::MIN } else { 0.0 };
                arch.dispatch(Hide { mask, nothing, out, stride, grid });
            }
            if self.softmax {
                let lines = weights.chunks_mut(stride).zip(sums.chunks_exact_mut(out_stride));
                for (row, ((line, sums), state)) in lines.zip(softmax.iter_mut()).enumerate() {
                    let line = &mut line[skip..skip + count];
                    arch.dispatch(Rescale { state, line, sums, kept: Kept { tiles: span, mask: &visible.mask, row } });
                }
            }
            let weights = weights.get(skip..).unwrap_or(&[]);
            if let Some(weights) = Matrix::new(weights, (block.rows, count), (stride, 1)) {
                values.multiply(sums, out_stride, weights, (0, v_width, first), true)?;
            }
        }
        self.finish(worker, block, out_stride);
        Ok(())
    }

    /// Copies keys and values of the block's sample and head, unless the block before had the same.
    fn copy_sample(&self, worker: &mut Worker<'_>, block: Block) -> Result<(), CpuError> {
        let Worker { k, v, coords, keys, values, current, .. } = worker;
        if current.replace((block.sample, block.head)) == Some((block.sample, block.head)) {
            return Ok(());
        }
        keys.pack(k.matrix(coords, 0, (block.keys, self.widths.qk), None)?.transposed())?;
        values.pack(v.matrix(coords, 0, (block.keys, self.widths.v), None)?)
    }

    /// The tiles that a block sees, with their masks.
    fn visible_block(&self, worker: &mut Worker<'_>, block: Block) -> Result<Arc<Vec<Vec<KeyTile>>>, CpuError> {
        let of = Some((block.sample, if self.head_matters { block.head } else { 0 }));
        if worker.visible.of != of || worker.visible.mask.len() > MASK {
            worker.visible.of = of;
            worker.visible.blocks.clear();
            worker.visible.mask.clear();
        }
        if let Some(known) = worker.visible.blocks.iter().find(|visible_block| visible_block.row == block.row) {
            return Ok(Arc::clone(&known.spans));
        }
        let mut spans = spans(&self.tiles(worker, block));
        worker.coords.count(self.axes.row, block.row);
        let inputs = RowInputs { rows: block.rows, coords: worker.coords.all(), ..RowInputs::default() };
        if let Some(machine) = &mut worker.mask {
            for tile in spans.iter_mut().flatten().filter(|tile| tile.masked) {
                (tile.mask, tile.stride) = (worker.visible.mask.len(), tile.keys.len());
                evaluate(machine, inputs, &tile.keys, &mut worker.visible.mask)?;
            }
        }
        let spans = Arc::new(spans);
        worker.visible.blocks.push(VisibleBlock { row: block.row, spans: Arc::clone(&spans) });
        Ok(spans)
    }

    fn finish(&self, worker: &mut Worker<'_>, block: Block, out_stride: usize) {
        let Worker { epilogue, targets, coords, sums, softmax, .. } = worker;
        if self.softmax {
            for (sums, state) in sums.chunks_exact_mut(out_stride).zip(softmax).filter(|(_, state)| state.counts) {
                sums.iter_mut().for_each(|sum| *sum /= state.sum);
            }
        }
        coords.count(self.axes.row, block.row);
        let lanes = &[AnchorLanes { data: sums, stride: out_stride, origin: 0 }];
        let inputs = RowInputs { rows: block.rows, coords: coords.all(), lanes, ..RowInputs::default() };
        epilogue.rows(targets, inputs, 0, 0..self.widths.v);
    }

    /// The tiles of a block that count; neighbours of a kind are joined.
    fn tiles(&self, worker: &mut Worker<'_>, block: Block) -> Vec<KeyTile> {
        let Some((_, mask)) = &self.mask else {
            let all = KeyTile { keys: 0..block.keys, masked: false, mask: 0, stride: 0 };
            return Some(all).filter(|_| block.keys > 0).into_iter().collect();
        };
        let point = |at: usize| Interval::point(at as f64);
        let mut coords = vec![Interval::UNKNOWN; self.axes.count];
        let mut sample = block.sample;
        for (axis, &extent) in worker.samples.iter().enumerate().rev() {
            (coords[axis], sample) = (point(sample % extent.max(1)), sample / extent.max(1));
        }
        let head = self.axes.head.map(|head| (head.into(), point(block.head)));
        for (axis, values) in [(self.axes.row, range(block.row, block.rows))].into_iter().chain(head) {
            coords[axis] = values;
        }
        let visible_tiles = VisibleTiles { dag: &self.dag, env: worker.env, mask, key: self.axes.key };
        let tile = |(keys, masked)| KeyTile { keys, masked, mask: 0, stride: 0 };
        visible_tiles.ranges(coords, block.keys, &mut worker.known).into_iter().map(tile).collect()
    }
}

impl Scheduled for CompiledAttention {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        self.space.for_each_block(
            env,
            outputs,
            |samples, targets| Worker {
                env,
                samples,
                q: self.q.machine(env),
                k: self.k.machine(env),
                v: self.v.machine(env),
                current: None,
                keys: Panels::default(),
                values: Panels::default(),
                score: Machine::new(&self.score, env),
                mask: self.mask.as_ref().map(|(program, _)| Machine::new(program, env)),
                epilogue: self.stores.writer(env),
                targets,
                known: vec![],
                visible: Visible::default(),
                coords: Coords::new(self.axes.count),
                products: vec![],
                weights: vec![],
                sums: vec![],
                softmax: vec![],
                arch: Arch::new(),
            },
            |worker, block| self.block(worker, block),
        )
    }
}

/// Runs of neighbouring tiles with at most [`SPAN`] keys.
fn spans(tiles: &[KeyTile]) -> Vec<Vec<KeyTile>> {
    let mut spans: Vec<Vec<KeyTile>> = vec![];
    let mut left = 0;
    for tile in tiles {
        let mut start = tile.keys.start;
        while start < tile.keys.end {
            let follows = spans.last().and_then(|span| span.last()).is_some_and(|last| last.keys.end == start);
            if !follows || left == 0 {
                spans.push(vec![]);
                left = SPAN;
            }
            let end = tile.keys.end.min(start + left);
            left -= end - start;
            if let Some(span) = spans.last_mut() {
                span.push(KeyTile { keys: start..end, ..tile.clone() });
            }
            start = end;
        }
    }
    spans
}

/// Appends the mask of some keys, row by row.
fn evaluate(
    machine: &mut Machine<'_>,
    inputs: RowInputs<'_>,
    keys: &Range<usize>,
    mask: &mut Vec<i32>,
) -> Result<(), CpuError> {
    reserve(mask, inputs.rows * keys.len())?;
    let size = tile_rows(keys.len());
    for start in (0..inputs.rows).step_by(size) {
        let part = inputs.part(start, size);
        machine.rows(part);
        machine.tile(part, keys.start, keys.len());
        let (values, grid) = (machine.ints(0), machine.grid());
        for row in 0..grid.rows {
            match values.row(row, grid.points) {
                Row::Same(value) => mask.resize(mask.len() + grid.points, value),
                Row::Each(values) => mask.extend_from_slice(values),
            }
        }
    }
    Ok(())
}

/// Replaces scores where the mask is false.
struct Hide<'a> {
    mask: Lanes<'a, i32>,
    nothing: f32,
    out: &'a mut [f32],
    stride: usize,
    grid: Grid,
}

impl WithSimd for Hide<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let points = self.grid.points;
        for (row, out) in self.out.chunks_mut(self.stride).take(self.grid.rows).enumerate() {
            let Some(out) = out.get_mut(..points) else { return };
            match self.mask.row(row, points) {
                Row::Same(0) => out.fill(self.nothing),
                Row::Same(_) => {}
                Row::Each(mask) => {
                    // A choice would become masked stores, which are slow on some processors.
                    for (out, &mask) in out.iter_mut().zip(mask) {
                        let kept = mask.wrapping_neg() as u32;
                        *out = f32::from_bits(out.to_bits() & kept | self.nothing.to_bits() & !kept);
                    }
                }
            }
        }
    }
}

/// The keys of a span that count for a row.
struct Kept<'a> {
    tiles: &'a [KeyTile],
    mask: &'a [i32],
    row: usize,
}

impl Kept<'_> {
    /// For every key of the span, whether it counts.
    fn keys(&self) -> impl Iterator<Item = bool> + '_ {
        let kept = |tile: &KeyTile, n| {
            !tile.masked || self.mask.get(tile.mask + self.row * tile.stride + n).is_some_and(|&kept| kept != 0)
        };
        self.tiles.iter().flat_map(move |tile| (0..tile.keys.len()).map(move |n| kept(tile, n)))
    }
}

/// Makes a row of scores weights relative to its largest score so far.
struct Rescale<'a> {
    state: &'a mut Softmax,
    line: &'a mut [f32],
    sums: &'a mut [f32],
    kept: Kept<'a>,
}

impl Rescale<'_> {
    /// Weights of scores none of which is above the lowest float, which is also what stands for keys that do not count.
    fn weigh_lowest(self) {
        for (x, kept) in self.line.iter_mut().zip(self.kept.keys()) {
            *x = match *x {
                _ if !kept => 0.0,
                x if x.is_nan() => x,
                x => f32::from(u8::from(x == f32::MIN)),
            };
            self.state.sum += *x;
            self.state.counts |= kept;
        }
    }
}

impl WithSimd for Rescale<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        const PARTIALS: usize = 16;
        let mut partials = [f32::MIN; PARTIALS];
        for part in self.line.chunks(PARTIALS) {
            partials.iter_mut().zip(part).for_each(|(p, &x)| *p = if x > *p { x } else { *p });
        }
        let largest = partials.iter().fold(self.state.largest, |a, &b| if b > a { b } else { a });
        if largest == f32::MIN {
            return self.weigh_lowest();
        }
        let factor = exp(simd, simd.splat_f32s(self.state.largest - largest));
        let factor = bytemuck::cast_slice::<S::f32s, f32>(&[factor])[0];
        self.sums.iter_mut().for_each(|sum| *sum *= factor);
        let (vectors, rest) = S::as_mut_simd_f32s(self.line);
        for x in vectors {
            *x = weight(simd, *x, largest);
        }
        if !rest.is_empty() {
            let x = simd.partial_load_f32s(rest);
            simd.partial_store_f32s(rest, weight(simd, x, largest));
        }
        let mut partials = [0.0; PARTIALS];
        for part in self.line.chunks(PARTIALS) {
            partials.iter_mut().zip(part).for_each(|(p, &x)| *p += x);
        }
        let sum = self.state.sum * factor + partials.iter().sum::<f32>();
        *self.state = Softmax { largest, sum, counts: true };
    }
}

/// The weight of a score relative to the largest one.
#[inline(always)]
fn weight<S: Simd>(simd: S, score: S::f32s, largest: f32) -> S::f32s {
    let masked = simd.equal_f32s(score, simd.splat_f32s(f32::MIN));
    let weight = exp(simd, simd.sub_f32s(score, simd.splat_f32s(largest)));
    simd.select_f32s(masked, simd.splat_f32s(0.0), weight)
}
