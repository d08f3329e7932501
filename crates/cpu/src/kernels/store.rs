//! Outputs of kernels.

mod deal;
mod divide;

use super::chain::Destination;
use super::error::CpuError;
use super::lanes::{Grid, LANES, Lanes, Progression, ROWS, Row, tile_rows};
use super::load::{FIRST, OUTSIDE, add_offsets, step};
use super::machine::{RowInputs, Vm};
use super::memory::{Memory, Scalars, Sink};
use super::operand::Env;
use super::program::{AccumulatorValue, Program};
use super::run::{Run, counts_along, run};
use super::storage::Values;
use super::stream::Stream;
use rewire_graph::pointwise::{Affine, Dag, Expr, ExprId};
use rewire_graph::{Arrange, Dim, Scalar};
use rewire_graph_rewrite::plan::{Body, Output, Written};
use std::ops::Range;

pub(super) use deal::{Blocks, SharedOutputs, deal};
use divide::divide;

/// How points of the loop map to elements of an output.
#[derive(Clone, Debug)]
enum StorePattern {
    /// Point `x` of a loop row is element `x + shift` of the same row of the output.
    Identity {
        /// The column offset.
        shift: i64,
        rows: Rows,
    },
    /// Adjacent points write adjacent elements.
    Run {
        /// Number of dimensions before the ones that a row spans.
        outer: usize,
        /// Factors of roots. Their linear combination plus `constant` is the first element within a row.
        multiples: Vec<i32>,
        /// The constant.
        constant: i32,
    },
    /// Arbitrary positions.
    Scatter,
}

/// The rows of an output.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// Rows span all dimensions from this one on.
    After(usize),
    /// Rows of this many elements within the single dimension.
    Of(usize),
}

/// An output compiled along an axis.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// Index of the tensor among the outputs.
    target: usize,
    pattern: StorePattern,
    /// Index of the value among the program's roots. The roots of its indices follow.
    root: usize,
}

/// Outputs with the same columns, and the program for their values and indices.
#[derive(Clone, Debug)]
struct Group {
    program: Program,
    stores: Vec<Store>,
    columns: Option<(usize, usize)>,
}

/// The outputs of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Stores(Vec<Group>);

/// Outputs, bound to a run on one thread.
pub(super) struct Writer<'a>(Vec<(&'a Group, Vm<'a>)>);

/// The destination of an output in a run.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub sink: Sink<'a>,
    pub shape: &'a [usize],
    pub strides: &'a [usize],
    /// Non-temporal stores for large outputs of floats.
    stream: Option<Stream<'a>>,
}

impl Target<'_> {
    /// Row stride, and number of elements per row.
    fn span(&self, rows: Rows) -> (usize, usize) {
        match rows {
            Rows::Of(width) => (width, width),
            Rows::After(outer) => {
                let pitch = outer.checked_sub(1).and_then(|axis| self.strides.get(axis)).copied().unwrap_or(0);
                (pitch, self.shape.iter().skip(outer).product())
            }
        }
    }

    /// Stores contiguous elements from `offset` on.
    fn store(&mut self, offset: usize, values: Values<'_>) {
        if let Values::F32(values) = values
            && let Some(stream) = &self.stream
            && let Some(out) = self.sink.floats(offset).and_then(|out| out.get_mut(..values.len()))
        {
            return stream.copy(out, values);
        }
        self.sink.store(offset, values);
    }
}

impl Stores {
    /// Compiles outputs written along coordinate `axis`, the last of the loop. `rows` are the preceding dimensions, if they
    /// are the leading coordinates and rows can be divided among tasks.
    pub(super) fn compile(
        body: &Body,
        outputs: &[Output],
        axis: u8,
        rows: Option<&[Dim]>,
        accumulator: &dyn Fn(&Dag, ExprId) -> Option<AccumulatorValue>,
    ) -> Result<Self, CpuError> {
        let (dag, outputs) = divide(&body.dag, outputs, axis);
        let mut groups: Vec<Group> = vec![];
        let mut parts: Vec<Option<(usize, usize)>> = outputs.iter().map(|output| output.columns).collect();
        parts.arrange();
        parts.dedup();
        for columns in parts {
            let (mut roots, mut stores) = (vec![], vec![]);
            for output in outputs.iter().filter(|output| output.columns == columns) {
                if dag.scalar(output.value) != output.dtype.scalar() || output.index.len() != output.shape.len() {
                    let reason = "an output's value or index does not fit its type".to_owned();
                    return Err(CpuError::Unsupported { kernel: "pointwise", reason });
                }
                let root = roots.len();
                roots.push(output.value);
                let pattern = pattern(&dag, output, axis, rows, &mut roots);
                stores.push(Store { target: output.target.into(), pattern, root });
            }
            let program = Program::compile(&dag, &body.operands, &roots, axis, accumulator)?;
            groups.push(Group { program, stores, columns });
        }
        Ok(Self(groups))
    }

    /// All outputs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Store> + Clone {
        self.0.iter().flat_map(|group| &group.stores)
    }

    /// Binds the outputs to a run on one thread.
    pub(super) fn writer<'a>(&'a self, env: &'a Env<'a>) -> Result<Writer<'a>, CpuError> {
        let machines = self.0.iter().map(|group| Ok((group, Vm::new(&group.program, env)?)));
        Ok(Writer(machines.collect::<Result<_, CpuError>>()?))
    }
}

impl Writer<'_> {
    /// Writes a range of columns of the rows of `inputs` to the outputs. `first` is their first row in the loop.
    pub(super) fn rows(
        &mut self,
        targets: &mut [Target<'_>],
        inputs: RowInputs<'_>,
        first: usize,
        columns: Range<usize>,
    ) {
        for (group, machine) in &mut self.0 {
            let (low, high) = group.columns.unwrap_or((0, usize::MAX));
            let (low, high) = (low.max(columns.start), high.min(columns.end));
            if low >= high {
                continue;
            }
            machine.rows(inputs);
            if group.compute(machine, targets, inputs, (first, low), high - low) {
                continue;
            }
            let (size, width) = group.tile(inputs.rows, high - low);
            for start in (0..inputs.rows).step_by(size) {
                let part = inputs.part(start, size);
                for column in (low..high).step_by(width) {
                    let (at, points) = ((first + start, column), width.min(high - column));
                    let done = group.stores.iter().position(|store| {
                        let target = targets.get_mut(store.target);
                        target.is_some_and(|target| store.compute(machine, target, part, at, points))
                    });
                    if done.is_none() {
                        machine.tile(part, column, points);
                    }
                    for (_, store) in group.stores.iter().enumerate().filter(|(n, _)| Some(*n) != done) {
                        if let Some(target) = targets.get_mut(store.target) {
                            store.write(machine, target, part, at);
                        }
                    }
                }
            }
        }
    }
}

impl Group {
    /// Rows and points per row of a tile of `rows` rows of `points` points. Where elements go anywhere, tiles have many rows:
    /// elements of adjacent rows may be adjacent in memory.
    fn tile(&self, rows: usize, points: usize) -> (usize, usize) {
        let scatters = self.stores.iter().any(|store| matches!(store.pattern, StorePattern::Scatter));
        let size = if scatters { rows.clamp(1, ROWS) } else { tile_rows(points) };
        (size, LANES / size)
    }

    /// Computes a single output as one large tile; false if this is not possible.
    fn compute(
        &self,
        machine: &mut Vm<'_>,
        targets: &mut [Target<'_>],
        inputs: RowInputs<'_>,
        at: (usize, usize),
        points: usize,
    ) -> bool {
        let [store] = &self.stores[..] else { return false };
        let Some(target) = targets.get_mut(store.target).filter(|_| self.program.streams) else { return false };
        store.compute(machine, target, inputs, at, points)
    }
}

fn pattern(dag: &Dag, output: &Output, axis: u8, rows: Option<&[Dim]>, roots: &mut Vec<ExprId>) -> StorePattern {
    let Some(Run { outer, start }) = run(dag, &output.index, (output.dtype, &output.shape), axis) else {
        roots.extend(&output.index);
        return StorePattern::Scatter;
    };
    let (rest, shape) = (&output.index[..outer], &output.shape[..outer]);
    let mut coords = rest.iter().enumerate().map(|(n, &id)| *dag.expr(id) == Expr::Coord(n as u8));
    let is_row = || rows.is_some_and(|rows| rows.len() == 1) && counts_along(dag, rest, shape, 0);
    let identity = rows == Some(shape) && coords.all(|same| same) || is_row();
    if let Some(width) = flat_rows(dag, &start, rows).filter(|_| output.shape.len() == 1) {
        return StorePattern::Identity { shift: 0, rows: Rows::Of(width) };
    }
    match start.as_constant().and_then(|shift| i64::try_from(shift).ok()) {
        Some(shift) if identity => StorePattern::Identity { shift, rows: Rows::After(outer) },
        _ => {
            roots.extend(rest.iter().copied().chain(start.terms().map(|(term, _)| term)));
            let multiples = start.terms().map(|(_, multiple)| multiple as i32).collect();
            StorePattern::Run { outer, multiples, constant: start.offset() as i32 }
        }
    }
}

/// Elements per row of an output with a single dimension that has the loop's rows consecutively. `None` for other
/// outputs. `start` is the index of a row's first element.
fn flat_rows(dag: &Dag, start: &Affine<ExprId>, rows: Option<&[Dim]>) -> Option<usize> {
    let mut terms = start.terms();
    let (Some((row, width)), None, [_]) = (terms.next(), terms.next(), rows?) else { return None };
    let is_row = *dag.expr(row) == Expr::Coord(0) && start.offset() == 0;
    usize::try_from(width).ok().filter(|&width| is_row && width > 0)
}

impl Store {
    /// Stride between adjacent loop rows, or between adjacent points if a row is divided. `None` if blocks do not write
    /// separate slices.
    fn pitch(&self, strides: &[usize], blocks: Blocks) -> Option<usize> {
        match self.pattern {
            StorePattern::Identity { shift, .. } if blocks.across => (shift == 0).then_some(1),
            StorePattern::Identity { rows: Rows::After(outer), .. } => strides.get(outer.checked_sub(1)?).copied(),
            StorePattern::Identity { rows: Rows::Of(width), .. } => Some(width),
            _ => None,
        }
    }

    /// Computes a tile directly in the memory of its output; false if this is not possible.
    fn compute(
        &self,
        machine: &mut Vm<'_>,
        target: &mut Target<'_>,
        inputs: RowInputs<'_>,
        (row, column): (usize, usize),
        points: usize,
    ) -> bool {
        let StorePattern::Identity { shift, rows } = self.pattern else { return false };
        let (pitch, width) = target.span(rows);
        let start = usize::try_from(column as i64 + shift).ok().filter(|start| start + points <= width);
        let Some(out) = start.and_then(|start| target.sink.floats(row * pitch + start)) else { return false };
        let out_len = out.len();
        let stride = pitch.max(points);
        let count = inputs.rows.saturating_sub(1) * stride + points;
        let to = Destination::Rows { out, stride, stream: target.stream.as_ref() };
        count <= out_len && machine.compute(inputs, (column, points), self.root, to)
    }

    /// Writes the last tile of `machine`. `at` is the tile's first row and column in the loop.
    fn write(&self, machine: &Vm<'_>, target: &mut Target<'_>, inputs: RowInputs<'_>, at: (usize, usize)) {
        let grid = machine.grid();
        match machine.kind(self.root) {
            Scalar::F32 => self.write_lanes(machine, target, machine.floats(self.root, inputs), grid, at),
            Scalar::I64 => self.write_lanes(machine, target, machine.longs(self.root), grid, at),
            _ => self.write_lanes(machine, target, machine.ints(self.root), grid, at),
        }
    }

    fn write_lanes<T: Scalars>(
        &self,
        machine: &Vm<'_>,
        target: &mut Target<'_>,
        lanes: Lanes<'_, T>,
        grid: Grid,
        at: (usize, usize),
    ) {
        if let StorePattern::Scatter = self.pattern {
            return self.scatter(machine, target, lanes, grid);
        }
        if let Lanes::Each(all) = lanes
            && let Some(offset) = self.joined_offset(target, grid, at)
        {
            return target.store(offset, T::values(all));
        }
        let mut offsets = [OUTSIDE; ROWS];
        let offsets = &mut offsets[..grid.rows.min(ROWS)];
        match self.spaced(machine, target, grid, at.1) {
            Some((start, gap)) => {
                offsets.iter_mut().enumerate().for_each(|(row, offset)| *offset = start + row * gap);
            }
            None => self.offsets(machine, target, at, (grid, offsets)),
        }
        // The hardware does not predict where these rows are.
        offsets.iter().for_each(|&offset| target.sink.prefetch(offset, grid.points.min(FIRST)));
        for (row, &mut offset) in offsets.iter_mut().enumerate().filter(|(_, offset)| **offset < OUTSIDE) {
            match lanes.row(row, grid.points) {
                Row::Each(row) => target.store(offset, T::values(row)),
                Row::Same(value) => {
                    for start in (0..grid.points).step_by(64) {
                        target.store(offset + start, T::values(&[value; 64][..64.min(grid.points - start)]));
                    }
                }
            }
        }
    }

    /// The offset of a tile whose rows are consecutive in memory; `None` for other tiles.
    fn joined_offset(&self, target: &Target<'_>, grid: Grid, (row, column): (usize, usize)) -> Option<usize> {
        let StorePattern::Identity { shift, rows } = self.pattern else { return None };
        let (pitch, width) = target.span(rows);
        (shift == 0 && column == 0 && grid.points == width && pitch == width).then_some(row * pitch)
    }

    /// The offset of a tile's first row, and the row stride. `None` if rows are not evenly spaced or are out of range.
    fn spaced(&self, machine: &Vm<'_>, target: &Target<'_>, grid: Grid, column: usize) -> Option<(usize, usize)> {
        let StorePattern::Run { outer, multiples, constant } = &self.pattern else { return None };
        let index = |position: usize| machine.ints(self.root + 1 + position).progression(grid.rows);
        let mut place = Progression { first: column as i64 + i64::from(*constant), step: 0 };
        for (term, &multiple) in multiples.iter().enumerate() {
            place = place.plus(index(outer + term)?, multiple.into());
        }
        place = place.within(grid.rows, (target.span(Rows::After(*outer)).1 + 1).checked_sub(grid.points)?)?;
        for (axis, (&extent, &stride)) in target.shape.iter().zip(target.strides.iter()).take(*outer).enumerate() {
            place = place.plus(index(axis)?.within(grid.rows, extent)?, stride as i64);
        }
        place.offsets()
    }

    /// The offsets of a tile's rows. Rows out of range have at least [`OUTSIDE`].
    fn offsets(
        &self,
        machine: &Vm<'_>,
        target: &Target<'_>,
        (first, column): (usize, usize),
        (grid, offsets): (Grid, &mut [usize]),
    ) {
        let within = |start: i64, width: usize| {
            let start = usize::try_from(start).ok().filter(|start| start + grid.points <= width);
            start.unwrap_or(OUTSIDE)
        };
        let (outer, multiples, constant) = match &self.pattern {
            StorePattern::Scatter => return,
            &StorePattern::Identity { shift, rows } => {
                let (pitch, width) = target.span(rows);
                let start = within(column as i64 + shift, width);
                for (row, offset) in offsets.iter_mut().enumerate() {
                    *offset = start + (first + row) * pitch;
                }
                return;
            }
            StorePattern::Run { outer, multiples, constant } => (*outer, multiples, *constant),
        };
        let index = |position: usize| machine.ints(self.root + 1 + position);
        let mut starts = [(column as i32).wrapping_add(constant); ROWS];
        for (term, &multiple) in multiples.iter().enumerate() {
            let term = index(outer + term);
            for (row, start) in starts.iter_mut().take(grid.rows).enumerate() {
                *start = start.wrapping_add(term.at(row, 0, grid.points).unwrap_or(-1).wrapping_mul(multiple));
            }
        }
        let width = target.span(Rows::After(outer)).1;
        offsets.iter_mut().zip(starts).for_each(|(offset, start)| *offset = within(start.into(), width));
        for (axis, (&extent, &stride)) in target.shape.iter().zip(target.strides.iter()).take(outer).enumerate() {
            let index = index(axis);
            for (row, offset) in offsets.iter_mut().enumerate() {
                let index = index.at(row, 0, grid.points).unwrap_or(-1);
                *offset = offset.wrapping_add(step(index, extent, stride));
            }
        }
    }

    fn scatter<T: Scalars>(&self, machine: &Vm<'_>, target: &mut Target<'_>, lanes: Lanes<'_, T>, grid: Grid) {
        let Target { sink, shape, strides, .. } = target;
        let mut offsets = [0; LANES];
        let offsets = &mut offsets[..grid.len()];
        for (axis, (&extent, &stride)) in shape.iter().zip(strides.iter()).enumerate() {
            add_offsets(offsets, grid, machine.ints(self.root + 1 + axis), (extent, stride));
        }
        let points = grid.points.max(1);
        if grid.rows > 1 && points > 1 && offsets.get(points) == offsets.first().map(|first| first + 1).as_ref() {
            let (mut down, mut values) = ([0; LANES], [T::default(); LANES]);
            for (row, offsets) in offsets.chunks(points).enumerate() {
                let values = values.iter_mut().skip(row).step_by(grid.rows);
                match lanes.row(row, points) {
                    Row::Each(from) => values.zip(from).for_each(|(to, from)| *to = *from),
                    Row::Same(value) => values.for_each(|to| *to = value),
                }
                down.iter_mut().skip(row).step_by(grid.rows).zip(offsets).for_each(|(to, from)| *to = *from);
            }
            return store_runs(sink, &down[..grid.len()], Row::Each(&values));
        }
        for (row, offsets) in offsets.chunks(points).enumerate() {
            store_runs(sink, offsets, lanes.row(row, points));
        }
    }
}

/// Stores values at offsets, adjacent ones together.
fn store_runs<T: Scalars>(sink: &mut Sink<'_>, offsets: &[usize], values: Row<'_, T>) {
    let runs = || offsets.chunk_by(|a, b| a.wrapping_add(1) == *b);
    runs().for_each(|run| sink.prefetch(run[0], run.len()));
    let mut start = 0;
    for run in runs() {
        let end = start + run.len();
        match values {
            _ if run[0] >= OUTSIDE => {}
            Row::Each(values) => sink.store(run[0], T::values(values.get(start..end).unwrap_or(&[]))),
            Row::Same(value) => run.iter().for_each(|&offset| sink.store(offset, T::values(&[value]))),
        }
        start = end;
    }
}

/// Checks output tensors against their declarations.
pub(super) fn check(declared: &[Written<'_>], outputs: &[&mut Memory], env: &Env<'_>) -> Result<(), CpuError> {
    let expected = declared.iter().map(|output| usize::from(output.target) + 1).max().unwrap_or(0);
    if expected != outputs.len() {
        return Err(CpuError::Count { what: "outputs", expected, actual: outputs.len() });
    }
    for declared in declared {
        let position = usize::from(declared.target);
        let Some(output) = outputs.get(position) else { continue };
        if !env.is_output(output.shape(), declared.shape)? || output.dtype() != declared.dtype {
            let shape = env.extents(declared.shape, "an output")?;
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
