use super::positional_encoder::{time_bucket_fn, time_bucket_increments};
use super::{
    Buffer, CachedRows, ConfigError, Features, HistoryCache, HstuPositionalEncoder, InputPreprocessor,
    InputPreprocessorConfig, OutputPostprocessor, OutputPostprocessorConfig, Preprocessed, Sequence, StuConfig,
    StuInput, StuLayer, StuStack, count, parts, ratio, scaling, width,
};
use crate::ops::{Positions, SeqLen, TimeBucketFn};
use rewire_graph::{Dim, Ragged, Scope, Tensor, TensorSizeError};
use serde::Deserialize;

/// Options of an HSTU pipeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HstuConfig {
    /// Width of history rows.
    #[serde(default)]
    pub uih_embedding_dim: usize,
    /// Width of candidate rows.
    #[serde(default)]
    pub target_embedding_dim: usize,
    /// Options of every layer.
    pub stu: StuConfig,
    /// Number of layers.
    pub attn_num_layers: usize,
    /// Builds one sequence from a user's features.
    pub input_preprocessor: InputPreprocessorConfig,
    /// Postprocessing of the last layer's rows.
    pub output_postprocessor: OutputPostprocessorConfig,
    /// Adds position and time embeddings; `None` to add neither.
    #[serde(default)]
    pub positional_encoder: Option<PositionalEncoderConfig>,
    /// Width of a contextual feature.
    #[serde(default)]
    pub contextual_feature_dim: usize,
    /// Number of contextual features.
    #[serde(default)]
    pub max_contextual_seq_len: usize,
    /// Name of the group of contextual features.
    #[serde(default = "contextual")]
    pub contextual_group_name: String,
    /// Divisor of attention weights; if negative, the length bound of the batch.
    #[serde(default = "no_scaling")]
    pub scaling_seqlen: i64,
    /// Dropout of the first layer's input in training.
    #[serde(default)]
    pub input_dropout_ratio: f32,
    /// Index of the layer before which old history is truncated.
    #[serde(default)]
    pub attn_truncation_split_layer: usize,
    /// Number of history rows per user that remain; 0 keeps all.
    #[serde(default)]
    pub attn_truncation_tail_len: usize,
    /// Name prefix of the groups of history.
    #[serde(default)]
    pub name: String,
    /// Also return the postprocessed rows of the whole sequence.
    #[serde(default)]
    pub return_full_embeddings: bool,
    /// Name of the group with the request time.
    #[serde(default)]
    pub query_time_key: String,
    /// Ignored.
    #[serde(default)]
    pub is_inference: bool,
}

/// Options of a pipeline's positional encoder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionalEncoderConfig {
    /// Rows of the position table.
    pub num_position_buckets: usize,
    /// Rows of the time table minus 1.
    #[serde(default)]
    pub num_time_buckets: usize,
    /// Whether to use a time table.
    #[serde(default)]
    pub use_time_encoding: bool,
    /// Maps time gaps to buckets.
    #[serde(default = "time_bucket_fn")]
    pub time_bucket_fn: TimeBucketFn,
    /// Unit of time gaps.
    #[serde(default = "time_bucket_increments")]
    pub time_bucket_increments: f64,
}

fn contextual() -> String {
    "contextual".to_owned()
}

fn no_scaling() -> i64 {
    -1
}

/// Preprocessor, positional encoder and layers, shared by ranking and matching.
#[derive(Clone, Debug)]
pub struct Hstu {
    /// The options.
    pub config: HstuConfig,
    preprocessor: InputPreprocessor,
    positional_encoder: Option<HstuPositionalEncoder>,
    stack: StuStack,
    postprocessor: OutputPostprocessor,
}

/// The last layer's rows.
#[derive(Clone, Debug)]
pub struct HstuOutput {
    /// Rows `[L, E]`, not yet postprocessed.
    pub embeddings: Tensor,
    /// The sample of each row.
    pub rows: Ragged,
    /// Times `[L]`.
    pub timestamps: Tensor,
    /// Candidate rows of every user, which are the last rows of the sequence.
    pub targets: Ragged,
}

impl Hstu {
    /// Creates the pipeline of a configuration.
    pub fn new(config: HstuConfig) -> Result<Self, ConfigError> {
        width("uih_embedding_dim", config.uih_embedding_dim)?;
        parts("attn_num_layers", config.attn_num_layers)?;
        count("attn_truncation_tail_len", config.attn_truncation_tail_len)?;
        ratio("input_dropout_ratio", config.input_dropout_ratio)?;
        scaling("scaling_seqlen", config.scaling_seqlen)?;
        config.stu.check().map_err(|error| error.within("stu"))?;
        let preprocessor = config.preprocessor();
        preprocessor.check().map_err(|error| error.within("input_preprocessor"))?;
        let positional_encoder = config.positional_encoder.as_ref().map(|encoder| HstuPositionalEncoder {
            num_position_buckets: encoder.num_position_buckets,
            num_time_buckets: encoder.num_time_buckets,
            embedding_dim: config.stu.embedding_dim,
            contextual_seq_len: config.max_contextual_seq_len,
            use_time_encoding: encoder.use_time_encoding,
            time_bucket_fn: encoder.time_bucket_fn,
            time_bucket_increments: encoder.time_bucket_increments,
        });
        if let Some(encoder) = &positional_encoder {
            encoder.check().map_err(|error| error.within("positional_encoder"))?;
        }
        let embedding_dim = config.stu.embedding_dim;
        let postprocessor = OutputPostprocessor { config: config.output_postprocessor.clone(), embedding_dim };
        postprocessor.check().map_err(|error| error.within("output_postprocessor"))?;
        let stack = config.stack();
        Ok(Self { config, preprocessor, positional_encoder, stack, postprocessor })
    }

    /// The output of the last layer. `query_time` `[B]` is the time of the request.
    pub fn forward(&self, scope: &Scope, features: &Features, query_time: Option<&Tensor>) -> HstuOutput {
        let input = scope.module("_input_preprocessor", |scope| self.preprocessor.forward(scope, features));
        let positions = Positions {
            rows: &input.rows,
            seq_lengths: &input.rows.lengths,
            num_targets: Some(&input.targets.lengths),
            interleave_targets: false,
            first: None,
        };
        let x = self.positioned(scope, &input.embeddings, &positions, &input.timestamps, query_time);
        let x = scope.dropout(&x, self.config.input_dropout_ratio);
        let Preprocessed { rows, timestamps, targets, max_seq_len, .. } = input;
        let num_targets = Some(targets.lengths.clone());
        let stu = StuInput { x, rows, num_targets, max_seq_len: SeqLen::Host(max_seq_len) };
        let out = scope.module("_stu_module", |scope| self.stack.forward(scope, &stu));
        let timestamps = out.truncation.map_or(timestamps.clone(), |plan| plan.apply(&timestamps));
        HstuOutput { embeddings: out.x, rows: out.rows, timestamps, targets }
    }

    /// Stores keys and values of the users' histories for [`Hstu::targets`]. `kept` maps their number of rows to the cache rows to store to,
    /// `[rows]` of integers. If `before` is given, the histories continue these cache rows.
    pub fn history(
        &self,
        scope: &Scope,
        features: &Features,
        query_time: &Tensor,
        kept: impl FnOnce(&Dim) -> Tensor,
        before: Option<&CachedRows>,
        cache: &HistoryCache,
    ) {
        let input = scope.module("_input_preprocessor", |scope| self.preprocessor.history_alone(scope, features));
        let first = before.map(|before| before.rows.lengths.clone());
        let lengths = first.as_ref().map_or_else(|| input.rows.lengths.clone(), |first| &input.rows.lengths + first);
        let positions = Positions {
            rows: &input.rows,
            seq_lengths: &lengths,
            num_targets: None,
            interleave_targets: false,
            first: first.as_ref(),
        };
        let x = self.positioned(scope, &input.embeddings, &positions, &input.timestamps, Some(query_time));
        let kept = CachedRows { index: kept(&input.rows.total), rows: input.rows };
        let max_seq_len = SeqLen::Host(input.max_seq_len);
        // The output is not used: after the last layer only candidates are read.
        scope.module("_stu_module", |scope| drop(self.stack.history(scope, &x, &kept, before, cache, &max_seq_len)));
    }

    /// The last layer's output for candidates of users whose histories are cached. It equals the output for the whole sequence. In
    /// addition, it does not depend on other candidates, bit for bit.
    pub fn targets(
        &self,
        scope: &Scope,
        (candidates, contextual): (&Sequence, Option<&Tensor>),
        query_time: &Tensor,
        history: &CachedRows,
        cache: &HistoryCache,
    ) -> Tensor {
        let x =
            scope.module("_input_preprocessor", |scope| self.preprocessor.targets_alone(scope, candidates, contextual));
        let (rows, first) = (&candidates.rows, &history.rows.lengths);
        let lengths = first + &rows.lengths;
        let positions = Positions {
            rows,
            seq_lengths: &lengths,
            num_targets: Some(&rows.lengths),
            interleave_targets: false,
            first: Some(first),
        };
        let x = self.positioned(scope, &x, &positions, &candidates.timestamps, Some(query_time));
        let max_seq_len = SeqLen::Host(&history.rows.max() + rows.max());
        scope.module("_stu_module", |scope| self.stack.targets(scope, (&x, rows), history, cache, &max_seq_len))
    }

    /// Adds position and time embeddings to rows.
    fn positioned(
        &self,
        scope: &Scope,
        x: &Tensor,
        positions: &Positions,
        timestamps: &Tensor,
        query_time: Option<&Tensor>,
    ) -> Tensor {
        let Some(encoder) = &self.positional_encoder else { return x.clone() };
        scope.module("_positional_encoder", |scope| encoder.forward(scope, x, positions, timestamps, query_time))
    }

    /// Postprocesses rows `x` `[R, E]` with their `timestamps` `[R]`.
    pub fn postprocess(&self, scope: &Scope, x: &Tensor, timestamps: &Tensor) -> Tensor {
        scope.module("_output_postprocessor", |scope| self.postprocessor.forward(scope, x, timestamps))
    }
}

impl HstuConfig {
    fn preprocessor(&self) -> InputPreprocessor {
        InputPreprocessor {
            config: self.input_preprocessor.clone(),
            uih_embedding_dim: self.uih_embedding_dim,
            target_embedding_dim: self.target_embedding_dim,
            output_embedding_dim: self.stu.embedding_dim,
            contextual_feature_dim: self.contextual_feature_dim,
            max_contextual_seq_len: self.max_contextual_seq_len,
        }
    }

    /// True if candidates attend only to history and themselves, and history does not attend to candidates. Then the keys and values of
    /// a history can be cached for any candidates.
    pub fn is_cacheable(&self) -> bool {
        let stu = &self.stu;
        let semi_local = stu.sla_k1 > 0 || stu.sla_k2 > 0;
        let scaled = self.scaling_seqlen >= 0 || stu.scaling_seqlen.is_some_and(|length| length >= 0);
        self.input_preprocessor.reads_candidates() && stu.target_aware && (stu.causal || semi_local) && scaled
    }

    /// True if cached keys and values remain valid when events are appended to the history: positions do not count from its end, the
    /// time of the request is not used, no row attends to later ones, and none is truncated.
    pub fn is_appendable(&self) -> bool {
        let timeless = self.positional_encoder.as_ref().is_none_or(|encoder| !encoder.use_time_encoding);
        let context = self.max_contextual_seq_len > 0 || self.stu.context() > 0;
        self.is_cacheable() && timeless && !context && self.attn_truncation_tail_len == 0
    }

    fn stack(&self) -> StuStack {
        let own = |value: Option<i64>| value.filter(|&value| value >= 0);
        let mut stu = self.stu.clone();
        let context = i64::try_from(self.max_contextual_seq_len).unwrap_or(i64::MAX);
        stu.contextual_seq_len = own(stu.contextual_seq_len).or(Some(context));
        stu.scaling_seqlen = own(stu.scaling_seqlen).or(Some(self.scaling_seqlen));
        StuStack {
            layers: vec![StuLayer { config: stu }; self.attn_num_layers],
            truncate_split_layer: self.attn_truncation_split_layer,
            truncate_tail_len: self.attn_truncation_tail_len,
        }
    }

    /// State-dict tensors that follow from the configuration.
    pub fn buffers(&self) -> Result<Vec<Buffer>, TensorSizeError> {
        let named = |prefix: &str, buffers: Vec<Buffer>| {
            buffers.into_iter().map(|buffer| buffer.within(prefix)).collect::<Vec<_>>()
        };
        let mut all = named("_output_postprocessor", self.output_postprocessor.buffers()?);
        if let Some(encoder) = self.input_preprocessor.action_encoder() {
            all.extend(named("_input_preprocessor._action_encoder", encoder.encoder().buffers()?));
        }
        Ok(all)
    }
}
