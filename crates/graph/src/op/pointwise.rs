use super::gradient::Traced;
use super::{Elements, Elementwise, Gradient, GradientError, Op, arity};
use crate::pointwise::{BinaryOp, ExprId, UnaryOp};
use crate::{DType, Dim, Layout, Scalar, Tensor, Type, TypeError};
use serde_json::{Value, json};
use std::hash::{Hash, Hasher};

/// `condition ? a : b`, broadcast like in numpy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Where;

/// Conversion of elements to another type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cast {
    /// The new type.
    pub dtype: DType,
}

/// Sets elements to 0 with probability `ratio` and divides the others by `1 - ratio`.
///
/// Operands are the values and a seed, an `I64` scalar. The random number of an element is the Philox word of its
/// row-major position in the whole tensor; the element is kept if the number is at least `ratio`. If the operand is
/// only a part of the whole tensor, a third operand, `I32` `[rows]`, holds the row numbers in the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// Probability that an element becomes 0, in `0..1`.
    pub ratio: f32,
}

impl Hash for Dropout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Zeros of either sign are equal.
        (self.ratio + 0.0).to_bits().hash(state);
    }
}

/// The dtype of arithmetic results on elements of a scalar type.
fn stored(scalar: Scalar) -> DType {
    match scalar {
        Scalar::F32 => DType::F32,
        Scalar::I32 => DType::I32,
        Scalar::I64 => DType::I64,
        Scalar::Bool => DType::Bool,
    }
}

/// The common shape and layout of broadcast operands.
pub(super) fn broadcast(inputs: &[&Type]) -> Result<(Vec<Dim>, Layout), TypeError> {
    let scores: Vec<&&Type> = inputs.iter().filter(|ty| ty.layout == Layout::Scores).collect();
    if let Some(first) = scores.first() {
        for (position, ty) in inputs.iter().enumerate() {
            if ty.rank() != 0 && (ty.layout != Layout::Scores || ty.shape != first.shape) {
                return Err(TypeError::new(format!("operand {position}"), format!("{first} or a scalar"), ty));
            }
        }
        return Ok((first.shape.clone(), Layout::Scores));
    }
    let rank = inputs.iter().map(|ty| ty.rank()).max().unwrap_or(0);
    let mut shape: Vec<Dim> = vec![1.into(); rank];
    for (position, ty) in inputs.iter().enumerate() {
        for (dim, extent) in shape.iter_mut().skip(rank - ty.rank()).zip(&ty.shape) {
            if *dim == 1.into() {
                *dim = extent.clone();
            } else if extent != dim && *extent != 1.into() {
                let expected = format!("broadcastable to an extent of {dim}");
                return Err(TypeError::new(format!("operand {position}"), expected, ty));
            }
        }
    }
    Ok((shape, Layout::Device))
}

/// Loads an operand at the coordinates of a result to which it is broadcast.
pub(super) fn load_broadcast(at: &mut dyn Elements, operand: usize, coords: &[ExprId]) -> ExprId {
    let shape = at.ty(operand).shape.clone();
    let zero = at.dag().int(0);
    let skipped = coords.len() - shape.len();
    let index: Vec<ExprId> =
        shape.iter().zip(&coords[skipped..]).map(|(dim, &coord)| if *dim == 1.into() { zero } else { coord }).collect();
    at.load(operand, &index)
}

impl Op for UnaryOp {
    fn name(&self) -> &str {
        (*self).name()
    }

    fn weight(&self) -> usize {
        if *self == Self::Neg { 1 } else { 8 }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        let scalar = x.dtype.scalar();
        if !self.accepts(scalar) {
            return Err(TypeError::new("x", format!("a type {} is defined for", UnaryOp::name(*self)), x));
        }
        let layout = if x.layout == Layout::Host { Layout::Device } else { x.layout };
        Ok(vec![Type { dtype: stored(scalar), shape: x.shape, layout }])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let x = at.operand(0);
        Ok(vec![UnaryOp::gradient(*self, &mut Traced(x), x, at.result, at.of)])
    }
}

impl Elementwise for UnaryOp {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let x = at.load(0, coords);
        at.dag().unary(*self, x)
    }
}

impl Op for BinaryOp {
    fn name(&self) -> &str {
        (*self).name()
    }

    fn is_commutative(&self) -> bool {
        BinaryOp::is_commutative(*self)
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [a, b] = arity(inputs)?;
        let scalar = a.dtype.scalar();
        if !self.accepts(scalar) {
            return Err(TypeError::new("a", format!("a type {} is defined for", BinaryOp::name(*self)), a));
        }
        if b.dtype.scalar() != scalar {
            return Err(TypeError::new("b", format!("of the type of a, {}; cast it", a.dtype), b));
        }
        let (shape, layout) = broadcast(&[&a, &b])?;
        Ok(vec![Type { dtype: stored(self.result(scalar)), shape, layout }])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let [a, b] = [0, 1].map(|operand| at.operand(operand));
        let gradients = BinaryOp::gradient(*self, &mut Traced(a), [a, b], at.result, at.of);
        Ok(gradients.into_iter().enumerate().map(|(operand, g)| Some(at.summed(operand, &g?))).collect())
    }
}

impl Elementwise for BinaryOp {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let a = load_broadcast(at, 0, coords);
        let b = load_broadcast(at, 1, coords);
        at.dag().binary(*self, a, b)
    }
}

impl Op for Where {
    fn name(&self) -> &str {
        "where"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [condition, a, b] = arity(inputs)?;
        if condition.dtype != DType::Bool {
            return Err(TypeError::new("condition", "bool", condition));
        }
        if a.dtype.scalar() != b.dtype.scalar() {
            return Err(TypeError::new("b", format!("of the type of a, {}; cast it", a.dtype), b));
        }
        let (shape, layout) = broadcast(&[&condition, &a, &b])?;
        Ok(vec![Type { dtype: stored(a.dtype.scalar()), shape, layout }])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let (condition, zero) = (at.operand(0), at.of.scalar(DType::F32, 0.0));
        let chosen = [condition.select(at.of, &zero), condition.select(&zero, at.of)];
        let [a, b] = [1, 2].map(|operand| at.summed(operand, &chosen[operand - 1]));
        Ok(vec![None, Some(a), Some(b)])
    }
}

impl Elementwise for Where {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let condition = load_broadcast(at, 0, coords);
        let a = load_broadcast(at, 1, coords);
        let b = load_broadcast(at, 2, coords);
        at.dag().select(condition, a, b)
    }
}

impl Op for Cast {
    fn name(&self) -> &str {
        "cast"
    }

    fn is_conversion(&self) -> bool {
        true
    }

    fn weight(&self) -> usize {
        0
    }

    fn attributes(&self) -> Value {
        json!({ "dtype": self.dtype })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        let layout = if x.layout == Layout::Host { Layout::Device } else { x.layout };
        Ok(vec![Type { dtype: self.dtype, shape: x.shape, layout }])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Ok(vec![Some(at.of.clone())])
    }
}

impl Elementwise for Cast {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let x = at.load(0, coords);
        at.dag().cast(self.dtype.scalar(), x)
    }
}

impl Op for Dropout {
    fn name(&self) -> &str {
        "dropout"
    }

    fn is_positional(&self) -> bool {
        true
    }

    fn attributes(&self) -> Value {
        json!({ "ratio": self.ratio })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (given, rows) = inputs.split_at(inputs.len().min(2));
        let [x, seed] = arity(given)?;
        if !x.dtype.is_float() || x.layout != Layout::Device {
            return Err(TypeError::new("x", "a device tensor of floats", x));
        }
        if let [rows, more @ ..] = rows {
            let expected = Type::device(DType::I32, x.shape.iter().take(1).cloned().collect());
            if !more.is_empty() || x.rank() == 0 || **rows != expected {
                return Err(TypeError::new("rows", expected.to_string(), rows));
            }
        }
        if seed.dtype != DType::I64 || seed.rank() != 0 {
            return Err(TypeError::new("seed", "an i64 scalar", seed));
        }
        if !(0.0..1.0).contains(&self.ratio) {
            return Err(TypeError::new("ratio", "at least 0 and below 1", self.ratio));
        }
        Ok(vec![Type::device(DType::F32, x.shape)])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        // The same seed gives the same mask.
        let others: Vec<&Tensor> = at.operands.iter().skip(1).collect();
        let masked = at.of.apply(self.clone(), &others);
        Ok(std::iter::once(Some(masked)).chain(others.iter().map(|_| None)).collect())
    }
}

impl Elementwise for Dropout {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let shape = at.ty(0).shape.clone();
        let mut place = coords.to_vec();
        if let (3.., Some(row)) = (at.operands(), place.first_mut()) {
            *row = at.load(2, &[*row]);
        }
        let mut position = at.dag().int(0);
        for (dim, &coord) in shape.iter().zip(&place) {
            let extent = at.size(dim);
            let scaled = at.dag().binary(BinaryOp::Mul, position, extent);
            position = at.dag().binary(BinaryOp::Add, scaled, coord);
        }
        let (x, seed) = (at.load(0, coords), at.load(1, &[]));
        let dag = at.dag();
        let draw = dag.uniform(seed, position);
        let ratio = dag.float(self.ratio);
        let keep = dag.binary(BinaryOp::Ge, draw, ratio);
        let scale = dag.float(1.0 / (1.0 - self.ratio));
        let kept = dag.binary(BinaryOp::Mul, x, scale);
        let zero = dag.float(0.0);
        dag.select(keep, kept, zero)
    }
}
