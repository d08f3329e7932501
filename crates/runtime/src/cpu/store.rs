//! What kernels write.

use super::error::CpuError;
use super::execute::{Given, LANES, Machine};
use super::memory::{Memory, SharedElements, Sink};
use super::operand::{Env, extents, matches, strides};
use super::program::{Leaf, Program};
use super::run::{Run, run};
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::plan::{Body, Output};
use std::ops::Range;

/// Where an output's elements go.
#[derive(Clone, Debug)]
enum Place {
    /// Element `(c0, c1, .., x)` of the loop is element `(c0, c1, .., x + shift)` of the output.
    Identity {
        /// Columns to move by.
        shift: i64,
        /// Dimensions before those that a row spans.
        outer: usize,
    },
    /// Neighbouring points write neighbouring elements.
    Run {
        /// Dimensions before those that a row spans.
        outer: usize,
        /// Multiples of the roots that add up to the first element within a row.
        signs: Vec<i32>,
    },
    /// Anywhere.
    Scatter,
}

/// An output compiled along an axis.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// Position of the tensor.
    target: usize,
    place: Place,
    /// Position of the value among the program's roots; the indices follow.
    root: usize,
}

/// Outputs that take the same columns, and the program of their values and indices.
#[derive(Clone, Debug)]
struct Group {
    program: Program,
    stores: Vec<Store>,
    columns: Option<(usize, usize)>,
}

/// The outputs of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Stores(Vec<Group>);

/// The machines of outputs.
#[derive(Debug)]
pub(super) struct Writer<'a>(Vec<(&'a Group, Machine<'a>)>);

/// Where one output goes in one run.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub sink: Sink<'a>,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

impl Target<'_> {
    /// Elements from one to the next of the rows that the dimensions after the first `outer` ones make up, and
    /// elements of a row.
    fn span(&self, outer: usize) -> (usize, usize) {
        let pitch = outer.checked_sub(1).and_then(|axis| self.strides.get(axis)).copied().unwrap_or(0);
        (pitch, self.shape.iter().skip(outer).product())
    }
}

impl Stores {
    /// Compiles outputs written along coordinate `axis`, the last of the loop; `rows` are the dimensions of the
    /// loop before it, if they are the first coordinates and rows can be dealt out.
    pub(super) fn compile(
        body: &Body,
        outputs: &[Output],
        axis: u8,
        rows: Option<&[Dim]>,
        leaf: &dyn Fn(ExprId) -> Option<Leaf>,
    ) -> Result<Self, CpuError> {
        let mut groups: Vec<Group> = vec![];
        let mut parts: Vec<Option<(usize, usize)>> = outputs.iter().map(|output| output.columns).collect();
        parts.sort_unstable();
        parts.dedup();
        for columns in parts {
            let mut dag = body.dag.clone();
            let (mut roots, mut stores) = (vec![], vec![]);
            for output in outputs.iter().filter(|output| output.columns == columns) {
                if dag.scalar(output.value) != output.dtype.scalar() || output.index.len() != output.shape.len() {
                    let reason = "an output's value or index does not fit its type".to_owned();
                    return Err(CpuError::Unsupported { kernel: "pointwise", reason });
                }
                let root = roots.len();
                roots.push(output.value);
                let place = place(&mut dag, output, axis, rows, &mut roots);
                stores.push(Store { target: output.target.into(), place, root });
            }
            let program = Program::compile(&dag, &body.operands, &roots, axis, leaf)?;
            groups.push(Group { program, stores, columns });
        }
        Ok(Self(groups))
    }

    /// All outputs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Store> + Clone {
        self.0.iter().flat_map(|group| &group.stores)
    }

    /// The machines for one run on one thread.
    pub(super) fn writer<'a>(&'a self, env: &'a Env<'a>) -> Writer<'a> {
        Writer(self.0.iter().map(|group| (group, Machine::new(&group.program, env))).collect())
    }
}

impl Writer<'_> {
    /// Writes what the outputs take of columns `columns` of row `row` of the loop.
    pub(super) fn row(&mut self, targets: &mut [Target<'_>], given: Given<'_>, row: usize, columns: Range<usize>) {
        for (group, machine) in &mut self.0 {
            let (low, high) = group.columns.unwrap_or((0, usize::MAX));
            let (low, high) = (low.max(columns.start), high.min(columns.end));
            if low >= high {
                continue;
            }
            machine.row(given);
            for start in (low..high).step_by(LANES) {
                let n = LANES.min(high - start);
                machine.chunk(given, start, n);
                for store in &group.stores {
                    if let Some(target) = targets.get_mut(store.target) {
                        store.write(machine, target, given, (row, start, n));
                    }
                }
            }
        }
    }
}

fn place(dag: &mut Dag, output: &Output, axis: u8, rows: Option<&[Dim]>, roots: &mut Vec<ExprId>) -> Place {
    let Some(Run { outer, terms }) = run(dag, &output.index, &output.shape, axis) else {
        roots.extend(&output.index);
        return Place::Scatter;
    };
    let (rest, shape) = (&output.index[..outer], &output.shape[..outer]);
    let mut coords = rest.iter().enumerate().map(|(n, &id)| *dag.expr(id) == Expr::Coord(n as u8));
    let identity = rows == Some(shape) && coords.all(|same| same);
    match constant(dag, &terms) {
        Some(shift) if identity => Place::Identity { shift, outer },
        _ => {
            roots.extend(rest.iter().copied().chain(terms.iter().map(|term| term.0)));
            Place::Run { outer, signs: terms.into_iter().map(|term| term.1).collect() }
        }
    }
}

fn constant(dag: &Dag, terms: &[(ExprId, i32)]) -> Option<i64> {
    terms.iter().try_fold(0, |sum, &(id, sign)| match *dag.expr(id) {
        Expr::Int(_, value) => Some(sum + value * i64::from(sign)),
        _ => None,
    })
}

impl Store {
    /// Elements between what neighbouring rows of a loop write, or neighbouring points if its row is cut, where
    /// blocks write pieces of their own.
    fn pitch(&self, strides: &[usize], blocks: Blocks) -> Option<usize> {
        match self.place {
            Place::Identity { shift, .. } if blocks.across => (shift == 0).then_some(1),
            Place::Identity { outer, .. } => strides.get(outer.checked_sub(1)?).copied(),
            _ => None,
        }
    }

    /// Writes the `n` points from `start` on of row `row`, which `machine` computed last.
    fn write(
        &self,
        machine: &Machine<'_>,
        target: &mut Target<'_>,
        given: Given<'_>,
        (row, start, n): (usize, usize, usize),
    ) {
        let offset = match &self.place {
            Place::Identity { shift, outer } => {
                let (pitch, width) = target.span(*outer);
                let first = usize::try_from(start as i64 + shift).ok();
                first.filter(|first| first + n <= width).map(|first| row * pitch + first)
            }
            Place::Run { outer, signs } => self.run_offset(machine, target, (*outer, signs), (start, n)),
            Place::Scatter => return self.scatter(machine, target, given, n),
        };
        if let Some(offset) = offset {
            machine.values(self.root, given, n, |values| target.sink.store(offset, values));
        }
    }

    fn run_offset(
        &self,
        machine: &Machine<'_>,
        target: &Target<'_>,
        (outer, signs): (usize, &[i32]),
        (start, n): (usize, usize),
    ) -> Option<usize> {
        let int = |root: usize| machine.ints(root, 1).at(0).unwrap_or(-1);
        let mut offset = 0;
        for (axis, (&extent, &stride)) in target.shape.iter().zip(&target.strides).take(outer).enumerate() {
            let index = usize::try_from(int(self.root + 1 + axis)).ok().filter(|&index| index < extent)?;
            offset += index * stride;
        }
        let first = signs.iter().enumerate().fold(start as i32, |sum, (term, &sign)| {
            sum.wrapping_add(int(self.root + 1 + outer + term).wrapping_mul(sign))
        });
        let width = target.span(outer).1;
        let first = usize::try_from(first).ok().filter(|first| first + n <= width)?;
        Some(offset + first)
    }

    fn scatter(&self, machine: &Machine<'_>, target: &mut Target<'_>, given: Given<'_>, n: usize) {
        let Target { sink, shape, strides } = target;
        machine.values(self.root, given, n, |values| {
            for point in 0..n {
                let mut offset = Some(0usize);
                for (axis, (&extent, &stride)) in shape.iter().zip(strides.iter()).enumerate() {
                    let index = machine.ints(self.root + 1 + axis, n).at(point).and_then(|i| usize::try_from(i).ok());
                    let index = index.filter(|&index| index < extent);
                    offset = offset.zip(index).map(|(offset, index)| offset + index * stride);
                }
                if let Some(offset) = offset {
                    sink.store(offset, values.part(point, point + 1));
                }
            }
        });
    }
}

/// Checks the tensors given for outputs against their declarations.
pub(super) fn check<'a>(
    declared: impl Iterator<Item = &'a Output> + Clone,
    outputs: &[&mut Memory],
    symbol: &dyn Fn(Symbol) -> Option<i64>,
) -> Result<(), CpuError> {
    let expected = declared.clone().map(|output| usize::from(output.target) + 1).max().unwrap_or(0);
    if expected != outputs.len() {
        return Err(CpuError::Count { what: "outputs", expected, actual: outputs.len() });
    }
    for declared in declared {
        let position = usize::from(declared.target);
        let shape = extents(&declared.shape, "an output", symbol)?;
        if let Some(output) = outputs.get(position).filter(|output| !matches(output, declared.dtype, &shape)) {
            return Err(CpuError::Mismatch {
                what: "output",
                position,
                expected: format!("a tensor of {} {shape:?}", declared.dtype),
                actual: format!("a tensor of {} {:?}", output.dtype(), output.shape()),
            });
        }
    }
    Ok(())
}

/// Outputs that several tasks write.
#[derive(Debug)]
pub(super) struct SharedOutputs<'a>(Vec<(SharedElements<'a>, Vec<usize>)>);

impl<'a> SharedOutputs<'a> {
    pub(super) fn new(outputs: &'a mut [&mut Memory]) -> Self {
        Self(outputs.iter_mut().map(|o| (o.shape().to_vec(), o.elements_mut().share())).map(|(s, e)| (e, s)).collect())
    }

    /// The targets of one task.
    pub(super) fn targets(&self) -> Vec<Target<'a>> {
        let target = |(elements, shape): &(SharedElements<'a>, Vec<usize>)| Target {
            sink: Sink::Shared(*elements),
            strides: strides(shape),
            shape: shape.clone(),
        };
        self.0.iter().map(target).collect()
    }
}

/// How the points of a loop are cut into tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Rows of the loop.
    pub rows: usize,
    /// Points of a row.
    pub width: usize,
    /// Rows of a block, or points of a row if `across`.
    pub size: usize,
    /// The one row is cut into blocks.
    pub across: bool,
}

impl Blocks {
    /// Blocks of whole rows with about `points` points.
    pub(super) fn of_rows(rows: usize, width: usize, points: usize) -> Self {
        Self { rows, width, size: (points / width.max(1)).max(1), across: false }
    }

    /// Blocks of about `points` points; a single row is cut.
    pub(super) fn of_points(rows: usize, width: usize, points: usize) -> Self {
        if rows == 1 {
            Self { rows, width, size: points.next_multiple_of(LANES), across: true }
        } else {
            Self::of_rows(rows, width, points)
        }
    }

    /// Number of blocks.
    pub(super) fn count(self) -> usize {
        if self.across { self.width.div_ceil(self.size) } else { self.rows.div_ceil(self.size) }
    }

    /// Rows and columns of a block.
    pub(super) fn block(self, n: usize) -> (Range<usize>, Range<usize>) {
        let within = |all: usize| n * self.size..((n + 1) * self.size).min(all);
        if self.across { (0..1, within(self.width)) } else { (within(self.rows), 0..self.width) }
    }
}

/// Deals out outputs to the blocks of a loop: pieces of their own where the loop's rows are the output's rows.
pub(super) fn deal<'a, 's>(
    stores: impl Iterator<Item = &'s Store> + Clone,
    outputs: &'a mut [&mut Memory],
    blocks: Blocks,
) -> Vec<Vec<Target<'a>>> {
    let mut dealt: Vec<Vec<Target<'a>>> = (0..blocks.count()).map(|_| vec![]).collect();
    for (position, output) in outputs.iter_mut().enumerate() {
        let shape = output.shape().to_vec();
        let (strides, elements) = (strides(&shape), output.elements_mut());
        let writers = stores.clone().filter(|store| store.target == position);
        let pitches = writers.map(|store| store.pitch(&strides, blocks)).collect::<Vec<_>>();
        let pitch = pitches.first().copied().flatten().filter(|_| pitches.windows(2).all(|pair| pair[0] == pair[1]));
        let sinks: Box<dyn Iterator<Item = Sink<'a>>> = if let Some(pitch) = pitch {
            let pieces = elements.pieces((blocks.size * pitch).max(1)).into_iter().enumerate();
            Box::new(pieces.map(move |(n, piece)| Sink::Own(piece, n * blocks.size * pitch)))
        } else {
            let shared = elements.share();
            Box::new(std::iter::repeat_with(move || Sink::Shared(shared)))
        };
        for (targets, sink) in dealt.iter_mut().zip(sinks) {
            targets.push(Target { sink, shape: shape.clone(), strides: strides.clone() });
        }
    }
    dealt
}

/// Sets the first coordinates to those of row `row` of a loop with these leading extents.
pub(super) fn unravel(mut row: usize, extents: &[usize], coords: &mut [i32]) {
    for (coord, &extent) in coords.iter_mut().zip(extents).rev() {
        *coord = (row % extent.max(1)) as i32;
        row /= extent.max(1);
    }
}
