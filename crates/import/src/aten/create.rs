//! Operators that create tensors from numbers.

use super::One;
use super::binary::{computed, operand};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::value::{Fault, Lowered, Number};
use rewire_graph::{DType, HostTensor, Tensor};

/// Maximum number of elements of a constant that the importer computes.
const MAX_CONSTANT: i64 = 1 << 22;

pub(super) const ONE: One = &[
    ("aten.full", |c| filled(c, "fill_value")),
    ("aten.full_like", |c| filled(c, "fill_value")),
    ("aten.new_full", |c| filled(c, "fill_value")),
    ("aten.fill", |c| filled(c, "value")),
    ("aten.fill_diagonal", |c| {
        let x = c.x()?;
        let shape = c.cx.shape(&x.tensor);
        if x.rank() < 2 || c.bool_or("wrap", false)? {
            return Fault::unsupported("a vector, or a diagonal that begins again");
        }
        let first = c.cx.positions(&shape, 0)?;
        let rest = (1..x.rank()).map(|axis| Ok(first.equal(&c.cx.positions(&shape, axis)?)));
        let on = rest.collect::<Lowered<Vec<Tensor>>>()?.into_iter().reduce(|on, own| on.and(own));
        let on = on.ok_or_else(|| Fault::Program("a tensor without axes".to_owned()))?;
        let value = c.cx.number(&c.number("fill_value")?, x.ty)?;
        c.result(&on.select(&value.tensor, &x.tensor))
    }),
    ("aten.zeros", |c| constant(c, 0)),
    ("aten.zeros_like", |c| constant(c, 0)),
    ("aten.new_zeros", |c| constant(c, 0)),
    ("aten.zero", |c| constant(c, 0)),
    ("aten.ones", |c| constant(c, 1)),
    ("aten.ones_like", |c| constant(c, 1)),
    ("aten.new_ones", |c| constant(c, 1)),
    // The contents are undefined, and programs overwrite them.
    ("aten.empty", |c| constant(c, 0)),
    ("aten.empty_like", |c| constant(c, 0)),
    ("aten.new_empty", |c| constant(c, 0)),
    ("aten.empty_strided", |c| constant(c, 0)),
    ("aten.new_empty_strided", |c| constant(c, 0)),
    ("aten.empty_permuted", |c| constant(c, 0)),
    ("aten.scalar_tensor", |c| {
        let value = c.number("s")?;
        c.cx.number(&value, c.ty(0)?)
    }),
    ("aten.arange", arange),
    ("aten.linspace", |c| {
        let tensor = linspace(c)?;
        Ok(c.cx.cast(&Array { tensor, ty: ScalarType::F32 }, c.ty(0)?))
    }),
    ("aten.logspace", |c| {
        let tensor = (linspace(c)? * c.float_or("base", 10.0)?.ln()).exp();
        Ok(c.cx.cast(&Array { tensor, ty: ScalarType::F32 }, c.ty(0)?))
    }),
    ("aten.hann_window", |c| window(c, [0.5, 0.5])),
    ("aten.hamming_window", |c| window(c, [c.float_or("alpha", 0.54)?, c.float_or("beta", 0.46)?])),
    ("aten.eye", |c| {
        let shape = c.shape(0)?;
        let equal = c.cx.positions(&shape, 0)?.equal(&c.cx.positions(&shape, 1)?);
        Ok(c.cx.cast(&Array { tensor: equal, ty: ScalarType::Bool }, c.ty(0)?))
    }),
    ("aten.tril_indices", |c| triangle_indices(c, true)),
    ("aten.triu_indices", |c| triangle_indices(c, false)),
    ("aten.one_hot", |c| {
        let (x, shape) = (c.x()?, c.shape(0)?);
        if c.int_or("num_classes", -1)? < 0 {
            return Fault::unsupported("classes counted from the data");
        }
        let classes = c.cx.positions(&shape, shape.len() - 1)?;
        let x = c.cx.unsqueeze(&x.tensor, x.rank())?.cast(DType::I64);
        c.result(&x.equal(&classes).cast(DType::I64))
    }),
];

/// A tensor of the declared shape filled with a number.
fn filled(c: &Call<'_>, name: &str) -> Lowered<Array> {
    let ty = c.ty(0)?;
    let value = match operand(c, name)? {
        super::binary::Operand::Number(number) => c.cx.number(&number, ty)?.tensor,
        array => computed(c, &array, ty)?,
    };
    Ok(Array { tensor: c.cx.expand(&value, &c.shape(0)?)?, ty })
}

fn constant(c: &Call<'_>, value: i64) -> Lowered<Array> {
    let ty = c.ty(0)?;
    let value = c.cx.number(&Number::Int(value.into()), ty)?;
    Ok(Array { tensor: c.cx.expand(&value.tensor, &c.shape(0)?)?, ty })
}

fn arange(c: &Call<'_>) -> Lowered<Array> {
    let (ty, shape) = (c.ty(0)?, c.shape(0)?);
    let places = c.cx.iota(&shape[0])?;
    let number = |name: &str, default: i64| if c.has(name) { c.number(name) } else { Ok(Number::Int(default.into())) };
    let (start, step) = (number("start", 0)?, number("step", 1)?);
    let whole = [&start, &step].iter().all(|number| matches!(number, Number::Int(_)));
    let own = if whole { ScalarType::I64 } else { ScalarType::F32 };
    let places = if whole { places } else { places.cast(DType::F32) };
    let [start, step] = [start, step].map(|number| Ok((number.clone(), c.cx.number(&number, own)?.tensor)));
    let ((start, first), (step, factor)) = (start?, step?);
    let is = |number: &Number, value: i64| matches!(number, Number::Int(size) if size.as_const() == Some(value));
    let scaled = if is(&step, 1) { places } else { places * factor };
    let tensor = if is(&start, 0) { scaled } else { scaled + first };
    Ok(c.cx.cast(&Array { tensor, ty: own }, ty))
}

fn linspace(c: &Call<'_>) -> Lowered<Tensor> {
    let shape = c.shape(0)?;
    let [start, end] = ["start", "end"].map(|name| computed(c, &operand(c, name)?, ScalarType::F32));
    let (start, end) = (start?, end?);
    let steps = c.cx.number(&Number::Int(shape[0].clone()), ScalarType::F32)?.tensor;
    let places = c.cx.iota(&shape[0])?.cast(DType::F32);
    let last = &steps - 1.0;
    let step = (&end - &start) / last.maximum(1.0);
    let lower = &start + &places * &step;
    let upper = &end - (&last - &places) * &step;
    let first_half = places.lt(&(steps * 0.5).trunc()).or(last.lt(0.5));
    Ok(first_half.select(&lower, &upper))
}

fn triangle_indices(c: &Call<'_>, is_lower: bool) -> Lowered<Array> {
    let (rows, columns, offset) = (c.int("row")?, c.int("col")?, c.int_or("offset", 0)?);
    if rows.saturating_mul(columns) > MAX_CONSTANT || offset.unsigned_abs() > MAX_CONSTANT.unsigned_abs() {
        return Fault::unsupported("a triangle of many elements");
    }
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let kept = |&(row, column): &(i64, i64)| {
        if is_lower { column <= row + offset } else { column >= row + offset }
    };
    let places: Vec<(i64, i64)> = all.filter(kept).collect();
    let values: Vec<i64> = places.iter().map(|place| place.0).chain(places.iter().map(|place| place.1)).collect();
    let tensor = HostTensor::i64(vec![2, places.len()], &values);
    let tensor = tensor.map_err(|error| Fault::Program(error.to_string()))?;
    Ok(c.cx.cast(&Array { tensor: c.cx.scope.constant(tensor), ty: ScalarType::I64 }, c.ty(0)?))
}

/// `mean - swing * cos(2 pi k / n)`.
fn window(c: &Call<'_>, [mean, swing]: [f64; 2]) -> Lowered<Array> {
    let length = c.int("window_length")?;
    if !(2..=MAX_CONSTANT).contains(&length) {
        return Fault::unsupported("a window of no or many elements");
    }
    let span = if c.bool_or("periodic", true)? { length } else { length - 1 };
    let step = std::f64::consts::TAU / span as f64;
    let values: Vec<f32> = (0..length).map(|k| (mean - swing * (step * k as f64).cos()) as f32).collect();
    let tensor = HostTensor::f32([values.len()], &values).map_err(|error| Fault::Program(error.to_string()))?;
    c.result(&c.cx.scope.constant(tensor))
}
