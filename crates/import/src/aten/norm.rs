//! Normalizations.

use super::reduce::{count, float_sum, mean, moments, p_norm};
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::Context;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::{HostTensor, Tensor};

pub(super) const ONE: One = &[
    ("aten.layer_norm", |c| {
        let (y, _, _) = layer_norm(c, "normalized_shape")?;
        c.result(&y)
    }),
    ("aten.rms_norm", |c| {
        let (y, _) = rms_norm(c)?;
        c.result(&y)
    }),
    ("aten.group_norm", |c| {
        let (y, _, _) = group_norm(c, "num_groups")?;
        c.result(&y)
    }),
    ("aten.instance_norm", instance_norm),
    ("aten.batch_norm", |c| batch_norm(c).and_then(|y| c.result(&y))),
    ("aten._weight_norm", |c| {
        let (v, g) = (c.tensor("v")?, c.tensor("g")?);
        let kept = c.axis_or("dim", 0, v.rank())?;
        let axes: Vec<usize> = (0..v.rank()).filter(|&axis| axis != kept).collect();
        let norm = p_norm(c.cx, &v.tensor, &axes, 2.0)?;
        c.result(&(v.tensor * (g.tensor / norm)))
    }),
    ("aten.renorm", |c| {
        let x = c.x()?;
        let kept = c.axis("dim", x.rank())?;
        let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != kept).collect();
        let norm = p_norm(c.cx, &x.tensor, &axes, c.float("p")?)?;
        let most = c.float("maxnorm")?;
        let factor = norm.gt(most).select(&(c.cx.f(most) / (&norm + 1e-7)), &c.cx.f(1.0));
        c.result(&(x.tensor * factor))
    }),
    ("aten.cosine_similarity", cosine_similarity),
    ("aten.pairwise_distance", |c| {
        let (a, b) = (c.tensor("x1")?, c.tensor("x2")?);
        let difference = a.tensor - b.tensor + c.float_or("eps", 1e-6)?;
        let axis = difference.rank().saturating_sub(1);
        let norm = p_norm(c.cx, &difference, &[axis], c.float_or("p", 2.0)?)?;
        c.result(&if c.bool_or("keepdim", false)? { norm } else { c.cx.squeeze(&norm, axis)? })
    }),
    ("aten.cdist", |c| distances(c, ["x1", "x2"])),
    ("aten._cdist_forward", |c| distances(c, ["x1", "x2"])),
    ("aten.pdist", pairs_of_rows),
    ("aten._pdist_forward", pairs_of_rows),
    ("aten.dist", |c| {
        let (a, b) = (c.x()?, c.tensor("other")?);
        let difference = a.tensor - b.tensor;
        let axes: Vec<usize> = (0..difference.rank()).collect();
        let norm = p_norm(c.cx, &difference, &axes, c.float_or("p", 2.0)?)?;
        c.result(&c.cx.reshape(&norm, &[])?)
    }),
];

pub(super) const MANY: Many = &[
    ("aten.native_layer_norm", |c| {
        let (y, mean, inverse) = layer_norm(c, "normalized_shape")?;
        Ok(vec![c.nth(0, &y)?, c.nth(1, &mean)?, c.nth(2, &inverse)?])
    }),
    ("aten._fused_rms_norm", |c| {
        let (y, inverse) = rms_norm(c)?;
        Ok(vec![c.nth(0, &y)?, c.nth(1, &inverse)?])
    }),
    ("aten.native_group_norm", |c| {
        let (y, mean, inverse) = group_norm(c, "group")?;
        let statistics = |output: usize, x: &Tensor| c.nth(output, &c.cx.reshape(x, &c.shape(output)?)?);
        Ok(vec![c.nth(0, &y)?, statistics(1, &mean)?, statistics(2, &inverse)?])
    }),
    ("aten._native_batch_norm_legit_no_training", native_batch_norm),
    ("aten._native_batch_norm_legit_functional", trained_batch_norm),
    ("aten.native_batch_norm", native_batch_norm),
    ("aten._native_batch_norm_legit", native_batch_norm),
    ("aten.cudnn_batch_norm", native_batch_norm),
];

/// `(x - mean) / sqrt(variance + eps)` over axes, the mean, and the reciprocal of the root.
fn normalized(cx: &Context, x: &Tensor, axes: &[usize], eps: f64) -> Lowered<(Tensor, Tensor, Tensor)> {
    let (mean, variance) = moments(cx, x, axes, 0.0)?;
    let inverse = (variance + eps).rsqrt();
    // Rewrite rules for norms only match the last axis.
    let y = match axes {
        [axis] if *axis + 1 == x.rank() => x.normalize(eps),
        _ => (x - &mean) * &inverse,
    };
    Ok((y, mean, inverse))
}

fn affine(c: &Call<'_>, y: Tensor, shape: Option<&[Size]>) -> Lowered<Tensor> {
    let factor = |name: &str| -> Lowered<Option<Tensor>> {
        let Some(x) = c.optional_tensor(name)? else { return Ok(None) };
        shape.map_or_else(|| Ok(x.tensor.clone()), |shape| c.cx.reshape(&x.tensor, shape)).map(Some)
    };
    let y = factor("weight")?.map_or_else(|| y.clone(), |weight| &y * weight);
    Ok(factor("bias")?.map_or_else(|| y.clone(), |bias| &y + bias))
}

fn layer_norm(c: &Call<'_>, name: &str) -> Lowered<(Tensor, Tensor, Tensor)> {
    let x = c.x()?;
    let inner = c.sizes(name)?.len();
    let axes: Vec<usize> = (x.rank().saturating_sub(inner)..x.rank()).collect();
    let (y, mean, inverse) = normalized(c.cx, &x.tensor, &axes, c.float_or("eps", 1e-5)?)?;
    Ok((affine(c, y, None)?, mean, inverse))
}

fn rms_norm(c: &Call<'_>) -> Lowered<(Tensor, Tensor)> {
    let x = c.x()?;
    let inner = c.sizes("normalized_shape")?.len();
    let axes: Vec<usize> = (x.rank().saturating_sub(inner)..x.rank()).collect();
    let default = match x.ty {
        ScalarType::F16 => 2f64.powi(-10),
        ScalarType::BF16 => 2f64.powi(-7),
        ScalarType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let eps = c.float_or("eps", default)?;
    let inverse = (mean(c.cx, &x.tensor.square(), &axes)? + eps).rsqrt();
    Ok((affine(c, x.tensor * &inverse, None)?, inverse))
}

fn group_norm(c: &Call<'_>, name: &str) -> Lowered<(Tensor, Tensor, Tensor)> {
    let x = c.x()?;
    let groups = c.size(name)?;
    let shape = c.cx.shape(&x.tensor);
    let mut split = shape.clone();
    split[1] = c.cx.quotient(&shape[1], &groups)?;
    split.insert(1, groups);
    let axes: Vec<usize> = (2..split.len()).collect();
    let (y, mean, inverse) = normalized(c.cx, &c.cx.reshape(&x.tensor, &split)?, &axes, c.float_or("eps", 1e-5)?)?;
    let mut channels = vec![Size::from(1); shape.len() - 1];
    channels[0] = shape[1].clone();
    Ok((affine(c, c.cx.reshape(&y, &shape)?, Some(&channels))?, mean, inverse))
}

fn instance_norm(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    if x.rank() < 3 {
        return Fault::unsupported("a tensor of less than three axes");
    }
    let channels = per_channel(c, &x.tensor);
    let eps = c.float_or("eps", 1e-5)?;
    let y = if c.bool_or("use_input_stats", true)? {
        if c.has("running_mean") {
            return Fault::unsupported("training");
        }
        let shape = c.cx.shape(&x.tensor);
        let rows = [shape[0].clone(), shape[1].clone(), Size::product(&shape[2..])];
        let y = normalized(c.cx, &c.cx.reshape(&x.tensor, &rows)?, &[2], eps)?.0;
        c.cx.reshape(&y, &shape)?
    } else {
        by_statistics(c, &x.tensor, &channels, eps)?
    };
    c.result(&affine(c, y, Some(&channels))?)
}

/// The shape with which a vector of channels broadcasts to `x`.
fn per_channel(c: &Call<'_>, x: &Tensor) -> Vec<Size> {
    let shape = c.cx.shape(x);
    let mut channels = vec![Size::from(1); shape.len().saturating_sub(1)];
    if let (Some(first), Some(count)) = (channels.first_mut(), shape.get(1)) {
        *first = count.clone();
    }
    channels
}

fn by_statistics(c: &Call<'_>, x: &Tensor, channels: &[Size], eps: f64) -> Lowered<Tensor> {
    let [mean, variance] = ["running_mean", "running_var"].map(|name| {
        let statistic = c.tensor(name)?;
        c.cx.reshape(&statistic.tensor, channels)
    });
    Ok((x - mean?) * (variance? + eps).rsqrt())
}

fn batch_norm(c: &Call<'_>) -> Lowered<Tensor> {
    let x = c.x()?;
    let trains = c.bool_or("training", false)? || c.bool_or("train", false)?;
    let channels = per_channel(c, &x.tensor);
    let eps = c.float_or("eps", 1e-5)?;
    let y = if trains || !c.has("running_mean") {
        if c.has("running_mean") {
            return Fault::unsupported("training");
        }
        let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
        normalized(c.cx, &x.tensor, &axes, eps)?.0
    } else {
        by_statistics(c, &x.tensor, &channels, eps)?
    };
    affine(c, y, Some(&channels))
}

fn native_batch_norm(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let y = batch_norm(c)?;
    // At inference the saved statistics are empty.
    let others = (1..c.declared.len()).map(|_| Ok(Value::None));
    std::iter::once(c.nth(0, &y)).chain(others).collect()
}

/// Batch norm in training: normalizes with batch statistics, and updates the running statistics.
fn trained_batch_norm(c: &Call<'_>) -> Lowered<Vec<Value>> {
    if !c.bool_or("training", false)? {
        return Fault::unsupported("statistics of inference");
    }
    let x = c.x()?;
    let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    let (y, mean, inverse) = normalized(c.cx, &x.tensor, &axes, c.float_or("eps", 1e-5)?)?;
    let variance = moments(c.cx, &x.tensor, &axes, 1.0)?.1;
    let momentum = c.float_or("momentum", 0.1)?;
    let flat = |output: usize, x: &Tensor| c.cx.reshape(x, &c.shape(output)?);
    let running = |output: usize, name: &str, new: &Tensor| {
        c.nth(output, &(c.tensor(name)?.tensor * (1.0 - momentum) + flat(output, new)? * momentum))
    };
    Ok(vec![
        c.nth(0, &affine(c, y, Some(&per_channel(c, &x.tensor)))?)?,
        c.nth(1, &flat(1, &mean)?)?,
        c.nth(2, &flat(2, &inverse)?)?,
        running(3, "running_mean", &mean)?,
        running(4, "running_var", &variance)?,
    ])
}

fn cosine_similarity(c: &Call<'_>) -> Lowered<Array> {
    let (a, b) = (c.tensor("x1")?, c.tensor("x2")?);
    let shape = c.cx.broadcast_shape(&[&a.tensor, &b.tensor])?;
    let axis = c.axis_or("dim", 1, shape.len())?;
    let eps = c.float_or("eps", 1e-8)?;
    let (a, b) = (c.cx.expand(&a.tensor, &shape)?, c.cx.expand(&b.tensor, &shape)?);
    let unit = |x: &Tensor| x / float_sum(&x.square(), &[axis]).sqrt().maximum(eps);
    c.result(&c.cx.squeeze(&float_sum(&(unit(&a) * unit(&b)), &[axis]), axis)?)
}

fn distances(c: &Call<'_>, names: [&str; 2]) -> Lowered<Array> {
    let (a, b) = (c.tensor(names[0])?, c.tensor(names[1])?);
    let (a, b) = (c.cx.unsqueeze(&a.tensor, a.rank() - 1)?, c.cx.unsqueeze(&b.tensor, b.rank() - 2)?);
    let difference = a - b;
    let axis = difference.rank() - 1;
    let norm = p_norm(c.cx, &difference, &[axis], c.float_or("p", 2.0)?)?;
    c.result(&c.cx.squeeze(&norm, axis)?)
}

/// Distances of all pairs of rows, in order of the first row.
fn pairs_of_rows(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?.tensor;
    let Some(rows) = c.cx.extent(&x, 0).as_extent().filter(|&rows| (2..=MOST_PAIRED).contains(&rows)) else {
        return Fault::unsupported(format!(
            "pairs of a number of rows that is not known, below 2 or above {MOST_PAIRED}"
        ));
    };
    let pairs: Vec<[usize; 2]> = (0..rows).flat_map(|a| (a + 1..rows).map(move |b| [a, b])).collect();
    let row = |side: usize| {
        let places: Vec<i64> = pairs.iter().map(|pair| pair[side] as i64).collect();
        let places = HostTensor::i64([places.len()], &places).map_err(|error| Fault::Program(error.to_string()))?;
        Ok(x.gather(&c.cx.scope.constant(places)))
    };
    let norm = p_norm(c.cx, &(row(0)? - row(1)?), &[1], c.float_or("p", 2.0)?)?;
    c.result(&c.cx.squeeze(&norm, 1)?)
}

/// Maximum number of rows for pairwise distances.
const MOST_PAIRED: usize = 1 << 10;

/// The mean of the elements of a tensor.
pub(super) fn overall_mean(cx: &Context, x: &Tensor) -> Lowered<Tensor> {
    let axes: Vec<usize> = (0..x.rank()).collect();
    let sum = float_sum(x, &axes) / count(cx, &cx.shape(x), &axes)?;
    cx.reshape(&sum, &[])
}
