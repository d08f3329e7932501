use super::Ragged;
use super::extent::{ElementType, Extent, dims, object};
use super::scope::Constant;
use crate::errors;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rewire::graph;
use rewire::graph::op::ReduceOp;
use rewire::graph::pointwise::{BinaryOp, UnaryOp};

/// A symbolic value.
#[pyclass(frozen, module = "rewire")]
pub struct Tensor(pub graph::Tensor);

/// The result of an operator: a [`Tensor`], or the error of the operator, which is raised at the line that called it.
pub struct Traced(pub graph::Tensor);

impl<'py> IntoPyObject<'py> for Traced {
    type Target = Tensor;
    type Output = Bound<'py, Tensor>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        match self.0.error() {
            Some(error) => Err(errors::of_graph(&error)),
            None => Bound::new(py, Tensor(self.0)),
        }
    }
}

/// The other operand of an operator.
#[derive(FromPyObject)]
enum Operand<'py> {
    Tensor(PyRef<'py, Tensor>),
    Number(Constant),
}

impl Tensor {
    fn unary(&self, op: UnaryOp) -> Traced {
        Traced(self.0.unary(op))
    }

    fn binary(&self, op: BinaryOp, other: Operand<'_>) -> Traced {
        match other {
            Operand::Tensor(other) => Traced(self.0.binary(op, &other.0)),
            Operand::Number(number) => Traced(self.0.binary_scalar(op, number)),
        }
    }

    fn after(&self, op: BinaryOp, number: Constant) -> Traced {
        Traced(self.0.after_scalar(op, number))
    }
}

/// One line per Python operator or numpy function.
#[pymethods]
#[rustfmt::skip]
impl Tensor {
    /// Makes numpy leave operators to this class.
    #[classattr]
    fn __array_ufunc__() -> Option<bool> { None }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let extents = self.0.shape().iter().map(|dim| object(py, dim)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, extents)
    }

    #[getter]
    fn dtype(&self) -> &'static str { self.0.dtype().format().name }

    fn __repr__(&self) -> String { self.0.ty().to_string() }

    #[pyo3(signature = (weight, bias = None))]
    fn linear(&self, weight: &Self, bias: Option<&Self>) -> Traced { Traced(self.0.linear(&weight.0, bias.map(|bias| &bias.0))) }

    #[pyo3(signature = (weight, bias, eps = 1e-5))]
    fn layer_norm(&self, weight: &Self, bias: &Self, eps: f64) -> Traced { Traced(self.0.layer_norm(&weight.0, &bias.0, eps)) }

    #[pyo3(signature = (weight, eps = 1e-6))]
    fn rms_norm(&self, weight: &Self, eps: f64) -> Traced { Traced(self.0.rms_norm(&weight.0, eps)) }

    fn jagged_concat(&self, rows: &Ragged, other: &Self, other_rows: &Ragged) -> (Traced, Ragged) {
        let (values, rows) = self.0.jagged_concat(&rows.0, &other.0, &other_rows.0);
        (Traced(values), Ragged(rows))
    }

    #[pyo3(signature = (rows, keys, keep = None))]
    fn softmax_scores(&self, rows: &Ragged, keys: &Ragged, keep: Option<&Self>) -> Traced {
        Traced(self.0.softmax_scores(keep.map(|keep| &keep.0), &rows.0, &keys.0))
    }

    fn __add__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Add, other) }
    fn __radd__(&self, other: Constant) -> Traced { self.after(BinaryOp::Add, other) }
    fn __sub__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Sub, other) }
    fn __rsub__(&self, other: Constant) -> Traced { self.after(BinaryOp::Sub, other) }
    fn __mul__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Mul, other) }
    fn __rmul__(&self, other: Constant) -> Traced { self.after(BinaryOp::Mul, other) }
    fn __truediv__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Div, other) }
    fn __rtruediv__(&self, other: Constant) -> Traced { self.after(BinaryOp::Div, other) }
    fn __mod__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Mod, other) }
    fn __pow__(&self, other: Operand<'_>, _modulo: Option<i64>) -> Traced { self.binary(BinaryOp::Pow, other) }
    fn __matmul__(&self, other: &Self) -> Traced { Traced(self.0.matmul(&other.0)) }
    fn __and__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::And, other) }
    fn __or__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Or, other) }
    fn __lt__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Lt, other) }
    fn __le__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Le, other) }
    fn __gt__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Gt, other) }
    fn __ge__(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Ge, other) }
    fn __neg__(&self) -> Traced { self.unary(UnaryOp::Neg) }
    fn __invert__(&self) -> Traced { self.unary(UnaryOp::Not) }
    fn __abs__(&self) -> Traced { self.unary(UnaryOp::Abs) }

    fn equal(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Eq, other) }
    fn not_equal(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Ne, other) }
    fn minimum(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Min, other) }
    fn maximum(&self, other: Operand<'_>) -> Traced { self.binary(BinaryOp::Max, other) }

    fn exp(&self) -> Traced { self.unary(UnaryOp::Exp) }
    fn log(&self) -> Traced { self.unary(UnaryOp::Log) }
    fn sqrt(&self) -> Traced { self.unary(UnaryOp::Sqrt) }
    fn rsqrt(&self) -> Traced { self.unary(UnaryOp::Rsqrt) }
    fn sigmoid(&self) -> Traced { self.unary(UnaryOp::Sigmoid) }
    fn silu(&self) -> Traced { self.unary(UnaryOp::Silu) }
    fn softplus(&self) -> Traced { self.unary(UnaryOp::Softplus) }
    fn relu(&self) -> Traced { self.unary(UnaryOp::Relu) }
    fn tanh(&self) -> Traced { self.unary(UnaryOp::Tanh) }
    fn erf(&self) -> Traced { self.unary(UnaryOp::Erf) }
    fn sin(&self) -> Traced { self.unary(UnaryOp::Sin) }
    fn cos(&self) -> Traced { self.unary(UnaryOp::Cos) }
    fn floor(&self) -> Traced { self.unary(UnaryOp::Floor) }
    fn ceil(&self) -> Traced { self.unary(UnaryOp::Ceil) }
    fn square(&self) -> Traced { Traced(self.0.square()) }
    fn gelu(&self) -> Traced { Traced(self.0.gelu_erf()) }
    fn detach(&self) -> Traced { Traced(self.0.detach()) }
    fn cast(&self, dtype: ElementType) -> Traced { Traced(self.0.cast(dtype.0)) }
    fn select(&self, a: &Self, b: &Self) -> Traced { Traced(self.0.select(&a.0, &b.0)) }

    fn sum(&self, axis: i32) -> Traced { Traced(self.0.sum(axis)) }
    fn mean(&self, axis: i32) -> Traced { Traced(self.0.mean(axis)) }
    fn max(&self, axis: i32) -> Traced { Traced(self.0.max(axis)) }
    fn min(&self, axis: i32) -> Traced { Traced(self.0.min(axis)) }
    fn softmax(&self, axis: i32) -> Traced { Traced(self.0.softmax(axis)) }

    fn reshape(&self, shape: Vec<Extent>) -> Traced { Traced(self.0.reshape(dims(shape))) }
    fn broadcast(&self, shape: Vec<Extent>) -> Traced { Traced(self.0.broadcast(dims(shape))) }
    fn permute(&self, axes: Vec<usize>) -> Traced { Traced(self.0.permute(&axes)) }
    fn transpose(&self, a: i32, b: i32) -> Traced { Traced(self.0.transpose(a, b)) }
    fn slice(&self, axis: i32, start: usize, len: usize) -> Traced { Traced(self.0.slice(axis, start, len)) }
    fn gather(&self, index: &Self) -> Traced { Traced(self.0.gather(&index.0)) }

    fn jagged_head(&self, rows: &Ragged, kept: &Ragged) -> Traced { Traced(self.0.jagged_head(&rows.0, &kept.0)) }
    fn jagged_tail(&self, rows: &Ragged, kept: &Ragged) -> Traced { Traced(self.0.jagged_tail(&rows.0, &kept.0)) }
    fn jagged_broadcast(&self, rows: &Ragged) -> Traced { Traced(self.0.jagged_broadcast(&rows.0)) }
    fn jagged_sum(&self, rows: &Ragged) -> Traced { Traced(self.0.segment_reduce(ReduceOp::Sum, &rows.0)) }

    fn scores(&self, k: &Self, rows: &Ragged, keys: &Ragged) -> Traced { Traced(self.0.scores(&k.0, &rows.0, &keys.0)) }
    fn weighted_sum(&self, v: &Self, rows: &Ragged, keys: &Ragged) -> Traced { Traced(self.0.weighted_sum(&v.0, &rows.0, &keys.0)) }
}
