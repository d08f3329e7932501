//! Executes instructions.

use super::arch::Arch;
use super::chain::{Chain, Destination, Scratch};
use super::lanes::{Grid, Lanes, POINTS, ROWS, binary, select, unary};
use super::machine::{LoadPattern, Registers, RowInputs};
use super::operand::{Env, View};
use super::passes::Line;
use super::program::{ChainRef, HoistLevel, Instruction, Last, Op, Source, Start};
use super::random::{uniform, uniform_runs};
use super::storage::Elements;
use super::user_code;
use rewire_graph::Scalar;
use rewire_graph::pointwise::functions::{Arithmetic, BinaryVisitor, Comparison, Unary, UnaryVisitor};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use std::cell::Cell;

/// Most chains have at most this many operands.
const FEW: usize = 8;

/// Executes the instructions of one [`HoistLevel`].
pub(super) struct Execution<'a, 'e> {
    pub env: &'a Env<'e>,
    pub registers: &'a mut Registers,
    pub arch: Arch,
    pub inputs: RowInputs<'a>,
    pub rate: HoistLevel,
    /// First point of the tile.
    pub start: usize,
    /// Extents of the tile. For per-row instructions: one row, with a point for each row of the loop.
    pub grid: Grid,
}

impl Execution<'_, '_> {
    /// Returns false if a load of a large tile would have to copy rows.
    pub(super) fn run(&mut self, instructions: &[Instruction]) -> bool {
        for instruction in instructions {
            let wanted = instruction.guard.is_none_or(|guard| {
                let state = self.registers.states.get(usize::from(guard.state)).copied().unwrap_or(3);
                state & if guard.side { 1 } else { 2 } != 0
            });
            if !wanted {
                self.skip(instruction.target);
            } else if !self.step(instruction) {
                return false;
            }
        }
        true
    }

    /// Clears the row positions of an earlier tile, which may be invalid for this one.
    fn skip(&mut self, target: Source) {
        if let Source::InPlace(slot) = target
            && let Some(floats) = self.registers.in_place.get_mut(usize::from(slot))
        {
            floats.pattern = LoadPattern::Nowhere;
        }
    }
}

/// Computes a register of a file's list. The register is moved out during the computation.
macro_rules! write_register {
    ($self:ident.$file:ident.$list:ident, $register:ident, $first:expr, $compute:ident) => {{
        let register = usize::from($register);
        let place = $self.registers.$file.$list.get_mut(register);
        let Some(mut values) = place.and_then(Option::take) else {
            debug_assert!(false, "register {register} is not in its place");
            return;
        };
        let first = $first;
        $compute($self, (&mut values.0[first..first + $self.grid.len()], $self.grid));
        $self.registers.$file.$list[register] = Some(values);
    }};
}

macro_rules! writer {
    ($name:ident, $file:ident, $type:ty) => {
        /// Computes a register from others.
        pub(super) fn $name(&mut self, target: Source, compute: impl FnOnce(&Self, (&mut [$type], Grid))) {
            match target {
                Source::Run(register) => {
                    let mut value = [<$type>::default()];
                    compute(self, (&mut value, self.grid));
                    if let Some(place) = self.registers.$file.runs.get_mut(usize::from(register)) {
                        *place = value[0];
                    }
                }
                Source::Row(register) => write_register!(self.$file.rows, register, self.inputs.first, compute),
                Source::Axis(register) => write_register!(self.$file.axis, register, 0, compute),
                Source::Lane(register) => write_register!(self.$file.lanes, register, 0, compute),
                Source::Accumulator(_) | Source::InPlace(_) => {}
            }
        }
    };
}

impl Execution<'_, '_> {
    writer!(write_floats, floats, f32);
    writer!(write_ints, ints, i32);
    writer!(write_longs, longs, i64);

    fn floats(&self, source: Source) -> Lanes<'_, f32> {
        self.registers.floats(self.env, self.inputs, source, (self.rate, self.start, self.grid))
    }

    pub(super) fn ints(&self, source: Source) -> Lanes<'_, i32> {
        self.registers.ints.get(source, self.rate, (self.inputs.first, self.grid))
    }

    fn longs(&self, source: Source) -> Lanes<'_, i64> {
        self.registers.longs.get(source, self.rate, (self.inputs.first, self.grid))
    }

    fn step(&mut self, instruction: &Instruction) -> bool {
        let (target, kind) = (instruction.target, instruction.kind);
        match &instruction.op {
            Op::Axis => {
                let start = self.start as i32;
                self.write_ints(target, |this, out| {
                    let points = Lanes::Strided(&POINTS, 0);
                    unary(this.arch, out, points, |point| start.wrapping_add(point));
                });
            }
            Op::Coord(axis) => self.write_ints(target, |this, (out, _)| {
                let rows = this.inputs.coords.get(usize::from(*axis)).map_or(&[][..], |rows| this.inputs.of(rows));
                out.iter_mut().zip(rows).for_each(|(out, &coord)| *out = coord);
            }),
            Op::Size(position) => {
                let value = self.env.sizes.get(usize::from(*position)).copied();
                debug_assert!(value.is_some(), "a run has all sizes of its program");
                let value = value.unwrap_or(0);
                self.write_ints(target, |_, (out, _)| out.fill(value));
            }
            Op::Float(value) => self.write_floats(target, |_, (out, _)| out.fill(*value)),
            Op::Int(value) if kind == Scalar::I64 => self.write_longs(target, |_, (out, _)| out.fill(*value)),
            Op::Int(value) => self.write_ints(target, |_, (out, _)| out.fill(*value as i32)),
            Op::RowValue(position) => self.write_floats(target, |this, (out, _)| {
                let rows = this.inputs.values.get(usize::from(*position)).map_or(&[][..], |rows| this.inputs.of(rows));
                out.iter_mut().zip(rows).for_each(|(out, &value)| *out = value);
            }),
            Op::Load(load) => return self.load(load, kind, target),
            Op::Sample { offsets, row } => self.write_ints(target, |this, out| {
                let offsets = this.env.views.get(usize::from(*offsets));
                let near = Cell::new(0);
                unary(this.arch, out, this.ints(*row), |row| sample(offsets, row, &near));
            }),
            Op::Uniform { seed, index: Last::At(index) } => self.write_floats(target, |this, out| {
                uniform(out, this.longs(*seed), this.ints(*index));
            }),
            Op::Uniform { seed, index: Last::Run(start) } => {
                let mut first = [0; ROWS];
                let first = &mut first[..self.grid.rows.min(ROWS)];
                self.starts(start, first);
                self.write_floats(target, |this, out| uniform_runs(this.arch, out, this.longs(*seed), first));
            }
            Op::Chain(chain) => {
                let Some(mut scratch) = self.registers.scratch.take() else { return false };
                self.write_floats(target, |this, (out, grid)| {
                    let to = Destination::Rows { out, stride: grid.points, stream: None };
                    this.chain(chain.bound(), &mut scratch, to);
                });
                self.registers.scratch = Some(scratch);
            }
            Op::Call { function, arguments } => self.write_floats(target, |this, (out, grid)| {
                let lanes: Vec<Vec<f32>> =
                    arguments.iter().map(|&argument| this.floats(argument).to_vec(grid)).collect();
                let lanes: Vec<&[f32]> = lanes.iter().map(Vec::as_slice).collect();
                user_code::call(function.name(), || function.evaluate_lanes(&lanes, out));
            }),
            Op::Unary(op, a) => self.unary(*op, kind, target, *a),
            Op::Binary(read, op, a, b) => self.binary(*op, *read, target, *a, *b),
            Op::Select(c, a, b) => self.select(kind, target, *c, *a, *b),
            Op::Cast(from, a) => self.cast(*from, kind, target, *a),
            Op::Decide(condition, state) => {
                let found = match self.ints(*condition) {
                    Lanes::Same(value) => 2 - u8::from(value != 0),
                    Lanes::Rows(values)
                    | Lanes::Each(values)
                    | Lanes::Strided(values, _)
                    | Lanes::Scattered(values, _) => {
                        let count: u32 = values.iter().map(|&v| v as u32 & 1).sum();
                        u8::from(count > 0) | if (count as usize) < values.len() { 2 } else { 0 }
                    }
                };
                if let Some(place) = self.registers.states.get_mut(usize::from(*state)) {
                    *place = found;
                }
            }
        }
        true
    }

    /// Computes a chain for the tile. `scratch` is for values between passes.
    pub(super) fn chain(&self, chain: ChainRef<'_>, scratch: &mut Scratch, to: Destination<'_>) {
        let ChainRef { operands, passes, steps } = chain;
        let mut few = [Lanes::Same(0.0); FEW];
        let mut many = vec![];
        let bound = match few.get_mut(..operands.len()) {
            Some(few) => few,
            None => {
                many.resize(operands.len(), Lanes::Same(0.0));
                &mut many[..]
            }
        };
        for (bound, &source) in bound.iter_mut().zip(operands) {
            *bound = self.floats(source);
        }
        match to {
            Destination::Rows { out, stream: None, .. } if is_line(self.grid) && !steps.is_empty() => {
                let out = out.get_mut(..self.grid.points).unwrap_or(&mut []);
                self.arch.dispatch(Line { operands: bound, steps, out });
            }
            to => self.arch.dispatch(Chain { grid: self.grid, operands: bound, passes, steps, scratch, to }),
        }
    }

    /// Writes the start of the run in each row of the tile to `starts`.
    pub(super) fn starts(&self, start: &Start, starts: &mut [i32]) {
        starts.fill((self.start as i32).wrapping_add(start.constant));
        for &(term, multiple) in &start.terms {
            let term = self.ints(term);
            for (row, start) in starts.iter_mut().enumerate() {
                *start = start.wrapping_add(term.at(row, 0, 1).unwrap_or(-1).wrapping_mul(multiple));
            }
        }
    }

    fn unary(&mut self, op: UnaryOp, kind: Scalar, target: Source, a: Source) {
        op.visit(OfInteger { at: self, kind, target, a });
    }

    fn binary(&mut self, op: BinaryOp, read: Scalar, target: Source, a: Source, b: Source) {
        if read == Scalar::I32
            && let Lanes::Same(divisor @ 1..) = self.ints(b)
        {
            match op {
                BinaryOp::Div => {
                    return self.write_ints(target, |this, out| {
                        unary(this.arch, out, this.ints(a), quotient_by(divisor));
                    });
                }
                BinaryOp::Mod => {
                    return self.write_ints(target, |this, out| {
                        let quotient = quotient_by(divisor);
                        unary(this.arch, out, this.ints(a), |a| a.wrapping_sub(quotient(a).wrapping_mul(divisor)));
                    });
                }
                _ => {}
            }
        }
        op.visit(OfPair { at: self, read, target, a, b });
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

/// Computes a unary function of integers or bools.
struct OfInteger<'x, 'a, 'e> {
    at: &'x mut Execution<'a, 'e>,
    kind: Scalar,
    target: Source,
    a: Source,
}

impl UnaryVisitor for OfInteger<'_, '_, '_> {
    type Output = ();

    fn visit<F: Unary>(self) {
        let Self { at, kind, target, a } = self;
        match kind {
            Scalar::I64 => at.write_longs(target, |at, out| unary(at.arch, out, at.longs(a), F::integer)),
            _ => at.write_ints(target, |at, out| unary(at.arch, out, at.ints(a), F::integer)),
        }
    }
}

/// Computes a binary function of integers or bools, or a comparison.
struct OfPair<'x, 'a, 'e> {
    at: &'x mut Execution<'a, 'e>,
    read: Scalar,
    target: Source,
    a: Source,
    b: Source,
}

impl BinaryVisitor for OfPair<'_, '_, '_> {
    type Output = ();

    fn arithmetic<F: Arithmetic>(self) {
        let Self { at, read, target, a, b } = self;
        match read {
            Scalar::I64 => at.write_longs(target, |at, out| binary(at.arch, out, at.longs(a), at.longs(b), F::integer)),
            _ => at.write_ints(target, |at, out| binary(at.arch, out, at.ints(a), at.ints(b), F::integer)),
        }
    }

    fn comparison<F: Comparison>(self) {
        let Self { at, read, target, a, b } = self;
        at.write_ints(target, |at, out| match read {
            Scalar::F32 => binary(at.arch, out, at.floats(a), at.floats(b), |x, y| i32::from(F::holds(x, y))),
            Scalar::I64 => binary(at.arch, out, at.longs(a), at.longs(b), |x, y| i32::from(F::holds(x, y))),
            Scalar::I32 | Scalar::Bool => {
                binary(at.arch, out, at.ints(a), at.ints(b), |x, y| i32::from(F::holds(x, y)));
            }
        });
    }
}

/// True for a row that is too short to begin passes over blocks, such as the values of all rows of a tile.
fn is_line(grid: Grid) -> bool {
    grid.rows == 1 && grid.points <= ROWS
}

/// Floor division by a positive divisor, through multiplication by the reciprocal.
fn quotient_by(divisor: i32) -> impl Fn(i32) -> i32 {
    let inverse = 1.0 / f64::from(divisor);
    // Adding 0.5 keeps the rounding error, which is far smaller, from yielding the next lower quotient.
    move |a| ((f64::from(a) + 0.5) * inverse).floor() as i32
}

/// The largest `b` with `offsets[b] <= row`; 0 if there is none. `near` is the result for the row before.
fn sample(offsets: Option<&View<'_>>, row: i32, near: &Cell<usize>) -> i32 {
    let found = match offsets.map(|view| view.elements) {
        Some(Elements::I64(offsets)) => last_up_to(offsets, row.into(), near.get(), |offset| offset as f64),
        Some(Elements::I32(offsets)) => last_up_to(offsets, row, near.get(), f64::from),
        _ => 0,
    };
    near.set(found);
    found as i32
}

/// Offsets on either side of an estimate that are searched first.
const AROUND: usize = 8;

/// The index of the last ascending offset that is not above `row`; 0 if there is none. Tries `near` and the index after it
/// first, since adjacent rows are in the same sample or in adjacent ones, then the index if all samples had the same length.
fn last_up_to<T: Copy + PartialOrd>(offsets: &[T], row: T, near: usize, number: impl Fn(T) -> f64) -> usize {
    let has = |n: usize| matches!(offsets.get(n..n + 2), Some([first, next]) if *first <= row && row < *next);
    if let Some(n) = [near, near + 1].into_iter().find(|&n| has(n)) {
        return n;
    }
    let even = offsets.last().map_or(0.0, |&last| number(row) * (offsets.len() - 1) as f64 / number(last)) as usize;
    let even = even.min(offsets.len());
    if has(even) {
        return even;
    }
    let (first, end) = (even.saturating_sub(AROUND), (even + AROUND).min(offsets.len()));
    let around =
        offsets.get(first..end).filter(|around| matches!(around, [first, .., last] if *first <= row && row < *last));
    let (first, searched) = around.map_or((0, offsets), |around| (first, around));
    (first + searched.partition_point(|&offset| offset <= row)).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rewire_graph::pointwise::Integer;

    proptest! {
        #[test]
        fn samples_are_those_of_a_search(lengths in proptest::collection::vec(0..40_i64, 1..60), near in 0..70_usize) {
            let ends = lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            });
            let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
            for row in 0..offsets[lengths.len()] {
                let expected = offsets.iter().rposition(|&offset| offset <= row);
                prop_assert_eq!(Some(last_up_to(&offsets, row, near, |offset| offset as f64)), expected, "row {}", row);
            }
        }

        #[test]
        fn quotients_are_those_of_a_division(a: i32, small in 1..100_i32, divisor in 1..=i32::MAX) {
            for divisor in [small, divisor, i32::MAX] {
                for a in [a, a.wrapping_mul(divisor), a.wrapping_mul(divisor).wrapping_sub(1), i32::MIN, i32::MAX, 0] {
                    prop_assert_eq!(quotient_by(divisor)(a), a.floor_div(divisor), "{} by {}", a, divisor);
                }
            }
        }
    }
}
