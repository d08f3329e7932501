//! The benchmarks by name.

mod attention;
mod jagged;
mod layers;
mod rowwise;

use crate::draft::{Draft, DraftError};
use rewire_graph::Tensor;

/// Traces an operator with values for its inputs, and returns its results by name.
pub(super) type Build = fn(&mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError>;

/// An operator or module to benchmark.
pub(super) struct Op {
    pub name: &'static str,
    pub about: &'static str,
    /// Names of the sizes that it uses.
    pub sizes: &'static [&'static str],
    pub build: Build,
}

/// Name of the parameter that holds the embedding table.
pub(super) const TABLE: &str = "table";

const ATTENTION: &[&str] =
    &["batch", "heads", "attn_dim", "hidden_dim", "max_len", "len_dist", "targets", "window", "context", "seed"];
const DELTA: &[&str] =
    &["batch", "heads", "attn_dim", "hidden_dim", "max_len", "len_dist", "targets", "window", "seed"];
const SOFTMAX: &[&str] = &["batch", "heads", "attn_dim", "hidden_dim", "max_len", "len_dist", "seed"];
const JAGGED: &[&str] = &["batch", "max_len", "len_dist", "targets", "width", "seed"];
const LAYER: &[&str] = &[
    "batch",
    "heads",
    "attn_dim",
    "hidden_dim",
    "embedding_dim",
    "max_len",
    "len_dist",
    "targets",
    "window",
    "context",
    "weights",
    "sums",
    "seed",
];
const STACK: &[&str] = &[
    "batch",
    "heads",
    "attn_dim",
    "hidden_dim",
    "embedding_dim",
    "layers",
    "max_len",
    "len_dist",
    "targets",
    "window",
    "context",
    "weights",
    "sums",
    "seed",
];

pub(super) const OPS: &[Op] = &[
    Op { name: "attention", about: "HSTU attention, causal", sizes: ATTENTION, build: attention::attention },
    Op { name: "softmax-attention", about: "softmax attention, causal", sizes: SOFTMAX, build: attention::softmax },
    Op {
        name: "delta-attention",
        about: "HSTU attention of new rows (the targets) over a cache of keys and values",
        sizes: DELTA,
        build: attention::delta,
    },
    Op {
        name: "addmm",
        about: "a matmul with a bias",
        sizes: &["m", "k", "n", "epilogue", "weights", "sums", "seed"],
        build: rowwise::addmm,
    },
    Op {
        name: "layer-norm",
        about: "layer norm of rows",
        sizes: &["rows", "width", "seed"],
        build: rowwise::layer_norm,
    },
    Op {
        name: "norm-mul-dropout",
        about: "layer norm, gate and dropout",
        sizes: &["rows", "width", "train", "concat", "seed"],
        build: rowwise::norm_mul_dropout,
    },
    Op {
        name: "pointwise",
        about: "a chain of eight pointwise operators",
        sizes: &["rows", "width", "seed"],
        build: rowwise::pointwise,
    },
    Op {
        name: "embedding",
        about: "rows of a table looked up by id",
        sizes: &["rows", "width", "table", "tables", "seed"],
        build: rowwise::embedding,
    },
    Op {
        name: "embedding-bag",
        about: "rows of a table looked up by id and summed per sample",
        sizes: &["batch", "max_len", "len_dist", "width", "table", "tables", "seed"],
        build: rowwise::bag,
    },
    Op {
        name: "jagged-concat",
        about: "history rows followed by target rows of every sample",
        sizes: JAGGED,
        build: jagged::concat,
    },
    Op {
        name: "jagged-split",
        about: "history rows and target rows of every sample, apart",
        sizes: JAGGED,
        build: jagged::split,
    },
    Op {
        name: "positions",
        about: "position and time embeddings added to rows",
        sizes: JAGGED,
        build: jagged::positions,
    },
    Op { name: "stu-layer", about: "a layer of sequential transduction units", sizes: LAYER, build: layers::layer },
    Op { name: "stu", about: "layers of sequential transduction units", sizes: STACK, build: layers::stack },
    Op {
        name: "stu-cached",
        about: "the same layers in two parts: history whose keys and values are cached, and candidates that attend to it",
        sizes: STACK,
        build: layers::cached,
    },
    Op {
        name: "transducer",
        about: "preprocessor, positions, layers and postprocessor, from embeddings to candidates",
        sizes: STACK,
        build: layers::transducer,
    },
    Op { name: "ranking", about: "the same and a head: logits of candidates", sizes: STACK, build: layers::ranking },
    Op {
        name: "matching",
        about: "preprocessor, positions, layers and postprocessor, from embeddings to one vector per user, that of the last row",
        sizes: STACK,
        build: layers::matching,
    },
];
