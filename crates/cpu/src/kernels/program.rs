//! A register program.
//!
//! A program computes values for tiles: chunks of adjacent points along one coordinate, the axis, in several rows.
//! Values that do not depend on the axis are hoisted to once per row, values that depend only on the axis to once per
//! chunk, and values that depend on no coordinate to once per run.

use super::machine::Pool;
use super::step::Pass;
use rewire_graph::Scalar;
use rewire_graph::pointwise::{BinaryOp, ScalarFunction, UnaryOp};
use std::sync::Arc;

/// The location of a value; numbers are registers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    /// One value per run.
    Run(u16),
    /// One value per row.
    Row(u16),
    /// One value per point of the chunk, the same in all rows.
    Axis(u16),
    /// One value per point of the chunk.
    Lane(u16),
    /// The per-point result of an accumulation, by position.
    Accumulator(u8),
    /// Contiguous floats in an operand's memory.
    InPlace(u16),
}

/// The result of an accumulation, in place of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AccumulatorValue {
    /// One float per row, by position.
    Row(u8),
    /// One float per point, by position.
    Lane(u8),
}

/// The start of a run: a linear combination of values, modulo 2^32.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub terms: Vec<(Source, i32)>,
    pub constant: i32,
}

/// An index along the axis.
#[derive(Clone, Debug)]
pub(super) enum Last {
    /// It increases by one per point from this start.
    Run(Start),
    /// It has arbitrary values.
    At(Source),
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    pub operand: u16,
    pub index: Vec<Source>,
    /// The last index, or several last indices merged; `None` for a scalar operand.
    pub last: Option<Last>,
    /// Slot for the location of the rows, if floats can be read in place.
    pub in_place: Option<u16>,
}

/// A chain of float functions.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// The initial value, then other operands. Passes refer to operands by position.
    pub operands: Vec<Source>,
    pub passes: Vec<Pass>,
    /// The same functions with one step per pass, for narrow rows.
    pub steps: Vec<Pass>,
}

/// The parts of a [`Chain`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainRef<'a> {
    pub operands: &'a [Source],
    pub passes: &'a [Pass],
    pub steps: &'a [Pass],
}

impl Chain {
    pub(super) fn bound(&self) -> ChainRef<'_> {
        ChainRef { operands: &self.operands, passes: &self.passes, steps: &self.steps }
    }
}

impl<'a> ChainRef<'a> {
    /// A chain without functions.
    pub(super) fn copy(source: &'a Source) -> Self {
        Self { operands: std::slice::from_ref(source), passes: &[], steps: &[] }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Axis,
    Coord(u8),
    Size(u16),
    Float(f32),
    Int(i64),
    RowValue(u8),
    Load(Load),
    Sample {
        offsets: u16,
        row: Source,
    },
    Uniform {
        seed: Source,
        index: Last,
    },
    Call {
        function: Arc<dyn ScalarFunction>,
        arguments: Vec<Source>,
    },
    Chain(Chain),
    /// A unary function of an integer.
    Unary(UnaryOp, Source),
    /// A binary function of integers or a comparison, with the type of its operands.
    Binary(Scalar, BinaryOp, Source, Source),
    Select(Source, Source, Source),
    Cast(Scalar, Source),
    /// Records in a state if a condition is true at some point, and if it is false at some point.
    Decide(Source, u16),
}

/// Runs an instruction only if its condition equals `side` at some point of the tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub state: u16,
    pub side: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Instruction {
    pub op: Op,
    /// Type of the result.
    pub kind: Scalar,
    pub target: Source,
    pub guard: Option<Guard>,
}

/// How often an instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HoistLevel {
    Run,
    Row,
    /// Once per chunk, for all of its rows.
    Axis,
    Point,
}

impl HoistLevel {
    /// The level of a function whose operands have both levels.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Row, Self::Axis) | (Self::Axis, Self::Row) => Self::Point,
            _ => self.max(other),
        }
    }

    /// True if values of this level are available to instructions of level `other`.
    pub(super) fn precedes(self, other: Self) -> bool {
        self.join(other) == other
    }
}

/// Number of registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// By type (floats, 32-bit integers and bools, 64-bit integers), then by hoist level.
    pub files: [[u16; 4]; 3],
    pub in_place: u16,
    pub states: u16,
    /// The most operands of a chain.
    pub operands: u16,
}

/// Expressions compiled along one axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    pub per_run: Vec<Instruction>,
    pub per_row: Vec<Instruction>,
    pub per_axis: Vec<Instruction>,
    pub per_point: Vec<Instruction>,
    /// Locations and types of the results, in the order of the roots.
    pub roots: Vec<(Source, Scalar)>,
    /// The root computed by the last per-point instruction, if that is a chain.
    pub last: Option<usize>,
    /// True if all per-point instructions are in-place loads, optionally followed by that chain.
    pub streams: bool,
    pub counts: Counts,
    pub pool: Pool,
}

/// The index of the register file for a type.
pub(super) fn file(kind: Scalar) -> usize {
    match kind {
        Scalar::F32 => 0,
        Scalar::I32 | Scalar::Bool => 1,
        Scalar::I64 => 2,
    }
}

impl Instruction {
    /// True for a float load that is always in place.
    pub(super) fn is_in_place(&self) -> bool {
        self.guard.is_none() && matches!(self.op, Op::Load(Load { in_place: Some(_), .. }))
    }
}
