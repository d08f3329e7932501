//! Reductions.

use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::{Call, axis};
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::op::{IndexExpr, Reshape};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Tensor};

pub(super) const ONE: One = &[
    ("aten.sum", sum),
    ("aten.nansum", |c| {
        let x = c.x()?;
        let valid = if x.ty.is_float() { c.cx.is_nan(&x.tensor).select(&c.cx.f(0.0), &x.tensor) } else { x.tensor };
        sum_of(c, &Array { tensor: valid, ty: x.ty })
    }),
    ("aten.mean", |c| {
        let x = floats(c)?;
        let axes = c.axes("dim", x.rank())?;
        finished(c, &mean(c.cx, &x, &axes)?, &axes)
    }),
    ("aten.nanmean", nanmean),
    ("aten.amax", |c| extreme_of(c, true)),
    ("aten.amin", |c| extreme_of(c, false)),
    ("aten.max", |c| extreme_of(c, true)),
    ("aten.min", |c| extreme_of(c, false)),
    ("aten.argmax", |c| arg(c, true)),
    ("aten.argmin", |c| arg(c, false)),
    ("aten.prod", prod),
    ("aten.any", |c| truth(c, true)),
    ("aten.all", |c| truth(c, false)),
    ("aten.count_nonzero", |c| {
        let x = c.cx.cast(&c.x()?, ScalarType::Bool);
        let axes = c.axes("dim", x.rank())?;
        c.result(&without_axes(c.cx, &integer_sum(c.cx, &x, &axes)?, &axes)?)
    }),
    ("aten.var", |c| spread(c, false)),
    ("aten.std", |c| spread(c, true)),
    ("aten.logsumexp", logsumexp),
    ("aten.softmax", |c| softmax(c, |x, axis, _| Ok(x.softmax(axis)))),
    ("aten._softmax", |c| softmax(c, |x, axis, _| Ok(x.softmax(axis)))),
    ("aten._safe_softmax", |c| {
        softmax(c, |x, axis, cx| {
            let none = x.max(axis).equal(f64::NEG_INFINITY);
            Ok(none.select(&cx.f(0.0), &x.softmax(axis)))
        })
    }),
    ("aten.special_softmax", |c| softmax(c, |x, axis, _| Ok(x.softmax(axis)))),
    ("aten.special_log_softmax", |c| softmax(c, |x, axis, _| Ok(log_softmax(x, axis)))),
    ("aten.log_softmax", |c| softmax(c, |x, axis, _| Ok(log_softmax(x, axis)))),
    ("aten._log_softmax", |c| softmax(c, |x, axis, _| Ok(log_softmax(x, axis)))),
    ("aten.norm", norm),
    ("aten.linalg_vector_norm", norm),
    ("aten.linalg_norm", |c| {
        if c.has("ord") && c.x()?.rank() != 1 {
            return Fault::unsupported("matrix norms");
        }
        norm(c)
    }),
    ("aten.linalg_matrix_norm", matrix_norm),
    ("aten.histc", histogram),
    ("aten.trace", |c| {
        let x = c.x()?;
        let shape = c.cx.shape(&x.tensor);
        let (rows, columns) = (c.cx.positions(&shape, 0)?, c.cx.positions(&shape, 1)?);
        let tensor = rows.equal(&columns).select(&x.tensor, &c.cx.zero(&x.tensor));
        let total = total(c.cx, &Array { tensor, ty: x.ty }, &[0, 1])?;
        c.result(&without_axes(c.cx, &total, &[0, 1])?)
    }),
];

pub(super) const MANY: Many = &[
    ("aten.max.dim", |c| with_index(c, true)),
    ("aten.min.dim", |c| with_index(c, false)),
    ("aten.aminmax", |c| {
        let x = c.x()?;
        let axes = match c.has("dim") {
            true => vec![c.axis("dim", x.rank())?],
            false => (0..x.rank()).collect(),
        };
        let sides = [false, true].map(|is_max| {
            let y = extreme(c.cx, &x, &axes, is_max)?;
            kept_or_removed(c, &y, &axes, usize::from(is_max))
        });
        sides.into_iter().collect()
    }),
    ("aten.var_mean", |c| spread_mean(c, false)),
    ("aten.std_mean", |c| spread_mean(c, true)),
];

/// The first argument as floats.
fn floats(c: &Call<'_>) -> Lowered<Tensor> {
    let x = c.x()?;
    Ok(if x.ty.is_float() { x.tensor } else { c.cx.cast(&x, ScalarType::F32).tensor })
}

/// Removes axes of extent 1.
pub(super) fn without_axes(cx: &Context, x: &Tensor, axes: &[usize]) -> Lowered<Tensor> {
    let shape = cx.shape(x).into_iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    cx.reshape(x, &shape.map(|(_, size)| size).collect::<Vec<_>>())
}

/// A result of a reduction. The reduced axes are removed unless `keepdim` is set.
fn kept_or_removed(c: &Call<'_>, x: &Tensor, axes: &[usize], output: usize) -> Lowered<Value> {
    let kept = c.bool_or("keepdim", false)?;
    c.nth(output, &if kept { x.clone() } else { without_axes(c.cx, x, axes)? })
}

fn finished(c: &Call<'_>, x: &Tensor, axes: &[usize]) -> Lowered<Array> {
    let kept = c.bool_or("keepdim", c.bool_or("keep_dim", false)?)?;
    c.result(&if kept { x.clone() } else { without_axes(c.cx, x, axes)? })
}

/// The number of elements along axes, as a 0-dim float.
pub(super) fn count(cx: &Context, shape: &[Size], axes: &[usize]) -> Lowered<Tensor> {
    let size = Size::product(axes.iter().filter_map(|&axis| shape.get(axis)));
    Ok(cx.number(&crate::value::Number::Int(size), ScalarType::F32)?.tensor)
}

/// The sum of floats over axes, which keep extent 1.
pub(super) fn float_sum(x: &Tensor, axes: &[usize]) -> Tensor {
    let is_wide = |axis: &usize| *axis < x.rank() && x.dim(*axis).as_const() != Some(1);
    let wide: Vec<usize> = axes.iter().copied().filter(is_wide).collect();
    let sum = flat_sum(x, &wide).unwrap_or_else(|| wide.iter().rev().fold(x.clone(), |x, &axis| x.sum(axis)));
    if sum.dtype() == DType::F32 { sum } else { sum.cast(DType::F32) }
}

/// The sum over several axes as a sum over one flattened axis; `None` if the axes cannot be flattened.
fn flat_sum(x: &Tensor, axes: &[usize]) -> Option<Tensor> {
    if axes.len() < 2 {
        return None;
    }
    let kept: Vec<usize> = (0..x.rank()).filter(|axis| !axes.contains(axis)).collect();
    let order = [kept.as_slice(), axes].concat();
    let moved = x.permute(&order);
    let product = axes.iter().try_fold(Dim::from(1), |product, &axis| product.product(&x.dim(axis)))?;
    let flat: Vec<Dim> = kept.iter().map(|&axis| x.dim(axis)).chain([product]).collect();
    Reshape::runs(moved.shape(), &flat)?;
    let shape: Vec<Dim> =
        (0..x.rank()).map(|axis| if axes.contains(&axis) { Dim::from(1) } else { x.dim(axis) }).collect();
    Some(moved.reshape(flat).sum(kept.len()).reshape(shape))
}

pub(crate) fn mean(cx: &Context, x: &Tensor, axes: &[usize]) -> Lowered<Tensor> {
    Ok(float_sum(x, axes) / count(cx, &cx.shape(x), axes)?)
}

/// Makes a run fail in which a size exceeds `most`.
pub(super) fn limit(cx: &Context, size: &Size, most: usize, what: &str) -> Lowered<()> {
    let bounded = cx.sizes.borrow().most(size).is_some_and(|largest| largest <= most);
    if bounded {
        return Ok(());
    }
    if size.as_const().is_some() {
        return Fault::unsupported(format!("{what} of more than {most} elements"));
    }
    let host = cx.sizes.borrow_mut().host(size);
    if let Some(host) = host {
        host.at_most(&cx.scope.host_size(most), what);
    }
    Ok(())
}

/// The exact sum of bools or integers over axes as `I64`. The axes keep extent 1.
pub(super) fn integer_sum(cx: &Context, x: &Array, axes: &[usize]) -> Lowered<Tensor> {
    let x = cx.as_bools(x);
    bounded_sum(cx, &x.tensor, magnitude(&x), axes)
}

/// The exponent of two that bounds the integers of an array.
pub(super) fn magnitude(x: &Array) -> u32 {
    if x.ty == ScalarType::Bool { 0 } else { 8 * x.ty.bytes().max(4) as u32 }
}

/// The exact sum of bools or integers over axes as `I64`. Each is at most `2^magnitude`. The axes keep extent 1. Integers are split into
/// digits whose float sums are exact.
pub(super) fn bounded_sum(cx: &Context, x: &Tensor, magnitude: u32, axes: &[usize]) -> Lowered<Tensor> {
    let shape = cx.shape(x);
    let elements = Size::product(axes.iter().filter_map(|&axis| shape.get(axis)));
    let widest = match cx.sizes.borrow().most(&elements) {
        Some(most) if most <= 1 << 8 => 16,
        _ => 8,
    };
    let bits = magnitude.min(widest);
    let what = if magnitude == 0 { "a sum of bools" } else { "a sum of integers" };
    limit(cx, &elements, 1 << (24 - bits), what)?;
    if bits == magnitude {
        return Ok(float_sum(&x.cast(DType::F32), axes).cast(DType::I64));
    }
    let values = x.cast(DType::I64);
    let mut sum: Option<Tensor> = None;
    for shift in (0..magnitude).step_by(bits as usize) {
        let high = if shift == 0 { values.clone() } else { &values / (1i64 << shift) };
        let digit = if shift + bits < magnitude { high.modulo(1i64 << bits) } else { high };
        let total = float_sum(&digit.cast(DType::F32), axes).cast(DType::I64);
        let scaled = if shift == 0 { total } else { total * (1i64 << shift) };
        sum = Some(sum.map_or_else(|| scaled.clone(), |sum| sum + &scaled));
    }
    sum.ok_or_else(|| Fault::Program("an integer without bits".to_owned()))
}

/// The sum over axes, which keep extent 1; as `I64` for integers.
pub(super) fn total(cx: &Context, x: &Array, axes: &[usize]) -> Lowered<Tensor> {
    if x.ty.is_float() { Ok(float_sum(&x.tensor, axes)) } else { integer_sum(cx, x, axes) }
}

fn sum(c: &Call<'_>) -> Lowered<Array> {
    sum_of(c, &c.x()?)
}

fn sum_of(c: &Call<'_>, x: &Array) -> Lowered<Array> {
    let axes = c.axes("dim", x.rank())?;
    let ty = c.ty(0)?;
    let x = if ty.is_float() && !x.ty.is_float() { c.cx.cast(x, ty) } else { x.clone() };
    let x = if !ty.is_float() && x.ty.is_float() { c.cx.cast(&x, ty) } else { x };
    let y = total(c.cx, &x, &axes)?;
    finished(c, &if ty.is_float() { y } else { y.cast(ty.computed()) }, &axes)
}

fn nanmean(c: &Call<'_>) -> Lowered<Array> {
    let x = floats(c)?;
    let axes = c.axes("dim", x.rank())?;
    let absent = c.cx.is_nan(&x);
    let sum = float_sum(&absent.select(&c.cx.f(0.0), &x), &axes);
    let present = float_sum(&absent.not().cast(DType::F32), &axes);
    finished(c, &(sum / present), &axes)
}

/// The maximum or minimum over axes, which keep extent 1.
pub(super) fn extreme(cx: &Context, x: &Array, axes: &[usize], is_max: bool) -> Lowered<Tensor> {
    if x.rank() == 0 {
        return Ok(x.tensor.clone());
    }
    let reduced =
        |x: &Tensor| axes.iter().rev().fold(x.clone(), |x, &axis| if is_max { x.max(axis) } else { x.min(axis) });
    if x.ty.is_float() {
        return Ok(reduced(&x.tensor));
    }
    if x.ty == ScalarType::Bool {
        return Ok(reduced(&x.tensor.cast(DType::F32)).gt(0.5));
    }
    // Compares digits from high to low. Only elements whose higher digits are all extreme remain candidates.
    let digits: &[u32] = if x.ty == ScalarType::I64 { &[44, 22, 0] } else { &[16, 0] };
    let step = digits[0] - digits[1];
    let none = cx.f(if is_max { f64::NEG_INFINITY } else { f64::INFINITY });
    let (mut left, mut result): (Option<Tensor>, Option<Tensor>) = (None, None);
    for (n, &shift) in digits.iter().enumerate() {
        let high = if shift == 0 { x.tensor.clone() } else { &x.tensor / (1i64 << shift) };
        let digit = (if n == 0 { high } else { high.modulo(1i64 << step) }).cast(DType::F32);
        let candidates = left.as_ref().map_or_else(|| digit.clone(), |left| left.select(&digit, &none));
        let best = reduced(&candidates);
        let hits = candidates.equal(&best);
        left = Some(left.map_or_else(|| hits.clone(), |left| left.and(&hits)));
        let part = best.cast(x.tensor.dtype()) * (1i64 << shift);
        result = Some(result.map_or_else(|| part.clone(), |result| result + &part));
    }
    result.ok_or_else(|| Fault::Program("an integer without digits".to_owned()))
}

fn extreme_of(c: &Call<'_>, is_max: bool) -> Lowered<Array> {
    let x = c.x()?;
    let axes = c.axes("dim", x.rank())?;
    finished(c, &extreme(c.cx, &x, &axes, is_max)?, &axes)
}

/// The maximum or minimum along an axis, and its first position as `I64`. The position of NaN takes precedence.
pub(super) fn position(cx: &Context, x: &Array, axis: usize, is_max: bool) -> Lowered<(Tensor, Tensor)> {
    let best = extreme(cx, x, &[axis], is_max)?;
    let mut hits = x.tensor.equal(&best);
    if x.ty.is_float() {
        hits = hits.or(cx.is_nan(&x.tensor));
    }
    Ok((best, first(cx, &hits, axis)?))
}

/// The first position along an axis where a condition is true, as `I64`.
pub(super) fn first(cx: &Context, hits: &Tensor, axis: usize) -> Lowered<Tensor> {
    let shape = cx.shape(hits);
    limit(cx, &shape[axis], 1 << 24, "a search")?;
    let places = cx.positions(&shape, axis)?.cast(DType::F32);
    Ok(hits.select(&places, &cx.f(f64::INFINITY)).min(axis).cast(DType::I64))
}

fn arg(c: &Call<'_>, is_max: bool) -> Lowered<Array> {
    let x = c.x()?;
    if !c.has("dim") {
        let shape = c.cx.shape(&x.tensor);
        let flat = c.cx.reshape(&x.tensor, &[Size::product(&shape)])?;
        let (_, index) = position(c.cx, &Array { tensor: flat, ty: x.ty }, 0, is_max)?;
        return c.result(&c.cx.reshape(&index, &c.shape(0)?)?);
    }
    if x.rank() == 0 {
        return c.cx.scalar(0.0, ScalarType::I64);
    }
    let axis = c.axis("dim", x.rank())?;
    let (_, index) = position(c.cx, &x, axis, is_max)?;
    finished(c, &index, &[axis])
}

fn with_index(c: &Call<'_>, is_max: bool) -> Lowered<Vec<Value>> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Ok(vec![x.clone().into(), c.cx.scalar(0.0, ScalarType::I64)?.into()]);
    }
    let axis = c.axis("dim", x.rank())?;
    let (best, index) = position(c.cx, &x, axis, is_max)?;
    Ok(vec![kept_or_removed(c, &best, &[axis], 0)?, kept_or_removed(c, &index, &[axis], 1)?])
}

/// Number of doubling steps that cover an axis. If its extent is not bounded, the run checks it.
pub(super) fn doublings(cx: &Context, extent: &Size, what: &str) -> Lowered<u32> {
    let most = cx.sizes.borrow().most(extent).unwrap_or(MAX_DOUBLED).min(MAX_DOUBLED);
    limit(cx, extent, most, what)?;
    Ok(most.max(1).next_power_of_two().trailing_zeros())
}

/// Maximum number of elements of an axis for products by doubling.
const MAX_DOUBLED: usize = 1 << 16;

/// The product along an axis, which keeps extent 1. Adjacent elements are multiplied until one is left.
pub(super) fn product(cx: &Context, x: &Tensor, axis: usize) -> Lowered<Tensor> {
    let mut shape = cx.shape(x);
    let steps = doublings(cx, &shape[axis], "a product")?;
    let one = cx.scope.scalar(if x.dtype().is_float() { DType::F32 } else { x.dtype() }, 1i64);
    let mut y = x.clone();
    for step in 0..=steps {
        // A missing neighbour counts as 1, as does the product of no elements.
        let is_last = step == steps;
        shape[axis] = match is_last {
            true => Size::from(1),
            false => cx.quotient(&shape[axis].plus(&1.into()), &2.into())?,
        };
        let part = |other: i64| {
            let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
            index[axis] = coord(axis).binary(BinaryOp::Mul, 2i64).binary(BinaryOp::Add, other);
            cx.remap(&y, &shape, index, Some(&one), &[])
        };
        y = if is_last { part(0)? } else { part(0)? * part(1)? };
    }
    Ok(y)
}

fn prod(c: &Call<'_>) -> Lowered<Array> {
    let (x, ty) = (c.x()?, c.ty(0)?);
    let mut y = c.cx.cast(&x, ty).tensor;
    let axes = match c.has("dim") {
        true => vec![c.axis("dim", x.rank())?],
        false => (0..x.rank()).collect(),
    };
    for &axis in axes.iter().filter(|_| x.rank() > 0) {
        y = product(c.cx, &y, axis)?;
    }
    finished(c, &y, &axes)
}

fn truth(c: &Call<'_>, is_any: bool) -> Lowered<Array> {
    let x = c.cx.cast(&c.x()?, ScalarType::Bool);
    let axes = c.axes("dim", x.rank())?;
    let y = extreme(c.cx, &x, &axes, is_any)?;
    let declared = c.ty(0)?;
    finished(c, &c.cx.cast(&Array { tensor: y, ty: ScalarType::Bool }, declared).tensor, &axes)
}

/// Maximum number of bins of a histogram.
const MOST_BINS: i64 = 1 << 12;

/// Counts the elements in each bin of an interval, which by default is from the smallest to the largest element.
fn histogram(c: &Call<'_>) -> Lowered<Array> {
    let (x, bins) = (floats(c)?, c.int_or("bins", 100)?);
    if !(1..=MOST_BINS).contains(&bins) {
        return Fault::unsupported(format!("{bins} bins"));
    }
    let x = c.cx.reshape(&x, &[1.into(), Size::product(&c.cx.shape(&x))])?;
    let (low, high) = (c.float_or("min", 0.0)?, c.float_or("max", 0.0)?);
    let [low, high] = match low == high {
        true => [x.min(1), x.max(1)],
        false => [low, high].map(|bound| c.cx.f(bound)),
    };
    // If both bounds are equal, the interval is extended to length 2.
    let is_point = low.equal(&high);
    let [low, high] = [is_point.select(&(&low - 1.0), &low), is_point.select(&(&high + 1.0), &high)];
    let place = ((&x - &low) * bins as f64 / (&high - &low)).floor().minimum((bins - 1) as f64);
    let inside = x.ge(&low).and(x.le(&high));
    let rows = c.cx.positions(&[bins.into(), 1.into()], 0)?.cast(DType::F32);
    let hits = inside.and(place.equal(&rows)).cast(DType::F32);
    c.result(&c.cx.squeeze(&hits.sum(1), 1)?)
}

/// Mean and variance over axes, which keep extent 1.
pub(crate) fn moments(cx: &Context, x: &Tensor, axes: &[usize], correction: f64) -> Lowered<(Tensor, Tensor)> {
    let mean = mean(cx, x, axes)?;
    let centered = x - &mean;
    let elements = count(cx, &cx.shape(x), axes)?;
    let degrees = if correction == 0.0 { elements } else { (elements - correction).maximum(0.0) };
    Ok((mean, float_sum(&centered.square(), axes) / degrees))
}

fn spread_of(c: &Call<'_>, is_root: bool) -> Lowered<(Tensor, Tensor, Vec<usize>)> {
    let x = floats(c)?;
    let axes = c.axes("dim", x.rank())?;
    let correction = match c.has("correction") {
        true => c.float("correction")?,
        false => f64::from(u8::from(c.bool_or("unbiased", true)?)),
    };
    let (mean, variance) = moments(c.cx, &x, &axes, correction)?;
    Ok((mean, if is_root { variance.sqrt() } else { variance }, axes))
}

fn spread(c: &Call<'_>, is_root: bool) -> Lowered<Array> {
    let (_, spread, axes) = spread_of(c, is_root)?;
    finished(c, &spread, &axes)
}

fn spread_mean(c: &Call<'_>, is_root: bool) -> Lowered<Vec<Value>> {
    let (mean, spread, axes) = spread_of(c, is_root)?;
    Ok(vec![kept_or_removed(c, &spread, &axes, 0)?, kept_or_removed(c, &mean, &axes, 1)?])
}

fn logsumexp(c: &Call<'_>) -> Lowered<Array> {
    let x = floats(c)?;
    let axes = c.axes("dim", x.rank())?;
    let array = Array { tensor: x.clone(), ty: ScalarType::F32 };
    let largest = extreme(c.cx, &array, &axes, true)?;
    let finite = largest.abs().lt(f64::INFINITY).select(&largest, &c.cx.f(0.0));
    let sum = float_sum(&(x - &finite).exp(), &axes);
    finished(c, &(sum.log() + finite), &axes)
}

fn softmax(c: &Call<'_>, f: fn(&Tensor, usize, &Context) -> Lowered<Tensor>) -> Lowered<Array> {
    let x = floats(c)?;
    let axis = c.axis("dim", x.rank())?;
    if x.rank() == 0 {
        let y = f(&c.cx.reshape(&x, &[1.into()])?, 0, c.cx)?;
        return c.result(&c.cx.reshape(&y, &[])?);
    }
    c.result(&f(&x, axis, c.cx)?)
}

pub(super) fn log_softmax(x: &Tensor, axis: usize) -> Tensor {
    let shifted = x - x.max(axis);
    let sum = shifted.exp().sum(axis);
    shifted - sum.log()
}

fn norm(c: &Call<'_>) -> Lowered<Array> {
    let x = floats(c)?;
    let axes = c.axes("dim", x.rank())?;
    let order = match (c.has("p"), c.has("ord")) {
        (true, _) => c.float("p")?,
        (_, true) => c.float("ord")?,
        _ => 2.0,
    };
    finished(c, &p_norm(c.cx, &x, &axes, order)?, &axes)
}

/// The Frobenius norm, and norms defined as the largest or smallest sum of a row or column.
fn matrix_norm(c: &Call<'_>) -> Lowered<Array> {
    let x = floats(c)?;
    let axes = c.ints_or("dim", &[-2, -1])?.into_iter().map(|dim| axis(dim, x.rank())).collect::<Lowered<Vec<_>>>()?;
    let &[rows, columns] = axes.as_slice() else { return Fault::program("a matrix has two axes") };
    let order = match c.get("ord") {
        None | Some(Value::String(_)) => match c.string_or("ord", "fro")?.as_str() {
            "fro" => None,
            other => return Fault::unsupported(format!("the norm `{other}`")),
        },
        Some(_) => Some(c.float("ord")?),
    };
    let magnitude = x.abs();
    let sums = |axis: usize| Array { tensor: float_sum(&magnitude, &[axis]), ty: ScalarType::F32 };
    let y = match order {
        None => p_norm(c.cx, &x, &axes, 2.0)?,
        Some(order) if order.abs() == 1.0 => extreme(c.cx, &sums(rows), &[columns], order > 0.0)?,
        Some(order) if order.is_infinite() => extreme(c.cx, &sums(columns), &[rows], order > 0.0)?,
        Some(order) => return Fault::unsupported(format!("the matrix norm {order}")),
    };
    finished(c, &y, &axes)
}

/// The p-norm over axes, which keep extent 1.
pub(super) fn p_norm(cx: &Context, x: &Tensor, axes: &[usize], order: f64) -> Lowered<Tensor> {
    let magnitude = Array { tensor: x.abs(), ty: ScalarType::F32 };
    Ok(match order {
        f64::INFINITY => extreme(cx, &magnitude, axes, true)?,
        f64::NEG_INFINITY => extreme(cx, &magnitude, axes, false)?,
        0.0 => float_sum(&x.not_equal(0.0).cast(DType::F32), axes),
        1.0 => float_sum(&magnitude.tensor, axes),
        2.0 => float_sum(&x.square(), axes).sqrt(),
        order => float_sum(&magnitude.tensor.pow(order), axes).pow(order.recip()),
    })
}
