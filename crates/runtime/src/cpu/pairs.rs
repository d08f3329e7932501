use super::Scheduled;
use super::coords::Coords;
use super::error::CpuError;
use super::lanes::ROWS;
use super::machine::{AnchorLanes, Machine, RowInputs};
use super::memory::Memory;
use super::operand::Env;
use super::panel::{Panel, PanelMachine, fill};
use super::product::{Matrix, Panels};
use super::program::{AnchorValue, Program};
use super::scratch::room;
use super::store::{Stores, Target, Writer};
use super::totals::combined;
use super::visible::{Block, KEYS, RowsAndKeys, VisibleTiles, range};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Dag, Expr, ExprId, Interval, Intervals};
use rewire_graph_rewrite::plan::{Output, ReduceOp};
use rewire_graph_rewrite::schedule::{Dot, PairSum, Pairs};
use std::ops::Range;

/// Others whose pairs are in memory at once, at most.
const SPAN: usize = 512;

/// Sums over pairs of two ragged axes.
#[derive(Clone, Debug)]
pub(super) struct CompiledPairs {
    dag: Dag,
    space: RowsAndKeys,
    axes: Axes,
    values: usize,
    dots: Vec<CompiledDot>,
    passes: Vec<Vec<CompiledSum>>,
    mask: Option<Intervals>,
    results: Vec<Results>,
}

/// Coordinates.
#[derive(Clone, Copy, Debug)]
struct Axes {
    count: usize,
    head: usize,
    owner: usize,
    other: usize,
}

#[derive(Clone, Debug)]
struct CompiledDot {
    owner: Panel,
    other: Panel,
    width: usize,
}

#[derive(Clone, Debug)]
struct CompiledSum {
    value: usize,
    op: ReduceOp,
    weight: Program,
    /// The dot products that the weight reads, a bit each.
    dots: u32,
    element: Option<Elements>,
}

/// What a sum weighs.
#[derive(Clone, Debug)]
struct Elements {
    panel: Panel,
    column: u8,
    width: usize,
}

/// Outputs with a column axis, or without one.
#[derive(Clone, Debug)]
struct Results {
    column: Option<u8>,
    width: usize,
    stores: Stores,
}

struct Worker<'a> {
    env: &'a Env<'a>,
    /// Sample and head of what is copied.
    current: Option<(usize, usize)>,
    dots: Vec<Products<'a>>,
    passes: Vec<Vec<Sum<'a>>>,
    writers: Vec<Writer<'a>>,
    targets: Vec<Target<'a>>,
    known: Vec<Interval>,
    coords: Coords,
    weights: Vec<f32>,
    /// By value, what a row has of sums without elements.
    statistics: Vec<[f32; ROWS]>,
}

/// The dot products of a block.
struct Products<'a> {
    width: usize,
    owner: PanelMachine<'a>,
    other: PanelMachine<'a>,
    panels: Panels,
    values: Vec<f32>,
}

struct Sum<'a> {
    of: &'a CompiledSum,
    weight: Machine<'a>,
    elements: Option<Weighted<'a>>,
}

/// What a sum weighs, and what it has so far.
struct Weighted<'a> {
    column: u8,
    width: usize,
    panel: PanelMachine<'a>,
    panels: Panels,
    totals: Vec<f32>,
}

/// Neighbouring others, and where their products and weights are.
#[derive(Clone, Debug)]
struct Span {
    others: Range<usize>,
    /// The first point of a row.
    origin: usize,
    /// From one row to the next.
    stride: usize,
}

impl Weighted<'_> {
    /// From one row of totals to the next.
    fn stride(&self) -> usize {
        self.width.next_multiple_of(Panels::width(self.width))
    }
}

impl CompiledPairs {
    pub(super) fn new(kernel: &Pairs<'_>) -> Result<Self, CpuError> {
        let body = &kernel.nest.body;
        let dots = kernel.dots.iter().map(|dot| {
            let panel = |row, id| Panel::new(body, id, (row, dot.depth), Some(dot.width));
            Ok(CompiledDot {
                owner: panel(kernel.owner, dot.owner)?,
                other: panel(kernel.other, dot.other)?,
                width: dot.width,
            })
        });
        let pass = |pass: &Vec<PairSum>| pass.iter().map(|sum| CompiledSum::new(kernel, sum)).collect();
        Ok(Self {
            dots: dots.collect::<Result<_, CpuError>>()?,
            passes: kernel.passes.iter().map(pass).collect::<Result<_, _>>()?,
            mask: kernel.mask.map(|mask| Intervals::along(&body.dag, mask, kernel.other)),
            results: results(kernel)?,
            dag: body.dag.clone(),
            space: RowsAndKeys {
                samples: vec![kernel.samples.clone()],
                heads: kernel.heads,
                rows: kernel.owners.clone(),
                keys: kernel.others.clone(),
            },
            axes: Axes {
                count: kernel.nest.axes.len(),
                head: kernel.head.into(),
                owner: kernel.owner.into(),
                other: kernel.other.into(),
            },
            values: kernel.nest.accumulations.len(),
        })
    }

    fn worker<'a>(&'a self, env: &'a Env<'a>, targets: Vec<Target<'a>>) -> Worker<'a> {
        let products = |dot: &'a CompiledDot| Products {
            width: dot.width,
            owner: dot.owner.machine(env),
            other: dot.other.machine(env),
            panels: Panels::default(),
            values: vec![],
        };
        let weighted = |elements: &'a Elements| Weighted {
            column: elements.column,
            width: elements.width,
            panel: elements.panel.machine(env),
            panels: Panels::default(),
            totals: vec![],
        };
        let sum = |of: &'a CompiledSum| Sum {
            of,
            weight: Machine::new(&of.weight, env),
            elements: of.element.as_ref().map(weighted),
        };
        Worker {
            env,
            current: None,
            dots: self.dots.iter().map(products).collect(),
            passes: self.passes.iter().map(|pass| pass.iter().map(sum).collect()).collect(),
            writers: self.results.iter().map(|results| results.stores.writer(env)).collect(),
            targets,
            known: vec![],
            coords: Coords::new(self.axes.count),
            weights: vec![],
            statistics: vec![[0.0; ROWS]; self.values],
        }
    }

    fn block(&self, worker: &mut Worker<'_>, block: Block) -> Result<(), CpuError> {
        worker.coords.set(0, block.sample);
        worker.coords.set(self.axes.head, block.head);
        let spans = self.spans(worker, block);
        copy_sample(worker, block)?;
        for sum in worker.passes.iter_mut().flatten() {
            worker.statistics[sum.of.value].fill(sum.of.op.start());
            if let Some(elements) = &mut sum.elements {
                let stride = elements.stride();
                room(&mut elements.totals, block.rows * stride)?.fill(0.0);
            }
        }
        for pass in 0..self.passes.len() {
            for span in &spans {
                self.span(worker, block, pass, span)?;
            }
        }
        self.finish(worker, block);
        Ok(())
    }

    /// The others that a block sees, in parts.
    fn spans(&self, worker: &mut Worker<'_>, block: Block) -> Vec<Span> {
        let seen = match &self.mask {
            None => std::iter::once(0..block.keys).collect(),
            Some(mask) => {
                let mut coords = vec![Interval::UNKNOWN; self.axes.count];
                coords[0] = Interval::point(block.sample as f64);
                coords[self.axes.head] = Interval::point(block.head as f64);
                coords[self.axes.owner] = range(block.row, block.rows);
                let visible_tiles = VisibleTiles { dag: &self.dag, env: worker.env, mask, key: self.axes.other };
                joined(visible_tiles.ranges(coords, block.keys, &mut worker.known))
            }
        };
        let width = Panels::width(block.keys);
        let parts = seen.into_iter().flat_map(|seen| {
            let end = seen.end;
            seen.step_by(SPAN).map(move |start| start..end.min(start + SPAN))
        });
        let span = |others: Range<usize>| {
            let origin = others.start / width * width;
            Span { stride: (others.end - origin).next_multiple_of(KEYS), origin, others }
        };
        parts.map(span).collect()
    }

    /// Adds the pairs of a span to the sums of a pass.
    fn span(&self, worker: &mut Worker<'_>, block: Block, pass: usize, span: &Span) -> Result<(), CpuError> {
        let Worker { dots, passes, coords, weights, statistics, .. } = worker;
        let Some(sums) = passes.get_mut(pass) else { return Ok(()) };
        let &Span { ref others, origin, stride } = span;
        let used = sums.iter().fold(0, |bits, sum| bits | sum.of.dots);
        for (_, dot) in dots.iter_mut().enumerate().filter(|(n, _)| used >> n & 1 == 1) {
            let rows = dot.owner.matrix(coords, block.row, (block.rows, dot.width), None)?;
            let values = room(&mut dot.values, block.rows * stride)?;
            dot.panels.multiply(values, stride, rows, (origin, others.end, 0), false)?;
        }
        coords.count(self.axes.owner, block.row);
        let lanes: Vec<AnchorLanes<'_>> =
            dots.iter().map(|dot| AnchorLanes { data: &dot.values, stride, origin }).collect();
        let (skip, count) = (others.start - origin, others.len());
        for sum in sums {
            let weights = room(weights, block.rows * stride)?;
            let inputs =
                RowInputs { first: 0, rows: block.rows, coords: coords.all(), values: statistics, lanes: &lanes };
            fill(&mut sum.weight, inputs, (origin, stride), (weights, stride));
            let Some(elements) = &mut sum.elements else {
                let lines = weights.chunks(stride).zip(&mut statistics[sum.of.value]);
                lines.for_each(|(line, all)| *all = combined(sum.of.op, *all, &line[skip..skip + count]));
                continue;
            };
            let out_stride = elements.stride();
            let weights = weights.get(skip..).unwrap_or(&[]);
            if let Some(weights) = Matrix::new(weights, (block.rows, count), (stride, 1)) {
                let place = (0, elements.width, others.start);
                elements.panels.multiply(&mut elements.totals, out_stride, weights, place, true)?;
            }
        }
        Ok(())
    }

    fn finish(&self, worker: &mut Worker<'_>, block: Block) {
        let Worker { passes, writers, targets, coords, statistics, .. } = worker;
        coords.count(self.axes.owner, block.row);
        for (results, writer) in self.results.iter().zip(writers) {
            let elements = passes.iter().flatten().filter_map(|sum| sum.elements.as_ref());
            let own = elements.filter(|elements| Some(elements.column) == results.column);
            let lanes: Vec<AnchorLanes<'_>> =
                own.map(|own| AnchorLanes { data: &own.totals, stride: own.stride(), origin: 0 }).collect();
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
            |_, targets| self.worker(env, targets),
            |worker, block| self.block(worker, block),
        )
    }
}

impl CompiledSum {
    fn new(kernel: &Pairs<'_>, sum: &PairSum) -> Result<Self, CpuError> {
        let body = &kernel.nest.body;
        let read = body.dag.values(sum.weight);
        let anchor = |dag: &Dag, id: ExprId| {
            let place = |position: u8| kernel.dots.iter().position(|dot: &Dot| dot.value == position);
            match *dag.expr(id) {
                Expr::Value(position) if dag.scalar(id) == Scalar::F32 => {
                    Some(place(position).map_or(AnchorValue::Row(position), |dot| AnchorValue::Lane(dot as u8)))
                }
                _ => None,
            }
        };
        let used = kernel.dots.iter().enumerate().filter(|(_, dot)| read >> dot.value & 1 == 1);
        let element = sum.element.map(|element| {
            let rows = (kernel.other, element.column);
            let panel = Panel::new(body, element.value, rows, Some(element.width))?;
            Ok(Elements { panel, column: element.column, width: element.width })
        });
        Ok(Self {
            value: sum.value.into(),
            op: sum.op,
            weight: Program::compile(&body.dag, &body.operands, &[sum.weight], kernel.other, &anchor)?,
            dots: used.fold(0, |bits, (n, _)| bits | 1 << n),
            element: element.transpose()?,
        })
    }
}

/// The outputs by their columns.
fn results(kernel: &Pairs<'_>) -> Result<Vec<Results>, CpuError> {
    let outputs = &kernel.nest.outputs;
    let mut columns: Vec<Option<u8>> = outputs.iter().map(|output| kernel.column_of(output)).collect();
    columns.sort_unstable();
    columns.dedup();
    let of_column = |column: Option<u8>| {
        let own = kernel.sums().filter(|sum| column.is_some() && sum.element.map(|e| e.column) == column);
        let own: Vec<u8> = own.map(|sum| sum.value).collect();
        let anchor = |dag: &Dag, id: ExprId| match *dag.expr(id) {
            Expr::Value(position) if dag.scalar(id) == Scalar::F32 => {
                let place = own.iter().position(|value| *value == position);
                Some(place.map_or(AnchorValue::Row(position), |place| AnchorValue::Lane(place as u8)))
            }
            _ => None,
        };
        let written: Vec<Output> =
            outputs.iter().filter(|output| kernel.column_of(output) == column).cloned().collect();
        // Without columns, nothing varies along a row.
        let axis = column.unwrap_or(u8::MAX);
        let stores = Stores::compile(&kernel.nest.body, &written, axis, None, &anchor)?;
        Ok(Results { column, width: column.map_or(1, |column| kernel.width(column).unwrap_or(1)), stores })
    };
    columns.into_iter().map(of_column).collect()
}

/// Ranges of which neighbours are joined.
fn joined(ranges: Vec<(Range<usize>, bool)>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = vec![];
    for (range, _) in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Copies the others of the block's sample and head, unless the block before had the same.
fn copy_sample(worker: &mut Worker<'_>, block: Block) -> Result<(), CpuError> {
    let Worker { dots, passes, coords, current, .. } = worker;
    if current.replace((block.sample, block.head)) == Some((block.sample, block.head)) {
        return Ok(());
    }
    for dot in dots {
        let others = dot.other.matrix(coords, 0, (block.keys, dot.width), None)?;
        dot.panels.pack(others.transposed())?;
    }
    for elements in passes.iter_mut().flatten().filter_map(|sum| sum.elements.as_mut()) {
        elements.panels.pack(elements.panel.matrix(coords, 0, (block.keys, elements.width), None)?)?;
    }
    Ok(())
}
