//! Activation functions.

use super::binary::{Operand, common_type, computed, operand};
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;

pub(super) const ONE: One = &[
    ("aten.relu", relu),
    ("aten.relu6", |c| limited(c, 0.0, 6.0)),
    ("aten.sigmoid", |c| float(c, |_, x| Ok(x.sigmoid()))),
    ("aten.silu", |c| float(c, |_, x| Ok(x.silu()))),
    ("aten.mish", |c| float(c, |_, x| Ok(x * x.softplus().tanh()))),
    ("aten.gelu", gelu),
    ("aten.elu", elu),
    ("aten.selu", |c| float(c, |c, x| Ok(exponential(c, x, [1.6732632423543772, 1.0507009873554805, 1.0])))),
    ("aten.celu", |c| {
        let alpha = c.float_or("alpha", 1.0)?;
        float(c, |c, x| {
            let alpha = c.float_or("alpha", 1.0)?;
            Ok(exponential(c, x, [alpha, 1.0, alpha.recip()]))
        })
        .and_then(|y| if alpha == 0.0 { Fault::program("celu with alpha 0") } else { Ok(y) })
    }),
    ("aten.leaky_relu", |c| {
        float(c, |c, x| {
            let slope = c.float_or("negative_slope", 0.01)?;
            Ok(x.gt(0.0).select(x, &(x * slope)))
        })
    }),
    ("aten.rrelu", rrelu),
    ("aten.rrelu_with_noise", rrelu),
    ("aten.prelu", prelu),
    ("aten._prelu_kernel", prelu),
    ("aten.hardtanh", |c| limited(c, c.float_or("min_val", -1.0)?, c.float_or("max_val", 1.0)?)),
    ("aten.hardsigmoid", |c| float(c, |_, x| Ok(hard_sigmoid(x)))),
    ("aten.hardswish", |c| float(c, |_, x| Ok(x * hard_sigmoid(x)))),
    ("aten.hardshrink", |c| {
        float(c, |c, x| {
            let limit = c.float_or("lambd", 0.5)?;
            let inside = x.ge(-limit).and(x.le(limit));
            Ok(inside.select(&c.cx.f(0.0), x))
        })
    }),
    ("aten.softshrink", |c| {
        float(c, |c, x| {
            let limit = c.float_or("lambd", 0.5)?;
            let below = x.lt(-limit).select(&(x + limit), &(x * 0.0));
            Ok(x.gt(limit).select(&(x - limit), &below))
        })
    }),
    ("aten.tanhshrink", |c| float(c, |_, x| Ok(x - x.tanh()))),
    ("aten.softsign", |c| float(c, |_, x| Ok(x / (x.abs() + 1.0)))),
    ("aten.softplus", softplus),
    ("aten.log_sigmoid", |c| float(c, |_, x| Ok(-(-x).softplus()))),
    ("aten.threshold", threshold),
    ("aten.logit", logit),
    ("aten.special_logit", logit),
    ("aten.glu", glu),
];

pub(super) const MANY: Many = &[
    ("aten.rrelu_with_noise_functional", |c| {
        let y = rrelu(c)?;
        Ok(vec![y.into(), Value::None])
    }),
    ("aten.log_sigmoid_forward", |c| {
        let y = float(c, |_, x| Ok(-(-x).softplus()))?;
        Ok(vec![y.into(), Value::None])
    }),
];

/// At inference the slope is the mean of `lower` and `upper`.
fn rrelu(c: &Call<'_>) -> Lowered<Array> {
    float(c, |c, x| {
        if c.bool_or("training", false)? {
            return Fault::unsupported("training");
        }
        let slope = (c.float_or("lower", 0.125)? + c.float_or("upper", 1.0 / 3.0)?) / 2.0;
        Ok(x.ge(0.0).select(x, &(x * slope)))
    })
}

/// Applies a float function to the first argument.
fn float(c: &Call<'_>, f: fn(&Call<'_>, &Tensor) -> Lowered<Tensor>) -> Lowered<Array> {
    let x = c.x()?;
    let x = if x.ty.is_float() { x } else { c.cx.cast(&x, ScalarType::F32) };
    c.result(&f(c, &x.tensor)?)
}

fn relu(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    c.result(&if x.ty.is_float() { x.tensor.relu() } else { x.tensor.maximum(0i64) })
}

fn limited(c: &Call<'_>, low: f64, high: f64) -> Lowered<Array> {
    let x = c.x()?;
    let [low, high] = [c.cx.scalar(low, x.ty)?.tensor, c.cx.scalar(high, x.ty)?.tensor];
    c.result(&x.tensor.maximum(low).minimum(high))
}

fn gelu(c: &Call<'_>) -> Lowered<Array> {
    match c.string_or("approximate", "none")?.as_str() {
        "none" => float(c, |_, x| Ok(x.gelu_erf())),
        "tanh" => float(c, |_, x| Ok(x.gelu_tanh())),
        other => Fault::unsupported(format!("approximate=`{other}`")),
    }
}

/// `scale x` if positive, otherwise `scale alpha (exp(rate x) - 1)`.
fn exponential(c: &Call<'_>, x: &Tensor, [alpha, scale, rate]: [f64; 3]) -> Tensor {
    let below = c.cx.expm1(&(x * rate)) * (alpha * scale);
    x.gt(0.0).select(&(x * scale), &below)
}

fn elu(c: &Call<'_>) -> Lowered<Array> {
    float(c, |c, x| {
        let numbers = [c.float_or("alpha", 1.0)?, c.float_or("scale", 1.0)?, c.float_or("input_scale", 1.0)?];
        Ok(exponential(c, x, numbers))
    })
}

fn prelu(c: &Call<'_>) -> Lowered<Array> {
    let (x, weight) = (c.x()?, c.tensor("weight")?);
    let mut shape = vec![Size::from(1); x.rank()];
    let count = c.cx.shape(&weight.tensor);
    let weight = if weight.rank() == 1 {
        if x.rank() > 1 {
            shape[1] = count[0].clone();
        } else if x.rank() == 1 {
            shape[0] = count[0].clone();
        }
        c.cx.reshape(&weight.tensor, &shape)?
    } else {
        weight.tensor
    };
    c.result(&x.tensor.gt(0.0).select(&x.tensor, &(&x.tensor * weight)))
}

fn hard_sigmoid(x: &Tensor) -> Tensor {
    (x + 3.0).maximum(0.0).minimum(6.0) * (1.0 / 6.0)
}

fn softplus(c: &Call<'_>) -> Lowered<Array> {
    float(c, |c, x| {
        let (beta, threshold) = (c.float_or("beta", 1.0)?, c.float_or("threshold", 20.0)?);
        let scaled = x * beta;
        Ok(scaled.gt(threshold).select(x, &(scaled.softplus() / beta)))
    })
}

fn threshold(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let [limit, value] = ["threshold", "value"].map(|name| computed(c, &operand(c, name)?, x.ty));
    c.result(&x.tensor.le(&limit?).select(&value?, &x.tensor))
}

fn logit(c: &Call<'_>) -> Lowered<Array> {
    float(c, |c, x| {
        let x = match c.has("eps") {
            true => {
                let eps = c.float("eps")?;
                x.maximum(eps).minimum(1.0 - eps)
            }
            false => x.clone(),
        };
        Ok((&x / (c.cx.f(1.0) - &x)).log())
    })
}

fn glu(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let axis = c.axis_or("dim", -1, x.rank())?;
    let half = c.cx.quotient(&c.cx.extent(&x.tensor, axis), &2.into())?;
    let a = c.cx.slice(&x.tensor, axis, (&0.into(), 1), &half)?;
    let b = c.cx.slice(&x.tensor, axis, (&half, 1), &half)?;
    c.result(&(a * b.sigmoid()))
}

/// The named tensor arguments in their promoted type.
pub(super) fn common<const N: usize>(c: &Call<'_>, names: [&str; N]) -> Lowered<([Tensor; N], ScalarType)> {
    let operands = names.iter().map(|name| operand(c, name)).collect::<Lowered<Vec<Operand>>>()?;
    let ty = common_type(c, &operands.iter().collect::<Vec<_>>());
    let tensors = operands.iter().map(|operand| computed(c, operand, ty)).collect::<Lowered<Vec<Tensor>>>()?;
    let tensors = tensors.try_into().map_err(|_| Fault::Program("arguments".to_owned()))?;
    Ok((tensors, ty))
}
