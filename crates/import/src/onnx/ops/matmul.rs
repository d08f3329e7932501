//! Matrix products.

use super::{One, bytes};
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;

pub(super) const ONE: One = &[
    ("MatMul", |n| {
        if let Some(y) = bytes::dequantized(n, bytes::product, (1, 0))? {
            return n.stored(&y, n.x()?.ty);
        }
        let operands = n.aligned(vec![n.array(0)?, n.array(1)?], 2)?;
        product(n, &operands[0], &operands[1])
    }),
    ("com.microsoft.FusedMatMul", |n| {
        if n.is("transBatchA") || n.is("transBatchB") {
            return Fault::unsupported("a batch that is not the first axes");
        }
        let swap = |x: Array, name: &str| Array {
            tensor: if n.is(name) { x.tensor.transpose(-1, -2) } else { x.tensor },
            ty: x.ty,
        };
        let y = product(n, &swap(n.array(0)?, "transA"), &swap(n.array(1)?, "transB"))?;
        n.stored(&(y.tensor * n.float("alpha", 1.0)), y.ty)
    }),
    ("Gemm", gemm),
    ("Einsum", |n| {
        let arrays = n.arrays()?;
        let ty = arrays.first().map_or(ScalarType::F32, |x| x.ty);
        let tensors = Value::List(arrays.into_iter().map(Value::Tensor).collect());
        let equation = Value::String(n.text("equation", ""));
        n.aten("aten.einsum", vec![("equation", equation), ("tensors", tensors)], ty, &[])
    }),
    ("Det", determinant),
];

fn product(n: &Node<'_>, a: &Array, b: &Array) -> Lowered<Array> {
    if a.ty.is_float() {
        let depth = n.shape(a).last().cloned();
        let mut shape = n.shape(b);
        let place = shape.len().saturating_sub(2);
        if let (Some(depth), Some(own)) = (depth, shape.get_mut(place)) {
            *own = depth;
        }
        let b = &n.resized(b, &shape)?;
        return n.aten("aten.matmul", vec![("self", a.clone().into()), ("other", b.clone().into())], a.ty, &[]);
    }
    Fault::unsupported("a product of integer matrices")
}

fn gemm(n: &Node<'_>) -> Lowered<Array> {
    let (a, b) = (n.array(0)?, n.array(1)?);
    if !a.ty.is_float() {
        return Fault::unsupported("a product of integer matrices");
    }
    let left = if n.is("transA") { a.tensor.transpose(0, 1) } else { a.tensor };
    let right = if n.is("transB") { b.tensor.transpose(0, 1) } else { b.tensor };
    let scaled = |x: Tensor, name: &str| match n.float(name, 1.0) {
        1.0 => x,
        factor => x * factor,
    };
    let multiply = if n.is("transB") { bytes::product_transposed } else { bytes::product };
    let axis = if n.is("transB") { 0 } else { 1 };
    let integers = if n.is("transA") { None } else { bytes::dequantized(n, multiply, (axis, 0))? };
    let y = scaled(integers.unwrap_or_else(|| left.matmul(&right)), "alpha");
    let y = match n.optional(2)? {
        Some(c) if n.float("beta", 1.0) != 0.0 => y + scaled(c.tensor, "beta"),
        _ => y,
    };
    n.stored(&y, a.ty)
}

/// Rows of a matrix that a determinant is expanded by.
const MAX_ROWS: usize = 5;

/// By minors of the first rows.
fn determinant(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let rank = x.rank();
    let rows = n.shape(&x).last().and_then(Size::as_extent).filter(|&rows| (1..=MAX_ROWS).contains(&rows) && rank >= 2);
    let rows = rows.ok_or_else(|| Fault::Unsupported(format!("matrices of more than {MAX_ROWS} rows")))?;
    let entry = |i: usize, j: usize| {
        let row = n.cx.select(&x.tensor, rank - 2, &i.into())?;
        n.cx.select(&row, rank - 2, &j.into())
    };
    fn minor(entry: &dyn Fn(usize, usize) -> Lowered<Tensor>, row: usize, columns: &[usize]) -> Lowered<Tensor> {
        let (mut sum, mut sign) = (None::<Tensor>, 1.0);
        if let [one] = columns {
            return entry(row, *one);
        }
        for (place, &column) in columns.iter().enumerate() {
            let rest: Vec<usize> = columns.iter().enumerate().filter(|(n, _)| *n != place).map(|(_, &c)| c).collect();
            let part = entry(row, column)? * minor(entry, row + 1, &rest)? * sign;
            sum = Some(sum.map_or_else(|| part.clone(), |sum| sum + &part));
            sign = -sign;
        }
        sum.ok_or_else(|| Fault::Program("a matrix without columns".to_owned()))
    }
    n.stored(&minor(&entry, 0, &(0..rows).collect::<Vec<_>>())?, x.ty)
}
