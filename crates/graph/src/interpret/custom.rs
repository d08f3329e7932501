use super::array::{Array, Data as Elements};
use crate::op::EvaluateError;
use crate::op::custom::{Custom, Data, DataMut, View, ViewMut};
use crate::{Layout, Scalar, Type};

/// Elements in the type that an operator accepts.
enum Typed {
    F32(Vec<f32>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

fn typed(array: &Array, ty: &Type) -> Typed {
    match (ty.layout, ty.dtype.scalar()) {
        (Layout::Host, _) | (_, Scalar::I64) => Typed::I64(array.integers()),
        (_, Scalar::F32) => match &array.data {
            Elements::Float(values) => Typed::F32(values.iter().map(|&value| value as f32).collect()),
            Elements::Integer(values) => Typed::F32(values.iter().map(|&value| value as f32).collect()),
        },
        _ => Typed::I32(array.integers().into_iter().map(|value| value as i32).collect()),
    }
}

/// The result of a custom operator, computed by its CPU form.
pub(super) fn evaluate(
    op: &dyn Custom,
    types: &[Type],
    operands: &[&Array],
    shape: Vec<usize>,
    ty: &Type,
) -> Result<Array, EvaluateError> {
    let inputs: Vec<Typed> = operands.iter().zip(types).map(|(array, ty)| typed(array, ty)).collect();
    let views: Vec<View<'_>> = inputs
        .iter()
        .zip(operands)
        .map(|(typed, array)| {
            let data = match typed {
                Typed::F32(values) => Data::F32(values),
                Typed::I32(values) => Data::I32(values),
                Typed::I64(values) => Data::I64(values),
            };
            View { shape: &array.shape, data }
        })
        .collect();
    let count = shape.iter().product();
    let compute = |data| op.compute(&views, &mut ViewMut { shape: &shape, data }).map_err(EvaluateError::Own);
    match ty.dtype.scalar() {
        Scalar::F32 => {
            let mut values = vec![0.0; count];
            compute(DataMut::F32(&mut values))?;
            Ok(Array::from_floats(shape, values.into_iter().map(f64::from).collect()))
        }
        Scalar::I64 => {
            let mut values = vec![0; count];
            compute(DataMut::I64(&mut values))?;
            Ok(Array::from_integers(shape, values))
        }
        Scalar::I32 | Scalar::Bool => {
            let mut values = vec![0; count];
            compute(DataMut::I32(&mut values))?;
            Ok(Array::from_integers(shape, values.into_iter().map(i64::from).collect()))
        }
    }
}
