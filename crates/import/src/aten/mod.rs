//! Lowerings of ATen operators, grouped by kind.

mod activation;
mod arrange;
mod attention;
mod binary;
pub(crate) mod complex;
mod conv;
mod create;
mod effect;
mod factor;
mod grid;
mod index;
mod jagged;
mod join;
pub(crate) mod linalg;
mod loss;
mod matmul;
mod movement;
mod norm;
mod order;
mod pad;
mod pointwise;
mod pool;
mod quantized;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod scan;
mod scatter;
mod size;
mod special;
mod spectrum;

pub(crate) use conv::Sliding;
pub(crate) use index::wrapped;
pub(crate) use movement::{ViewRegion, permutation, region, replaced};
pub(crate) use pool::{Combine, combined};
pub(crate) use reduce::{mean, moments};
pub(crate) use special::bits;

use crate::array::Array;
use crate::call::Call;
use crate::value::{Lowered, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A lowering.
#[derive(Clone, Copy)]
pub(crate) enum Lowering {
    /// Returns one tensor.
    One(fn(&Call<'_>) -> Lowered<Array>),
    /// Returns any number of values.
    Many(fn(&Call<'_>) -> Lowered<Vec<Value>>),
}

/// Operators with one result.
type One = &'static [(&'static str, fn(&Call<'_>) -> Lowered<Array>)];

/// Operators with several results or none.
type Many = &'static [(&'static str, fn(&Call<'_>) -> Lowered<Vec<Value>>)];

const ONE: &[One] = &[
    activation::ONE,
    arrange::ONE,
    attention::ONE,
    binary::ONE,
    complex::ONE,
    conv::ONE,
    create::ONE,
    factor::ONE,
    grid::ONE,
    index::ONE,
    jagged::ONE,
    join::ONE,
    linalg::ONE,
    loss::ONE,
    matmul::ONE,
    movement::ONE,
    norm::ONE,
    order::ONE,
    pad::ONE,
    pointwise::ONE,
    pool::ONE,
    quantized::ONE,
    reduce::ONE,
    resize::ONE,
    sample::ONE,
    scan::ONE,
    scatter::ONE,
    special::ONE,
    spectrum::ONE,
];

const MANY: &[Many] = &[
    activation::MANY,
    arrange::MANY,
    attention::MANY,
    effect::MANY,
    factor::MANY,
    index::MANY,
    jagged::MANY,
    linalg::MANY,
    loss::MANY,
    movement::MANY,
    norm::MANY,
    order::MANY,
    pointwise::MANY,
    pool::MANY,
    recurrent::MANY,
    reduce::MANY,
    scan::MANY,
    size::MANY,
];

static LOWERINGS: LazyLock<HashMap<&'static str, Lowering>> = LazyLock::new(|| operators().collect());

/// The lowering of an operator by its name, with or without overload.
pub(crate) fn lowering(name: &str) -> Option<Lowering> {
    LOWERINGS.get(name).copied()
}

/// All operators with a lowering. Names include the overload if the lowering only supports that one.
pub(crate) fn operators() -> impl Iterator<Item = (&'static str, Lowering)> {
    let one = ONE.iter().flat_map(|table| table.iter()).map(|&(name, lower)| (name, Lowering::One(lower)));
    let many = MANY.iter().flat_map(|table| table.iter()).map(|&(name, lower)| (name, Lowering::Many(lower)));
    one.chain(many)
}
