//! Random programs, generated and shrunk by proptest.

use crate::golden::is_wanted_whole;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestRunner};

/// The operator that an instruction adds to the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A function of one tensor.
    Unary,
    /// A function of two tensors that broadcast.
    Binary,
    /// A function of a tensor and a number.
    Scalar,
    /// A choice by comparing two tensors.
    Choose,
    /// Sum, maximum, minimum or mean along an axis.
    Reduce,
    /// A norm in one of several decompositions, or softmax.
    Norm,
    /// A linear layer, with or without bias and activation.
    Linear,
    /// A product of two tensors, batched or not.
    MatMul,
    /// Another shape.
    Reshape,
    /// Two axes exchanged.
    Permute,
    /// A part along an axis.
    Slice,
    /// A concatenation of two tensors.
    Concat,
    /// Columns split into parts, an activation on one, and a concatenation of all.
    SplitJoin,
    /// Rows of a table.
    Gather,
    /// Integer arithmetic.
    Integer,
    /// Integers as floats.
    Float,
    /// The rows of two jagged tensors, sample by sample.
    JaggedConcat,
    /// The first or last rows of every sample.
    JaggedSlice,
    /// One row per sample, broadcast to every row.
    JaggedBroadcast,
    /// Position in the sample, or the end of the sample.
    Position,
    /// One matrix per sample.
    JaggedMatMul,
    /// Attention with a mask.
    Attention,
    /// Storage as f16.
    Half,
    /// Scalars of the shape program in device arithmetic.
    Host,
    /// Pseudorandom zeros.
    Dropout,
    /// Jagged rows padded, and padded rows made jagged.
    Padded,
    /// Softmax attention from plain operators.
    SoftmaxAttention,
    /// Softmax attention between the rows of a sample.
    JaggedSoftmaxAttention,
    /// HSTU attention, with its mask and divisor.
    HstuAttention,
    /// Embeddings of positions and of elapsed time.
    Timestamps,
    /// Several linear layers of one input.
    Siblings,
    /// A linear layer and batch norm.
    LinearNorm,
    /// A convolution, alone or with batch norm.
    Convolution,
    /// A layer of a ranking model.
    Ranking,
    /// Sums or means of rows of a table.
    Bag,
}

/// All kinds, the frequent ones several times.
pub const KINDS: &[Kind] = &[
    Kind::Unary,
    Kind::Unary,
    Kind::Unary,
    Kind::Binary,
    Kind::Binary,
    Kind::Binary,
    Kind::Scalar,
    Kind::Scalar,
    Kind::Choose,
    Kind::Reduce,
    Kind::Reduce,
    Kind::Norm,
    Kind::Norm,
    Kind::Linear,
    Kind::Linear,
    Kind::MatMul,
    Kind::Reshape,
    Kind::Permute,
    Kind::Slice,
    Kind::Concat,
    Kind::SplitJoin,
    Kind::Gather,
    Kind::Integer,
    Kind::Float,
    Kind::JaggedConcat,
    Kind::JaggedSlice,
    Kind::JaggedBroadcast,
    Kind::Position,
    Kind::JaggedMatMul,
    Kind::Attention,
    Kind::Attention,
    Kind::Half,
    Kind::Host,
    Kind::Dropout,
    Kind::Padded,
    Kind::SoftmaxAttention,
    Kind::JaggedSoftmaxAttention,
    Kind::HstuAttention,
    Kind::HstuAttention,
    Kind::Timestamps,
    Kind::Siblings,
    Kind::LinearNorm,
    Kind::Convolution,
    Kind::Ranking,
    Kind::Ranking,
    Kind::Bag,
];

/// One step of a program. The numbers select operands and variants among those that fit.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Its kind.
    pub kind: Kind,
    /// The first operand; small numbers select the newest tensor.
    pub a: u8,
    /// The second operand.
    pub b: u8,
    /// The variant.
    pub c: u8,
}

/// A graph and the shapes of its run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Steps in order; those that do not fit are skipped.
    pub instructions: Vec<Instruction>,
    /// Additional outputs, besides the last tensor.
    pub outputs: Vec<u8>,
    /// Width of the inputs.
    pub width: usize,
    /// Rows of every sample, in two divisions.
    pub lengths: Vec<(u8, u8)>,
    /// Rows of tensors without samples.
    pub rows: usize,
    /// True if the first division is given as offsets.
    pub offsets: bool,
    /// Of all values.
    pub seed: u64,
}

fn instruction() -> impl Strategy<Value = Instruction> {
    (select(KINDS), any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(kind, a, b, c)| Instruction { kind, a, b, c })
}

fn length() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(0u8), 2 => Just(1), 5 => 2u8..9, 2 => 9u8..40, 1 => 60u8..75]
}

fn lengths() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop_oneof![
        8 => vec((length(), length()), 0..5),
        1 => vec(Just((0, 0)), 1..4),
        1 => vec((Just(0), 1u8..4), 1..4),
    ]
}

/// Programs of up to `steps` instructions.
pub fn program(steps: usize) -> impl Strategy<Value = Program> {
    (
        vec(instruction(), 1..=steps),
        vec(any::<u8>(), 0..4),
        select(&[1usize, 2, 3, 4, 6, 8, 12, 25, 25, 50, 70, 130][..]),
        lengths(),
        select(&[0usize, 1, 2, 5, 33][..]),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(instructions, outputs, width, lengths, rows, offsets, seed)| Program {
            instructions,
            outputs,
            width,
            lengths,
            rows,
            offsets,
            seed,
        })
}

/// The number of cases that run on an adapter, where each has separate shaders: half of them, or all if `REWIRE_TEST_ALL` is set.
pub fn compiled(cases: u32) -> u32 {
    if is_wanted_whole() { cases } else { cases.div_ceil(2) }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `check` on random programs of up to `steps` instructions, the same ones every time.
///
/// `REWIRE_TEST_CASES` multiplies the number of cases, `REWIRE_TEST_SEED` selects others.
pub fn hold(cases: u32, steps: usize, check: impl Fn(&Program) -> Result<(), String>) {
    let config = Config {
        cases: cases * number("REWIRE_TEST_CASES", 1) as u32,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(number("REWIRE_TEST_SEED", 1)),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&program(steps), |program| check(&program).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
}
