//! A register program.
//!
//! Values are computed for a chunk of neighbouring points along one coordinate, the axis. Values that do not depend on
//! the axis are computed once per row, values that depend only on the axis once for the rows of neighbouring chunks with
//! the same points, and values that depend on no coordinate once per run.

use super::machine::Pool;
use super::step::Pass;
use rewire_graph::Scalar;
use rewire_graph::pointwise::{BinaryOp, ScalarFunction, UnaryOp};
use std::sync::Arc;

/// The source of a value.
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
    /// The value of an accumulation for every point, by position.
    Anchor(u8),
    /// A run of floats in an operand's memory.
    InPlace(u16),
}

/// A value of an accumulation, instead of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AnchorValue {
    /// A float per row.
    Row(u8),
    /// A float per point, by position.
    Lane(u8),
}

/// The start of a run: a linear combination, modulo 2^32.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub terms: Vec<(Source, i32)>,
    pub constant: i32,
}

/// The change of an index along the axis.
#[derive(Clone, Debug)]
pub(super) enum Last {
    /// By one per point, starting from this.
    Run(Start),
    /// Given by this source.
    At(Source),
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    pub operand: u16,
    pub index: Vec<Source>,
    /// The last index, or the last ones merged; `None` for a scalar operand.
    pub last: Option<Last>,
    /// Slot of the run's position, if floats can be read in place.
    pub in_place: Option<u16>,
}

/// A chain of float functions.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// The float at its start, and other floats that passes refer to by position.
    pub operands: Vec<Source>,
    pub passes: Vec<Pass>,
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
    /// A function of an integer.
    Unary(UnaryOp, Source),
    /// The operands' type, and a function of two integers or a comparison.
    Binary(Scalar, BinaryOp, Source, Source),
    Select(Source, Source, Source),
    Cast(Scalar, Source),
    /// Records in a state whether a condition is true anywhere and false anywhere.
    Decide(Source, u16),
}

/// An instruction runs if its condition had the value `side` anywhere.
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
    /// For the points of a chunk, not for each of its rows.
    Axis,
    Point,
}

impl HoistLevel {
    /// The level of a function of values of both levels.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Row, Self::Axis) | (Self::Axis, Self::Row) => Self::Point,
            _ => self.max(other),
        }
    }

    /// True if values of this level are known where one of `other` is computed.
    pub(super) fn precedes(self, other: Self) -> bool {
        self.join(other) == other
    }
}

/// Numbers of registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// By type (floats, 32-bit integers and bools, 64-bit integers), then by rate.
    pub files: [[u16; 4]; 3],
    pub in_place: u16,
    pub states: u16,
}

/// Expressions compiled along one axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    pub per_run: Vec<Instruction>,
    pub per_row: Vec<Instruction>,
    pub per_axis: Vec<Instruction>,
    pub per_point: Vec<Instruction>,
    /// Results, with their types, in the order of the roots.
    pub roots: Vec<(Source, Scalar)>,
    /// The root that the last per-point instruction computes, if that is a chain.
    pub last: Option<usize>,
    /// True if all per-point instructions are in-place loads, optionally followed by that chain.
    pub streams: bool,
    pub counts: Counts,
    pub pool: Pool,
}

/// Register file of a type.
pub(super) fn file(kind: Scalar) -> usize {
    match kind {
        Scalar::F32 => 0,
        Scalar::I32 | Scalar::Bool => 1,
        Scalar::I64 => 2,
    }
}

impl Instruction {
    /// True for floats that are always read in place.
    pub(super) fn is_in_place(&self) -> bool {
        self.guard.is_none() && matches!(self.op, Op::Load(Load { in_place: Some(_), .. }))
    }
}
