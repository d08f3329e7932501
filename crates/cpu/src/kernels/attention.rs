use super::Scheduled;
use super::arch::Arch;
use super::coords::Coords;
use super::error::CpuError;
use super::machine::{AnchorLanes, Machine, RowInputs};
use super::masks::{KeyTile, MaskMachine, PairAxes, PairMask};
use super::memory::Memory;
use super::operand::Env;
use super::panel::{Panel, PanelMachine, fill};
use super::product::{Matrix, Panels};
use super::program::{AnchorValue, Program};
use super::scratch::room;
use super::store::{Stores, Target, Writer};
use super::vectors::exp;
use super::visible::{Block, KEYS, RowsAndKeys};
use pulp::{Simd, WithSimd};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph_rewrite::schedule::{Attention, Bound};

/// Jagged attention.
#[derive(Clone, Debug)]
pub(super) struct CompiledAttention {
    space: RowsAndKeys,
    widths: Widths,
    axes: PairAxes,
    softmax: bool,
    q: Panel,
    k: Panel,
    v: Panel,
    score: Program,
    mask: PairMask,
    stores: Stores,
}

/// Columns of queries and keys, and of values.
#[derive(Clone, Copy, Debug)]
struct Widths {
    qk: usize,
    v: usize,
}

struct Worker<'a> {
    q: PanelMachine<'a>,
    k: PanelMachine<'a>,
    v: PanelMachine<'a>,
    /// Sample and head of `keys` and `values`.
    current: Option<(usize, usize)>,
    keys: Panels,
    values: Panels,
    score: Machine<'a>,
    masks: MaskMachine<'a>,
    epilogue: Writer<'a>,
    targets: Vec<Target<'a>>,
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

impl CompiledAttention {
    pub(super) fn new(kernel: &Bound<'_, Attention>) -> Result<Self, CpuError> {
        let (body, outputs) = (&kernel.nest.body, &kernel.nest.outputs);
        let dag = &body.dag;
        let value = |sum: u8| {
            move |dag: &Dag, id: ExprId| match *dag.expr(id) {
                Expr::Value(position) if position == sum && dag.scalar(id) == Scalar::F32 => Some(AnchorValue::Lane(0)),
                _ => None,
            }
        };
        let (row, key, depth, column) = (kernel.row, kernel.key, kernel.depth, kernel.column);
        if dag.scalar(kernel.score) != Scalar::F32 {
            let reason = "its score is no float".to_owned();
            return Err(CpuError::Unsupported { kernel: "attention", reason });
        }
        let axes = PairAxes { count: kernel.nest.axes.len(), head: kernel.head, row: row.into(), key: key.into() };
        Ok(Self {
            q: Panel::new(body, kernel.q, (row, depth), (None, Some(kernel.qk_width)))?,
            k: Panel::new(body, kernel.k, (key, depth), (None, Some(kernel.qk_width)))?,
            v: Panel::new(body, kernel.v, (key, column), (None, Some(kernel.v_width)))?,
            score: Program::compile(dag, &body.operands, &[kernel.score], key, &value(0))?,
            mask: PairMask::new(body, kernel.mask, axes)?,
            stores: Stores::compile(body, outputs, column, None, &value(kernel.sum()))?,
            space: RowsAndKeys {
                samples: kernel.samples.clone(),
                heads: kernel.heads,
                rows: kernel.rows.clone(),
                keys: kernel.keys.clone(),
            },
            widths: Widths { qk: kernel.qk_width, v: kernel.v_width },
            axes,
            softmax: kernel.softmax,
        })
    }

    fn block(&self, worker: &mut Worker<'_>, block: Block) -> Result<(), CpuError> {
        let Widths { qk: qk_width, v: v_width } = self.widths;
        let spans = worker.masks.enter(&mut worker.coords, block)?;
        self.copy_sample(worker, block)?;
        let Worker { q, keys, values, score, masks, coords, products, weights, sums, softmax, arch, .. } = worker;
        let out_stride = v_width.next_multiple_of(Panels::width(v_width));
        let sums = room(sums, block.rows * out_stride)?;
        sums.fill(0.0);
        softmax.clear();
        softmax.resize(block.rows, Softmax::NO_KEYS);
        let queries = q.matrix(coords, block.row, (block.rows, qk_width), None)?;
        for span in spans.iter() {
            let (first, last) = (span[0].keys.start, span[span.len() - 1].keys.end);
            let origin = first / KEYS * KEYS;
            let (count, skip, stride) = (last - first, first - origin, (last - origin).next_multiple_of(KEYS));
            let (products, weights) = (room(products, block.rows * stride)?, room(weights, block.rows * stride)?);
            keys.multiply(products, stride, queries, (origin, last, 0), false)?;
            coords.count(self.axes.row, block.row);
            let lanes = &[AnchorLanes { data: products, stride, origin }];
            let inputs = RowInputs { rows: block.rows, coords: coords.all(), lanes, ..RowInputs::default() };
            fill(score, inputs, (origin, stride), (&mut [&mut *weights], stride));
            let nothing = if self.softmax { f32::MIN } else { 0.0 };
            masks.hide(span, nothing, (weights, stride, block.rows), origin);
            if self.softmax {
                let lines = weights.chunks_mut(stride).zip(sums.chunks_exact_mut(out_stride));
                for (row, ((line, sums), state)) in lines.zip(softmax.iter_mut()).enumerate() {
                    let line = &mut line[skip..skip + count];
                    arch.dispatch(Rescale { state, line, sums, kept: Kept { masks, span, row } });
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
}

impl Scheduled for CompiledAttention {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        self.space.for_each_block(
            env,
            outputs,
            |samples, targets| Worker {
                q: self.q.machine(env),
                k: self.k.machine(env),
                v: self.v.machine(env),
                current: None,
                keys: Panels::default(),
                values: Panels::default(),
                score: Machine::new(&self.score, env),
                masks: self.mask.machine(env, samples),
                epilogue: self.stores.writer(env),
                targets,
                coords: Coords::new(self.axes.count),
                products: vec![],
                weights: vec![],
                sums: vec![],
                softmax: vec![],
                arch: Arch::chosen(),
            },
            |worker, block| self.block(worker, block),
        )
    }
}

/// The keys of a span that count for a row.
struct Kept<'a> {
    masks: &'a MaskMachine<'a>,
    span: &'a [KeyTile],
    row: usize,
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
        for (x, kept) in self.line.iter_mut().zip(self.kept.masks.kept(self.kept.span, self.kept.row)) {
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
