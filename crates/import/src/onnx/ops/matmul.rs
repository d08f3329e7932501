//! Matrix products.

use super::{One, bytes};
use crate::ScalarType;
use crate::array::Array;
use crate::aten::linalg;
use crate::onnx::node::Node;
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
        let moved = |place: usize, [batch, swap]: [&str; 2]| -> Lowered<Array> {
            let Array { mut tensor, ty } = n.array(place)?;
            let rank = tensor.rank();
            if n.is(batch) && rank > 2 {
                // Moves the first axis before the last one.
                let order: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
                tensor = tensor.permute(&order);
            }
            Ok(Array { tensor: if n.is(swap) && rank > 1 { tensor.transpose(-1, -2) } else { tensor }, ty })
        };
        let y = product(n, &moved(0, ["transBatchA", "transA"])?, &moved(1, ["transBatchB", "transB"])?)?;
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
    ("Det", |n| {
        let x = n.x()?;
        n.stored(&linalg::determinant(n.cx, &x.tensor)?, x.ty)
    }),
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
