//! Matrices whose elements are expressions: operands of matmuls.

use super::chain::Destination;
use super::coords::Coords;
use super::error::CpuError;
use super::joined::{JoinedMachine, JoinedMatrix};
use super::lanes::{LANES, ROWS, tile_rows};
use super::machine::{RowInputs, Vm};
use super::operand::Env;
use super::parted::PartedMatrix;
use super::product::Matrix;
use super::program::{AccumulatorValue, Program};
use super::reductions::{ReductionMachines, row_value};
use super::run::{axes_along, run_along, scattered};
use super::scratch::room;
use super::storage::Elements;
use super::window::{BindingChunks, WindowMachine};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{Arrange, DType, Scalar};
use rewire_graph_rewrite::plan::{Body, MemorySpace};
use std::collections::BTreeMap;
use std::ops::Range;

/// The matrix of an expression over a row coordinate and a column coordinate.
#[derive(Clone, Debug)]
pub(super) struct ExprMatrix {
    segments: Vec<ColumnRanges>,
    direct: Option<StridedOperand>,
    windows: Option<BindingChunks>,
    joined: Option<Joined>,
    parted: Option<PartedMatrix>,
    row: u8,
    column: u8,
    /// True to compute the matrix column by column, because its loads are contiguous in that direction.
    by_column: bool,
}

/// Column ranges of equal width. Each range is one result of the program.
#[derive(Clone, Debug)]
struct ColumnRanges {
    starts: Vec<usize>,
    /// `usize::MAX` extends to the last column.
    width: usize,
    /// The program along columns, counted from the start of each range.
    program: Program,
}

/// A small matrix as one contiguous line.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub line: JoinedMatrix,
    /// True if the line is column-major, false if it is row-major.
    pub by_column: bool,
    /// Number of columns; number of rows if column-major.
    width: usize,
    /// Number of elements.
    points: usize,
}

/// A matrix that is a plain load, and can be read in place.
#[derive(Clone, Debug)]
struct StridedOperand {
    operand: u16,
    /// The indices of the load.
    index: Program,
    /// The tensor's dimensions for rows of the matrix, traversed as one dimension.
    rows: Range<usize>,
    columns: Range<usize>,
}

/// A matrix bound to one run, with memory for its elements on one thread.
pub(super) struct PanelMachine<'a> {
    panel: &'a ExprMatrix,
    env: &'a Env<'a>,
    methods: Methods<'a>,
    /// Programs for column ranges; bound on first use.
    machines: Vec<(&'a ColumnRanges, Vm<'a>)>,
    elements: Vec<f32>,
}

/// Faster methods to compute a matrix. They are bound when the first matrix is computed, since packed weights need
/// none.
#[derive(Default)]
struct Methods<'a> {
    are_bound: bool,
    index: Option<Vm<'a>>,
    windows: Option<WindowMachine<'a>>,
    line: Option<JoinedMachine<'a>>,
    parts: Option<Vm<'a>>,
}

impl ExprMatrix {
    /// `rows` and `columns` are the extents of the matrix, if constant.
    pub(super) fn new(
        body: &Body,
        id: ExprId,
        (row, column): (u8, u8),
        (rows, columns): (Option<usize>, Option<usize>),
    ) -> Result<Self, CpuError> {
        let dag = &body.dag;
        if dag.scalar(id) != Scalar::F32 {
            let reason = "an element of a product is not a float".to_owned();
            return Err(CpuError::Unsupported { kernel: "matmul", reason });
        }
        let by_column = dag.values(id) == 0 && scattered(body, &[id], column) > scattered(body, &[id], row);
        let (along, points) = if by_column { (row, None) } else { (column, columns) };
        // One program computes ranges of equal width, so that they share loads and functions.
        let mut ranges: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
        for columns in segments(dag, &[id], along, points) {
            ranges.entry(columns.len()).or_default().push(columns);
        }
        let segment = |(width, ranges): (usize, Vec<Range<usize>>)| {
            let (dag, roots) = within(dag, &[id], along, &ranges);
            let program = Program::compile(&dag, &body.operands, &roots, along, &row_value)?;
            Ok(ColumnRanges { starts: ranges.iter().map(|columns| columns.start).collect(), width, program })
        };
        let segments = ranges.into_iter().map(segment).collect::<Result<_, CpuError>>()?;
        let direct = StridedOperand::new(body, id, row, column)?;
        let windows = BindingChunks::new(body, id, (row, column), by_column)?;
        let joined = match rows.zip(columns).filter(|_| direct.is_none() && windows.is_none()) {
            Some(extents) => Joined::new(body, id, (row, column), extents)?,
            None => None,
        };
        Ok(Self { segments, direct, windows, joined, parted: None, row, column, by_column })
    }

    /// True if rows are windows of an image.
    pub(super) fn has_windows(&self) -> bool {
        self.windows.is_some()
    }

    /// Allows computing the matrix in parts of rows. `spare` is a coordinate that its expression does not use; `columns` is
    /// the number of columns, if constant.
    pub(super) fn parted(
        mut self,
        body: &Body,
        id: ExprId,
        spare: u8,
        columns: Option<usize>,
    ) -> Result<Self, CpuError> {
        let is_read = self.direct.is_some() || self.windows.is_some() || self.joined.is_some() || self.by_column;
        if let Some(columns) = columns.filter(|_| !is_read) {
            self.parted = PartedMatrix::new(body, id, (self.row, self.column, spare), columns)?;
        }
        Ok(self)
    }

    pub(super) fn machine<'a>(&'a self, env: &'a Env<'a>) -> PanelMachine<'a> {
        PanelMachine { panel: self, env, methods: Methods::default(), machines: vec![], elements: vec![] }
    }

    fn methods<'a>(&'a self, env: &'a Env<'a>) -> Result<Methods<'a>, CpuError> {
        Ok(Methods {
            are_bound: true,
            index: self.direct.as_ref().map(|direct| Vm::new(&direct.index, env)).transpose()?,
            windows: self.windows.as_ref().map(|windows| windows.machine(env)).transpose()?,
            line: self.joined.as_ref().map(|joined| joined.line.machine(env)).transpose()?,
            parts: self.parted.as_ref().map(|parted| parted.machine(env)).transpose()?,
        })
    }
}

/// Ranges of columns within which comparisons with constants do not change.
pub(super) fn segments(dag: &Dag, roots: &[ExprId], column: u8, columns: Option<usize>) -> Vec<Range<usize>> {
    let Some(columns) = columns else { return std::iter::once(0..usize::MAX).collect() };
    let mut starts = vec![0];
    for id in dag.reachable(roots) {
        let Expr::Binary(op, a, b) = *dag.expr(id) else { continue };
        let (Expr::Int(_, bound), Some(first)) = (dag.expr(b), run_along(dag, a, column)) else { continue };
        let start = match op {
            BinaryOp::Lt | BinaryOp::Ge => *bound,
            BinaryOp::Le | BinaryOp::Gt => *bound + 1,
            _ => continue,
        };
        let start = first.as_constant().and_then(|shift| usize::try_from(i128::from(start) - shift).ok());
        starts.extend(start.filter(|&start| start < columns));
    }
    starts.arrange();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([columns]).collect::<Vec<_>>();
    starts.into_iter().zip(ends).map(|(start, end)| start..end).collect()
}

/// Rewrites expressions for ranges of columns, with columns counted from the start of each range. Returns all roots for
/// the first range, then for the next.
pub(super) fn within(dag: &Dag, roots: &[ExprId], column: u8, ranges: &[Range<usize>]) -> (Dag, Vec<ExprId>) {
    let (mut part, mut copies) = (Dag::new(), vec![]);
    for columns in ranges {
        copies.extend(part.graft(dag, roots, |part, expr, _| match *expr {
            Expr::Coord(coord) if coord == column && columns.end != usize::MAX => {
                let (point, start) = (part.coord(column, Some(columns.len())), part.int(columns.start as i64));
                Some(part.binary(BinaryOp::Add, point, start))
            }
            _ => None,
        }));
    }
    (part, copies)
}

/// True if the matrix of an expression is read where it is.
pub(super) fn is_in_place(body: &Body, id: ExprId, (row, column): (u8, u8)) -> Result<bool, CpuError> {
    Ok(StridedOperand::new(body, id, row, column)?.is_some())
}

impl Joined {
    pub(super) fn new(
        body: &Body,
        id: ExprId,
        (row, column): (u8, u8),
        (rows, columns): (usize, usize),
    ) -> Result<Option<Self>, CpuError> {
        let points = rows.saturating_mul(columns);
        if let Some(line) = JoinedMatrix::new(body, id, (row, column), (rows, columns))? {
            return Ok(Some(Self { line, by_column: false, width: columns, points }));
        }
        let line = JoinedMatrix::new(body, id, (column, row), (columns, rows))?;
        Ok(line.map(|line| Self { line, by_column: true, width: rows, points }))
    }

    /// The rows of the matrix from `first` on.
    fn matrix<'e>(
        &self,
        machine: &mut JoinedMachine<'_>,
        coords: &Coords,
        elements: &'e mut Vec<f32>,
        (first, rows): (usize, usize),
    ) -> Result<Option<Matrix<'e>>, CpuError> {
        let inputs = RowInputs { rows: 1, coords: coords.all(), ..RowInputs::default() };
        let width = self.width;
        let points = if self.by_column { 0..self.points } else { first * width..(first + rows) * width };
        let elements = room(elements, points.len())?;
        machine.fill(inputs, points.clone(), elements, points.len());
        Ok(match self.by_column {
            true => Matrix::new(elements, (self.points / width, width), (width, 1))
                .map(|matrix| matrix.transposed().part((first, 0), (rows, matrix.rows))),
            false => Matrix::new(elements, (rows, width), (width, 1)),
        })
    }
}

impl StridedOperand {
    fn new(body: &Body, id: ExprId, row: u8, column: u8) -> Result<Option<Self>, CpuError> {
        let dag = &body.dag;
        let Expr::Load { operand, index } = dag.expr(id) else { return Ok(None) };
        let source = body.operands.get(usize::from(*operand));
        let plain = source.filter(|source| source.dtype == DType::F32 && source.space != MemorySpace::Host);
        let Some(source) = plain.filter(|_| dag.values(id) == 0) else { return Ok(None) };
        let along = |coord| axes_along(dag, index, (source.dtype, &source.shape), coord);
        let (Some(rows), Some(columns)) = (along(row), along(column)) else { return Ok(None) };
        if rows.start < columns.end && columns.start < rows.end {
            return Ok(None);
        }
        let none = |_: &Dag, _: ExprId| -> Option<AccumulatorValue> { None };
        let index = Program::compile(dag, &body.operands, index, u8::MAX, &none)?;
        Ok(Some(Self { operand: *operand, index, rows, columns }))
    }

    /// The matrix whose first element is at `coords`, read in place.
    fn matrix<'m>(
        &self,
        env: &Env<'m>,
        machine: &mut Vm<'_>,
        coords: &Coords,
        (rows, columns): (usize, usize),
    ) -> Option<Matrix<'m>> {
        let view = env.views.get(usize::from(self.operand))?;
        let Elements::F32(elements) = view.elements else { return None };
        machine.rows(RowInputs { rows: 1, coords: coords.all(), ..RowInputs::default() });
        let mut offset = 0;
        let (mut row, mut column) = ((0, 1), (0, 1));
        for (axis, (&extent, &stride)) in view.shape.iter().zip(view.strides.iter()).enumerate() {
            let first = usize::try_from(machine.ints(axis).at(0, 0, 1)?).ok().filter(|&first| first < extent)?;
            offset += first * stride;
            for (axes, (place, all)) in [(&self.rows, &mut row), (&self.columns, &mut column)] {
                if axes.contains(&axis) {
                    (*place, *all) = (*place * extent + first, *all * extent);
                }
            }
        }
        if row.0 + rows > row.1 || column.0 + columns > column.1 {
            return None;
        }
        let strides = (*view.strides.get(self.rows.end - 1)?, *view.strides.get(self.columns.end - 1)?);
        Matrix::new(elements.get(offset..)?, (rows, columns), strides)
    }
}

impl<'a> PanelMachine<'a> {
    pub(super) fn env(&self) -> &'a Env<'a> {
        self.env
    }
}

impl PanelMachine<'_> {
    /// The `rows` by `columns` matrix that begins at row `first`. `coords` has the other coordinates; its row entry is
    /// `first` afterwards. `stats` computes row statistics that the expression reads.
    pub(super) fn matrix(
        &mut self,
        coords: &mut Coords,
        first: usize,
        (rows, columns): (usize, usize),
        mut stats: Option<&mut ReductionMachines<'_>>,
    ) -> Result<Matrix<'_>, CpuError> {
        let axis = usize::from(self.panel.row);
        coords.set(axis, first);
        if !self.methods.are_bound {
            self.methods = self.panel.methods(self.env)?;
        }
        if let (Some(direct), Some(index)) = (&self.panel.direct, &mut self.methods.index)
            && let Some(matrix) = direct.matrix(self.env, index, coords, (rows, columns))
        {
            return Ok(matrix);
        }
        let out_of_range = || CpuError::Content { dtype: DType::F32, shape: vec![rows, columns] };
        let is_filled = match &mut self.methods.windows {
            Some(windows) => windows.fill(self.env, coords, first, (rows, columns))?,
            None => false,
        };
        if is_filled {
            return self.methods.windows.as_ref().and_then(WindowMachine::matrix).ok_or_else(out_of_range);
        }
        if let (Some(joined), Some(line)) = (&self.panel.joined, &mut self.methods.line) {
            let matrix = joined.matrix(line, coords, &mut self.elements, (first, rows))?;
            return matrix.filter(|matrix| matrix.columns == columns).ok_or_else(out_of_range);
        }
        if let (Some(parted), Some(machine)) = (&self.panel.parted, &mut self.methods.parts) {
            return parted.matrix(machine, coords, &mut self.elements, (first, rows));
        }
        if self.machines.is_empty() {
            let segments = self.panel.segments.iter();
            let machines = segments.map(|ranges| Ok((ranges, Vm::new(&ranges.program, self.env)?)));
            self.machines = machines.collect::<Result<_, CpuError>>()?;
        }
        if self.panel.by_column {
            return self.columns(coords, first, (rows, columns));
        }
        let pitch = columns.next_multiple_of(16);
        let elements = room(&mut self.elements, rows * pitch)?;
        for (group, lines) in elements.chunks_mut((ROWS * pitch).max(1)).enumerate() {
            coords.count(axis, first + group * ROWS);
            let inputs =
                RowInputs { rows: ROWS.min(rows - group * ROWS), coords: coords.all(), ..RowInputs::default() };
            let values = stats.as_mut().map_or(&[][..], |stats| {
                stats.rows(inputs);
                &stats.results
            });
            for (ranges, machine) in &mut self.machines {
                let start = |range: usize| ranges.starts.get(range).copied().unwrap_or(usize::MAX);
                let points = (0, ranges.width.min(columns));
                fill(machine, RowInputs { values, ..inputs }, points, (&mut *lines, pitch), start);
            }
        }
        coords.set(axis, first);
        Matrix::new(elements, (rows, columns), (pitch, 1)).ok_or_else(out_of_range)
    }
}

impl PanelMachine<'_> {
    /// [`PanelMachine::matrix`], computed column by column.
    fn columns(
        &mut self,
        coords: &mut Coords,
        first: usize,
        (rows, columns): (usize, usize),
    ) -> Result<Matrix<'_>, CpuError> {
        let (axis, pitch) = (usize::from(self.panel.column), rows.next_multiple_of(16));
        let elements = room(&mut self.elements, columns * pitch)?;
        for (group, lines) in elements.chunks_mut((ROWS * pitch).max(1)).enumerate() {
            coords.count(axis, group * ROWS);
            let count = ROWS.min(columns - group * ROWS);
            let inputs = RowInputs { rows: count, coords: coords.all(), ..RowInputs::default() };
            for (_, machine) in &mut self.machines {
                fill(machine, inputs, (first, rows), (&mut *lines, pitch), |_| 0);
            }
        }
        coords.set(axis, 0);
        let matrix = Matrix::new(elements, (columns, rows), (pitch, 1)).map(Matrix::transposed);
        matrix.ok_or_else(|| CpuError::Content { dtype: DType::F32, shape: vec![rows, columns] })
    }
}

/// Computes columns `first..first + columns` of all float results of a program for the rows of `inputs`. Rows are `pitch`
/// apart. `start` returns the offset of a result's first row.
pub(super) fn fill(
    machine: &mut Vm<'_>,
    inputs: RowInputs<'_>,
    (first, columns): (usize, usize),
    (out, pitch): (&mut [f32], usize),
    start: impl Fn(usize) -> usize,
) {
    machine.rows(inputs);
    if machine.results() == 1 {
        let to = Destination::Rows { out: from(out, start(0)), stride: pitch, stream: None };
        if machine.compute(inputs, (first, columns), 0, to) {
            return;
        }
    }
    let size = tile_rows(columns);
    for row in (0..inputs.rows).step_by(size) {
        let part = inputs.part(row, size);
        for column in (0..columns).step_by(LANES) {
            let (points, at) = (LANES.min(columns - column), row * pitch + column);
            let straight = (0..machine.results()).find(|&root| {
                let to = Destination::Rows { out: from(out, start(root) + at), stride: pitch, stream: None };
                machine.compute(part, (first + column, points), root, to)
            });
            if straight.is_none() {
                machine.tile(part, first + column, points);
            }
            for root in (0..machine.results()).filter(|root| Some(*root) != straight) {
                let to = Destination::Rows { out: from(out, start(root) + at), stride: pitch, stream: None };
                machine.put(part, root, to);
            }
        }
    }
}

/// The elements from `place` on; empty if it is out of range.
fn from(elements: &mut [f32], place: usize) -> &mut [f32] {
    elements.get_mut(place..).unwrap_or(&mut [])
}
