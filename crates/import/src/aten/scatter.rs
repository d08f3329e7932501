//! Writes elements at indices. If several sources have the same position, the last one wins.

use super::One;
use super::binary::{computed, operand};
use super::index::{Advanced, integers};
use super::reduce::{extreme, limit, product, total};
use crate::ScalarType;
use crate::array::Array;
use crate::call::{Call, Declared};
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered, Number, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.scatter", |c| match c.string_or("reduce", "")?.as_str() {
        "" => scatter(c, None),
        "add" => scatter(c, Some("sum")),
        "multiply" => scatter(c, Some("prod")),
        other => Fault::unsupported(format!("reduce=`{other}`")),
    }),
    ("aten.scatter_add", |c| scatter(c, Some("sum"))),
    ("aten.scatter_reduce", |c| {
        let reduce = c.string_or("reduce", "")?;
        scatter(c, Some(&reduce))
    }),
    ("aten.index_put", index_put),
    ("aten._unsafe_index_put", index_put),
    ("aten._index_put_impl", index_put),
    ("aten.index_add", |c| along_axis(c, "source", Write::Add)),
    ("aten.index_copy", |c| along_axis(c, "source", Write::Set)),
    ("aten.index_fill", |c| {
        let x = c.x()?;
        let axis = c.axis("dim", x.rank())?;
        let index = integers(&c.tensor("index")?)?.cast(DType::I64);
        let index = c.cx.reshape(&index, &[Size::product(&c.cx.shape(&index))])?;
        let extent = c.cx.extent(&x.tensor, axis);
        let hits = hits(c.cx, &index, &extent)?;
        let hit = hits.cast(DType::F32).max(1).gt(0.5);
        let mut shape = vec![Size::from(1); x.rank() - axis];
        shape[0] = extent;
        let hit = c.cx.reshape(&hit, &shape)?;
        let value = computed(c, &operand(c, "value")?, x.ty)?;
        c.result(&hit.select(&value, &x.tensor))
    }),
    ("aten.diagonal_scatter", |c| {
        let (x, source) = (c.x()?, c.tensor("src")?);
        let (offset, rank) = (c.int_or("offset", 0)?, x.rank());
        let [a, b] = [("dim1", 0), ("dim2", 1)].map(|(name, default)| c.axis_or(name, default, rank));
        let (a, b) = (a?, b?);
        let shape = c.cx.shape(&x.tensor);
        let others = (0..rank).filter(|axis| *axis != a && *axis != b).map(coord);
        let place = coord(a).binary(BinaryOp::Sub, (-offset).max(0));
        let spread = c.cx.remap(&source.tensor, &shape, others.chain([place]).collect(), None, &[])?;
        let on = (c.cx.positions(&shape, b)? - c.cx.positions(&shape, a)?).equal(offset);
        c.result(&on.select(&spread, &x.tensor))
    }),
];

/// Whether source `j` is written to position `i`, `[positions, sources]`.
fn hits(cx: &Context, index: &Tensor, places: &Size) -> Lowered<Tensor> {
    let sources = cx.extent(index, 0);
    let shape = [places.clone(), sources];
    let index = cx.unsqueeze(index, 0)?;
    // Negative indices count from the end.
    let extent = cx.number(&Number::Int(places.clone()), ScalarType::I64)?.tensor;
    let index = index.lt(0i64).select(&(&index + extent), &index);
    Ok(index.equal(&cx.positions(&shape, 0)?))
}

/// The index of the last source of every position along an axis, -1 without one. The axis is removed.
fn last(cx: &Context, hits: &Tensor, axis: usize) -> Lowered<Tensor> {
    let shape = cx.shape(hits);
    limit(cx, &shape[axis], 1 << 24, "sources")?;
    let sources = cx.positions(&shape, axis)?.cast(DType::F32);
    cx.squeeze(&hits.select(&sources, &cx.f(-1.0)).max(axis).cast(DType::I64), axis)
}

/// Pads `x` to a larger shape with `value`.
fn padded(cx: &Context, x: &Tensor, shape: &[Size], value: &Tensor) -> Lowered<Tensor> {
    if cx.shape(x) == shape {
        return Ok(x.clone());
    }
    cx.remap(x, shape, (0..shape.len()).map(coord).collect(), Some(value), &[])
}

/// A scatter along an axis.
struct Scatter {
    axis: usize,
    /// Whether a source is written to a position. Sources are the axis after positions.
    hits: Tensor,
    /// The sources, broadcast to the shape of `hits`.
    sources: Tensor,
    ty: ScalarType,
    shape: Vec<Size>,
}

impl Scatter {
    fn of(c: &Call<'_>, x: &Array) -> Lowered<Self> {
        let index = integers(&c.tensor("index")?)?.cast(DType::I64);
        let axis = c.axis("dim", x.rank())?;
        let shape = c.cx.shape(&x.tensor);
        let extents = c.cx.shape(&index);
        let source = match c.has("src") {
            true => c.cx.cast(&c.tensor("src")?, x.ty).tensor,
            false => c.cx.expand(&computed(c, &operand(c, "value")?, x.ty)?, &extents)?,
        };
        // Sources outside the shape of the index are not used.
        let source = c.cx.remap(&source, &extents, (0..extents.len()).map(coord).collect(), None, &[])?;
        let mut across = extents.clone();
        across.insert(axis, 1.into());
        let (index, sources) = (c.cx.reshape(&index, &across)?, c.cx.reshape(&source, &across)?);
        across[axis] = shape[axis].clone();
        let hits = index.equal(&c.cx.positions(&across, axis)?);
        Ok(Self { axis, hits, sources, ty: x.ty, shape })
    }

    /// The source that is written to every position, or `value` where there is none.
    fn selected(&self, value: &Tensor) -> Tensor {
        self.hits.select(&self.sources, value)
    }

    fn reduced(&self, cx: &Context, reduce: &str) -> Lowered<Tensor> {
        let axis = self.axis + 1;
        let array = |tensor: Tensor| Array { tensor, ty: self.ty };
        let number = |value: f64| Ok(cx.scalar(value, self.ty)?.tensor);
        let y = match reduce {
            "sum" | "mean" => total(cx, &array(self.selected(&number(0.0)?)), &[axis])?.cast(self.ty.computed()),
            "prod" => product(cx, &self.selected(&number(1.0)?), axis)?,
            "amax" | "amin" if self.ty.is_float() => {
                let is_max = reduce == "amax";
                let least = number(if is_max { f64::NEG_INFINITY } else { f64::INFINITY })?;
                extreme(cx, &array(self.selected(&least)), &[axis], is_max)?
            }
            other => return Fault::unsupported(format!("reduce=`{other}` of {}", self.ty)),
        };
        cx.squeeze(&y, axis)
    }

    fn counts(&self, cx: &Context) -> Lowered<Tensor> {
        let axis = self.axis + 1;
        let counts = cx.squeeze(&self.hits.cast(DType::F32).sum(axis), axis)?;
        padded(cx, &counts, &self.shape, &cx.f(0.0))
    }
}

fn scatter(c: &Call<'_>, reduce: Option<&str>) -> Lowered<Array> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Fault::unsupported("a tensor without axes");
    }
    let parts = Scatter::of(c, &x)?;
    let cx = c.cx;
    let Some(reduce) = reduce else {
        let winner = last(cx, &parts.hits, parts.axis + 1)?;
        let extents = cx.shape(&parts.sources);
        let source: Vec<Size> =
            extents.iter().enumerate().filter(|(axis, _)| *axis != parts.axis).map(|(_, size)| size.clone()).collect();
        let source = cx.reshape(&parts.sources, &source)?;
        let winner = padded(cx, &winner, &parts.shape, &cx.scope.scalar(DType::I64, -1i64))?;
        let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
        index[parts.axis] = IndexExpr::Load { operand: 1, index: (0..x.rank()).map(coord).collect() };
        let value = cx.remap(&source, &parts.shape, index, None, &[&winner])?;
        return c.result(&winner.ge(0i64).select(&value, &x.tensor));
    };
    let includes = c.bool_or("include_self", true)?;
    let combined = parts.reduced(cx, reduce)?;
    let combined = padded(cx, &combined, &parts.shape, &cx.zero(&combined))?;
    let count = parts.counts(cx)?;
    let hit = count.gt(0.5);
    let own = &x.tensor;
    let y = match (reduce, includes) {
        ("sum", true) => own + &combined,
        ("prod", true) => hit.select(&(own * &combined), own),
        ("amax", true) => hit.select(&own.maximum(&combined), own),
        ("amin", true) => hit.select(&own.minimum(&combined), own),
        ("mean", _) if x.ty.is_float() => {
            let (sum, count) = if includes { (own + &combined, count + 1.0) } else { (combined, count) };
            hit.select(&(sum / count), own)
        }
        ("mean", _) => return Fault::unsupported("a mean of integers"),
        _ => hit.select(&combined, own),
    };
    c.result(&y)
}

/// Writes sources at indices along an axis.
pub(super) fn scattered(c: &Call<'_>, x: Array, axis: usize, index: Array, source: Array) -> Lowered<Array> {
    let declared = Declared { ty: x.ty, shape: Ok(c.cx.shape(&x.tensor)) };
    let arguments = [("dim", Value::int(axis)), ("index", index.into()), ("src", source.into())];
    let arguments = arguments.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    scatter(&Call { arguments, order: vec![x.into()], declared: vec![Some(declared)], ..*c }, None)
}

/// How a source is combined with the element that it is written to.
#[derive(Clone, Copy, PartialEq)]
enum Write {
    Set,
    Add,
}

/// Writes sources `[sources, ..]` at row indices of `rows` `[positions, ..]`.
fn rows_written(cx: &Context, rows: &Array, index: &Tensor, sources: &Tensor, write: Write) -> Lowered<Tensor> {
    let places = cx.extent(&rows.tensor, 0);
    let rank = rows.rank();
    let hits = hits(cx, index, &places)?;
    if write == Write::Add {
        let mut shape = cx.shape(&hits);
        shape.resize(rank + 1, 1.into());
        let hits = cx.reshape(&hits, &shape)?;
        let spread = hits.select(&cx.unsqueeze(sources, 0)?, &cx.zero(sources));
        let sum = total(cx, &Array { tensor: spread, ty: rows.ty }, &[1])?;
        return Ok(&rows.tensor + cx.squeeze(&sum, 1)?.cast(rows.ty.computed()));
    }
    let winner = last(cx, &hits, 1)?;
    let mut index: Vec<IndexExpr> = (0..rank).map(coord).collect();
    index[0] = IndexExpr::Load { operand: 1, index: vec![coord(0)] };
    let value = cx.remap(sources, &cx.shape(&rows.tensor), index, None, &[&winner])?;
    let mut shape = vec![Size::from(1); rank];
    shape[0] = places;
    let hit = cx.reshape(&winner.ge(0i64), &shape)?;
    Ok(hit.select(&value, &rows.tensor))
}

fn along_axis(c: &Call<'_>, name: &str, write: Write) -> Lowered<Array> {
    let (x, source) = (c.x()?, c.tensor(name)?);
    if x.rank() == 0 {
        return Fault::unsupported("a tensor without axes");
    }
    let axis = c.axis("dim", x.rank())?;
    let index = integers(&c.tensor("index")?)?.cast(DType::I64);
    let index = c.cx.reshape(&index, &[Size::product(&c.cx.shape(&index))])?;
    let mut source = c.cx.cast(&source, x.ty).tensor;
    if c.has("alpha") {
        source = source * computed(c, &operand(c, "alpha")?, x.ty)?;
    }
    let rows = Array { tensor: x.tensor.transpose(0, axis), ty: x.ty };
    let y = rows_written(c.cx, &rows, &index, &source.transpose(0, axis), write)?;
    c.result(&y.transpose(0, axis))
}

fn index_put(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let values = c.cx.cast(&c.tensor("values")?, x.ty).tensor;
    let write = if c.bool_or("accumulate", false)? { Write::Add } else { Write::Set };
    let given = c.optional_tensors("indices")?;
    if let [Some(mask)] = given.as_slice()
        && mask.ty == ScalarType::Bool
    {
        return masked(c, &x, &mask.tensor, &values, write);
    }
    let by = Advanced::of(c, x.rank())?;
    let own = c.cx.shape(&x.tensor);
    let indexed: Vec<usize> = (0..x.rank()).filter(|&axis| by.indices[axis].is_some()).collect();
    let rest: Vec<usize> = (0..x.rank()).filter(|&axis| by.indices[axis].is_none()).collect();
    let sizes = |axes: &[usize]| axes.iter().map(|&axis| own[axis].clone()).collect::<Vec<_>>();
    let (places, others) = (sizes(&indexed), sizes(&rest));
    // The flat index of every source.
    let mut flat: Option<Tensor> = None;
    for &axis in &indexed {
        let Some(index) = &by.indices[axis] else { continue };
        let extent = c.cx.number(&Number::Int(own[axis].clone()), ScalarType::I64)?.tensor;
        let index = index.cast(DType::I64);
        let index = index.lt(0i64).select(&(&index + &extent), &index);
        flat = Some(flat.map_or_else(|| index.clone(), |flat| flat * &extent + &index));
    }
    let flat = flat.ok_or_else(|| Fault::Program("index_put without an index".to_owned()))?;
    let sources = Size::product(&by.shape);
    let flat = c.cx.reshape(&c.cx.expand(&flat, &by.shape)?, std::slice::from_ref(&sources))?;
    // Values have the shape of the indexed result. Here the index axes come first.
    let shape = [&others[..by.place], by.shape.as_slice(), &others[by.place..]].concat();
    let values = c.cx.expand(&values, &shape)?;
    let own_axes = by.place..by.place + by.shape.len();
    let order: Vec<usize> = own_axes.clone().chain((0..shape.len()).filter(|axis| !own_axes.contains(axis))).collect();
    let values = c.cx.reshape(&values.permute(&order), &[vec![sources], others.clone()].concat())?;
    let order = [indexed, rest].concat();
    let front = x.tensor.permute(&order);
    let rows = c.cx.reshape(&front, &[vec![Size::product(&places)], others].concat())?;
    let rows = rows_written(c.cx, &Array { tensor: rows, ty: x.ty }, &flat, &values, write)?;
    let front = c.cx.reshape(&rows, &c.cx.shape(&front))?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    c.result(&front.permute(&back))
}

/// Writes one value to all elements where a mask is true.
fn masked(c: &Call<'_>, x: &Array, mask: &Tensor, values: &Tensor, write: Write) -> Lowered<Array> {
    let is_one = values.shape().iter().all(|dim| dim.as_const() == Some(1));
    if !is_one {
        return Fault::unsupported("values by a mask, whose number depends on data");
    }
    let mut shape = c.cx.shape(mask);
    shape.resize(x.rank(), 1.into());
    let mask = c.cx.reshape(mask, &shape)?;
    let value = c.cx.reshape(values, &[])?;
    let value = if write == Write::Add { &x.tensor + value } else { value };
    c.result(&mask.select(&value, &x.tensor))
}
