use super::{Elements, Elementwise, Op};
use crate::pointwise::{BinaryOp, Expr, ExprId};
use crate::{DType, Dim, Layout, Scalar, Type, TypeError};
use serde_json::{Value, json};
use std::fmt;

/// A gather with computed indices: `out[c..] = x[index(c..)..]`.
///
/// Slices with symbolic bounds and steps, padding, windows, resizing and advanced indexing all have this form. An index
/// outside `x` gives the fill value, or is clamped if there is none.
///
/// Operands: `x`; if `is_filled`, the fill value, a scalar of the type of `x`; then the tensors that
/// [`IndexExpr::Load`] reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remap {
    /// The shape of the result.
    pub shape: Vec<Dim>,
    /// For each axis of `x`, the index as a function of the coordinates of the result.
    pub index: Vec<IndexExpr>,
    /// True if operand 1 is the value for indices outside `x`.
    pub is_filled: bool,
}

/// An integer computed from the coordinates of a result. Division rounds toward negative infinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IndexExpr {
    /// The coordinate along an axis of the result.
    Coord(usize),
    /// A constant.
    Int(i64),
    /// A size.
    Size(Dim),
    /// An element of an operand of integers.
    Load {
        /// Position of the operand.
        operand: usize,
        /// One index per axis of the operand.
        index: Vec<IndexExpr>,
    },
    /// A function of two integers.
    Binary(BinaryOp, Box<IndexExpr>, Box<IndexExpr>),
}

impl IndexExpr {
    /// `op(self, other)`
    #[must_use]
    pub fn binary(self, op: BinaryOp, other: impl Into<Self>) -> Self {
        Self::Binary(op, Box::new(self), Box::new(other.into()))
    }

    fn visit(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        match self {
            Self::Size(dim) => size(dim),
            Self::Load { index, .. } => index.iter_mut().for_each(|index| index.visit(size)),
            Self::Binary(_, a, b) => {
                a.visit(size);
                b.visit(size);
            }
            Self::Coord(_) | Self::Int(_) => {}
        }
    }

    /// Checks that its coordinates and operands exist.
    fn check(&self, rank: usize, inputs: &[&Type]) -> Result<(), TypeError> {
        match self {
            Self::Coord(axis) if *axis >= rank => {
                Err(TypeError::new("index", format!("of coordinates below {rank}"), axis))
            }
            Self::Load { operand, index } => {
                let Some(ty) = inputs.get(*operand) else {
                    return Err(TypeError::new("index", format!("of {} operands", inputs.len()), operand));
                };
                let is_integer = matches!(ty.dtype, DType::I32 | DType::I64 | DType::U32);
                if !is_integer || ty.layout != Layout::Device || ty.rank() != index.len() {
                    let expected = format!("a device tensor of integers with {} axes", index.len());
                    return Err(TypeError::new(format!("operand {operand}"), expected, ty));
                }
                index.iter().try_for_each(|index| index.check(rank, inputs))
            }
            Self::Binary(_, a, b) => a.check(rank, inputs).and_then(|()| b.check(rank, inputs)),
            Self::Coord(_) | Self::Int(_) | Self::Size(_) => Ok(()),
        }
    }

    fn expr(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        match self {
            Self::Coord(axis) => coords[*axis],
            Self::Int(value) => at.dag().int(*value),
            Self::Size(dim) => at.size(dim),
            Self::Load { operand, index } => {
                let index: Vec<ExprId> = index.iter().map(|index| index.expr(at, coords)).collect();
                let value = at.load(*operand, &index);
                limited(at, value)
            }
            Self::Binary(op, a, b) => {
                let (a, b) = (a.expr(at, coords), b.expr(at, coords));
                let value = at.dag().binary(*op, a, b);
                at.dag().cast(Scalar::I32, value)
            }
        }
    }
}

/// An index as an `I32`, clamped in its own type, since a 64-bit index would wrap around.
fn limited(at: &mut dyn Elements, value: ExprId) -> ExprId {
    let dag = at.dag();
    match *dag.expr(value) {
        Expr::Cast(Scalar::I64, narrow) if dag.scalar(narrow) == Scalar::I32 => return narrow,
        _ if dag.scalar(value) != Scalar::I64 => return value,
        _ => {}
    }
    let bounds = [i64::from(i32::MIN / 2), i64::from(i32::MAX / 2)].map(|bound| at.dag().constant(Scalar::I64, bound));
    let above = at.dag().binary(BinaryOp::Max, value, bounds[0]);
    let within = at.dag().binary(BinaryOp::Min, above, bounds[1]);
    at.dag().cast(Scalar::I32, within)
}

impl From<i64> for IndexExpr {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<Dim> for IndexExpr {
    fn from(dim: Dim) -> Self {
        dim.as_const().and_then(|value| i64::try_from(value).ok()).map_or(Self::Size(dim), Self::Int)
    }
}

impl fmt::Display for IndexExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coord(axis) => write!(f, "c{axis}"),
            Self::Int(value) => value.fmt(f),
            Self::Size(dim) => write!(f, "({dim})"),
            Self::Load { operand, index } => {
                write!(f, "x{operand}[")?;
                for (n, index) in index.iter().enumerate() {
                    write!(f, "{}{index}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Binary(op, a, b) => write!(f, "{}({a}, {b})", BinaryOp::name(*op)),
        }
    }
}

impl Op for Remap {
    fn name(&self) -> &str {
        "remap"
    }

    fn attributes(&self) -> Value {
        let index: Vec<String> = self.index.iter().map(IndexExpr::to_string).collect();
        json!({ "shape": super::texts(&self.shape), "index": index, "is_filled": self.is_filled })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let Some(&x) = inputs.first().filter(|x| x.layout == Layout::Device) else {
            return Err(TypeError::new("x", "a device tensor", "none"));
        };
        super::rank("x", x, self.index.len())?;
        if self.is_filled {
            let fill = inputs.get(1).filter(|fill| fill.rank() == 0 && fill.dtype.scalar() == x.dtype.scalar());
            let expected = || TypeError::new("fill", format!("a scalar of the type of {x}"), "another operand");
            fill.ok_or_else(expected)?;
        }
        self.index.iter().try_for_each(|index| index.check(self.shape.len(), inputs))?;
        let dtype = if x.dtype.format().is_written() { x.dtype } else { DType::F32 };
        Ok(vec![Type::device(dtype, self.shape.clone())])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        self.shape.iter_mut().for_each(&mut *size);
        self.index.iter_mut().for_each(|index| index.visit(size));
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for Remap {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let index: Vec<ExprId> = self.index.iter().map(|index| index.expr(at, coords)).collect();
        let value = at.load(0, &index);
        if !self.is_filled {
            return value;
        }
        let shape = at.ty(0).shape.clone();
        let mut inside = at.dag().constant(Scalar::Bool, 1);
        for (&index, extent) in index.iter().zip(&shape) {
            let (zero, extent) = (at.dag().int(0), at.size(extent));
            let (above, below) =
                (at.dag().binary(BinaryOp::Ge, index, zero), at.dag().binary(BinaryOp::Lt, index, extent));
            inside = at.dag().binary(BinaryOp::And, inside, above);
            inside = at.dag().binary(BinaryOp::And, inside, below);
        }
        let fill = at.load(1, &[]);
        at.dag().select(inside, value, fill)
    }
}
