//! Matrices of windows of a tensor, as in a convolution (im2col). Each index is the sum of a row term and a column
//! term.

use super::coords::Coords;
use super::error::CpuError;
use super::lanes::LANES;
use super::machine::{RowInputs, Vm};
use super::operand::Env;
use super::product::Matrix;
use super::program::{AccumulatorValue, Program};
use super::scratch::{reserve, room};
use super::storage::Elements;
use rewire_graph::DType;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph_rewrite::plan::{Body, MemorySpace};

/// Maximum number of axes of the tensor.
const AXES: usize = 8;

/// Average elements per piece below which elements are copied one by one.
const SHORT: usize = 32;

/// Elements of a tensor at separable indices. Elements out of range are `outside`.
#[derive(Clone, Debug)]
pub(super) struct BindingChunks {
    operand: u16,
    axes: usize,
    /// True for each axis whose index may be out of range.
    may_leave: [bool; AXES],
    outside: f32,
    /// The coordinates of lines and of positions on a line.
    line: u8,
    place: u8,
    by_line: Program,
    by_place: Program,
    /// The first indices; `None` if lines and positions relative to the first ones depend on other coordinates.
    start: Option<Program>,
    /// True if an index depends on the line and on the position, or positions move along several axes.
    has_grid: bool,
    /// True if lines are columns of the matrix.
    is_transposed: bool,
}

/// [`BindingChunks`] bound to a run.
pub(super) struct WindowMachine<'a> {
    windows: &'a BindingChunks,
    by_line: Vm<'a>,
    by_place: Vm<'a>,
    /// Indices of lines and of positions, axis by axis.
    lines: Vec<i32>,
    places: Vec<i32>,
    /// The indices for which pieces were planned, relative to the first one along axes that are always in range.
    known: Vec<i32>,
    pieces: Vec<Piece>,
    /// If pieces are short, the offset of each element relative to `earliest`; [`NOWHERE`] if it is out of range.
    sources: Vec<u32>,
    /// The smallest [`Piece::from`].
    earliest: i64,
    /// Number of lines and positions in `elements`.
    filled: (usize, usize),
    elements: Vec<f32>,
}

/// A strided copy to `elements`. `from` is an offset in the tensor, relative to the matrix's first element along axes
/// that are always in range.
#[derive(Clone, Copy, Debug)]
struct Piece {
    to: usize,
    len: usize,
    from: i64,
    step: i64,
}

/// The source of an element outside of the tensor. No tensor has so many elements.
const NOWHERE: u32 = u32::MAX;

/// Adjacent positions whose indices increase by equal steps.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: usize,
    len: usize,
    index: [i32; AXES],
    step: [i32; AXES],
}

impl BindingChunks {
    /// `None` unless the element is a load, or a load with a constant where some indices are out of range.
    pub(super) fn new(
        body: &Body,
        id: ExprId,
        (row, column): (u8, u8),
        is_transposed: bool,
    ) -> Result<Option<Self>, CpuError> {
        let dag = &body.dag;
        let (condition, load, outside) = match *dag.expr(id) {
            Expr::Select(condition, load, other) => match *dag.expr(other) {
                Expr::Float(bits) => (Some(condition), load, f32::from_bits(bits)),
                _ => return Ok(None),
            },
            _ => (None, id, 0.0),
        };
        let Expr::Load { operand, index } = dag.expr(load) else { return Ok(None) };
        let declared = body.operands.get(usize::from(*operand));
        let Some(declared) = declared.filter(|x| x.dtype == DType::F32 && x.space != MemorySpace::Host) else {
            return Ok(None);
        };
        if index.len() > AXES || !index.iter().all(|&index| is_separable(dag, index, [row, column])) {
            return Ok(None);
        }
        let extents: Vec<Option<usize>> = declared.shape.iter().map(|dim| dim.as_const()).collect();
        let mut may_leave = [false; AXES];
        if !condition.is_none_or(|condition| is_inside(dag, condition, (index, &extents), &mut may_leave)) {
            return Ok(None);
        }
        let (line, place) = if is_transposed { (column, row) } else { (row, column) };
        let none = |_: &Dag, _: ExprId| -> Option<AccumulatorValue> { None };
        let program = |along: u8| Program::compile(dag, &body.operands, index, along, &none);
        let (by_line, by_place) = (program(line)?, program(place)?);
        let is_steady = index.iter().all(|&index| is_steady(dag, index, [line, place]));
        let start = if is_steady { Some(program(u8::MAX)?) } else { None };
        let both = 1 << line | 1 << place;
        let moving = index.iter().filter(|&&index| dag.coords(index) & 1 << place != 0).count();
        let has_grid = moving > 1 || index.iter().any(|&index| dag.coords(index) & both == both);
        let (operand, axes) = (*operand, index.len());
        Ok(Some(Self {
            operand,
            axes,
            may_leave,
            outside,
            line,
            place,
            by_line,
            by_place,
            start,
            has_grid,
            is_transposed,
        }))
    }

    pub(super) fn start(&self) -> Option<&Program> {
        self.start.as_ref()
    }

    /// True if an index depends on the line and on the position, or positions move along several axes.
    pub(super) fn has_grid(&self) -> bool {
        self.has_grid
    }

    /// The coordinates of lines and of positions.
    pub(super) fn coords(&self) -> [u8; 2] {
        [self.line, self.place]
    }

    pub(super) fn operand(&self) -> usize {
        usize::from(self.operand)
    }

    /// True if indices of an axis may be out of range.
    pub(super) fn may_leave(&self, axis: usize) -> bool {
        self.may_leave.get(axis).is_some_and(|&may_leave| may_leave)
    }

    /// The value of elements out of range.
    pub(super) fn outside(&self) -> f32 {
        self.outside
    }

    pub(super) fn machine<'a>(&'a self, env: &'a Env<'a>) -> Result<WindowMachine<'a>, CpuError> {
        Ok(WindowMachine {
            windows: self,
            by_line: Vm::new(&self.by_line, env)?,
            by_place: Vm::new(&self.by_place, env)?,
            lines: vec![],
            places: vec![],
            known: vec![],
            pieces: vec![],
            sources: vec![],
            earliest: 0,
            filled: (0, 0),
            elements: vec![],
        })
    }
}

/// True for a sum of integers that each depend on at most one of the coordinates.
fn is_separable(dag: &Dag, id: ExprId, coords: [u8; 2]) -> bool {
    let plain = dag
        .reachable(&[id])
        .into_iter()
        .all(|id| matches!(dag.expr(id), Expr::Int(..) | Expr::Coord(_) | Expr::Size(_) | Expr::Binary(..)));
    let moves = |id: ExprId| coords.iter().all(|&coord| dag.access(&[id]).moves(coord));
    fn sum(dag: &Dag, id: ExprId, moves: &dyn Fn(ExprId) -> bool) -> bool {
        !moves(id)
            || matches!(*dag.expr(id), Expr::Binary(BinaryOp::Add | BinaryOp::Sub, a, b)
                if sum(dag, a, moves) && sum(dag, b, moves))
    }
    plain && sum(dag, id, &moves)
}

/// True if the terms of a sum that depend on lines or positions depend on nothing else.
fn is_steady(dag: &Dag, id: ExprId, [line, place]: [u8; 2]) -> bool {
    let (own, coords) = (1 << line | 1 << place, dag.coords(id));
    coords & own == 0
        || match *dag.expr(id) {
            Expr::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => {
                [a, b].iter().all(|&term| is_steady(dag, term, [line, place]))
            }
            _ => {
                coords & !own == 0 && !dag.reachable(&[id]).into_iter().any(|id| matches!(dag.expr(id), Expr::Size(_)))
            }
        }
}

/// True if a condition is equivalent to some indices being in range. Marks them in `noted`.
pub(super) fn is_inside(
    dag: &Dag,
    condition: ExprId,
    (index, extents): (&[ExprId], &[Option<usize>]),
    noted: &mut [bool],
) -> bool {
    match *dag.expr(condition) {
        Expr::Bool(value) => value,
        Expr::Binary(BinaryOp::And, a, b) => {
            is_inside(dag, a, (index, extents), noted) && is_inside(dag, b, (index, extents), noted)
        }
        Expr::Binary(op @ (BinaryOp::Ge | BinaryOp::Lt), a, b) => {
            let Some(axis) = index.iter().position(|&index| index == a) else { return false };
            let Expr::Int(_, bound) = *dag.expr(b) else { return false };
            let wanted = match op {
                BinaryOp::Ge => Some(0),
                _ => extents.get(axis).copied().flatten(),
            };
            noted[axis] = true;
            wanted.is_some_and(|wanted| i64::try_from(wanted) == Ok(bound))
        }
        _ => false,
    }
}

/// Computes the indices of `count` points from `first` on, axis by axis.
fn indices(machine: &mut Vm<'_>, coords: &Coords, (first, count): (usize, usize), out: &mut [i32]) -> bool {
    let inputs = RowInputs { rows: 1, coords: coords.all(), ..RowInputs::default() };
    machine.rows(inputs);
    for start in (0..count).step_by(LANES) {
        let points = LANES.min(count - start);
        machine.tile(inputs, first + start, points);
        for (axis, out) in out.chunks_mut(count).enumerate() {
            let values = machine.ints(axis);
            for (point, out) in out[start..start + points].iter_mut().enumerate() {
                let Some(value) = values.at(0, point, points) else { return false };
                *out = value;
            }
        }
    }
    true
}

impl WindowMachine<'_> {
    /// Computes the `rows` by `columns` matrix that begins at row `first`. False if indices without a condition are out of range.
    pub(super) fn fill(
        &mut self,
        env: &Env<'_>,
        coords: &mut Coords,
        first: usize,
        (rows, columns): (usize, usize),
    ) -> Result<bool, CpuError> {
        let windows = self.windows;
        let Some(view) = env.views.get(usize::from(windows.operand)) else { return Ok(false) };
        let Elements::F32(data) = view.elements else { return Ok(false) };
        let (lines, places) =
            if windows.is_transposed { ((0, columns), (first, rows)) } else { ((first, rows), (0, columns)) };
        if lines.1 == 0 || places.1 == 0 || !self.read(coords, lines, places)? {
            return Ok(false);
        }
        let Some(base) = self.rebase((lines.1, places.1), (&view.shape, &view.strides)) else { return Ok(false) };
        let pitch = places.1.next_multiple_of(16);
        let known = self.known.split_at_checked(self.lines.len());
        let is_known =
            self.filled == (lines.1, places.1) && known == Some((self.lines.as_slice(), self.places.as_slice()));
        if !is_known {
            self.plan((lines.1, places.1), (&view.shape, &view.strides))?;
        }
        let out = room(&mut self.elements, lines.1 * pitch)?;
        if !self.sources.is_empty() {
            let Ok(base) = u32::try_from(base + self.earliest) else { return Ok(false) };
            for (to, &source) in out.iter_mut().zip(&self.sources) {
                *to = data.get(base.saturating_add(source) as usize).copied().unwrap_or(windows.outside);
            }
            return Ok(true);
        }
        if !is_known {
            out.fill(windows.outside);
        }
        for piece in &self.pieces {
            let Some(out) = out.get_mut(piece.to..piece.to + piece.len) else { return Ok(false) };
            let start = usize::try_from(base + piece.from).ok();
            let Some(data) = start.and_then(|start| data.get(start..)) else { return Ok(false) };
            match (piece.step, data.get(..piece.len)) {
                (1, Some(data)) => out.iter_mut().zip(data).for_each(|(to, &from)| *to = from),
                (0, Some(data)) => out.fill(data[0]),
                (step, _) => {
                    let step = (step as usize).max(1);
                    if data.len() <= (piece.len - 1) * step {
                        return Ok(false);
                    }
                    out.iter_mut().zip(data.iter().step_by(step)).for_each(|(to, &from)| *to = from);
                }
            }
        }
        Ok(true)
    }

    /// The matrix computed last.
    pub(super) fn matrix(&self) -> Option<Matrix<'_>> {
        let (lines, places) = self.filled;
        let matrix = Matrix::new(&self.elements, (lines, places), (places.next_multiple_of(16), 1))?;
        Some(if self.windows.is_transposed { matrix.transposed() } else { matrix })
    }

    /// The indices of lines and of positions that [`WindowMachine::read`] computed, axis by axis.
    pub(super) fn tables(&self) -> (&[i32], &[i32]) {
        (&self.lines, &self.places)
    }

    /// Computes the indices of lines at the first position, and of positions at the first line.
    pub(super) fn read(
        &mut self,
        coords: &mut Coords,
        lines: (usize, usize),
        places: (usize, usize),
    ) -> Result<bool, CpuError> {
        let windows = self.windows;
        let (line, place) = (usize::from(windows.line), usize::from(windows.place));
        self.lines.clear();
        self.places.clear();
        let of_lines = room(&mut self.lines, windows.axes * lines.1)?;
        let of_places = room(&mut self.places, windows.axes * places.1)?;
        coords.set(place, places.0);
        let are_lines = indices(&mut self.by_line, coords, lines, of_lines);
        coords.set(line, lines.0);
        let are_places = indices(&mut self.by_place, coords, places, of_places);
        // The row coordinate stays at the first row.
        coords.set(if windows.is_transposed { line } else { place }, 0);
        Ok(are_lines && are_places)
    }

    /// Makes indices relative to the first one along axes that are always in range, and returns the first one's offset.
    /// `None` if an index along such an axis is out of range.
    fn rebase(&mut self, (lines, places): (usize, usize), (shape, strides): (&[usize], &[usize])) -> Option<i64> {
        let mut base = 0;
        let axes = self.lines.chunks_mut(lines).zip(self.places.chunks_mut(places));
        for (axis, (of_lines, of_places)) in axes.enumerate().filter(|(axis, _)| !self.windows.may_leave[*axis]) {
            let origin = of_places[0];
            of_lines.iter_mut().for_each(|index| *index = index.wrapping_sub(origin));
            of_places.iter_mut().for_each(|index| *index = index.wrapping_sub(origin));
            let ends = |all: &[i32]| Some((i64::from(*all.iter().min()?), i64::from(*all.iter().max()?)));
            let ((least, most), (low, high)) = (ends(of_lines)?, ends(of_places)?);
            let extent = i64::try_from(*shape.get(axis)?).ok()?;
            if i64::from(origin) + least + low < 0 || i64::from(origin) + most + high >= extent {
                return None;
            }
            base += i64::from(origin) * i64::try_from(*strides.get(axis)?).ok()?;
        }
        Some(base)
    }

    /// Plans the copies for the current indices.
    fn plan(
        &mut self,
        (lines, places): (usize, usize),
        (shape, strides): (&[usize], &[usize]),
    ) -> Result<(), CpuError> {
        let (windows, pitch) = (self.windows, places.next_multiple_of(16));
        self.known.clear();
        reserve(&mut self.known, self.lines.len() + self.places.len())?;
        self.known.extend(self.lines.iter().chain(&self.places));
        self.filled = (lines, places);
        self.pieces.clear();
        let runs = runs(&self.places, places, windows.axes)?;
        reserve(&mut self.pieces, lines * runs.len())?;
        for line in 0..lines {
            // The line's indices relative to the first line.
            let mut more = [0; AXES];
            for (more, of_axis) in more.iter_mut().zip(self.lines.chunks(lines)) {
                *more = of_axis[line].wrapping_sub(of_axis[0]);
            }
            for run in &runs {
                let piece = windows.piece(run, more, (shape, strides));
                self.pieces.extend(piece.map(|piece| Piece { to: piece.to + line * pitch, ..piece }));
            }
        }
        self.find_sources(lines * pitch)
    }

    /// Computes the offset of each of `count` elements, if pieces are short.
    fn find_sources(&mut self, count: usize) -> Result<(), CpuError> {
        self.sources.clear();
        let inside: usize = self.pieces.iter().map(|piece| piece.len).sum();
        if inside >= SHORT * self.pieces.len() {
            return Ok(());
        }
        self.earliest = self.pieces.iter().map(|piece| piece.from).min().unwrap_or(0);
        room(&mut self.sources, count)?.fill(NOWHERE);
        for piece in &self.pieces {
            let first = piece.from - self.earliest;
            let last = u32::try_from(first + (piece.len as i64 - 1) * piece.step);
            let (Ok(first), Ok(step), true) =
                (u32::try_from(first), u32::try_from(piece.step), last.is_ok_and(|last| last < NOWHERE / 2))
            else {
                self.sources.clear();
                return Ok(());
            };
            let places = self.sources.iter_mut().skip(piece.to).take(piece.len);
            places.zip(0..).for_each(|(to, n)| *to = first + n * step);
        }
        Ok(())
    }
}

/// Splits positions into runs with equal index steps.
fn runs(index: &[i32], count: usize, axes: usize) -> Result<Vec<Run>, CpuError> {
    let mut runs = vec![];
    reserve(&mut runs, count)?;
    let at = |place: usize| {
        let mut all = [0; AXES];
        all.iter_mut().zip(index.chunks(count)).take(axes).for_each(|(to, of_axis)| *to = of_axis[place]);
        all
    };
    let mut first = 0;
    while first < count {
        let start = at(first);
        let mut run = Run { first, len: 1, index: start, step: [0; AXES] };
        let mut last = start;
        while first + run.len < count {
            let next = at(first + run.len);
            let mut step = [0; AXES];
            step.iter_mut()
                .zip(next.iter().zip(&last))
                .for_each(|(step, (next, last))| *step = next.wrapping_sub(*last));
            if run.len == 1 && step.iter().all(|&step| step >= 0) {
                run.step = step;
            } else if run.len == 1 || step != run.step {
                break;
            }
            (run.len, last) = (run.len + 1, next);
        }
        first += run.len;
        runs.push(run);
    }
    Ok(runs)
}

impl BindingChunks {
    /// The part of a run that is in range, for a line with relative indices `more`. `None` if it is empty.
    fn piece(&self, run: &Run, more: [i32; AXES], (shape, strides): (&[usize], &[usize])) -> Option<Piece> {
        let (mut low, mut high) = (0i64, run.len as i64);
        let (mut from, mut step) = (0i64, 0i64);
        for (axis, (&extent, &stride)) in shape.iter().zip(strides).enumerate() {
            let (start, each) = (i64::from(run.index[axis]) + i64::from(more[axis]), i64::from(run.step[axis]));
            from += start * stride as i64;
            step += each * stride as i64;
            let last = extent as i64 - 1 - start;
            match (self.may_leave[axis], each) {
                (false, _) => {}
                (true, 0) if start >= 0 && last >= 0 => {}
                (true, 0) => return None,
                (true, each) => {
                    low = low.max((each - 1 - start).div_euclid(each));
                    high = high.min(last.div_euclid(each) + 1);
                }
            }
        }
        let len = usize::try_from(high - low).ok().filter(|&len| len > 0)?;
        Some(Piece { to: run.first + low as usize, len, from: from + low * step, step })
    }
}
