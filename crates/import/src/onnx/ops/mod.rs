//! Lowerings of operators, by kind. Where ATen has the operator, its lowering does the work.

mod activation;
mod attention;
mod cast;
mod compute;
mod conv;
mod create;
mod elementwise;
mod gather;
mod image;
mod loss;
mod matmul;
mod movement;
mod norm;
mod pool;
mod quantized;
mod recurrent;
mod reduce;
mod resize;
mod scatter;
mod sequence;
mod signal;

use super::item::Item;
use super::node::Node;
use crate::array::Array;
use crate::value::Lowered;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A lowering.
#[derive(Clone, Copy)]
pub(super) enum Lowering {
    /// To one tensor.
    One(fn(&Node<'_>) -> Lowered<Array>),
    /// To any values.
    Many(fn(&Node<'_>) -> Lowered<Vec<Item>>),
}

impl Lowering {
    pub fn run(self, node: &Node<'_>) -> Lowered<Vec<Item>> {
        match self {
            Self::One(lower) => lower(node).map(|array| vec![Item::Array(array)]),
            Self::Many(lower) => lower(node),
        }
    }
}

/// Operators of one kind with one result.
type One = &'static [(&'static str, fn(&Node<'_>) -> Lowered<Array>)];

/// Operators of one kind with several results, or results that are known.
type Many = &'static [(&'static str, fn(&Node<'_>) -> Lowered<Vec<Item>>)];

const ONE: &[One] = &[
    activation::ONE,
    cast::ONE,
    compute::ONE,
    conv::ONE,
    create::ONE,
    elementwise::ONE,
    gather::ONE,
    image::ONE,
    matmul::ONE,
    movement::ONE,
    norm::ONE,
    pool::ONE,
    quantized::ONE,
    reduce::ONE,
    resize::ONE,
    scatter::ONE,
    signal::ONE,
];

const MANY: &[Many] = &[
    attention::MANY,
    compute::MANY,
    conv::MANY,
    create::MANY,
    loss::MANY,
    movement::MANY,
    norm::MANY,
    pool::MANY,
    quantized::MANY,
    recurrent::MANY,
    reduce::MANY,
    sequence::MANY,
];

static LOWERINGS: LazyLock<HashMap<&'static str, Lowering>> = LazyLock::new(|| operators().collect());

/// All operators with a lowering; those of other domains by domain and name.
pub(super) fn operators() -> impl Iterator<Item = (&'static str, Lowering)> {
    let one = ONE.iter().flat_map(|table| table.iter()).map(|&(name, lower)| (name, Lowering::One(lower)));
    let many = MANY.iter().flat_map(|table| table.iter()).map(|&(name, lower)| (name, Lowering::Many(lower)));
    one.chain(many)
}

/// The lowering of an operator of a domain.
pub(super) fn lowering(domain: &str, op: &str) -> Option<Lowering> {
    let name = if domain.is_empty() { op.to_owned() } else { format!("{domain}.{op}") };
    LOWERINGS.get(name.as_str()).copied()
}
