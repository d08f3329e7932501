//! Matrix products.

use super::One;
use super::activation::common;
use super::binary::{computed, operand};
use crate::array::Array;
use crate::call::{Call, axis};
use crate::context::Context;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::Tensor;
use std::collections::BTreeMap;

pub(super) const ONE: One = &[
    ("aten.mm", |c| two(c, ["self", "mat2"])),
    ("aten.bmm", |c| two(c, ["self", "mat2"])),
    ("aten.matmul", |c| two(c, ["self", "other"])),
    ("aten.linalg_matmul", |c| two(c, ["self", "other"])),
    ("aten.mv", |c| two(c, ["self", "vec"])),
    ("aten.dot", |c| two(c, ["self", "tensor"])),
    ("aten.vdot", |c| two(c, ["self", "other"])),
    ("aten.inner", |c| {
        let (a, b) = (c.x()?, c.tensor("other")?);
        if a.rank() != 1 || b.rank() != 1 {
            let dims = [a.rank().saturating_sub(1), b.rank().saturating_sub(1)];
            return c.result(&contract(c.cx, [&a.tensor, &b.tensor], [&[dims[0]], &[dims[1]]])?);
        }
        two(c, ["self", "other"])
    }),
    ("aten.outer", |c| outer(c, ["self", "vec2"])),
    ("aten.ger", |c| outer(c, ["self", "vec2"])),
    ("aten.addmm", |c| added(c, ["mat1", "mat2"])),
    ("aten.baddbmm", |c| added(c, ["batch1", "batch2"])),
    ("aten.addmv", |c| added(c, ["mat", "vec"])),
    ("aten.addbmm", |c| {
        let ([x, a, b], ty) = common(c, ["self", "batch1", "batch2"])?;
        only_floats(ty.is_float())?;
        let product = c.cx.squeeze(&a.matmul(&b).sum(0), 0)?;
        c.result(&scaled_sum(c, &x, &product)?)
    }),
    ("aten.addr", |c| {
        let ([x, a, b], ty) = common(c, ["self", "vec1", "vec2"])?;
        only_floats(ty.is_float())?;
        let product = c.cx.unsqueeze(&a, 1)? * b;
        c.result(&scaled_sum(c, &x, &product)?)
    }),
    ("aten.linear", |c| {
        let (x, weight) = (c.x()?, c.tensor("weight")?);
        only_floats(x.ty.is_float())?;
        let weight = if weight.rank() == 1 { c.cx.unsqueeze(&weight.tensor, 0)? } else { weight.tensor };
        let y = matmul(c.cx, &x.tensor, &weight.transpose(0, 1))?;
        let y = match c.optional_tensor("bias")? {
            Some(bias) => y + bias.tensor,
            None => y,
        };
        c.result(&c.cx.reshape(&y, &c.shape(0)?)?)
    }),
    ("aten.bilinear", bilinear),
    ("aten.einsum", einsum),
    ("aten.tensordot", |c| {
        let (a, b) = (c.x()?, c.tensor("other")?);
        only_floats(a.ty.is_float() && b.ty.is_float())?;
        let places = |name: &str, rank: usize| -> Lowered<Vec<usize>> {
            c.ints(name)?.into_iter().map(|dim| axis(dim, rank)).collect()
        };
        let (own, other) = (places("dims_self", a.rank())?, places("dims_other", b.rank())?);
        c.result(&contract(c.cx, [&a.tensor, &b.tensor], [&own, &other])?)
    }),
    ("aten.kron", kron),
    ("aten.chain_matmul", |c| chain(c, "matrices")),
    ("aten.linalg_multi_dot", |c| chain(c, "tensors")),
    ("aten._trilinear", trilinear),
];

/// The product of a list of matrices.
fn chain(c: &Call<'_>, name: &str) -> Lowered<Array> {
    let mut matrices = c.tensors(name)?.into_iter();
    let first = matrices.next().ok_or_else(|| Fault::Program("no matrices".to_owned()))?;
    let product = matrices.try_fold(first.tensor, |product, matrix| matmul(c.cx, &product, &matrix.tensor))?;
    c.result(&product)
}

/// The product of three tensors with inserted axes, summed over some axes.
fn trilinear(c: &Call<'_>) -> Lowered<Array> {
    let mut product: Option<Tensor> = None;
    for n in ["1", "2", "3"] {
        let x = c.tensor(&format!("i{n}"))?;
        only_floats(x.ty.is_float())?;
        let mut dims = c.ints(&format!("expand{n}"))?;
        dims.sort_unstable();
        let place = |x: Tensor, dim: i64| c.cx.unsqueeze(&x, axis(dim, x.rank() + 1)?);
        let x = dims.into_iter().try_fold(x.tensor, place)?;
        product = Some(product.map_or_else(|| x.clone(), |product| product * &x));
    }
    let product = product.ok_or_else(|| Fault::Program("no factors".to_owned()))?;
    let axes = c.ints("sumdim")?.into_iter().map(|dim| axis(dim, product.rank())).collect::<Lowered<Vec<_>>>()?;
    let sum = super::reduce::float_sum(&product, &axes);
    c.result(&super::reduce::without_axes(c.cx, &sum, &axes)?)
}

fn only_floats(is_float: bool) -> Lowered<()> {
    if is_float { Ok(()) } else { Fault::unsupported("a product of integer matrices") }
}

/// The product of matrices or vectors, as defined by torch.matmul.
pub(super) fn matmul(cx: &Context, a: &Tensor, b: &Tensor) -> Lowered<Tensor> {
    let (first, second) = (a.rank() == 1, b.rank() == 1);
    let a = if first { cx.unsqueeze(a, 0)? } else { a.clone() };
    let b = if second { cx.unsqueeze(b, 1)? } else { b.clone() };
    let mut y = a.matmul(&b);
    if y.is_poisoned() {
        return Ok(y);
    }
    if second {
        y = cx.squeeze(&y, y.rank() - 1)?;
    }
    if first {
        y = cx.squeeze(&y, y.rank() - 1 - usize::from(!second))?;
    }
    Ok(y)
}

fn two(c: &Call<'_>, names: [&str; 2]) -> Lowered<Array> {
    let ([a, b], ty) = common(c, names)?;
    only_floats(ty.is_float())?;
    c.result(&matmul(c.cx, &a, &b)?)
}

fn outer(c: &Call<'_>, names: [&str; 2]) -> Lowered<Array> {
    let ([a, b], _) = common(c, names)?;
    c.result(&(c.cx.unsqueeze(&a, 1)? * b))
}

/// `beta x + alpha product`
fn scaled_sum(c: &Call<'_>, x: &Tensor, product: &Tensor) -> Lowered<Tensor> {
    let ty = crate::ScalarType::F32;
    let product = if c.has("alpha") { product * &computed(c, &operand(c, "alpha")?, ty)? } else { product.clone() };
    if !c.has("beta") {
        return Ok(product + x);
    }
    // If beta is 0, `x` is ignored, even if it is NaN.
    if c.float("beta").is_ok_and(|beta| beta == 0.0) {
        return Ok(product);
    }
    Ok(product + x * &computed(c, &operand(c, "beta")?, ty)?)
}

fn added(c: &Call<'_>, names: [&str; 2]) -> Lowered<Array> {
    let ([x, a, b], ty) = common(c, ["self", names[0], names[1]])?;
    only_floats(ty.is_float())?;
    let product = matmul(c.cx, &a, &b)?;
    let y = scaled_sum(c, &x, &product)?;
    c.result(&y)
}

/// `y[.., o] = sum over i, j of a[.., i] weight[o, i, j] b[.., j] + bias[o]`
fn bilinear(c: &Call<'_>) -> Lowered<Array> {
    let (a, b, weight) = (c.tensor("input1")?, c.tensor("input2")?, c.tensor("weight")?);
    only_floats(a.ty.is_float())?;
    let shape = c.cx.shape(&weight.tensor);
    let [outputs, left, right] = [0, 1, 2].map(|axis| shape[axis].clone());
    let matrix = c.cx.reshape(&weight.tensor.permute(&[1, 0, 2]), &[left, outputs.times(&right)])?;
    let mut split = c.cx.shape(&a.tensor);
    split.pop();
    split.extend([outputs, right]);
    let partial = c.cx.reshape(&matmul(c.cx, &a.tensor, &matrix)?, &split)?;
    let other = c.cx.unsqueeze(&b.tensor, b.rank())?;
    let y = c.cx.squeeze(&partial.matmul(&other), split.len() - 1)?;
    c.result(&match c.optional_tensor("bias")? {
        Some(bias) => y + bias.tensor,
        None => y,
    })
}

/// The product of two tensors, summed over pairs of axes. The remaining axes of `a` precede the remaining axes of `b`.
fn contract(cx: &Context, [a, b]: [&Tensor; 2], [own, other]: [&[usize]; 2]) -> Lowered<Tensor> {
    let free = |x: &Tensor, used: &[usize]| (0..x.rank()).filter(|axis| !used.contains(axis)).collect::<Vec<_>>();
    let (left, right) = (free(a, own), free(b, other));
    let sizes = |x: &Tensor, axes: &[usize]| {
        let shape = cx.shape(x);
        axes.iter().map(|&axis| shape[axis].clone()).collect::<Vec<_>>()
    };
    let depth = Size::product(&sizes(a, own));
    let (rows, columns) = (sizes(a, &left), sizes(b, &right));
    let first = a.permute(&[left.as_slice(), own].concat());
    let second = b.permute(&[other, right.as_slice()].concat());
    let first = cx.reshape(&first, &[Size::product(&rows), depth.clone()])?;
    let second = cx.reshape(&second, &[depth, Size::product(&columns)])?;
    cx.reshape(&first.matmul(&second), &[rows, columns].concat())
}

fn kron(c: &Call<'_>) -> Lowered<Array> {
    let ([a, b], _) = common(c, ["self", "other"])?;
    let rank = a.rank().max(b.rank());
    let padded = |x: &Tensor| [vec![Size::from(1); rank - x.rank()], c.cx.shape(x)].concat();
    let (left, right) = (padded(&a), padded(&b));
    let spread = |shape: &[Size], is_first: bool| -> Vec<Size> {
        let pair = |size: &Size| if is_first { [size.clone(), 1.into()] } else { [1.into(), size.clone()] };
        shape.iter().flat_map(pair).collect()
    };
    let product = c.cx.reshape(&a, &spread(&left, true))? * c.cx.reshape(&b, &spread(&right, false))?;
    let shape: Vec<Size> = left.iter().zip(&right).map(|(a, b)| a.times(b)).collect();
    c.result(&c.cx.reshape(&product, &shape)?)
}

/// An einsum operand with a letter for every axis.
struct Labelled {
    tensor: Tensor,
    labels: Vec<char>,
}

/// The letters of an operand. An ellipsis becomes digits, with `0` for its last axis.
fn labels(text: &str, rank: usize) -> Lowered<Vec<char>> {
    let (before, after) = text.split_once("...").unwrap_or((text, ""));
    let named = before.chars().count() + after.chars().count();
    let hidden = rank.checked_sub(named).filter(|&hidden| hidden == 0 || text.contains("..."));
    let Some(hidden) = hidden.filter(|&hidden| hidden < 10) else {
        return Fault::unsupported(format!("`{text}` for a tensor of {rank} axes"));
    };
    let digits = (0..hidden as u32).rev().filter_map(|digit| char::from_digit(digit, 10));
    Ok(before.chars().chain(digits).chain(after.chars()).collect())
}

fn einsum(c: &Call<'_>) -> Lowered<Array> {
    let equation = c.string_or("equation", "")?.replace(' ', "");
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs.to_owned(), Some(output.to_owned())),
        None => (equation.clone(), None),
    };
    let tensors = c.tensors("tensors")?;
    let texts: Vec<&str> = inputs.split(',').collect();
    if texts.len() != tensors.len() {
        return Fault::program("einsum: operands and equation differ");
    }
    only_floats(tensors.iter().all(|x| x.ty.is_float()))?;
    let mut operands = vec![];
    for (text, x) in texts.iter().zip(&tensors) {
        operands.push(diagonals(c.cx, Labelled { labels: labels(text, x.rank())?, tensor: x.tensor.clone() })?);
    }
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    operands.iter().flat_map(|x| &x.labels).for_each(|&label| *counts.entry(label).or_insert(0) += 1);
    let output = match output {
        Some(text) => {
            let hidden = counts.keys().filter(|label| label.is_ascii_digit()).count();
            labels(&text, text.replace("...", "").len() + if text.contains("...") { hidden } else { 0 })?
        }
        None => {
            let all = texts.concat();
            let once = |label: &char| all.matches(*label).count() == 1;
            let digits = counts.keys().rev().filter(|label| label.is_ascii_digit()).copied();
            digits.chain(counts.keys().filter(|label| label.is_alphabetic()).copied().filter(once)).collect()
        }
    };
    let mut operands = operands.into_iter();
    let mut y = operands.next().ok_or_else(|| Fault::Program("einsum: no operands".to_owned()))?;
    let mut rest: Vec<Labelled> = operands.collect();
    while !rest.is_empty() {
        let next = rest.remove(0);
        let later: Vec<char> = rest.iter().flat_map(|x| x.labels.clone()).chain(output.clone()).collect();
        y = pair(c.cx, y, next, &later)?;
    }
    let y = reduced(c.cx, y, &output)?;
    let axes = output.iter().map(|label| y.labels.iter().position(|other| other == label));
    let axes =
        axes.collect::<Option<Vec<_>>>().ok_or_else(|| Fault::Program("einsum: an unknown letter".to_owned()))?;
    c.result(&y.tensor.permute(&axes))
}

/// Takes the diagonal of axes with the same letter.
fn diagonals(cx: &Context, mut x: Labelled) -> Lowered<Labelled> {
    loop {
        let repeated = (0..x.labels.len()).find_map(|first| {
            let second = (first + 1..x.labels.len()).find(|&second| x.labels[second] == x.labels[first])?;
            Some((first, second))
        });
        let Some((first, second)) = repeated else { return Ok(x) };
        let mut shape = cx.shape(&x.tensor);
        shape.remove(second);
        let place = |axis: usize| if axis == second { first } else { axis - usize::from(axis > second) };
        let index = (0..x.labels.len()).map(|axis| crate::context::coord(place(axis))).collect();
        x.tensor = cx.remap(&x.tensor, &shape, index, None, &[])?;
        x.labels.remove(second);
    }
}

/// Sums over axes whose letters are not in `kept`.
fn reduced(cx: &Context, x: Labelled, kept: &[char]) -> Lowered<Labelled> {
    let axes: Vec<usize> = (0..x.labels.len()).filter(|&axis| !kept.contains(&x.labels[axis])).collect();
    if axes.is_empty() {
        return Ok(x);
    }
    let sum = super::reduce::float_sum(&x.tensor, &axes);
    let tensor = super::reduce::without_axes(cx, &sum, &axes)?;
    let labels = x.labels.into_iter().filter(|label| kept.contains(label)).collect();
    Ok(Labelled { tensor, labels })
}

/// The product of two operands, summed over letters that are not in `later`.
fn pair(cx: &Context, a: Labelled, b: Labelled, later: &[char]) -> Lowered<Labelled> {
    let kept = |own: &Labelled, other: &Labelled| [later, own.labels.as_slice(), &other.labels].concat();
    let keep_a: Vec<char> = kept(&b, &b);
    let keep_b: Vec<char> = kept(&a, &a);
    let (a, b) = (reduced(cx, a, &keep_a)?, reduced(cx, b, &keep_b)?);
    let common: Vec<char> = a.labels.iter().copied().filter(|label| b.labels.contains(label)).collect();
    let (batch, depth): (Vec<char>, Vec<char>) = common.iter().partition(|label| later.contains(label));
    let rows: Vec<char> = a.labels.iter().copied().filter(|label| !common.contains(label)).collect();
    let columns: Vec<char> = b.labels.iter().copied().filter(|label| !common.contains(label)).collect();
    let arranged = |x: &Labelled, order: &[char]| {
        let axes = order.iter().filter_map(|label| x.labels.iter().position(|other| other == label));
        x.tensor.permute(&axes.collect::<Vec<_>>())
    };
    let sizes = |x: &Tensor, range: std::ops::Range<usize>| cx.shape(x)[range].to_vec();
    let left = arranged(&a, &[batch.as_slice(), &rows, &depth].concat());
    let right = arranged(&b, &[batch.as_slice(), &depth, &columns].concat());
    let (n, r, d) = (batch.len(), rows.len(), depth.len());
    // Axes of an ellipsis broadcast: one of the extents may be 1.
    let batch_sizes: Vec<Size> = sizes(&left, 0..n)
        .into_iter()
        .zip(sizes(&right, 0..n))
        .map(|(a, b)| if a.as_const() == Some(1) { b } else { a })
        .collect();
    let (row_sizes, column_sizes) = (sizes(&left, n..n + r), sizes(&right, n + d..right.rank()));
    let matrix = |x: &Tensor, parts: [&[Size]; 2]| {
        let own = cx.shape(x)[..n].to_vec();
        cx.reshape(x, &[own.as_slice(), &[Size::product(parts[0]), Size::product(parts[1])]].concat())
    };
    let depth_sizes = sizes(&left, n + r..left.rank());
    if depth_sizes != sizes(&right, n..n + d) {
        return Fault::unsupported("an einsum over axes that broadcast");
    }
    let left = matrix(&left, [&row_sizes, &depth_sizes])?;
    let right = matrix(&right, [&depth_sizes, &column_sizes])?;
    let product = left.matmul(&right);
    let tensor = cx.reshape(&product, &[batch_sizes, row_sizes, column_sizes].concat())?;
    Ok(Labelled { tensor, labels: [batch, rows, columns].concat() })
}
