use super::coords::Coords;
use super::error::CpuError;
use super::lanes::ROWS;
use super::machine::{AccumulatorLanes, RowInputs, Vm};
use super::masks::{GROUP, KeyTile, MaskMachine, PairAxes, PairMask, groups};
use super::memory::Memory;
use super::operand::Env;
use super::panel::{ExprMatrix, PanelMachine, fill};
use super::product::{Matrix, PackedRhs};
use super::program::{AccumulatorValue, Program};
use super::scratch::Buffer;
use super::softmax::{self, Scores, Softmax, Sums};
use super::store::{Stores, Target, Writer};
use super::totals::combined;
use super::visible::{Block, KEYS, RowsAndKeys};
use super::{Compile, Scheduled};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId, UnaryOp};
use rewire_graph::{Arrange, Scalar};
use rewire_graph_rewrite::plan::{Output, ReduceOp};
use rewire_graph_rewrite::schedule::{Bound, Dot, PairReduction, PairSum};
use std::sync::Arc;

/// Pair reductions, such as attention. Rows ("owners") reduce over keys ("others").
#[derive(Clone, Debug)]
pub(super) struct CompiledPairs {
    space: RowsAndKeys,
    axes: PairAxes,
    values: usize,
    dots: Vec<CompiledDot>,
    passes: Vec<Pass>,
    mask: PairMask,
    softmax: bool,
    results: Vec<Results>,
}

/// Independent reductions, computed in one pass over the keys.
#[derive(Clone, Debug)]
struct Pass {
    sums: Vec<CompiledSum>,
    /// The weights of all reductions for visible pairs.
    weights: Program,
    /// A bit mask of the dot products that weights read.
    dots: u32,
}

#[derive(Clone, Debug)]
struct CompiledDot {
    owner: ExprMatrix,
    other: ExprMatrix,
    width: usize,
}

#[derive(Clone, Debug)]
struct CompiledSum {
    value: usize,
    op: ReduceOp,
    /// The weight of a hidden pair.
    hidden: f32,
    element: Option<Elements>,
}

/// The weighted elements of a reduction, such as values of attention.
#[derive(Clone, Debug)]
struct Elements {
    panel: ExprMatrix,
    column: u8,
    width: usize,
}

/// Outputs with the same column axis, or without one.
#[derive(Clone, Debug)]
struct Results {
    column: Option<u8>,
    width: usize,
    stores: Stores,
}

struct Worker<'a> {
    masks: MaskMachine<'a>,
    /// Sample and head of the packed keys and elements.
    current: Option<(usize, usize)>,
    owners: Vec<PanelMachine<'a>>,
    dots: Vec<Products<'a>>,
    passes: Vec<PassMachine<'a>>,
    writers: Vec<Writer<'a>>,
    targets: Vec<Target<'a>>,
    coords: Coords,
    /// For each value, the per-row results of reductions without elements.
    statistics: Vec<[f32; ROWS]>,
    /// Softmax state of each row; empty if weights are not a softmax.
    softmax: Vec<Softmax>,
}

struct PassMachine<'a> {
    weights: Vm<'a>,
    /// The weights of each reduction for a span.
    values: Buffer,
    dots: u32,
    sums: Vec<Sum<'a>>,
}

/// The dot products of a block.
struct Products<'a> {
    width: usize,
    other: PanelMachine<'a>,
    panels: PackedRhs,
    values: Buffer,
}

struct Sum<'a> {
    of: &'a CompiledSum,
    elements: Option<Weighted<'a>>,
}

/// The elements of a reduction, and its accumulators.
struct Weighted<'a> {
    column: u8,
    width: usize,
    panel: PanelMachine<'a>,
    panels: PackedRhs,
    totals: Buffer,
}

/// A block of rows, with the data shared by its passes over keys.
struct Tile<'t, 'a> {
    rows: usize,
    masks: &'t MaskMachine<'a>,
    coords: &'t Coords,
    owners: &'t [Matrix<'t>],
    dots: &'t mut [Products<'a>],
    statistics: &'t mut [[f32; ROWS]],
    softmax: &'t mut [Softmax],
}

impl PassMachine<'_> {
    /// Accumulates the pairs of a span.
    fn add(&mut self, span: &[KeyTile], tile: &mut Tile<'_, '_>) -> Result<(), CpuError> {
        let Tile { rows, masks, coords, owners, dots, statistics, softmax } = tile;
        let rows = *rows;
        let (first, last) = (span[0].keys.start, span[span.len() - 1].keys.end);
        let origin = first / KEYS * KEYS;
        let (count, skip, stride) = (last - first, first - origin, (last - origin).next_multiple_of(KEYS));
        let read = dots.iter_mut().zip(*owners).enumerate().filter(|(n, _)| self.dots >> n & 1 == 1);
        for (_, (dot, owner)) in read {
            let values = dot.values.floats(rows * stride)?;
            for (group, keys) in groups(span, rows) {
                let (row, start) = (group.start, keys.start / KEYS * KEYS);
                let values = values.get_mut(row * stride + start - origin..).unwrap_or(&mut []);
                let left = owner.part((row, 0), (group.len(), owner.columns));
                owner.prefetch_rows(group.end..group.end + GROUP);
                dot.panels.multiply(values, stride, left, (start, keys.end, 0), false)?;
            }
        }
        let lanes: Vec<AccumulatorLanes<'_>> =
            dots.iter().map(|dot| AccumulatorLanes { data: dot.values.all(), stride, origin }).collect();
        let inputs = RowInputs { first: 0, rows, coords: coords.all(), values: statistics, lanes: &lanes };
        let values = self.values.floats(self.sums.len() * rows * stride)?;
        fill(&mut self.weights, inputs, (origin, stride), (values, stride), |sum| sum * rows * stride);
        for (Sum { of, elements }, weights) in self.sums.iter_mut().zip(values.chunks_exact_mut(rows * stride)) {
            masks.hide(span, of.hidden, (weights, stride, rows), origin);
            let Some(elements) = elements else {
                let lines = weights.chunks(stride).zip(&mut statistics[of.value][..rows]);
                lines.for_each(|(line, all)| *all = combined(of.op, *all, first, &line[skip..skip + count]));
                continue;
            };
            let out_stride = elements.stride();
            if !softmax.is_empty() {
                let scores = Scores { values: weights, stride, keys: skip..skip + count, masks, span };
                softmax::weigh(softmax, scores, Sums { values: elements.totals.all_mut(), stride: out_stride });
            }
            let weights = weights.get(skip..).unwrap_or(&[]);
            if let Some(weights) = Matrix::new(weights, (rows, count), (stride, 1)) {
                let totals: &mut [f32] = elements.totals.all_mut();
                for (group, keys) in groups(span, rows) {
                    let totals = totals.get_mut(group.start * out_stride..).unwrap_or(&mut []);
                    let weights = weights.part((group.start, keys.start - first), (group.len(), keys.len()));
                    let place = (0, elements.width, keys.start);
                    elements.panels.multiply(totals, out_stride, weights, place, true)?;
                }
            }
        }
        Ok(())
    }
}

impl Weighted<'_> {
    /// Row stride of the accumulators.
    fn stride(&self) -> usize {
        self.width.next_multiple_of(PackedRhs::width(self.width))
    }
}

impl Compile for Bound<'_, PairReduction> {
    fn compile(&self) -> Result<Arc<dyn Scheduled>, CpuError> {
        Ok(Arc::new(CompiledPairs::new(self)?))
    }
}

impl CompiledPairs {
    pub(super) fn new(kernel: &Bound<'_, PairReduction>) -> Result<Self, CpuError> {
        let body = &kernel.nest.body;
        let dots = kernel.dots.iter().map(|dot| {
            let panel = |row, id| ExprMatrix::new(body, id, (row, dot.depth), (None, Some(dot.width)));
            Ok(CompiledDot {
                owner: panel(kernel.owner, dot.owner)?,
                other: panel(kernel.other, dot.other)?,
                width: dot.width,
            })
        });
        let axes = PairAxes {
            count: kernel.nest.axes.len(),
            samples: kernel.samples.len(),
            head: kernel.head,
            row: kernel.owner.into(),
            key: kernel.other.into(),
        };
        Ok(Self {
            dots: dots.collect::<Result<_, CpuError>>()?,
            passes: kernel.passes.iter().map(|sums| Pass::new(kernel, sums)).collect::<Result<_, _>>()?,
            mask: PairMask::new(body, kernel.mask, axes)?,
            softmax: kernel.softmax,
            results: results(kernel)?,
            space: RowsAndKeys {
                samples: kernel.samples.clone(),
                heads: kernel.heads,
                rows: kernel.owners.clone(),
                keys: kernel.others.clone(),
            },
            axes,
            values: kernel.nest.accumulations.len(),
        })
    }

    fn worker<'a>(
        &'a self,
        env: &'a Env<'a>,
        samples: Vec<usize>,
        targets: Vec<Target<'a>>,
    ) -> Result<Worker<'a>, CpuError> {
        let products = |dot: &'a CompiledDot| Products {
            width: dot.width,
            other: dot.other.machine(env),
            panels: PackedRhs::default(),
            values: Buffer::default(),
        };
        let weighted = |elements: &'a Elements| Weighted {
            column: elements.column,
            width: elements.width,
            panel: elements.panel.machine(env),
            panels: PackedRhs::default(),
            totals: Buffer::default(),
        };
        let sum = |of: &'a CompiledSum| Sum { of, elements: of.element.as_ref().map(weighted) };
        let pass = |pass: &'a Pass| {
            Ok(PassMachine {
                weights: Vm::new(&pass.weights, env)?,
                values: Buffer::default(),
                dots: pass.dots,
                sums: pass.sums.iter().map(sum).collect(),
            })
        };
        let writers = self.results.iter().map(|results| results.stores.writer(env));
        Ok(Worker {
            masks: self.mask.machine(env, samples)?,
            current: None,
            owners: self.dots.iter().map(|dot| dot.owner.machine(env)).collect(),
            dots: self.dots.iter().map(products).collect(),
            passes: self.passes.iter().map(pass).collect::<Result<_, CpuError>>()?,
            writers: writers.collect::<Result<_, _>>()?,
            targets,
            coords: Coords::new(self.axes.count)?,
            statistics: vec![[0.0; ROWS]; self.values],
            softmax: vec![],
        })
    }

    fn block(&self, worker: &mut Worker<'_>, block: Block) -> Result<(), CpuError> {
        let spans = worker.masks.enter(&mut worker.coords, block)?;
        copy_sample(worker, block)?;
        for sum in worker.passes.iter_mut().flat_map(|pass| &mut pass.sums) {
            worker.statistics[sum.of.value].fill(sum.of.op.start());
            if let Some(elements) = &mut sum.elements {
                let stride = elements.stride();
                elements.totals.floats(block.rows * stride)?.fill(0.0);
            }
        }
        worker.softmax.clear();
        worker.softmax.resize(if self.softmax { block.rows } else { 0 }, Softmax::NO_KEYS);
        let Worker { masks, owners, dots, passes, coords, statistics, softmax, .. } = worker;
        let owners = owners.iter_mut().zip(&*dots);
        let owners = owners.map(|(owner, dot)| owner.matrix(coords, block.row, (block.rows, dot.width), None));
        let owners: Vec<Matrix<'_>> = owners.collect::<Result<_, _>>()?;
        owners.iter().for_each(|owner| owner.prefetch_rows(0..GROUP));
        coords.count(self.axes.row, block.row);
        let mut tile = Tile { rows: block.rows, masks, coords, owners: &owners, dots, statistics, softmax };
        for pass in passes {
            spans.iter().try_for_each(|span| pass.add(span, &mut tile))?;
        }
        self.finish(worker, block);
        Ok(())
    }

    fn finish(&self, worker: &mut Worker<'_>, block: Block) {
        let Worker { passes, writers, targets, coords, statistics, softmax, .. } = worker;
        coords.count(self.axes.row, block.row);
        let elements = passes.iter_mut().flat_map(|pass| &mut pass.sums).filter_map(|sum| sum.elements.as_mut());
        for elements in elements {
            let stride = elements.stride();
            softmax::finish(softmax, Sums { values: elements.totals.all_mut(), stride });
        }
        for (results, writer) in self.results.iter().zip(writers) {
            let elements = passes.iter().flat_map(|pass| &pass.sums).filter_map(|sum| sum.elements.as_ref());
            let own = elements.filter(|elements| Some(elements.column) == results.column);
            let lanes: Vec<AccumulatorLanes<'_>> =
                own.map(|own| AccumulatorLanes { data: own.totals.all(), stride: own.stride(), origin: 0 }).collect();
            let inputs =
                RowInputs { first: 0, rows: block.rows, coords: coords.all(), values: statistics, lanes: &lanes };
            writer.rows(targets, inputs, 0, 0..results.width);
        }
    }
}

impl Scheduled for CompiledPairs {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        self.space.for_each_block(
            env,
            outputs,
            |samples, targets| self.worker(env, samples, targets),
            |worker, block| self.block(worker, block),
        )
    }
}

impl Pass {
    fn new(kernel: &Bound<'_, PairReduction>, sums: &[PairSum]) -> Result<Self, CpuError> {
        let body = &kernel.nest.body;
        let read = sums.iter().fold(0, |bits, sum| bits | body.dag.values(sum.weight));
        let used = kernel.dots.iter().enumerate().filter(|(_, dot)| read >> dot.value & 1 == 1);
        let accumulator = |dag: &Dag, id: ExprId| {
            let place = |position: u8| kernel.dots.iter().position(|dot: &Dot| dot.value == position);
            match *dag.expr(id) {
                Expr::Value(position) if dag.scalar(id) == Scalar::F32 => Some(
                    place(position).map_or(AccumulatorValue::Row(position), |dot| AccumulatorValue::Lane(dot as u8)),
                ),
                _ => None,
            }
        };
        let (dag, weights) = weights(kernel, sums);
        if weights.iter().any(|&weight| dag.scalar(weight) != Scalar::F32) {
            let reason = "the weight of a pair is not a float".to_owned();
            return Err(CpuError::Unsupported { kernel: "pairs", reason });
        }
        Ok(Self {
            sums: sums.iter().map(|sum| CompiledSum::new(kernel, sum)).collect::<Result<_, _>>()?,
            weights: Program::compile(&dag, &body.operands, &weights, kernel.other, &accumulator)?,
            dots: used.fold(0, |bits, (n, _)| bits | 1 << n),
        })
    }
}

/// The weights of reductions for visible pairs. SiLU reuses a sigmoid of the same operand, as in its gradient. Constant
/// factors are merged and multiplied before dot products.
fn weights(kernel: &Bound<'_, PairReduction>, sums: &[PairSum]) -> (Dag, Vec<ExprId>) {
    let source = &kernel.nest.body.dag;
    let factors: Vec<Vec<ExprId>> = sums.iter().map(|sum| factors(kernel, sum.weight)).collect();
    let roots = factors.concat();
    let sigmoids = source.reachable(&roots).into_iter().filter_map(|id| match *source.expr(id) {
        Expr::Unary(UnaryOp::Sigmoid, x) => Some(x),
        _ => None,
    });
    let sigmoids: Vec<ExprId> = sigmoids.collect();
    let mut dag = Dag::new();
    let copies = dag.graft(source, &roots, |dag, expr, operands| match (expr, operands) {
        (Expr::Select(mask, ..), &[_, seen, _]) if Some(*mask) == kernel.mask => Some(seen),
        (Expr::Unary(UnaryOp::Silu, x), &[copy]) if sigmoids.contains(x) => {
            let sigmoid = dag.unary(UnaryOp::Sigmoid, copy);
            Some(dag.binary(BinaryOp::Mul, copy, sigmoid))
        }
        _ => None,
    });
    let mut copies = copies.into_iter();
    let weights = factors.iter().map(|factors| product(&mut dag, copies.by_ref().take(factors.len()).collect()));
    let weights = weights.collect();
    (dag, weights)
}

/// The factors of a weight for visible pairs.
fn factors(kernel: &Bound<'_, PairReduction>, weight: ExprId) -> Vec<ExprId> {
    let (mut factors, mut rest) = (vec![], vec![weight]);
    while let Some(id) = rest.pop() {
        match *kernel.nest.body.dag.expr(id) {
            Expr::Binary(BinaryOp::Mul, a, b) => rest.extend([b, a]),
            Expr::Select(mask, seen, _) if Some(mask) == kernel.mask => rest.push(seen),
            _ => factors.push(id),
        }
    }
    factors
}

/// The product of factors.
fn product(dag: &mut Dag, mut factors: Vec<ExprId>) -> ExprId {
    let mut constant = 1.0;
    factors.retain(|&factor| match *dag.expr(factor) {
        Expr::Float(bits) => {
            constant *= f32::from_bits(bits);
            false
        }
        _ => true,
    });
    factors.arrange_by_key(|&factor| matches!(dag.expr(factor), Expr::Value(_)));
    if constant != 1.0 || factors.is_empty() {
        let constant = dag.float(constant);
        factors.insert(1.min(factors.len()), constant);
    }
    let mut factors = factors.into_iter();
    let first = factors.next().unwrap_or(ExprId(0));
    factors.fold(first, |product, factor| dag.binary(BinaryOp::Mul, product, factor))
}

impl CompiledSum {
    fn new(kernel: &Bound<'_, PairReduction>, sum: &PairSum) -> Result<Self, CpuError> {
        let element = sum.element.map(|element| {
            let rows = (kernel.other, element.column);
            let panel = ExprMatrix::new(&kernel.nest.body, element.value, rows, (None, Some(element.width)))?;
            Ok(Elements { panel, column: element.column, width: element.width })
        });
        let hidden = if kernel.softmax { f32::MIN } else { sum.op.start() };
        Ok(Self { value: sum.value.into(), op: sum.op, hidden, element: element.transpose()? })
    }
}

/// Groups the outputs by column axis.
fn results(kernel: &Bound<'_, PairReduction>) -> Result<Vec<Results>, CpuError> {
    let outputs = &kernel.nest.outputs;
    let mut columns: Vec<Option<u8>> = outputs.iter().map(|output| kernel.column_of(output)).collect();
    columns.arrange();
    columns.dedup();
    let of_column = |column: Option<u8>| {
        let own = kernel.sums().filter(|sum| column.is_some() && sum.element.map(|e| e.column) == column);
        let own: Vec<u8> = own.map(|sum| sum.value).collect();
        let accumulator = |dag: &Dag, id: ExprId| match *dag.expr(id) {
            Expr::Value(position) if dag.scalar(id) == Scalar::F32 => {
                let place = own.iter().position(|value| *value == position);
                Some(place.map_or(AccumulatorValue::Row(position), |place| AccumulatorValue::Lane(place as u8)))
            }
            _ => None,
        };
        let written: Vec<Output> =
            outputs.iter().filter(|output| kernel.column_of(output) == column).cloned().collect();
        // Outputs without columns have no axis to vary along.
        let axis = column.unwrap_or(u8::MAX);
        let stores = Stores::compile(&kernel.nest.body, &written, axis, None, &accumulator)?;
        Ok(Results { column, width: column.map_or(1, |column| kernel.width(column).unwrap_or(1)), stores })
    };
    columns.into_iter().map(of_column).collect()
}

/// Packs keys and elements of the block's sample and head, unless the previous block had the same ones.
fn copy_sample(worker: &mut Worker<'_>, block: Block) -> Result<(), CpuError> {
    let Worker { dots, passes, coords, current, .. } = worker;
    if current.replace((block.sample, block.head)) == Some((block.sample, block.head)) {
        return Ok(());
    }
    for dot in dots {
        let others = dot.other.matrix(coords, 0, (block.keys, dot.width), None)?;
        dot.panels.pack(others.transposed())?;
    }
    for elements in passes.iter_mut().flat_map(|pass| &mut pass.sums).filter_map(|sum| sum.elements.as_mut()) {
        elements.panels.pack(elements.panel.matrix(coords, 0, (block.keys, elements.width), None)?)?;
    }
    Ok(())
}
