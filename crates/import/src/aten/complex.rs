//! Operators on complex numbers. Real and imaginary part are a last axis of extent 2.

use super::{Lowering, One, matmul, spectrum};
use crate::ScalarType;
use crate::array::Array;
use crate::call::{Call, Declared};
use crate::context::Context;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;

/// Operators that accept or return complex numbers.
pub(super) const ONE: One = &[
    ("aten.view_as_real", |c| Ok(Array { ty: ScalarType::F32, ..c.x()? })),
    ("aten.imag", |c| Ok(real(complex(c, &c.x()?)?.im))),
    ("aten.angle", |c| {
        let Complex { re, im } = complex(c, &c.x()?)?;
        Ok(real(c.cx.atan2(&im, &re)))
    }),
    ("aten._conj", conjugate),
    ("aten._conj_physical", conjugate),
    ("aten.conj_physical", conjugate),
    ("aten.view_as_complex", |c| Ok(Array { ty: ScalarType::C64, ..c.x()? })),
    ("aten.complex", |c| {
        let (re, im) = (c.tensor("real")?.tensor, c.tensor("imag")?.tensor);
        Complex { re, im }.array(c.cx)
    }),
    ("aten.polar", |c| {
        let (length, angle) = (c.tensor("abs")?.tensor, c.tensor("angle")?.tensor);
        Complex { re: &length * angle.cos(), im: length * angle.sin() }.array(c.cx)
    }),
];

/// Operators with a separate lowering for complex operands.
const OWN: One = &[
    ("aten.real", |c| Ok(real(complex(c, &c.x()?)?.re))),
    ("aten.abs", |c| {
        let Complex { re, im } = complex(c, &c.x()?)?;
        Ok(real((re.square() + im.square()).sqrt()))
    }),
    ("aten.conj", conjugate),
    ("aten.exp", |c| {
        let Complex { re, im } = complex(c, &c.x()?)?;
        let length = re.exp();
        Complex { re: &length * &im.cos(), im: length * im.sin() }.array(c.cx)
    }),
    ("aten.to", converted),
    ("aten._to_copy", converted),
    ("aten.resolve_conj", |c| c.x()),
    ("aten.mul", |c| {
        let [a, b] = two(c)?;
        product(&a, &b, |a, b| Ok(a * b))?.array(c.cx)
    }),
    ("aten.square", |c| {
        let x = complex(c, &c.x()?)?;
        product(&x, &x, |a, b| Ok(a * b))?.array(c.cx)
    }),
    ("aten.pow", power),
    ("aten.reciprocal", |c| {
        let Complex { re, im } = complex(c, &c.x()?)?;
        let length = re.square() + im.square();
        Complex { re: re / &length, im: -im / length }.array(c.cx)
    }),
    ("aten.log", |c| {
        let Complex { re, im } = complex(c, &c.x()?)?;
        Complex { re: (re.square() + im.square()).log() * 0.5, im: c.cx.atan2(&im, &re) }.array(c.cx)
    }),
    ("aten.div", |c| {
        if c.has("rounding_mode") {
            return Fault::unsupported("a division of complex numbers that is rounded");
        }
        let [a, b] = two(c)?;
        let Complex { re, im } = product(&a, &Complex { re: b.re.clone(), im: -&b.im }, |a, b| Ok(a * b))?;
        let length = b.re.square() + b.im.square();
        Complex { re: re / &length, im: im / length }.array(c.cx)
    }),
    ("aten.add", |c| sum(c, |a, b| a + b)),
    ("aten.sub", |c| sum(c, |a, b| a - b)),
    ("aten.mm", |c| matrices(c, "mat2")),
    ("aten.bmm", |c| matrices(c, "mat2")),
    ("aten.matmul", |c| matrices(c, "other")),
];

/// Operators that can be applied to real and imaginary part separately.
const BY_PARTS: [&str; 41] = [
    "aten.alias",
    "aten.cat",
    "aten.chunk",
    "aten.clone",
    "aten.contiguous",
    "aten.detach",
    "aten.expand",
    "aten.expand_as",
    "aten.fft_fftshift",
    "aten.fft_ifftshift",
    "aten.flatten",
    "aten.flip",
    "aten.index",
    "aten.index_select",
    "aten.lift_fresh_copy",
    "aten.mean",
    "aten.movedim",
    "aten.narrow",
    "aten.neg",
    "aten.permute",
    "aten.repeat",
    "aten.repeat_interleave",
    "aten.reshape",
    "aten.roll",
    "aten.select",
    "aten.slice",
    "aten.split",
    "aten.split_with_sizes",
    "aten.squeeze",
    "aten.stack",
    "aten.sum",
    "aten.swapaxes",
    "aten.t",
    "aten.tensor_split",
    "aten.transpose",
    "aten.unbind",
    "aten.unflatten",
    "aten.unsafe_split",
    "aten.unsqueeze",
    "aten.view",
    "aten._unsafe_view",
];

/// A complex tensor as real and imaginary part.
pub(super) struct Complex {
    pub re: Tensor,
    pub im: Tensor,
}

impl Complex {
    /// Joins both parts to one tensor.
    pub fn array(self, cx: &Context) -> Lowered<Array> {
        let shape = cx.broadcast_shape(&[&self.re, &self.im])?;
        let last = shape.len();
        let parts = [&self.re, &self.im].map(|part| cx.unsqueeze(&cx.expand(part, &shape)?, last));
        let [re, im] = parts;
        Ok(Array { tensor: cx.concat(&[re?, im?], last), ty: ScalarType::C64 })
    }
}

fn real(tensor: Tensor) -> Array {
    Array { tensor, ty: ScalarType::F32 }
}

fn part(cx: &Context, x: &Array, place: i64) -> Lowered<Tensor> {
    cx.select(&x.tensor, x.rank() - 1, &place.into())
}

/// Splits a tensor into its parts. The imaginary part of a real tensor is 0.
pub(super) fn complex(c: &Call<'_>, x: &Array) -> Lowered<Complex> {
    if x.ty != ScalarType::C64 {
        let re = c.cx.cast(x, ScalarType::F32).tensor;
        let im = c.cx.expand(&c.cx.f(0.0), &c.cx.shape(&re))?;
        return Ok(Complex { re, im });
    }
    Ok(Complex { re: part(c.cx, x, 0)?, im: part(c.cx, x, 1)? })
}

fn two(c: &Call<'_>) -> Lowered<[Complex; 2]> {
    Ok([complex(c, &c.x()?)?, complex(c, &c.tensor("other")?)?])
}

/// A type conversion. The imaginary part is dropped if the result is real.
fn converted(c: &Call<'_>) -> Lowered<Array> {
    let (x, ty) = (complex(c, &c.x()?)?, c.ty(0)?);
    if ty == ScalarType::C64 { x.array(c.cx) } else { Ok(c.cx.cast(&real(x.re), ty)) }
}

fn conjugate(c: &Call<'_>) -> Lowered<Array> {
    let Complex { re, im } = complex(c, &c.x()?)?;
    Complex { re, im: -im }.array(c.cx)
}

fn product(a: &Complex, b: &Complex, times: impl Fn(&Tensor, &Tensor) -> Lowered<Tensor>) -> Lowered<Complex> {
    let re = times(&a.re, &b.re)? - times(&a.im, &b.im)?;
    let im = times(&a.re, &b.im)? + times(&a.im, &b.re)?;
    Ok(Complex { re, im })
}

/// A power with a small positive integer exponent.
fn power(c: &Call<'_>) -> Lowered<Array> {
    let (x, exponent) = (complex(c, &c.x()?)?, c.float("exponent")?);
    if exponent.fract() != 0.0 || !(1.0..=16.0).contains(&exponent) {
        return Fault::unsupported(format!("the power {exponent} of complex numbers"));
    }
    let mut result = Complex { re: x.re.clone(), im: x.im.clone() };
    for _ in 1..exponent as usize {
        result = product(&result, &x, |a, b| Ok(a * b))?;
    }
    result.array(c.cx)
}

fn matrices(c: &Call<'_>, other: &str) -> Lowered<Array> {
    let (a, b) = (complex(c, &c.x()?)?, complex(c, &c.tensor(other)?)?);
    product(&a, &b, |a, b| matmul::matmul(c.cx, a, b))?.array(c.cx)
}

fn sum(c: &Call<'_>, add: fn(&Tensor, &Tensor) -> Tensor) -> Lowered<Array> {
    if c.has("alpha") && c.float("alpha")? != 1.0 {
        return Fault::unsupported("a sum of complex numbers with a factor");
    }
    let [a, b] = two(c)?;
    Complex { re: add(&a.re, &b.re), im: add(&a.im, &b.im) }.array(c.cx)
}

/// True for a node with complex operands or results.
pub(crate) fn is_complex(c: &Call<'_>) -> bool {
    c.order.iter().any(is_complex_value) || c.declared.iter().flatten().any(|result| result.ty == ScalarType::C64)
}

fn is_complex_value(value: &Value) -> bool {
    match value {
        Value::Tensor(array) => array.ty == ScalarType::C64,
        Value::List(values) => values.iter().any(is_complex_value),
        _ => false,
    }
}

/// Lowers a node with complex numbers. `lowering` is its lowering for real numbers.
pub(crate) fn lower(c: &Call<'_>, lowering: Lowering) -> Lowered<Vec<Value>> {
    if !BY_PARTS.contains(&c.base) {
        let own = ONE.iter().chain(OWN).chain(spectrum::ONE).find(|(name, _)| *name == c.base);
        let Some((_, lower)) = own else { return Fault::unsupported("complex numbers") };
        return Ok(vec![Value::Tensor(lower(c)?)]);
    }
    let [re, im] = [0, 1].map(|place| {
        let call = of_part(c, place)?;
        match lowering {
            Lowering::One(lower) => Ok(vec![Value::Tensor(lower(&call)?)]),
            Lowering::Many(lower) => lower(&call),
        }
    });
    re?.into_iter().zip(im?).map(|(re, im)| both(c.cx, re, im)).collect()
}

fn both(cx: &Context, re: Value, im: Value) -> Lowered<Value> {
    match (re, im) {
        (Value::Tensor(re), Value::Tensor(im)) => Complex { re: re.tensor, im: im.tensor }.array(cx).map(Value::Tensor),
        (Value::List(re), Value::List(im)) => {
            re.into_iter().zip(im).map(|(re, im)| both(cx, re, im)).collect::<Lowered<_>>().map(Value::List)
        }
        _ => Fault::unsupported("complex numbers"),
    }
}

/// The same node with only the real or only the imaginary parts of its operands.
fn of_part<'a>(c: &Call<'a>, place: i64) -> Lowered<Call<'a>> {
    let arguments = c.arguments.iter().map(|(name, value)| Ok((name.clone(), value_part(c.cx, value, place)?)));
    let order = c.order.iter().map(|value| value_part(c.cx, value, place)).collect::<Lowered<_>>()?;
    let declared = c.declared.iter().map(|result| {
        result.clone().map(|Declared { ty, mut shape }| {
            if ty != ScalarType::C64 {
                return Declared { ty, shape };
            }
            if let Ok(shape) = &mut shape {
                shape.pop();
            }
            Declared { ty: ScalarType::F32, shape }
        })
    });
    let declared = declared.collect();
    Ok(Call { arguments: arguments.collect::<Lowered<_>>()?, order, declared, ..*c })
}

fn value_part(cx: &Context, value: &Value, place: i64) -> Lowered<Value> {
    Ok(match value {
        Value::Tensor(array) if array.ty == ScalarType::C64 => real(part(cx, array, place)?).into(),
        Value::List(values) if is_complex_value(value) => {
            if !values.iter().all(is_complex_value) {
                return Fault::unsupported("a list of complex and real tensors");
            }
            Value::List(values.iter().map(|value| value_part(cx, value, place)).collect::<Lowered<_>>()?)
        }
        other => other.clone(),
    })
}
