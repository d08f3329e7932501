//! Lowerings of ONNX operators, grouped by kind. They use the lowering of the ATen operator if there is one.

mod activation;
mod attention;
mod boxes;
mod bytes;
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
mod transformer;

use super::item::Item;
use super::node::Node;
use crate::array::Array;
use crate::value::{Fault, Lowered};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A lowering.
#[derive(Clone, Copy)]
pub(super) enum Lowering {
    /// Returns one tensor.
    One(fn(&Node<'_>) -> Lowered<Array>),
    /// Returns any number of values.
    Many(fn(&Node<'_>) -> Lowered<Vec<Item>>),
}

/// Minimum ranks of the inputs of operators.
const RANKS: &[(&str, &[usize])] = &[
    ("AveragePool", &[3]),
    ("BatchNormalization", &[2, 1, 1, 1, 1]),
    ("CausalConvWithState", &[3, 3, 1, 3]),
    ("Compress", &[1, 1]),
    ("Conv", &[3, 3, 1]),
    ("ConvInteger", &[3, 3]),
    ("ConvTranspose", &[3, 3, 1]),
    ("DFT", &[2]),
    ("DeformConv", &[4, 4, 4, 1]),
    ("EyeLike", &[2]),
    ("GlobalAveragePool", &[2]),
    ("GlobalLpPool", &[2]),
    ("GlobalMaxPool", &[2]),
    ("GridSample", &[3, 3]),
    ("GroupNormalization", &[2, 1, 1]),
    ("InstanceNormalization", &[3, 1, 1]),
    ("LRN", &[2]),
    ("LpPool", &[3]),
    ("MatMul", &[1, 1]),
    ("MatMulInteger", &[1, 1]),
    ("MaxPool", &[3]),
    ("MaxUnpool", &[3, 3]),
    ("NegativeLogLikelihoodLoss", &[2, 1]),
    ("QLinearConv", &[3, 0, 0, 3]),
    ("QLinearMatMul", &[1, 0, 0, 1]),
    ("ReverseSequence", &[2, 1]),
    ("RoiAlign", &[4, 2, 1]),
    ("STFT", &[2]),
    ("SoftmaxCrossEntropyLoss", &[2, 1]),
    ("TensorScatter", &[2, 2, 1]),
    ("com.microsoft.DynamicQuantizeMatMul", &[2, 2]),
    ("com.microsoft.MatMulIntegerToFloat", &[2, 2]),
    ("com.microsoft.SkipLayerNormalization", &[1, 1]),
    ("com.microsoft.SkipSimplifiedLayerNormalization", &[1, 1]),
];

/// Checks that inputs have at least the rank that the operator requires.
fn check_ranks(node: &Node<'_>) -> Lowered<()> {
    let Some((_, ranks)) = RANKS.iter().find(|(name, _)| name.rsplit('.').next() == Some(node.op)) else {
        return Ok(());
    };
    for (place, &least) in ranks.iter().enumerate().filter(|(place, _)| node.has(*place)) {
        let rank = node.array(place)?.rank();
        if rank < least {
            return Fault::program(format!("{}: input {place} has {rank} axes", node.op));
        }
    }
    Ok(())
}

impl Lowering {
    pub fn run(self, node: &Node<'_>) -> Lowered<Vec<Item>> {
        check_ranks(node)?;
        match self {
            Self::One(lower) => lower(node).map(|array| vec![Item::Array(array)]),
            Self::Many(lower) => lower(node),
        }
    }
}

/// Operators with one result.
type One = &'static [(&'static str, fn(&Node<'_>) -> Lowered<Array>)];

/// Operators with several results, or with results that are known while the model is read.
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
    boxes::MANY,
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
    transformer::MANY,
];

static LOWERINGS: LazyLock<HashMap<&'static str, Lowering>> = LazyLock::new(|| operators().collect());

/// All operators with a lowering. Operators outside the standard's domain are named `domain.name`.
pub(super) fn operators() -> impl Iterator<Item = (&'static str, Lowering)> {
    let one = ONE.iter().flat_map(|table| table.iter()).map(|&(name, lower)| (name, Lowering::One(lower)));
    let many = MANY.iter().flat_map(|table| table.iter()).map(|&(name, lower)| (name, Lowering::Many(lower)));
    one.chain(many)
}

/// The lowering of an operator in a domain.
pub(super) fn lowering(domain: &str, op: &str) -> Option<Lowering> {
    let name = if domain.is_empty() { op.to_owned() } else { format!("{domain}.{op}") };
    LOWERINGS.get(name.as_str()).copied()
}
