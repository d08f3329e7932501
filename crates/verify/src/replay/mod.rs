//! Traces stored cases of operators, modules and pipelines as graphs.
//!
//! A case is a safetensors file. Its header has the operator's name and attributes; its tensors are `in.<argument>`, `param.<name>` and
//! `out.<name>`. Names in the graph have no prefixes: inputs are named by argument, parameters and outputs by name. Lengths, offsets and
//! counts are host inputs, bound as integer tensors. The numbers of samples and rows are symbolic, widths are constants.
//!
//! Tensors that the operator does not read, such as buffers that follow from the attributes, are not part of the graph. A stored `[1]`
//! tensor may correspond to a scalar of the shape program.

mod attention;
mod cached;
mod fusion;
mod jagged;
mod module;
mod pipeline;
mod preprocessor;
mod quantized;
mod rowwise;
mod tracer;

pub(crate) use quantized::rows;
use rewire_graph::{DType, Graph, GraphError, Tensor};
use rewire_hstu::modules::ConfigError;
use serde_json::Value;
use std::collections::BTreeMap;
use thiserror::Error;
use tracer::CaseTracer;

/// A case, traced as a graph.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The graph.
    pub graph: Graph,
    /// True if the operator only moves data, so that outputs must equal the stored ones exactly.
    pub exact: bool,
}

/// Why a case cannot be traced.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The operator is unknown.
    #[error("operator `{op}` is not supported")]
    Unsupported {
        /// The operator.
        op: String,
    },
    /// An attribute is missing, unknown or of the wrong type.
    #[error("attributes: {0}")]
    Attribute(#[from] serde_json::Error),
    /// An attribute has an invalid value.
    #[error("attributes: {0}")]
    Config(#[from] ConfigError),
    /// A tensor is missing.
    #[error("tensor `{name}` is missing")]
    Missing {
        /// The name.
        name: String,
    },
    /// A tensor has the wrong shape.
    #[error("tensor `{name}` must be {expected}, got shape {actual:?}")]
    Shape {
        /// The name.
        name: String,
        /// The expected shape.
        expected: String,
        /// The actual shape.
        actual: Vec<usize>,
    },
    /// An operator rejected its operands.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

type Outputs = Vec<(String, Tensor)>;

/// Traces a case, given the operator's name, its attributes, and the types of all tensors by their stored names.
pub fn trace(op: &str, attrs: &Value, tensors: &BTreeMap<String, (DType, Vec<usize>)>) -> Result<Replay, ReplayError> {
    if op.starts_with("fusion_") {
        return Ok(Replay { graph: fusion::trace(attrs, tensors)?, exact: false });
    }
    let case = CaseTracer::new(op, attrs, tensors);
    let outputs = outputs(op, &case)?;
    let exact = matches!(op, "concat_2D_jagged" | "split_2D_jagged" | "stu_truncation" | "build_sla_func_tensor");
    Ok(Replay { graph: case.finish(outputs)?, exact })
}

fn outputs(op: &str, case: &CaseTracer) -> Result<Outputs, ReplayError> {
    match op {
        "hstu_mha" => attention::hstu_mha(case),
        "delta_hstu_mha" => attention::delta_hstu_mha(case),
        "build_sla_func_tensor" => attention::build_sla_func_tensor(case),
        "hstu_preprocess_and_attention" => attention::preprocess_and_attention(case),
        "stu_truncation" => jagged::stu_truncation(case),
        "concat_2D_jagged" => jagged::concat(case),
        "split_2D_jagged" => jagged::split(case),
        "jagged_dense_bmm_broadcast_add" => jagged::bmm(case),
        "add_positional_embeddings" => jagged::positions(case),
        "add_timestamp_positional_embeddings" => jagged::timestamp_positions(case),
        "addmm" => rowwise::addmm(case),
        "layer_norm" => rowwise::layer_norm(case),
        "swish_layer_norm" => rowwise::swish_layer_norm(case),
        "rms_norm" => rowwise::rms_norm(case),
        "norm_mul_dropout" => rowwise::norm_mul_dropout(case),
        "hstu_compute_uqvk" => rowwise::compute_uqvk(case),
        "hstu_compute_output" => rowwise::compute_output(case),
        "quantize_rows" => quantized::quantize_rows(case),
        "STULayer" => module::stu_layer(case),
        "STUStack" => module::stu_stack(case),
        "STULayer_cached" => cached::stu_layer(case),
        "STUStack_cached" => cached::stu_stack(case),
        "HSTUPositionalEncoder" => module::positional_encoder(case),
        "SliceContentEncoder" => module::content_encoder(case, "slice_content_encoder"),
        "PadContentEncoder" => module::content_encoder(case, "pad_content_encoder"),
        "MLPContentEncoder" => module::content_encoder(case, "mlp_content_encoder"),
        "SimpleActionEncoder" => module::action_encoder(case),
        "SimpleContextualizedMLP" => module::contextual_mlp(case, "simple_mlp"),
        "ParameterizedContextualizedMLP" => module::contextual_mlp(case, "parameterized_mlp"),
        "L2NormPostprocessor" => module::postprocessor(case, "l2norm_postprocessor"),
        "LayerNormPostprocessor" => module::postprocessor(case, "layernorm_postprocessor"),
        "TimestampLayerNormPostprocessor" => module::postprocessor(case, "timestamp_layernorm_postprocessor"),
        "ContextualPreprocessor" | "ContextualInterleavePreprocessor" | "UIHPreprocessor" => {
            preprocessor::preprocessor(case)
        }
        "HSTUTransducer" => pipeline::transducer(case),
        "HSTUMatchEncoder" => pipeline::match_encoder(case),
        _ => Err(ReplayError::Unsupported { op: op.to_owned() }),
    }
}
