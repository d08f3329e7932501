//! Configuration messages of HSTU models, with the reference's names and defaults.

use crate::models::ModelError;
use crate::modules::{
    Buffer, ConfigError, FusionMtlTowerConfig, HstuConfig, InputPreprocessorConfig, MlpConfig,
    OutputPostprocessorConfig, PositionalEncoderConfig, Similarity, StuConfig, TaskConfig,
};
use serde::Deserialize;
use serde_json::Value;

/// `dlrm_hstu` has one pipeline, `ultra_hstu` one per channel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranking<Pipelines = Vec<Hstu>> {
    /// The pipelines of histories.
    pub hstu: Pipelines,
    /// The tasks.
    pub fusion_mtl_tower: FusionMtlTower,
    /// Divisor of attention weights.
    pub max_seq_len: usize,
    /// Width of the hidden layer of the item MLP.
    #[serde(default = "item_embedding_hidden_dim")]
    pub item_embedding_hidden_dim: usize,
    /// Whether losses are averaged over all devices.
    #[serde(default)]
    pub enable_global_average_loss: Option<bool>,
    /// False if sequences start with their latest event.
    #[serde(default = "yes")]
    pub sequence_timestamp_is_ascending: bool,
    /// Whether all contextual features form one token, instead of one each.
    #[serde(default)]
    pub concat_contextual_features: bool,
}

impl From<Ranking<Hstu>> for Ranking {
    fn from(one: Ranking<Hstu>) -> Self {
        let Ranking { hstu, fusion_mtl_tower, max_seq_len, item_embedding_hidden_dim, .. } = one;
        Self {
            hstu: vec![hstu],
            fusion_mtl_tower,
            max_seq_len,
            item_embedding_hidden_dim,
            enable_global_average_loss: one.enable_global_average_loss,
            sequence_timestamp_is_ascending: one.sequence_timestamp_is_ascending,
            concat_contextual_features: one.concat_contextual_features,
        }
    }
}

/// `hstu_match`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Maps histories to vectors.
    pub user_tower: UserTower,
    /// Maps items to vectors.
    pub item_tower: ItemTower,
    /// Width of a final linear layer of both towers; 0 for none.
    #[serde(default)]
    pub output_dim: usize,
    /// The similarity. For the cosine, vectors are normalized to length 1.
    #[serde(default = "inner_product")]
    pub similarity: Similarity,
    /// Divisor of similarities in training.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Must be false; the reference also rejects true.
    #[serde(default)]
    pub in_batch_negative: bool,
    /// False if histories start with their latest event.
    #[serde(default = "yes")]
    pub sequence_timestamp_is_ascending: bool,
}

/// The user tower of `hstu_match`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserTower {
    /// Ignored: the pipeline's channel determines the groups of histories.
    #[serde(default)]
    pub input: String,
    /// The pipeline.
    pub hstu: Hstu,
    /// Divisor of attention weights.
    pub max_seq_len: usize,
    /// Whether all contextual features form one token, instead of one each.
    #[serde(default)]
    pub concat_contextual_features: bool,
}

/// The item tower of `hstu_match`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemTower {
    /// The group of items.
    #[serde(default = "candidate")]
    pub input: String,
    /// The MLP from an item's features to its vector; `None` for the identity.
    #[serde(default)]
    pub mlp: Option<MlpConfig>,
}

/// A pipeline over histories.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hstu {
    /// The channel, which is the name prefix of its groups; empty means `uih`.
    #[serde(default)]
    pub name: String,
    /// Options of every layer.
    pub stu: StuConfig,
    /// Dropout of the first layer's input in training.
    #[serde(default = "input_dropout_ratio")]
    pub input_dropout_ratio: f32,
    /// Number of layers.
    #[serde(default = "attn_num_layers")]
    pub attn_num_layers: usize,
    /// Adds position and time embeddings.
    pub positional_encoder: PositionalEncoderConfig,
    /// Builds one sequence from a user's features.
    pub input_preprocessor: InputPreprocessorConfig,
    /// Postprocessing of the last layer's rows.
    pub output_postprocessor: OutputPostprocessorConfig,
    /// Index of the layer before which old history is truncated.
    #[serde(default)]
    pub attn_truncation_split_layer: usize,
    /// Number of history rows per user that remain; 0 keeps all.
    #[serde(default)]
    pub attn_truncation_tail_len: usize,
}

/// The tasks of a ranking model, and their shared MLP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FusionMtlTower {
    /// The MLP before the linear layer; `None` for the identity.
    #[serde(default)]
    pub mlp: Option<MlpConfig>,
    /// The tasks.
    pub task_configs: Vec<Task>,
}

/// A task of a ranking model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The name.
    pub task_name: String,
    /// The column of its labels.
    #[serde(default)]
    pub label_name: Option<String>,
    /// Bits of the label column that make the label positive.
    #[serde(default)]
    pub task_bitmask: i64,
    /// Number of logits.
    #[serde(default = "one")]
    pub num_class: usize,
    /// The weight of its loss in training.
    #[serde(default = "unit")]
    pub weight: f64,
    /// Its losses, which determine the names of its predictions.
    #[serde(default)]
    pub losses: Vec<Value>,
    /// Its metrics.
    #[serde(default)]
    pub metrics: Vec<Value>,
    /// Its metrics in training.
    #[serde(default)]
    pub train_metrics: Vec<Value>,
}

fn item_embedding_hidden_dim() -> usize {
    512
}

fn yes() -> bool {
    true
}

fn inner_product() -> Similarity {
    Similarity::InnerProduct
}

/// Name of the group of candidates.
pub(super) const CANDIDATE: &str = "candidate";

fn candidate() -> String {
    CANDIDATE.to_owned()
}

fn input_dropout_ratio() -> f32 {
    0.2
}

fn attn_num_layers() -> usize {
    3
}

fn one() -> usize {
    1
}

fn unit() -> f64 {
    1.0
}

/// Sizes of a pipeline that follow from its groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct Widths {
    /// Width of history rows.
    pub uih: usize,
    /// Width of candidate rows; 0 if the pipeline does not read candidates.
    pub candidate: usize,
    /// Number and width of contextual tokens.
    pub contextual: (usize, usize),
    /// Divisor of attention weights.
    pub max_seq_len: usize,
}

impl Hstu {
    /// Converts to the options of the modules.
    ///
    /// # Errors
    /// [`ConfigError`] if truncation starts after the last layer.
    pub fn config(&self, widths: Widths) -> Result<HstuConfig, ConfigError> {
        let split = self.attn_truncation_split_layer;
        let truncates = split > 0 && self.attn_truncation_tail_len > 0;
        if truncates && split >= self.attn_num_layers {
            let expected = format!("below `attn_num_layers`, {}", self.attn_num_layers);
            return Err(ConfigError::new("attn_truncation_split_layer", expected, split));
        }
        Ok(HstuConfig {
            uih_embedding_dim: widths.uih,
            target_embedding_dim: widths.candidate,
            stu: self.stu.clone(),
            attn_num_layers: self.attn_num_layers,
            input_preprocessor: self.input_preprocessor.clone(),
            output_postprocessor: self.output_postprocessor.clone(),
            positional_encoder: Some(self.positional_encoder.clone()),
            contextual_feature_dim: widths.contextual.1,
            max_contextual_seq_len: widths.contextual.0,
            contextual_group_name: String::new(),
            scaling_seqlen: i64::try_from(widths.max_seq_len).unwrap_or(i64::MAX),
            input_dropout_ratio: self.input_dropout_ratio,
            attn_truncation_split_layer: split,
            attn_truncation_tail_len: if truncates { self.attn_truncation_tail_len } else { 0 },
            name: self.name.clone(),
            return_full_embeddings: false,
            query_time_key: String::new(),
            is_inference: false,
        })
    }

    /// State-dict tensors that follow from the configuration.
    pub fn buffers(&self) -> Result<Vec<Buffer>, ModelError> {
        Ok(self.config(Widths::default())?.buffers()?)
    }

    /// Names of the history groups that the pipeline reads.
    pub fn groups(&self) -> Vec<String> {
        let encoder = self.input_preprocessor.action_encoder().map(|encoder| encoder.encoder());
        let columns = [
            ("", true),
            ("_timestamp", true),
            ("_action", encoder.is_some()),
            ("_watchtime", encoder.is_some_and(|encoder| encoder.reads_watchtimes())),
        ];
        let read = columns.into_iter().filter(|(_, is_read)| *is_read);
        read.map(|(suffix, _)| format!("{}{suffix}", self.channel())).collect()
    }

    /// Name prefix of its groups.
    pub fn channel(&self) -> &str {
        channel_of(&self.name)
    }
}

/// Name prefix of a pipeline's groups, from the pipeline's name.
pub(super) fn channel_of(name: &str) -> &str {
    if name.is_empty() { "uih" } else { name }
}

impl FusionMtlTower {
    /// Converts to the options of the module.
    pub fn config(&self) -> FusionMtlTowerConfig {
        let tasks = self.task_configs.iter().map(|task| TaskConfig {
            task_name: task.task_name.clone(),
            task_bitmask: task.task_bitmask,
            weight: task.weight,
            num_class: task.num_class,
        });
        FusionMtlTowerConfig { mlp: self.mlp.clone(), task_configs: tasks.collect() }
    }
}
