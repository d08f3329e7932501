//! Arithmetic of sizes, which the shape program computes.

use super::Many;
use crate::ScalarType;
use crate::call::Call;
use crate::size::Size;
use crate::value::{Fault, Lowered, Number, Value};
use rewire_graph::Tensor;
use rewire_graph::pointwise::BinaryOp;

pub(super) const MANY: Many = &[
    ("aten.sym_size", |c| {
        let x = c.x()?;
        let axis = c.axis("dim", x.rank())?;
        Ok(vec![Value::int(c.cx.extent(&x.tensor, axis))])
    }),
    ("aten.sym_numel", |c| Ok(vec![Value::int(Size::product(&c.cx.shape(&c.x()?.tensor)))])),
    ("aten.sym_stride", |c| {
        let x = c.x()?;
        let axis = c.axis("dim", x.rank())?;
        Ok(vec![Value::int(Size::product(&c.cx.shape(&x.tensor)[axis + 1..]))])
    }),
    ("_operator.add", |c| numbers(c, |_, a, b| Ok(a.plus(b)), |a, b| a + b)),
    ("_operator.sub", |c| numbers(c, |_, a, b| Ok(a.minus(b)), |a, b| a - b)),
    ("_operator.mul", |c| numbers(c, |_, a, b| Ok(a.times(b)), |a, b| a * b)),
    ("_operator.floordiv", |c| numbers(c, |c, a, b| c.cx.quotient(a, b), |a, b| (a / b).floor())),
    ("_operator.mod", |c| {
        numbers(c, |c, a, b| c.cx.sizes.borrow_mut().remainder(a, b).ok_or_else(by_zero), |a, b| a.modulo(b))
    }),
    ("_operator.truediv", true_divide),
    ("torch.sym_int_truediv", true_divide),
    ("_operator.neg", |c| match argument(c, 0)? {
        Number::Int(size) => Ok(vec![Value::int(Size::default().minus(&size))]),
        Number::Float(value) => Ok(vec![Value::Number(Number::Float(-value))]),
        other => Ok(vec![Value::Number(Number::Computed(-float(c, &other)?))]),
    }),
    ("_operator.pos", |c| Ok(vec![Value::Number(argument(c, 0)?)])),
    ("_operator.pow", |c| {
        let (base, exponent) = (argument(c, 0)?, argument(c, 1)?);
        match (&base, &exponent) {
            (Number::Int(base), Number::Int(exponent)) if (0..=8).contains(&exponent.as_const().unwrap_or(-1)) => {
                let power = (0..exponent.as_const().unwrap_or(0)).fold(Size::from(1), |power, _| power.times(base));
                Ok(vec![Value::int(power)])
            }
            _ => {
                let power = float(c, &base)?.pow(&float(c, &exponent)?);
                Ok(vec![Value::Number(Number::Computed(power))])
            }
        }
    }),
    ("_operator.eq", |c| compared(c, BinaryOp::Eq)),
    ("_operator.ne", |c| compared(c, BinaryOp::Ne)),
    ("_operator.lt", |c| compared(c, BinaryOp::Lt)),
    ("_operator.le", |c| compared(c, BinaryOp::Le)),
    ("_operator.gt", |c| compared(c, BinaryOp::Gt)),
    ("_operator.ge", |c| compared(c, BinaryOp::Ge)),
    ("_operator.and_", |c| sizes(c, |c, a, b| c.cx.sizes.borrow_mut().smaller(a, b))),
    ("_operator.or_", |c| sizes(c, |c, a, b| c.cx.sizes.borrow_mut().larger(a, b))),
    ("torch.sym_max", |c| sizes(c, |c, a, b| c.cx.sizes.borrow_mut().larger(a, b))),
    ("torch.sym_min", |c| sizes(c, |c, a, b| c.cx.sizes.borrow_mut().smaller(a, b))),
    ("torch.sym_not", |c| Ok(vec![Value::int(Size::from(1).minus(&integer(argument(c, 0)?)?))])),
    ("torch.sym_float", |c| Ok(vec![Value::Number(Number::Computed(float(c, &argument(c, 0)?)?))])),
    ("torch.sym_int", |c| Ok(vec![Value::int(integer(argument(c, 0)?)?)])),
    ("math.trunc", |c| Ok(vec![Value::int(integer(argument(c, 0)?)?)])),
    ("torch.sym_sqrt", |c| Ok(vec![Value::Number(Number::Computed(float(c, &argument(c, 0)?)?.sqrt()))])),
    ("torch._sym_sqrt", |c| Ok(vec![Value::Number(Number::Computed(float(c, &argument(c, 0)?)?.sqrt()))])),
    ("math.sqrt", |c| Ok(vec![Value::Number(Number::Computed(float(c, &argument(c, 0)?)?.sqrt()))])),
    ("torch.sym_sum", |c| match c.order.first() {
        Some(Value::List(values)) => {
            let mut sum = Size::default();
            for value in values {
                let Value::Number(number) = value else { return Fault::program("sym_sum of a tensor") };
                sum = sum.plus(&integer(number.clone())?);
            }
            Ok(vec![Value::int(sum)])
        }
        _ => Fault::program("sym_sum without a list"),
    }),
];

fn by_zero() -> Fault {
    Fault::Program("a division of sizes by 0".to_owned())
}

fn argument(c: &Call<'_>, place: usize) -> Lowered<Number> {
    match c.order.get(place) {
        Some(Value::Number(number)) => Ok(number.clone()),
        _ => Fault::program(format!("{}: argument {place} is not a number", c.base)),
    }
}

fn integer(number: Number) -> Lowered<Size> {
    match number {
        Number::Int(size) => Ok(size),
        Number::Bool(value) => Ok(Size::from(i64::from(value))),
        Number::Float(value) if value.abs() < 2f64.powi(53) => Ok(Size::from(value as i64)),
        _ => Fault::unsupported("a size that is computed by floats"),
    }
}

fn float(c: &Call<'_>, number: &Number) -> Lowered<Tensor> {
    Ok(c.cx.number(number, ScalarType::F32)?.tensor)
}

fn numbers(
    c: &Call<'_>,
    of_sizes: fn(&Call<'_>, &Size, &Size) -> Lowered<Size>,
    of_floats: fn(&Tensor, &Tensor) -> Tensor,
) -> Lowered<Vec<Value>> {
    let (a, b) = (argument(c, 0)?, argument(c, 1)?);
    if let (Number::Int(a), Number::Int(b)) = (&a, &b) {
        return Ok(vec![Value::int(of_sizes(c, a, b)?)]);
    }
    Ok(vec![Value::Number(Number::Computed(of_floats(&float(c, &a)?, &float(c, &b)?)))])
}

fn sizes(c: &Call<'_>, f: fn(&Call<'_>, &Size, &Size) -> Size) -> Lowered<Vec<Value>> {
    let (a, b) = (integer(argument(c, 0)?)?, integer(argument(c, 1)?)?);
    Ok(vec![Value::int(f(c, &a, &b))])
}

fn true_divide(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let (a, b) = (argument(c, 0)?, argument(c, 1)?);
    Ok(vec![Value::Number(Number::Computed(float(c, &a)? / float(c, &b)?))])
}

fn compared(c: &Call<'_>, op: BinaryOp) -> Lowered<Vec<Value>> {
    let (a, b) = (integer(argument(c, 0)?)?, integer(argument(c, 1)?)?);
    let value = c.cx.sizes.borrow_mut().compared(op, &a, &b);
    Ok(vec![Value::int(value)])
}
