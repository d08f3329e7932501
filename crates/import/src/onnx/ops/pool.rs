//! Pooling.

use super::conv::Spatial;
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::aten::{Combine, Sliding};
use crate::onnx::item::Item;
use crate::onnx::node::{Node, ints};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("AveragePool", average),
    ("LpPool", |n| {
        let x = n.x()?;
        let (order, windows) = (n.int("p", 2) as f64, Pool::of(n, &x)?);
        let powers = if order == 2.0 { n.f32(&x).square() } else { n.f32(&x).abs().pow(order) };
        let sum = windows.sum(n, &powers)?;
        n.stored(&if order == 2.0 { sum.sqrt() } else { sum.pow(order.recip()) }, x.ty)
    }),
    ("GlobalAveragePool", |n| global(n, |n, x, axes| crate::aten::mean(n.cx, x, axes))),
    ("GlobalMaxPool", |n| global(n, |_, x, axes| Ok(axes.iter().rev().fold(x.clone(), |x, &axis| x.max(axis))))),
    ("GlobalLpPool", |n| {
        global(n, |n, x, axes| {
            let order = n.int("p", 2) as f64;
            let sum = axes.iter().rev().fold(x.abs().pow(order), |x, &axis| x.sum(axis));
            Ok(sum.pow(order.recip()))
        })
    }),
    ("MaxUnpool", unpool),
];

pub(super) const MANY: Many = &[("MaxPool", max_pool)];

struct Pool {
    spatial: Spatial,
    shape: Vec<Size>,
}

impl Pool {
    fn of(n: &Node<'_>, x: &Array) -> Lowered<Self> {
        let shape = n.shape(x);
        let kernel = n.ints("kernel_shape").ok_or_else(|| Fault::Program("a pool without a kernel".to_owned()))?;
        if shape.len() != kernel.len() + 2 {
            return Fault::program("a pool of another number of axes");
        }
        let spatial = Spatial::of(n, kernel, &shape[2..])?;
        let shape = [&shape[..2], spatial.places.as_slice()].concat();
        Ok(Self { spatial, shape })
    }

    fn sliding(&self) -> Sliding {
        let window = &self.spatial;
        Sliding {
            kernel: window.kernel.clone(),
            stride: window.strides.clone(),
            padding: window.before(),
            dilation: window.dilations.clone(),
        }
    }

    fn sum(&self, n: &Node<'_>, x: &Tensor) -> Lowered<Tensor> {
        crate::aten::combined(n.cx, x, &self.sliding(), &self.shape, Combine::Sum)
    }
}

/// The mean of the elements of each window that are in the image, optionally including its padding.
fn average(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let pool = Pool::of(n, &x)?;
    let sum = pool.sum(n, &n.f32(&x))?;
    let own = n.shape(&x);
    let window = &pool.spatial;
    let mut count: Option<Tensor> = None;
    for (axis, &[before, after]) in window.pads.iter().enumerate() {
        let (low, high) = match n.is("count_include_pad") {
            true => (-before, own[2 + axis].plus(&after.into())),
            false => (0, own[2 + axis].clone()),
        };
        let grid = [window.places[axis].clone(), window.kernel[axis].into()];
        let place = n.cx.positions(&grid, 0)? * window.strides[axis] - before;
        let place = place + n.cx.positions(&grid, 1)? * window.dilations[axis];
        let inside = place.ge(low).and(place.lt(&n.number(&high)?));
        let mut along = vec![Size::from(1); window.pads.len() - axis];
        along[0] = window.places[axis].clone();
        let own = n.cx.reshape(&inside.cast(DType::F32).sum(1), &along)?;
        count = Some(count.map_or_else(|| own.clone(), |count| count * &own));
    }
    let count = count.ok_or_else(|| Fault::Program("a window without axes".to_owned()))?;
    n.stored(&(sum / count), x.ty)
}

fn global(n: &Node<'_>, f: fn(&Node<'_>, &Tensor, &[usize]) -> Lowered<Tensor>) -> Lowered<Array> {
    let x = n.x()?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    n.stored(&f(n, &x.tensor, &axes)?, x.ty)
}

fn max_pool(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let x = n.x()?;
    let pool = Pool::of(n, &x)?;
    // 8-bit integers are exact in f32.
    let own = n.cx.cast(&x, ScalarType::F32);
    let rank = pool.spatial.kernel.len();
    if rank > 3 {
        return Fault::unsupported("windows of more than three axes");
    }
    let name = format!("aten.max_pool{rank}d{}", if n.gives(1) { "_with_indices" } else { "" });
    let window = pool.sliding();
    let arguments = vec![
        ("self", Value::Tensor(own)),
        ("kernel_size", ints(&window.kernel)),
        ("stride", ints(&window.stride)),
        ("padding", ints(&window.padding)),
        ("dilation", ints(&window.dilation)),
    ];
    if !n.gives(1) {
        let y = n.aten(&name, arguments, ScalarType::F32, &pool.shape)?;
        return Ok(vec![n.cx.cast(&y, x.ty).into()]);
    }
    let results = [(ScalarType::F32, pool.shape.clone()), (ScalarType::I64, pool.shape.clone())];
    let mut items = n.aten_many(&name, arguments, &results)?.into_iter();
    let (Some(Item::Array(y)), Some(Item::Array(flat))) = (items.next(), items.next()) else {
        return Fault::program("a pool without results");
    };
    let flat = flat_places(n, &x, &pool, &flat.tensor)?;
    Ok(vec![n.cx.cast(&y, x.ty).into(), Item::Array(Array { tensor: flat, ty: ScalarType::I64 })])
}

/// Converts flat indices within planes to flat indices within the whole tensor.
fn flat_places(n: &Node<'_>, x: &Array, pool: &Pool, flat: &Tensor) -> Lowered<Tensor> {
    let own = n.shape(x);
    let plane = Size::product(&own[2..]);
    let image = n.cx.positions(&pool.shape, 0)? * n.number(&own[1])? + n.cx.positions(&pool.shape, 1)?;
    let start = image * n.number(&plane)?;
    if !n.is("storage_order") {
        return Ok(flat + start);
    }
    // Column-major order: the first spatial axis varies fastest.
    let mut rest = flat.clone();
    let mut coordinates = vec![];
    for size in own[2..].iter().rev() {
        let extent = n.number(size)?;
        coordinates.push(rest.modulo(&extent));
        rest = rest / extent;
    }
    let mut place: Option<Tensor> = None;
    for (coordinate, size) in coordinates.iter().zip(own[2..].iter().rev()) {
        place = Some(match place {
            None => coordinate.clone(),
            Some(place) => place * n.number(size)? + coordinate,
        });
    }
    Ok(place.ok_or_else(|| Fault::Program("a window without axes".to_owned()))? + start)
}

/// Writes elements to the positions that max pooling returned.
fn unpool(n: &Node<'_>) -> Lowered<Array> {
    let (x, places) = (n.x()?, n.array(1)?);
    let own = n.extents(&x)?;
    let list = |name: &str, default: i64| n.ints(name).unwrap_or_else(|| vec![default; own.len().saturating_sub(2)]);
    let (kernel, strides) = (list("kernel_shape", 1), list("strides", 1));
    let pads = n.ints("pads").unwrap_or_else(|| vec![0; 2 * kernel.len()]);
    if own.len() != kernel.len() + 2 || strides.len() != kernel.len() || pads.len() != 2 * kernel.len() {
        return Fault::program("MaxUnpool: a window of another number of axes");
    }
    let mut inner: Vec<i64> = own[..2].iter().map(|&extent| extent as i64).collect();
    for axis in 0..kernel.len() {
        let extent = (own[2 + axis] as i64 - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[kernel.len() + axis];
        inner.push(extent);
    }
    let shape = if n.has(2) { n.known_ints(2)? } else { inner.clone() };
    let flat = |x: &Tensor| n.cx.reshape(x, &[Size::product(&n.cx.shape(x))]);
    let count: i64 = inner.iter().product();
    let zeros = n.cx.expand(&n.cx.zero(&x.tensor), &[count.into()])?;
    let arguments = vec![
        ("self", Value::Tensor(Array { tensor: zeros, ty: x.ty })),
        ("dim", Value::int(0)),
        ("index", Value::Tensor(Array { tensor: flat(&places.tensor)?, ty: places.ty })),
        ("src", Value::Tensor(Array { tensor: flat(&x.tensor)?, ty: x.ty })),
    ];
    if shape != inner {
        return Fault::unsupported("an output shape of its own");
    }
    let y = n.aten("aten.scatter", arguments, x.ty, &[])?;
    let shape: Vec<Size> = shape.into_iter().map(Size::from).collect();
    Ok(Array { tensor: n.cx.reshape(&y.tensor, &shape)?, ty: x.ty })
}
