//! Virtual machines: programs with their registers, bound to a run.

use super::arch::Arch;
use super::chain::{Destination, Scratch};
use super::error::CpuError;
use super::execute::Execution;
use super::lanes::{Grid, LANES, Lanes, ROWS};
use super::load::Part;
use super::operand::Env;
use super::program::{ChainRef, Counts, HoistLevel, Instruction, Op, Program, Source};
use super::scratch::{boxed, zeros};
use super::storage::Elements;
use rewire_graph::Scalar;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A register, aligned to cache lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Register<T, const N: usize>(pub [T; N]);

/// The register file of a type. A register is moved out while it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct File<T> {
    pub runs: Vec<T>,
    pub rows: Vec<Option<Box<Register<T, ROWS>>>>,
    pub axis: Vec<Option<Box<Register<T, LANES>>>>,
    pub lanes: Vec<Option<Box<Register<T, LANES>>>>,
}

/// The location of the rows of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum LoadPattern {
    /// Not loaded: the condition of the load is false in the whole tile.
    Nowhere,
    /// In a copy, with zeros for elements out of range.
    #[default]
    Copied,
    /// In the operand's memory: offset of the first row, and row stride.
    Spaced(usize, usize),
    /// In the operand's memory, with a start for each row.
    Scattered,
}

/// The rows of a float load.
#[derive(Clone, Debug, Default)]
pub(super) struct Floats {
    pub operand: usize,
    pub pattern: LoadPattern,
    /// The start of each row, for [`LoadPattern::Scattered`].
    pub starts: Vec<usize>,
    pub copy: Vec<f32>,
}

/// The registers of one program on one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Registers {
    pub floats: File<f32>,
    pub ints: File<i32>,
    pub longs: File<i64>,
    pub in_place: Vec<Floats>,
    /// Scratch memory of chains; moved out while a chain is computed.
    pub scratch: Option<Box<Scratch>>,
    /// One per condition: bit 0 is set if it is true at some point, bit 1 if it is false at some point.
    pub states: Vec<u8>,
    pub offsets: Vec<usize>,
    pub parts: Vec<Part>,
}

/// Per-point results of an accumulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccumulatorLanes<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    /// The point of a row's first float.
    pub origin: usize,
}

/// The inputs of a program for up to [`ROWS`] rows of a loop: entries `first..first + rows` of all lists.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowInputs<'a> {
    pub first: usize,
    pub rows: usize,
    /// For each coordinate, its value in each row. The entry of the program's axis is not read.
    pub coords: &'a [[i32; ROWS]],
    /// For each accumulation, its result per row.
    pub values: &'a [[f32; ROWS]],
    /// For each accumulation, its results per point.
    pub lanes: &'a [AccumulatorLanes<'a>],
}

impl<'a> RowInputs<'a> {
    /// At most `rows` rows, from index `start` on.
    pub(super) fn part(self, start: usize, rows: usize) -> Self {
        Self { first: self.first + start, rows: rows.min(self.rows.saturating_sub(start)), ..self }
    }

    /// The entries of a list for these rows.
    pub(super) fn of<T>(self, list: &'a [T; ROWS]) -> &'a [T] {
        list.get(self.first..self.first + self.rows).unwrap_or(&[])
    }
}

/// Bytes allocated by a list.
fn heap<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

impl<T: Copy + Default> File<T> {
    fn new([runs, rows, axis, lanes]: [u16; 4]) -> Result<Self, CpuError> {
        let register = |_| boxed(Register([T::default(); LANES])).map(Some);
        Ok(Self {
            runs: zeros(runs.into())?,
            rows: (0..rows).map(|_| boxed(Register([T::default(); ROWS])).map(Some)).collect::<Result<_, _>>()?,
            axis: (0..axis).map(register).collect::<Result<_, _>>()?,
            lanes: (0..lanes).map(register).collect::<Result<_, _>>()?,
        })
    }

    fn bytes(&self) -> usize {
        let row = size_of::<Register<T, ROWS>>() + size_of::<usize>();
        let lane = size_of::<Register<T, LANES>>() + size_of::<usize>();
        heap(&self.runs) + self.rows.len() * row + (self.axis.len() + self.lanes.len()) * lane
    }

    fn holds(&self, source: Source) -> bool {
        match source {
            Source::Run(register) => usize::from(register) < self.runs.len(),
            Source::Row(register) => matches!(self.rows.get(usize::from(register)), Some(Some(_))),
            Source::Axis(register) => matches!(self.axis.get(usize::from(register)), Some(Some(_))),
            Source::Lane(register) => matches!(self.lanes.get(usize::from(register)), Some(Some(_))),
            Source::Accumulator(_) | Source::InPlace(_) => false,
        }
    }

    /// The values of a register for an instruction of hoist level `rate`. `first` is the tile's first row in row registers.
    pub(super) fn get(&self, source: Source, rate: HoistLevel, (first, grid): (usize, Grid)) -> Lanes<'_, T> {
        debug_assert!(self.holds(source), "{source:?} is not among the registers of its program");
        match source {
            Source::Run(register) => Lanes::Same(self.runs.get(usize::from(register)).copied().unwrap_or_default()),
            Source::Row(register) => match self.rows.get(usize::from(register)) {
                Some(Some(register)) => {
                    let rows = register.0.get(first..).unwrap_or(&[]);
                    match rate {
                        HoistLevel::Row => Lanes::Each(rows.get(..grid.points).unwrap_or(&[])),
                        _ => Lanes::rows(rows, grid.rows),
                    }
                }
                _ => Lanes::Each(&[]),
            },
            Source::Axis(register) => match self.axis.get(usize::from(register)) {
                Some(Some(register)) => Lanes::strided(&register.0[..grid.points.min(LANES)], 0, grid),
                _ => Lanes::Each(&[]),
            },
            Source::Lane(register) => match self.lanes.get(usize::from(register)) {
                Some(Some(register)) => Lanes::Each(&register.0[..grid.len().min(LANES)]),
                _ => Lanes::Each(&[]),
            },
            Source::Accumulator(_) | Source::InPlace(_) => Lanes::Each(&[]),
        }
    }
}

impl Registers {
    fn new(counts: Counts) -> Result<Self, CpuError> {
        let floats = |_| Ok(Floats { copy: zeros(LANES)?, ..Floats::default() });
        Ok(Self {
            floats: File::new(counts.files[0])?,
            ints: File::new(counts.files[1])?,
            longs: File::new(counts.files[2])?,
            in_place: (0..counts.in_place).map(floats).collect::<Result<_, CpuError>>()?,
            scratch: Some(boxed(Scratch::new(counts.operands)?)?),
            states: vec![3; counts.states.into()],
            offsets: zeros(LANES)?,
            parts: vec![],
        })
    }

    /// Approximate size in bytes.
    fn bytes(&self) -> u64 {
        let in_place = self.in_place.iter().map(|floats| heap(&floats.copy) + heap(&floats.starts)).sum::<usize>();
        let lists =
            heap(&self.offsets) + heap(&self.parts) + self.scratch.as_ref().map_or(0, |scratch| scratch.bytes());
        (self.floats.bytes() + self.ints.bytes() + self.longs.bytes() + in_place + lists) as u64
    }

    /// Float values for an instruction of a hoist level.
    pub(super) fn floats<'s>(
        &'s self,
        env: &'s Env<'_>,
        inputs: RowInputs<'s>,
        source: Source,
        (rate, start, grid): (HoistLevel, usize, Grid),
    ) -> Lanes<'s, f32> {
        match source {
            Source::Accumulator(position) => {
                let rows = inputs.lanes.get(usize::from(position)).and_then(|lanes| {
                    let from = inputs.first * lanes.stride + start.checked_sub(lanes.origin)?;
                    Some(Lanes::strided(lanes.data.get(from..)?, lanes.stride, grid))
                });
                rows.unwrap_or(Lanes::Each(&[]))
            }
            Source::InPlace(slot) => {
                let Some(floats) = self.in_place.get(usize::from(slot)) else { return Lanes::Each(&[]) };
                if floats.pattern == LoadPattern::Nowhere {
                    return Lanes::Same(0.0);
                }
                match (floats.pattern, env.views.get(floats.operand).map(|view| view.elements)) {
                    (LoadPattern::Spaced(start, stride), Some(Elements::F32(elements))) => {
                        Lanes::strided(elements.get(start..).unwrap_or(&[]), stride, grid)
                    }
                    (LoadPattern::Scattered, Some(Elements::F32(elements))) => {
                        Lanes::Scattered(elements, &floats.starts)
                    }
                    _ => Lanes::Each(&floats.copy[..grid.len().min(LANES)]),
                }
            }
            _ => self.floats.get(source, rate, (inputs.first, grid)),
        }
    }
}

/// A pool of a program's register sets, reused between runs. Acquiring and releasing a set moves a pointer.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Idle>>);

type Idle = Vec<Box<Registers>>;

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Box<Registers>> {
        self.idle().pop()
    }

    fn put(&self, registers: Box<Registers>) {
        self.idle().push(registers);
    }

    /// Frees idle registers.
    pub(super) fn trim(&self) {
        drop(std::mem::take(&mut *self.idle()));
    }

    /// Bytes of idle registers.
    pub(super) fn bytes(&self) -> u64 {
        self.idle().iter().map(|registers| registers.bytes()).sum()
    }

    /// True if both are the same pool.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A program with its registers, bound to one run.
pub(super) struct Vm<'a> {
    program: &'a Program,
    env: &'a Env<'a>,
    /// `None` only during drop.
    registers: Option<Box<Registers>>,
    arch: Arch,
    /// First row of the last tile, within the rows of [`Vm::rows`].
    first: usize,
    /// First point of the last tile.
    start: usize,
    /// Extents of the last tile.
    grid: Grid,
    /// First point and number of points for which axis registers are valid; `None` if there are none.
    along: Option<(usize, usize)>,
}

impl Drop for Vm<'_> {
    fn drop(&mut self) {
        // A panic leaves out the register that was being written.
        if !std::thread::panicking()
            && let Some(registers) = self.registers.take()
        {
            self.program.pool.put(registers);
        }
    }
}

impl<'a> Vm<'a> {
    /// Prepares a program for a run and computes values that depend on no coordinate.
    pub(super) fn new(program: &'a Program, env: &'a Env<'a>) -> Result<Self, CpuError> {
        let registers = match program.pool.take() {
            Some(registers) => registers,
            None => {
                env.kept.note(&program.pool);
                boxed(Registers::new(program.counts)?)?
            }
        };
        let (registers, grid) = (Some(registers), Grid { rows: 1, points: 1 });
        let mut this = Self { program, env, registers, arch: Arch::chosen(), first: 0, start: 0, grid, along: None };
        this.execute(&program.per_run, RowInputs::default(), HoistLevel::Run);
        Ok(this)
    }

    /// Computes per-row values for the rows of `inputs`, before tiles of any of these rows.
    pub(super) fn rows(&mut self, inputs: RowInputs<'_>) {
        (self.first, self.start, self.grid) = (inputs.first, 0, Grid { rows: 1, points: inputs.rows.min(ROWS) });
        self.execute(&self.program.per_row, inputs, HoistLevel::Row);
        self.grid = Grid { rows: inputs.rows.min(ROWS), points: 1 };
    }

    /// Computes a tile: points `start..start + points` of all rows of `inputs`, at most [`LANES`] in total.
    pub(super) fn tile(&mut self, inputs: RowInputs<'_>, start: usize, points: usize) {
        let grid = Grid { rows: inputs.rows, points };
        let is_within = points > 0 && grid.len() <= LANES;
        if is_within {
            self.along(start, points);
        }
        (self.first, self.start, self.grid) = (inputs.first, start, grid);
        if is_within {
            self.execute(&self.program.per_point, inputs, HoistLevel::Point);
        }
    }

    /// Computes per-axis values, unless the registers have them for the same points.
    fn along(&mut self, start: usize, points: usize) {
        if !self.program.per_axis.is_empty() && self.along != Some((start, points)) {
            (self.start, self.grid) = (start, Grid { rows: 1, points });
            self.execute(&self.program.per_axis, RowInputs::default(), HoistLevel::Axis);
            self.along = Some((start, points));
        }
    }

    /// Computes float result `root` of a tile of any size directly into its destination. Returns false, without a write, if
    /// the program does not compute this result last, or if a large tile would have to copy operands.
    pub(super) fn compute(
        &mut self,
        inputs: RowInputs<'_>,
        (start, points): (usize, usize),
        root: usize,
        to: Destination<'_>,
    ) -> bool {
        let grid = Grid { rows: inputs.rows, points };
        let program = self.program;
        let is_long = points > LANES && !program.per_axis.is_empty();
        if grid.len() > LANES && (!program.streams || is_long) {
            return false;
        }
        let (chain, before) = match (program.per_point.split_last(), program.roots.get(root)) {
            (Some((Instruction { op: Op::Chain(chain), .. }, before)), _) if program.last == Some(root) => {
                (chain.bound(), before)
            }
            (_, Some((source @ (Source::InPlace(_) | Source::Accumulator(_)), _))) if program.streams => {
                (ChainRef::copy(source), &program.per_point[..])
            }
            _ => return false,
        };
        self.along(start, points);
        (self.first, self.start, self.grid) = (inputs.first, start, grid);
        self.execute(before, inputs, HoistLevel::Point) && self.chain(inputs, chain, to)
    }

    /// Moves a float result of the last tile to its destination.
    pub(super) fn put(&mut self, inputs: RowInputs<'_>, root: usize, to: Destination<'_>) {
        let source = self.source(root);
        self.chain(inputs, ChainRef::copy(&source), to);
    }

    fn chain(&mut self, inputs: RowInputs<'_>, chain: ChainRef<'_>, to: Destination<'_>) -> bool {
        let Some(execution) = self.execution(inputs, HoistLevel::Point) else { return false };
        let Some(mut scratch) = execution.registers.scratch.take() else { return false };
        execution.chain(chain, &mut scratch, to);
        execution.registers.scratch = Some(scratch);
        true
    }

    fn execution<'s>(&'s mut self, inputs: RowInputs<'s>, rate: HoistLevel) -> Option<Execution<'s, 'a>> {
        let (env, registers, arch) = (self.env, self.registers.as_deref_mut()?, self.arch);
        Some(Execution { env, registers, arch, inputs, rate, start: self.start, grid: self.grid })
    }

    /// Returns false if rows of a large tile cannot be read in place.
    fn execute(&mut self, instructions: &[Instruction], inputs: RowInputs<'_>, rate: HoistLevel) -> bool {
        instructions.is_empty()
            || self.grid.len() == 0
            || self.execution(inputs, rate).is_some_and(|mut execution| execution.run(instructions))
    }

    /// Extents of the last tile.
    pub(super) fn grid(&self) -> Grid {
        self.grid
    }

    /// The number of results of the program.
    pub(super) fn results(&self) -> usize {
        self.program.roots.len()
    }

    /// The type of a result.
    pub(super) fn kind(&self, root: usize) -> Scalar {
        self.program.roots.get(root).map_or(Scalar::F32, |root| root.1)
    }

    fn source(&self, root: usize) -> Source {
        self.program.roots.get(root).map_or(Source::Run(u16::MAX), |root| root.0)
    }

    /// A float result for the points of the last tile.
    pub(super) fn floats<'s>(&'s self, root: usize, inputs: RowInputs<'s>) -> Lanes<'s, f32> {
        let at = (HoistLevel::Point, self.start, self.grid);
        let registers = self.registers.as_ref();
        registers.map_or(Lanes::Each(&[]), |registers| registers.floats(self.env, inputs, self.source(root), at))
    }

    /// An `I32` or boolean result for the points of the last tile.
    pub(super) fn ints(&self, root: usize) -> Lanes<'_, i32> {
        let registers = self.registers.as_ref();
        registers.map_or(Lanes::Each(&[]), |registers| {
            registers.ints.get(self.source(root), HoistLevel::Point, (self.first, self.grid))
        })
    }

    /// An `I64` result for the points of the last tile.
    pub(super) fn longs(&self, root: usize) -> Lanes<'_, i64> {
        let registers = self.registers.as_ref();
        registers.map_or(Lanes::Each(&[]), |registers| {
            registers.longs.get(self.source(root), HoistLevel::Point, (self.first, self.grid))
        })
    }
}
