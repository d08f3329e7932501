//! Every operator and every path to a result against the interpreter, the reference and each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod custom;
mod emitted;
mod equivalence;
mod floats;
mod fusion;
mod gradients;
mod grouped;
mod hostile;
mod inputs;
mod models;
mod pipelines;
mod pointwise;
mod portability;
mod proofs;
mod quantized;
mod reductions;
mod retrieval;
mod rewriting;
mod states;
mod storage;
mod translated;
mod variants;
mod varied;
