//! Losses.

use super::activation::common;
use super::norm::overall_mean;
use super::order::along;
use super::reduce::{count, float_sum, log_softmax, p_norm};
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.mse_loss", |c| elementwise(c, |_, a, b| Ok((a - b).square()))),
    ("aten.l1_loss", |c| elementwise(c, |_, a, b| Ok((a - b).abs()))),
    ("aten.smooth_l1_loss", |c| {
        elementwise(c, |c, a, b| {
            let beta = c.float_or("beta", 1.0)?;
            let distance = (a - b).abs();
            if beta == 0.0 {
                return Ok(distance);
            }
            Ok(distance.lt(beta).select(&(distance.square() * (0.5 / beta)), &(&distance - 0.5 * beta)))
        })
    }),
    ("aten.huber_loss", |c| {
        elementwise(c, |c, a, b| {
            let delta = c.float_or("delta", 1.0)?;
            let distance = (a - b).abs();
            Ok(distance.le(delta).select(&(distance.square() * 0.5), &((&distance - 0.5 * delta) * delta)))
        })
    }),
    ("aten.soft_margin_loss", |c| elementwise(c, |_, a, b| Ok((-(a * b)).softplus()))),
    ("aten.kl_div", |c| {
        elementwise(c, |c, a, b| {
            if c.bool_or("log_target", false)? {
                return Ok(b.exp() * (b - a));
            }
            let entropy = b.equal(0.0).select(&c.cx.f(0.0), &(b * b.log()));
            Ok(entropy - b * a)
        })
    }),
    ("aten.binary_cross_entropy", |c| {
        elementwise(c, |c, a, b| {
            let log = |x: Tensor| x.log().maximum(-100.0);
            let other = c.cx.f(1.0) - a;
            let loss = -(b * log(a.clone()) + (c.cx.f(1.0) - b) * log(other));
            weighted(c, loss)
        })
    }),
    ("aten.binary_cross_entropy_with_logits", |c| {
        elementwise(c, |c, a, b| {
            let loss = match c.optional_tensor("pos_weight")? {
                Some(weight) => {
                    let factor = (weight.tensor - 1.0) * b + 1.0;
                    (c.cx.f(1.0) - b) * a + factor * (-a).softplus()
                }
                None => a.softplus() - a * b,
            };
            weighted(c, loss)
        })
    }),
    ("aten.cross_entropy_loss", cross_entropy),
    ("aten.nll_loss", |c| negative_log(c, &c.x()?.tensor).and_then(|(y, _)| c.result(&y))),
    ("aten.nll_loss_nd", |c| negative_log(c, &c.x()?.tensor).and_then(|(y, _)| c.result(&y))),
    ("aten.nll_loss2d", |c| negative_log(c, &c.x()?.tensor).and_then(|(y, _)| c.result(&y))),
    ("aten.margin_ranking_loss", |c| {
        let ([a, b, target], _) = common(c, ["input1", "input2", "target"])?;
        let loss = (-(target * (a - b)) + c.float_or("margin", 0.0)?).maximum(0.0);
        reduced(c, &loss)
    }),
    ("aten.hinge_embedding_loss", |c| {
        let ([x, target], _) = common(c, ["self", "target"])?;
        let margin = (c.cx.f(c.float_or("margin", 1.0)?) - &x).maximum(0.0);
        let zero = c.cx.f(0.0);
        let loss = target.not_equal(1.0).select(&margin, &zero) + target.not_equal(-1.0).select(&x, &zero);
        reduced(c, &loss)
    }),
    ("aten.multi_margin_loss", multi_margin),
    ("aten.multilabel_soft_margin_loss", multilabel_soft_margin),
    ("aten.poisson_nll_loss", poisson),
    ("aten.triplet_margin_loss", triplet),
    ("aten.cosine_embedding_loss", cosine_embedding),
];

pub(super) const MANY: Many = &[("aten.nll_loss_forward", total_weight), ("aten.nll_loss2d_forward", total_weight)];

fn total_weight(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let (y, weight) = negative_log(c, &c.x()?.tensor)?;
    Ok(vec![c.nth(0, &y)?, c.nth(1, &weight)?])
}

/// Reduces a loss by argument `reduction`: none, mean or sum.
fn reduced(c: &Call<'_>, loss: &Tensor) -> Lowered<Array> {
    match c.int_or("reduction", 1)? {
        0 => c.result(loss),
        1 => c.result(&overall_mean(c.cx, loss)?),
        _ => c.result(&sum(c, loss)?),
    }
}

fn sum(c: &Call<'_>, x: &Tensor) -> Lowered<Tensor> {
    c.cx.reshape(&float_sum(x, &(0..x.rank()).collect::<Vec<_>>()), &[])
}

fn weighted(c: &Call<'_>, loss: Tensor) -> Lowered<Tensor> {
    Ok(match c.optional_tensor("weight")? {
        Some(weight) => loss * weight.tensor,
        None => loss,
    })
}

fn elementwise(c: &Call<'_>, f: fn(&Call<'_>, &Tensor, &Tensor) -> Lowered<Tensor>) -> Lowered<Array> {
    let ([a, b], ty) = common(c, ["self", "target"])?;
    if !ty.is_float() {
        return Fault::unsupported("integers");
    }
    let loss = f(c, &a, &b)?;
    reduced(c, &loss)
}

fn poisson(c: &Call<'_>) -> Lowered<Array> {
    let ([x, target], _) = common(c, ["input", "target"])?;
    let is_log = c.bool_or("log_input", true)?;
    let loss = if is_log { x.exp() - &target * &x } else { &x - &target * (&x + c.float_or("eps", 1e-8)?).log() };
    let loss = if c.bool_or("full", false)? {
        // Stirling's approximation of the logarithm of the factorial.
        let stirling = &target * target.log() - &target + (&target * (2.0 * std::f64::consts::PI)).log() * 0.5;
        loss + target.le(1.0).select(&c.cx.f(0.0), &stirling)
    } else {
        loss
    };
    reduced(c, &loss)
}

/// The margins of all other classes relative to the target class.
fn multi_margin(c: &Call<'_>) -> Lowered<Array> {
    let (x, target) = (c.x()?.tensor, c.tensor("target")?.tensor.cast(DType::I64));
    let (p, axis) = (c.int_or("p", 1)?, x.rank().saturating_sub(1));
    if x.rank() == 0 || !(1..=2).contains(&p) {
        return Fault::unsupported("a number, or a power that is not 1 or 2");
    }
    let place = c.cx.unsqueeze(&target, target.rank())?;
    let own = along(c.cx, &x, axis, &place)?;
    let margin = (&x - own + c.float_or("margin", 1.0)?).maximum(0.0);
    let loss = if p == 2 { margin.square() } else { margin };
    let loss = match c.optional_tensor("weight")? {
        Some(weight) => loss * weight.tensor.gather(&place),
        None => loss,
    };
    let is_other = c.cx.positions(&c.cx.shape(&x), axis)?.not_equal(&place);
    let others = is_other.select(&loss, &c.cx.f(0.0));
    let loss = c.cx.squeeze(&(float_sum(&others, &[axis]) / count(c.cx, &c.cx.shape(&x), &[axis])?), axis)?;
    reduced(c, &loss)
}

/// For each sample the mean of the classes' cross entropies.
fn multilabel_soft_margin(c: &Call<'_>) -> Lowered<Array> {
    let ([x, target], _) = common(c, ["self", "target"])?;
    let axis = x.rank().saturating_sub(1);
    let loss = weighted(c, x.softplus() - target * &x)?;
    let loss = c.cx.squeeze(&(float_sum(&loss, &[axis]) / count(c.cx, &c.cx.shape(&x), &[axis])?), axis)?;
    reduced(c, &loss)
}

fn triplet(c: &Call<'_>) -> Lowered<Array> {
    let ([anchor, positive, negative], _) = common(c, ["anchor", "positive", "negative"])?;
    let (p, eps) = (c.float_or("p", 2.0)?, c.float_or("eps", 1e-6)?);
    let distance = |a: &Tensor, b: &Tensor| {
        let axis = a.rank().max(b.rank()) - 1;
        c.cx.squeeze(&p_norm(c.cx, &(a - b + eps), &[axis], p)?, axis)
    };
    let near = distance(&anchor, &positive)?;
    let mut far = distance(&anchor, &negative)?;
    if c.bool_or("swap", false)? {
        far = far.minimum(distance(&positive, &negative)?);
    }
    reduced(c, &(near - far + c.float_or("margin", 1.0)?).maximum(0.0))
}

fn cosine_embedding(c: &Call<'_>) -> Lowered<Array> {
    let ([a, b, target], _) = common(c, ["input1", "input2", "target"])?;
    let axis = a.rank().max(b.rank()) - 1;
    let sum = |x: Tensor| c.cx.squeeze(&float_sum(&x, &[axis]), axis);
    let lengths = (sum(a.square())? + 1e-12) * (sum(b.square())? + 1e-12);
    let cosine = sum(&a * &b)? / lengths.sqrt();
    let zero = c.cx.f(0.0);
    let alike = target.equal(1.0).select(&(c.cx.f(1.0) - &cosine), &zero);
    let other = (&cosine - c.float_or("margin", 0.0)?).maximum(0.0);
    reduced(c, &(alike + target.equal(-1.0).select(&other, &zero)))
}

/// The axis of classes.
fn classes(x: &Tensor) -> usize {
    usize::from(x.rank() > 1)
}

/// The loss for log probabilities and target classes, and the sum of weights.
fn negative_log(c: &Call<'_>, x: &Tensor) -> Lowered<(Tensor, Tensor)> {
    let target = c.tensor("target")?.tensor.cast(DType::I64);
    let axis = classes(x);
    let counted = target.not_equal(c.int_or("ignore_index", -100)?);
    // Ignored entries may have an invalid class.
    let target = counted.select(&target, &c.cx.zero(&target));
    let place = c.cx.unsqueeze(&target, axis.min(target.rank()))?;
    let picked = c.cx.squeeze(&along(c.cx, x, axis, &place)?, axis.min(x.rank() - 1))?;
    let weight = match c.optional_tensor("weight")? {
        Some(weight) => weight.tensor.gather(&target),
        None => c.cx.expand(&c.cx.f(1.0), &c.cx.shape(&target))?,
    };
    let weight = counted.select(&weight, &c.cx.f(0.0));
    let loss = counted.select(&-(&picked * &weight), &c.cx.f(0.0));
    let total = sum(c, &weight)?;
    let y = match c.int_or("reduction", 1)? {
        0 => loss,
        1 => sum(c, &loss)? / &total,
        _ => sum(c, &loss)?,
    };
    Ok((y, total))
}

fn cross_entropy(c: &Call<'_>) -> Lowered<Array> {
    let (x, target) = (c.x()?, c.tensor("target")?);
    let smoothing = c.float_or("label_smoothing", 0.0)?;
    let axis = classes(&x.tensor);
    let log = log_softmax(&x.tensor, axis);
    if target.ty == ScalarType::I64 && smoothing == 0.0 {
        let (y, _) = negative_log(c, &log)?;
        return c.result(&y);
    }
    if c.has("weight") {
        return Fault::unsupported("weights with class probabilities or smoothed labels");
    }
    let count = c.cx.number(&crate::value::Number::Int(c.cx.extent(&x.tensor, axis)), ScalarType::F32)?.tensor;
    if target.ty.is_float() {
        let target = target.tensor * (1.0 - smoothing) + c.cx.f(smoothing) / count;
        let loss = c.cx.squeeze(&float_sum(&-(target * &log), &[axis]), axis)?;
        return match c.int_or("reduction", 1)? {
            0 => c.result(&loss),
            1 => c.result(&overall_mean(c.cx, &loss)?),
            _ => c.result(&sum(c, &loss)?),
        };
    }
    let smooth = -c.cx.squeeze(&float_sum(&log, &[axis]), axis)?;
    let counted = target.tensor.not_equal(c.int_or("ignore_index", -100)?);
    let smooth = counted.select(&smooth, &c.cx.f(0.0));
    let (y, total) = negative_log(c, &log)?;
    let smooth = match c.int_or("reduction", 1)? {
        0 => smooth,
        1 => sum(c, &smooth)? / total,
        _ => sum(c, &smooth)?,
    };
    c.result(&(y * (1.0 - smoothing) + smooth * (c.cx.f(smoothing) / count)))
}
