//! Execution of register programs.

use super::functions as f;
use super::memory::{Elements, Values};
use super::operand::{Env, View};
use super::program::{Counts, Instruction, Op, Program, Source};
use pulp::{Arch, Simd, WithSimd};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use std::sync::{Arc, Mutex};

/// Points of a chunk.
pub(super) const LANES: usize = 512;

/// `0, 1, 2, ..`
const POINTS: [i32; LANES] = {
    let mut points = [0; LANES];
    let mut n = 0;
    while n < LANES {
        points[n] = n as i32;
        n += 1;
    }
    points
};

/// A register read by an instruction: one value, or one a point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lanes<'a, T> {
    Same(T),
    Each(&'a [T]),
}

impl<T: Copy> Lanes<'_, T> {
    pub(super) fn at(self, point: usize) -> Option<T> {
        match self {
            Self::Same(value) => Some(value),
            Self::Each(values) => values.get(point).copied(),
        }
    }
}

/// A register of a chunk, aligned so that no vector crosses a cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Register<T>([T; LANES]);

/// Registers of a type. One that is being written is out of its place.
#[derive(Clone, Debug, Default)]
struct File<T> {
    rows: Vec<T>,
    lanes: Vec<Option<Box<Register<T>>>>,
}

impl<T: Copy + Default> File<T> {
    fn new(rows: u16, lanes: u16) -> Self {
        Self {
            rows: vec![T::default(); rows.into()],
            lanes: vec![Some(Box::new(Register([T::default(); LANES]))); lanes.into()],
        }
    }

    fn get(&self, source: Source, n: usize) -> Lanes<'_, T> {
        match source {
            Source::Row(register) => Lanes::Same(self.rows.get(usize::from(register)).copied().unwrap_or_default()),
            Source::Lane(register) => match self.lanes.get(usize::from(register)) {
                Some(Some(register)) => Lanes::Each(&register.0[..n.min(LANES)]),
                _ => Lanes::Each(&[]),
            },
            Source::Given(_) | Source::InPlace(_) => Lanes::Each(&[]),
        }
    }
}

/// Where a run of floats is: a position in an operand, or copied, with zeros where it is out of range.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub operand: usize,
    pub start: usize,
    pub copy: Vec<f32>,
}

/// The registers of one program on one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Registers {
    floats: File<f32>,
    ints: File<i32>,
    longs: File<i64>,
    pub runs: Vec<Run>,
    /// By state: 1 if the condition is true somewhere, plus 2 if it is false somewhere.
    states: Vec<u8>,
    pub offsets: Vec<usize>,
}

/// What the anchor supplies to a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given<'a> {
    /// Coordinates of the row; the axis' entry is not read.
    pub coords: &'a [i32],
    /// Floats of the row, by position.
    pub row: &'a [f32],
    /// Rows of floats, by position.
    pub lanes: &'a [&'a [f32]],
    /// The point of entry 0 of `lanes`.
    pub origin: usize,
}

impl Registers {
    pub(super) fn new(counts: Counts) -> Self {
        let file = |n: usize| (counts.rows[n], counts.lanes[n]);
        let (floats, ints, longs) = (file(0), file(1), file(2));
        Self {
            floats: File::new(floats.0, floats.1),
            ints: File::new(ints.0, ints.1),
            longs: File::new(longs.0, longs.1),
            runs: vec![Run { operand: 0, start: usize::MAX, copy: vec![0.0; LANES] }; counts.in_place.into()],
            states: vec![3; counts.states.into()],
            offsets: vec![0; LANES],
        }
    }
}

/// Registers of earlier runs of a program, for later ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Registers>>>);

impl Pool {
    fn take(&self) -> Option<Registers> {
        self.0.lock().ok()?.pop()
    }

    fn put(&self, registers: Registers) {
        if let Ok(mut idle) = self.0.lock() {
            idle.push(registers);
        }
    }
}

/// A program with its registers, bound to one run.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    program: &'a Program,
    env: &'a Env<'a>,
    registers: Registers,
    arch: Arch,
    /// First point of the last chunk.
    start: usize,
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        self.program.pool.put(std::mem::take(&mut self.registers));
    }
}

impl<'a> Machine<'a> {
    /// Prepares a program for a run and computes what depends on no coordinate.
    pub(super) fn new(program: &'a Program, env: &'a Env<'a>) -> Self {
        let registers = program.pool.take().unwrap_or_else(|| Registers::new(program.counts));
        let mut this = Self { program, env, registers, arch: Arch::new(), start: 0 };
        this.execute(&program.per_run, Given::default(), 0, 1);
        this
    }

    /// Computes what depends on the row.
    pub(super) fn row(&mut self, given: Given<'_>) {
        self.execute(&self.program.per_row, given, 0, 1);
    }

    /// Computes `n` points, at most [`LANES`], from coordinate `start` of the axis on.
    pub(super) fn chunk(&mut self, given: Given<'_>, start: usize, n: usize) {
        self.start = start;
        self.execute(&self.program.per_point, given, start, n.min(LANES));
    }

    fn execute(&mut self, instructions: &[Instruction], given: Given<'_>, start: usize, n: usize) {
        if !instructions.is_empty() {
            let (env, registers, arch) = (self.env, &mut self.registers, self.arch);
            Execution { env, registers, arch, given, start, n }.run(instructions);
        }
    }

    /// A float result for the points of the last chunk.
    pub(super) fn floats<'s>(&'s self, root: usize, given: Given<'s>, n: usize) -> Lanes<'s, f32> {
        let source = self.program.roots.get(root).map_or(Source::Row(u16::MAX), |root| root.0);
        floats(&self.registers, self.env, given, source, (self.start, n))
    }

    /// An `I32` or truth result for the points of the last chunk.
    pub(super) fn ints(&self, root: usize, n: usize) -> Lanes<'_, i32> {
        let source = self.program.roots.get(root).map_or(Source::Row(u16::MAX), |root| root.0);
        self.registers.ints.get(source, n)
    }

    /// An `I64` result for the points of the last chunk.
    pub(super) fn longs(&self, root: usize, n: usize) -> Lanes<'_, i64> {
        let source = self.program.roots.get(root).map_or(Source::Row(u16::MAX), |root| root.0);
        self.registers.longs.get(source, n)
    }

    /// Hands a result of any type, spread over the points of the last chunk, to `use_values`.
    pub(super) fn values<R>(
        &self,
        root: usize,
        given: Given<'_>,
        n: usize,
        use_values: impl FnOnce(Values<'_>) -> R,
    ) -> R {
        let kind = self.program.roots.get(root).map_or(Scalar::F32, |root| root.1);
        match kind {
            Scalar::F32 => spread(self.floats(root, given, n), n, |v| use_values(Values::F32(v))),
            Scalar::I32 | Scalar::Bool => spread(self.ints(root, n), n, |v| use_values(Values::I32(v))),
            Scalar::I64 => spread(self.longs(root, n), n, |v| use_values(Values::I64(v))),
        }
    }
}

fn spread<T: Copy, R>(lanes: Lanes<'_, T>, n: usize, use_values: impl FnOnce(&[T]) -> R) -> R {
    match lanes {
        Lanes::Each(values) => use_values(values),
        Lanes::Same(value) => use_values(&[value; LANES][..n.min(LANES)]),
    }
}

fn floats<'s>(
    registers: &'s Registers,
    env: &'s Env<'_>,
    given: Given<'s>,
    source: Source,
    (start, n): (usize, usize),
) -> Lanes<'s, f32> {
    match source {
        Source::Given(position) => {
            let from = start.wrapping_sub(given.origin);
            let row = given.lanes.get(usize::from(position));
            Lanes::Each(row.and_then(|row| row.get(from..from.wrapping_add(n))).unwrap_or(&[]))
        }
        Source::InPlace(slot) => {
            let Some(run) = registers.runs.get(usize::from(slot)) else { return Lanes::Each(&[]) };
            let found = match env.views.get(run.operand).map(|view| view.elements) {
                Some(Elements::F32(elements)) => elements.get(run.start..run.start.saturating_add(n)),
                _ => None,
            };
            Lanes::Each(found.unwrap_or(&run.copy[..n]))
        }
        _ => registers.floats.get(source, n),
    }
}

pub(super) struct Execution<'a, 'e> {
    pub env: &'a Env<'e>,
    pub registers: &'a mut Registers,
    pub arch: Arch,
    given: Given<'a>,
    pub start: usize,
    pub n: usize,
}

impl Execution<'_, '_> {
    fn run(&mut self, instructions: &[Instruction]) {
        for instruction in instructions {
            let wanted = instruction.guard.is_none_or(|guard| {
                let state = self.registers.states.get(usize::from(guard.state)).copied().unwrap_or(3);
                state & if guard.side { 1 } else { 2 } != 0
            });
            if wanted {
                self.step(instruction);
            }
        }
    }
}

macro_rules! writer {
    ($name:ident, $file:ident, $type:ty) => {
        /// Computes a register from others.
        pub(super) fn $name(&mut self, target: Source, compute: impl FnOnce(&Self, &mut [$type])) {
            match target {
                Source::Row(register) => {
                    let mut value = [<$type>::default()];
                    compute(self, &mut value);
                    if let Some(place) = self.registers.$file.rows.get_mut(usize::from(register)) {
                        *place = value[0];
                    }
                }
                Source::Lane(register) => {
                    let register = usize::from(register);
                    let place = self.registers.$file.lanes.get_mut(register);
                    let Some(mut values) = place.and_then(Option::take) else { return };
                    compute(self, &mut values.0[..self.n]);
                    self.registers.$file.lanes[register] = Some(values);
                }
                Source::Given(_) | Source::InPlace(_) => {}
            }
        }
    };
}

impl Execution<'_, '_> {
    writer!(write_floats, floats, f32);
    writer!(write_ints, ints, i32);
    writer!(write_longs, longs, i64);

    fn floats(&self, source: Source) -> Lanes<'_, f32> {
        floats(self.registers, self.env, self.given, source, (self.start, self.n))
    }

    pub(super) fn ints(&self, source: Source) -> Lanes<'_, i32> {
        self.registers.ints.get(source, self.n)
    }

    fn longs(&self, source: Source) -> Lanes<'_, i64> {
        self.registers.longs.get(source, self.n)
    }

    pub(super) fn int(&self, source: Source) -> i32 {
        self.ints(source).at(0).unwrap_or(-1)
    }

    fn step(&mut self, instruction: &Instruction) {
        let (target, kind) = (instruction.target, instruction.kind);
        match &instruction.op {
            Op::Axis => {
                let start = self.start as i32;
                self.write_ints(target, |this, out| {
                    let points = Lanes::Each(&POINTS[..out.len()]);
                    unary(this.arch, out, points, |point| start.wrapping_add(point));
                });
            }
            Op::Coord(axis) => {
                let value = self.given.coords.get(usize::from(*axis)).copied().unwrap_or(0);
                self.write_ints(target, |_, out| out.fill(value));
            }
            Op::Size(position) => {
                let value = self.env.sizes.get(usize::from(*position)).copied().unwrap_or(0);
                self.write_ints(target, |_, out| out.fill(value));
            }
            Op::Float(value) => self.write_floats(target, |_, out| out.fill(*value)),
            Op::Int(value) if kind == Scalar::I64 => self.write_longs(target, |_, out| out.fill(*value)),
            Op::Int(value) => self.write_ints(target, |_, out| out.fill(*value as i32)),
            Op::RowValue(position) => {
                let value = self.given.row.get(usize::from(*position)).copied().unwrap_or(0.0);
                self.write_floats(target, |_, out| out.fill(value));
            }
            Op::Load(load) => self.load(load, kind, target),
            Op::Sample { offsets, row } => self.write_ints(target, |this, out| {
                let offsets = this.env.views.get(usize::from(*offsets));
                unary(this.arch, out, this.ints(*row), |row| sample(offsets, row));
            }),
            Op::Uniform { seed, index } => self.write_floats(target, |this, out| {
                uniform(this.arch, out, this.longs(*seed), this.ints(*index));
            }),
            Op::Unary(op, a) => self.unary(*op, kind, target, *a),
            Op::Binary(read, op, a, b) => self.binary(*op, *read, target, *a, *b),
            Op::Select(c, a, b) => self.select(kind, target, *c, *a, *b),
            Op::Cast(from, a) => self.cast(*from, kind, target, *a),
            Op::Decide(condition, state) => {
                let found = match self.ints(*condition) {
                    Lanes::Same(value) => 2 - u8::from(value != 0),
                    Lanes::Each(values) => {
                        let count: u32 = values.iter().map(|&v| v as u32 & 1).sum();
                        u8::from(count > 0) | if (count as usize) < values.len() { 2 } else { 0 }
                    }
                };
                if let Some(place) = self.registers.states.get_mut(usize::from(*state)) {
                    *place = found;
                }
            }
        }
    }

    fn unary(&mut self, op: UnaryOp, kind: Scalar, target: Source, a: Source) {
        macro_rules! float {
            ($function:expr) => {
                self.write_floats(target, |this, out| unary(this.arch, out, this.floats(a), $function))
            };
        }
        match (kind, op) {
            (Scalar::F32, UnaryOp::Neg) => float!(|x: f32| -x),
            (Scalar::F32, UnaryOp::Abs) => float!(f32::abs),
            (_, UnaryOp::Exp) => float!(f::exp),
            (_, UnaryOp::Log) => float!(f::log),
            (_, UnaryOp::Sqrt) => float!(f32::sqrt),
            (_, UnaryOp::Rsqrt) => float!(|x: f32| 1.0 / x.sqrt()),
            (_, UnaryOp::Sigmoid) => float!(f::sigmoid),
            (_, UnaryOp::Silu) => float!(f::silu),
            (_, UnaryOp::Relu) => float!(|x: f32| if x < 0.0 { 0.0 } else { x }),
            (_, UnaryOp::Tanh) => float!(f::tanh),
            (_, UnaryOp::Erf) => float!(f::erf),
            (_, UnaryOp::Sin) => float!(f32::sin),
            (_, UnaryOp::Cos) => float!(f32::cos),
            (_, UnaryOp::Floor) => float!(f32::floor),
            (_, UnaryOp::Ceil) => float!(f32::ceil),
            (_, UnaryOp::Trunc) => float!(f32::trunc),
            (_, UnaryOp::Round) => float!(f32::round_ties_even),
            (_, UnaryOp::Not) => self.write_ints(target, |this, out| unary(this.arch, out, this.ints(a), |x| x ^ 1)),
            (Scalar::I64, UnaryOp::Neg) => {
                self.write_longs(target, |this, out| unary(this.arch, out, this.longs(a), i64::wrapping_neg));
            }
            (Scalar::I64, UnaryOp::Abs) => {
                self.write_longs(target, |this, out| unary(this.arch, out, this.longs(a), i64::wrapping_abs));
            }
            (_, UnaryOp::Neg) => {
                self.write_ints(target, |this, out| unary(this.arch, out, this.ints(a), i32::wrapping_neg))
            }
            (_, UnaryOp::Abs) => {
                self.write_ints(target, |this, out| unary(this.arch, out, this.ints(a), i32::wrapping_abs))
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, read: Scalar, target: Source, a: Source, b: Source) {
        match read {
            Scalar::F32 => self.binary_floats(op, target, a, b),
            Scalar::I32 | Scalar::Bool => self.binary_ints(op, target, a, b),
            Scalar::I64 => self.binary_longs(op, target, a, b),
        }
    }

    fn binary_floats(&mut self, op: BinaryOp, target: Source, a: Source, b: Source) {
        macro_rules! float {
            ($function:expr) => {
                self.write_floats(target, |this, out| binary(this.arch, out, this.floats(a), this.floats(b), $function))
            };
        }
        macro_rules! truth {
            ($function:expr) => {
                self.write_ints(target, |this, out| {
                    binary(this.arch, out, this.floats(a), this.floats(b), |x, y| i32::from($function(x, y)));
                })
            };
        }
        match op {
            BinaryOp::Add => float!(|x, y| x + y),
            BinaryOp::Sub => float!(|x, y| x - y),
            BinaryOp::Mul => float!(|x, y| x * y),
            BinaryOp::Div => float!(|x, y| x / y),
            BinaryOp::Mod => float!(|x: f32, y: f32| x - y * (x / y).floor()),
            BinaryOp::Pow => float!(f32::powf),
            BinaryOp::Min => float!(|x: f32, y: f32| if y < x { y } else { x }),
            BinaryOp::Max => float!(|x: f32, y: f32| if y > x { y } else { x }),
            BinaryOp::Eq => truth!(|x: f32, y: f32| x == y),
            BinaryOp::Ne => truth!(|x: f32, y: f32| x != y),
            BinaryOp::Lt => truth!(|x: f32, y: f32| x < y),
            BinaryOp::Le => truth!(|x: f32, y: f32| x <= y),
            BinaryOp::Gt => truth!(|x: f32, y: f32| x > y),
            BinaryOp::Ge => truth!(|x: f32, y: f32| x >= y),
            BinaryOp::And => truth!(|x: f32, y: f32| x != 0.0 && y != 0.0),
            BinaryOp::Or => truth!(|x: f32, y: f32| x != 0.0 || y != 0.0),
        }
    }

    fn binary_ints(&mut self, op: BinaryOp, target: Source, a: Source, b: Source) {
        macro_rules! int {
            ($function:expr) => {
                self.write_ints(target, |this, out| binary(this.arch, out, this.ints(a), this.ints(b), $function))
            };
        }
        match op {
            BinaryOp::Add => int!(i32::wrapping_add),
            BinaryOp::Sub => int!(i32::wrapping_sub),
            BinaryOp::Mul => int!(i32::wrapping_mul),
            BinaryOp::Div => int!(f::floor_div_i32),
            BinaryOp::Mod => int!(f::floor_mod_i32),
            BinaryOp::Pow => int!(|x: i32, y: i32| x.wrapping_pow(u32::try_from(y).unwrap_or(0))),
            BinaryOp::Min => int!(|x: i32, y: i32| x.min(y)),
            BinaryOp::Max => int!(|x: i32, y: i32| x.max(y)),
            BinaryOp::Eq => int!(|x, y| i32::from(x == y)),
            BinaryOp::Ne => int!(|x, y| i32::from(x != y)),
            BinaryOp::Lt => int!(|x, y| i32::from(x < y)),
            BinaryOp::Le => int!(|x, y| i32::from(x <= y)),
            BinaryOp::Gt => int!(|x, y| i32::from(x > y)),
            BinaryOp::Ge => int!(|x, y| i32::from(x >= y)),
            BinaryOp::And => int!(|x, y| x & y),
            BinaryOp::Or => int!(|x, y| x | y),
        }
    }

    fn binary_longs(&mut self, op: BinaryOp, target: Source, a: Source, b: Source) {
        macro_rules! long {
            ($function:expr) => {
                self.write_longs(target, |this, out| binary(this.arch, out, this.longs(a), this.longs(b), $function))
            };
        }
        macro_rules! truth {
            ($function:expr) => {
                self.write_ints(target, |this, out| {
                    binary(this.arch, out, this.longs(a), this.longs(b), |x, y| i32::from($function(&x, &y)));
                })
            };
        }
        match op {
            BinaryOp::Add => long!(i64::wrapping_add),
            BinaryOp::Sub => long!(i64::wrapping_sub),
            BinaryOp::Mul => long!(i64::wrapping_mul),
            BinaryOp::Div => long!(f::floor_div_i64),
            BinaryOp::Mod => long!(f::floor_mod_i64),
            BinaryOp::Pow => long!(|x: i64, y: i64| x.wrapping_pow(u32::try_from(y).unwrap_or(0))),
            BinaryOp::Min => long!(|x: i64, y: i64| x.min(y)),
            BinaryOp::Max => long!(|x: i64, y: i64| x.max(y)),
            BinaryOp::Eq => truth!(i64::eq),
            BinaryOp::Ne => truth!(i64::ne),
            BinaryOp::Lt => truth!(i64::lt),
            BinaryOp::Le => truth!(i64::le),
            BinaryOp::Gt => truth!(i64::gt),
            BinaryOp::Ge => truth!(i64::ge),
            BinaryOp::And => long!(|x, y| x & y),
            BinaryOp::Or => long!(|x, y| x | y),
        }
    }

    fn select(&mut self, kind: Scalar, target: Source, c: Source, a: Source, b: Source) {
        match kind {
            Scalar::F32 => {
                self.write_floats(target, |this, out| {
                    select(this.arch, out, this.ints(c), this.floats(a), this.floats(b))
                });
            }
            Scalar::I64 => {
                self.write_longs(target, |this, out| {
                    select(this.arch, out, this.ints(c), this.longs(a), this.longs(b))
                });
            }
            _ => self.write_ints(target, |this, out| select(this.arch, out, this.ints(c), this.ints(a), this.ints(b))),
        }
    }

    fn cast(&mut self, from: Scalar, to: Scalar, target: Source, a: Source) {
        macro_rules! to {
            ($write:ident, $read:ident, $function:expr) => {
                self.$write(target, |this, out| unary(this.arch, out, this.$read(a), $function))
            };
        }
        match (from, to) {
            (Scalar::F32, Scalar::F32) => to!(write_floats, floats, |x| x),
            (Scalar::F32, Scalar::I32) => to!(write_ints, floats, |x| x as i32),
            (Scalar::F32, Scalar::I64) => to!(write_longs, floats, |x| x as i64),
            (Scalar::F32, Scalar::Bool) => to!(write_ints, floats, |x| i32::from(x != 0.0)),
            (Scalar::I64, Scalar::F32) => to!(write_floats, longs, |x| x as f32),
            (Scalar::I64, Scalar::I32) => to!(write_ints, longs, |x| x as i32),
            (Scalar::I64, Scalar::I64) => to!(write_longs, longs, |x| x),
            (Scalar::I64, Scalar::Bool) => to!(write_ints, longs, |x| i32::from(x != 0)),
            (_, Scalar::F32) => to!(write_floats, ints, |x| x as f32),
            (_, Scalar::I64) => to!(write_longs, ints, i64::from),
            (Scalar::I32, Scalar::Bool) => to!(write_ints, ints, |x| i32::from(x != 0)),
            (_, Scalar::I32 | Scalar::Bool) => to!(write_ints, ints, |x| x),
        }
    }
}

/// The largest `b` with `offsets[b] <= row`; 0 if there is none.
fn sample(offsets: Option<&View<'_>>, row: i32) -> i32 {
    let after = match offsets.map(|view| view.elements) {
        Some(Elements::I64(offsets)) => offsets.partition_point(|&offset| offset <= i64::from(row)),
        Some(Elements::I32(offsets)) => offsets.partition_point(|&offset| offset <= row),
        _ => 0,
    };
    (after as i32 - 1).max(0)
}

struct Each<'a, T, R, F> {
    out: &'a mut [R],
    a: &'a [T],
    function: F,
}

impl<T: Copy, R, F: Fn(T) -> R> WithSimd for Each<'_, T, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (out, &a) in self.out.iter_mut().zip(self.a) {
            *out = (self.function)(a);
        }
    }
}

struct EachPair<'a, A, B, R, F> {
    out: &'a mut [R],
    a: &'a [A],
    b: &'a [B],
    function: F,
}

impl<A: Copy, B: Copy, R, F: Fn(A, B) -> R> WithSimd for EachPair<'_, A, B, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((out, &a), &b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *out = (self.function)(a, b);
        }
    }
}

/// A function of every point, as vector code.
pub(super) fn unary<T: Copy, R: Copy>(arch: Arch, out: &mut [R], a: Lanes<'_, T>, function: impl Fn(T) -> R) {
    match a {
        Lanes::Each(a) => arch.dispatch(Each { out, a, function }),
        Lanes::Same(a) => out.fill(function(a)),
    }
}

/// A function of every pair of points, as vector code.
pub(super) fn binary<A: Copy, B: Copy, R: Copy>(
    arch: Arch,
    out: &mut [R],
    a: Lanes<'_, A>,
    b: Lanes<'_, B>,
    function: impl Fn(A, B) -> R,
) {
    match (a, b) {
        (Lanes::Each(a), Lanes::Each(b)) => arch.dispatch(EachPair { out, a, b, function }),
        (Lanes::Each(a), Lanes::Same(b)) => arch.dispatch(Each { out, a, function: |a| function(a, b) }),
        (Lanes::Same(a), Lanes::Each(b)) => arch.dispatch(Each { out, a: b, function: |b| function(a, b) }),
        (Lanes::Same(a), Lanes::Same(b)) => out.fill(function(a, b)),
    }
}

/// Uniform floats; four neighbouring elements come from one block of the generator.
fn uniform(arch: Arch, out: &mut [f32], seeds: Lanes<'_, i64>, index: Lanes<'_, i32>) {
    if let (Lanes::Same(seed), Lanes::Each(run @ &[first, ..])) = (seeds, index)
        && run.iter().zip(&POINTS).fold(0, |off, (&index, &point)| off | (index ^ first.wrapping_add(point))) == 0
        && (first as u32).checked_add(LANES as u32).is_some()
    {
        let (counter, skip) = (first as u32 / 4, first as usize % 4);
        let mut words = [[0.0; BLOCKS]; 4];
        arch.dispatch(DrawBlocks { seed, counter, words: &mut words });
        for (point, out) in out.iter_mut().enumerate() {
            *out = words[(skip + point) % 4][(skip + point) / 4];
        }
    } else {
        binary(arch, out, seeds, index, |seed, index| f::uniform(seed, index as u32));
    }
}

/// Blocks of four elements that a chunk may touch.
const BLOCKS: usize = LANES / 4 + 1;

struct DrawBlocks<'a> {
    seed: i64,
    counter: u32,
    words: &'a mut [[f32; BLOCKS]; 4],
}

impl WithSimd for DrawBlocks<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let [a, b, c, d] = self.words;
        for block in 0..BLOCKS {
            [a[block], b[block], c[block], d[block]] = f::uniform_block(self.seed, self.counter + block as u32);
        }
    }
}

/// `a` where the condition is true and `b` elsewhere.
fn select<T: Copy>(arch: Arch, out: &mut [T], condition: Lanes<'_, i32>, a: Lanes<'_, T>, b: Lanes<'_, T>) {
    match (condition, a, b) {
        (Lanes::Same(condition), a, b) => unary(arch, out, if condition != 0 { a } else { b }, |x| x),
        (condition, Lanes::Same(a), b) => binary(arch, out, condition, b, |c, b| if c != 0 { a } else { b }),
        (condition, a, Lanes::Same(b)) => binary(arch, out, condition, a, |c, a| if c != 0 { a } else { b }),
        (Lanes::Each(condition), Lanes::Each(a), Lanes::Each(b)) => {
            arch.dispatch(Choose { out, condition, a, b });
        }
    }
}

struct Choose<'a, T> {
    out: &'a mut [T],
    condition: &'a [i32],
    a: &'a [T],
    b: &'a [T],
}

impl<T: Copy> WithSimd for Choose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (((out, &c), &a), &b) in self.out.iter_mut().zip(self.condition).zip(self.a).zip(self.b) {
            *out = if c != 0 { a } else { b };
        }
    }
}
