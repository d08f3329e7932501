//! Operators that create tensors from numbers and shapes.

use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::{DType, HostTensor};

pub(super) const ONE: One = &[
    ("ConstantOfShape", |n| {
        let shape = n.sizes(0)?;
        let value = match n.attribute("value").and_then(|attribute| attribute.t.as_ref()) {
            Some(proto) => {
                let read = crate::onnx::tensor::read(proto, None).map_err(|error| Fault::Program(error.to_string()))?;
                let tensor = n.cx.scope.constant(read.tensor);
                Array { tensor: n.cx.reshape(&tensor, &[])?, ty: read.ty }
            }
            None => n.cx.scalar(0.0, ScalarType::F32)?,
        };
        Ok(Array { tensor: n.cx.expand(&value.tensor, &shape)?, ty: value.ty })
    }),
    ("EyeLike", |n| {
        let x = n.x()?;
        let shape = n.shape(&x);
        let ty = match n.attribute("dtype") {
            Some(_) => i32::try_from(n.int("dtype", 1)).ok().and_then(ScalarType::of_onnx),
            None => Some(x.ty),
        };
        let ty = ty.ok_or_else(|| Fault::Unsupported("the type of the result".to_owned()))?;
        let rows = n.cx.positions(&shape, 0)? + n.int("k", 0);
        let equal = rows.equal(&n.cx.positions(&shape, 1)?);
        Ok(n.cx.cast(&Array { tensor: equal, ty: ScalarType::Bool }, ty))
    }),
    ("Range", range),
    ("OneHot", |n| {
        let (x, values) = (n.x()?, n.array(2)?);
        let depth =
            n.sizes(1)?.into_iter().next().ok_or_else(|| Fault::Program("OneHot without a depth".to_owned()))?;
        let axis = n.axis("axis", -1, x.rank() + 1)?;
        let mut shape = n.shape(&x);
        shape.insert(axis, depth.clone());
        let index = n.cx.cast(&x, ScalarType::I64).tensor;
        let index = index.lt(0i64).select(&(&index + n.number(&depth)?), &index);
        let hits = n.cx.unsqueeze(&index, axis)?.equal(&n.cx.positions(&shape, axis)?);
        let [off, on] = [0, 1].map(|place: usize| n.cx.select(&values.tensor, 0, &place.into()));
        n.stored(&n.cx.expand(&hits.select(&on?, &off?), &shape)?, values.ty)
    }),
];

pub(super) const MANY: Many = &[
    ("Constant", constant),
    ("Shape", |n| {
        let shape = shape_of(n)?;
        let rank = shape.len() as i64;
        let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
        let (start, end) = (place(n.int("start", 0)), place(n.int("end", rank)));
        let part = shape[start..end.max(start)].to_vec();
        Ok(vec![Item::sizes(vec![part.len()], part, ScalarType::I64)?])
    }),
    ("Size", |n| Ok(vec![Item::sizes(vec![], vec![Size::product(&shape_of(n)?)], ScalarType::I64)?])),
    ("Dropout", dropout),
];

fn shape_of(n: &Node<'_>) -> Lowered<Vec<Size>> {
    Ok(match n.item(0) {
        Item::Constant(constant) => constant.data.tensor.shape().iter().map(|&extent| Size::from(extent)).collect(),
        Item::Whole(whole) => whole.shape.iter().map(|&extent| Size::from(extent)).collect(),
        _ => n.shape(&n.x()?),
    })
}

/// Constants that are numeric attributes. The frame reads tensors.
fn constant(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let failed = |error: rewire_graph::TensorSizeError| Fault::Program(error.to_string());
    let item = if let Some(value) = n.attribute("value_float").and_then(|attribute| attribute.f) {
        Item::constant(ScalarType::F32, HostTensor::f32(vec![], &[value]).map_err(failed)?)
    } else if let Some(value) = n.attribute("value_int").and_then(|attribute| attribute.i) {
        Item::integers(vec![], &[value])?
    } else if let Some(attribute) = n.attribute("value_floats") {
        let values = &attribute.floats;
        Item::constant(ScalarType::F32, HostTensor::f32(vec![values.len()], values).map_err(failed)?)
    } else if let Some(values) = n.ints("value_ints") {
        Item::integers(vec![values.len()], &values)?
    } else {
        return Fault::unsupported("a value that is not a dense tensor of numbers");
    };
    Ok(vec![item])
}

fn range(n: &Node<'_>) -> Lowered<Array> {
    let whole = [0, 1, 2].map(|place| n.item(place).whole());
    let ty = match n.item(0) {
        Item::Constant(constant) => constant.data.ty,
        _ => n.array(0)?.ty,
    };
    if let [Some(start), Some(limit), Some(step)] = whole {
        let one = |whole: &crate::onnx::item::Whole| whole.values.first().cloned().unwrap_or_default();
        let (start, limit, step) = (one(&start), one(&limit), one(&step));
        let Some(by) = step.as_const().filter(|&by| by != 0) else {
            return Fault::unsupported("a step that is not known");
        };
        let span = if by > 0 { limit.minus(&start) } else { start.minus(&limit) };
        let count = n.cx.quotient(&span.plus(&Size::from(by.abs() - 1)), &by.abs().into())?;
        let count = n.cx.sizes.borrow_mut().larger(&count, &0.into());
        let places = n.cx.iota(&count)?;
        let scaled = if by == 1 { places } else { places * by };
        let tensor = if start.as_const() == Some(0) { scaled } else { scaled + n.number(&start)? };
        return Ok(n.cx.cast(&Array { tensor, ty: ScalarType::I64 }, ty));
    }
    let [start, limit, step] = [n.known_floats(0)?, n.known_floats(1)?, n.known_floats(2)?];
    let (Some(&start), Some(&limit), Some(&step)) = (start.first(), limit.first(), step.first()) else {
        return Fault::program("Range without bounds");
    };
    let count = ((limit - start) / step).ceil().max(0.0);
    if !count.is_finite() || count > f64::from(1 << 22) {
        return Fault::unsupported("a range of many elements");
    }
    let values: Vec<f64> = (0..count as usize).map(|place| start + place as f64 * step).collect();
    let tensor = HostTensor::from_f64(DType::F32, vec![values.len()], &values);
    let tensor = n.cx.scope.constant(tensor.map_err(|error| Fault::Program(error.to_string()))?);
    Ok(n.cx.cast(&Array { tensor, ty: ScalarType::F32 }, ty))
}

/// At inference nothing is dropped.
fn dropout(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let is_trained = match n.version {
        ..7 => !n.is("is_test"),
        _ => n.has(2) && n.known_int(2)? != 0,
    };
    let ratio =
        if n.has(1) && is_trained { n.known_floats(1)?.first().copied().unwrap_or(0.5) } else { n.float("ratio", 0.5) };
    if is_trained && ratio != 0.0 {
        return Fault::unsupported("training");
    }
    let mask = || -> Lowered<Item> {
        let shape = shape_of(n)?;
        let truth = n.cx.scope.scalar(DType::Bool, 1i64);
        Ok(Item::Array(Array { tensor: n.cx.expand(&truth, &shape)?, ty: ScalarType::Bool }))
    };
    Ok(if n.gives(1) { vec![n.item(0).clone(), mask()?] } else { vec![n.item(0).clone()] })
}
