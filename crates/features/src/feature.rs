use crate::growing::growing;
use crate::message::{FeatureMessage, TableType};
use crate::{Growing, Problems};
use rewire_graph::DType;
use rewire_graph::limits::{MAX_EXTENT, MAX_WIDTH};
use serde::Deserialize;

/// Maximum number of rows of a table.
pub(crate) const MAX_ROWS: usize = MAX_EXTENT as usize;

/// How the ids of a bag are pooled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The sum of the embeddings.
    #[default]
    Sum,
    /// The sum divided by the number of ids; weights do not change that number.
    Mean,
}

/// The values of a feature, per row or per step of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum FeatureValues {
    /// Ids: row numbers of an embedding table.
    Ids {
        /// Rows of the table.
        rows: usize,
        /// Default ids of a missing value.
        default: Vec<i64>,
    },
    /// Floats.
    Floats {
        /// Default floats of a missing value.
        default: Vec<f32>,
        /// How floats are embedded; `None` to use them directly.
        embedding: Option<DenseEmbedding>,
    },
}

/// How a float is embedded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DenseEmbedding {
    /// AutoDis: a softmax mixture of `channels` vectors.
    AutoDis {
        /// Number of vectors.
        channels: usize,
        /// Softmax temperature of the scores.
        temperature: f64,
        /// Factor of the skip connection.
        keep_prob: f64,
    },
    /// A linear layer.
    Mlp,
}

/// How a sequence is written as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceForm {
    /// The separator of steps.
    pub delimiter: String,
}

/// A feature of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// The full name, which is also the name of its column.
    pub name: String,
    /// JSON pointer of the feature in the configuration.
    pub pointer: String,
    /// Its values.
    pub values: FeatureValues,
    /// Values per row or step; 0 for any number of ids.
    pub value_dim: usize,
    /// Embedding width; 0 without a table.
    pub dim: usize,
    /// The name of the table, without `_wide` and group suffixes.
    pub table: String,
    /// Set if the table grows; its ids are raw, not row numbers.
    pub growing: Option<Growing>,
    /// Element type of the table.
    pub dtype: DType,
    /// False for a frozen table.
    pub trainable: bool,
    /// The initializer of the table as in TorchEasyRec, such as `nn.init.uniform_,a=-0.01,b=0.01`; empty for the default.
    pub init_fn: String,
    /// The allowed shardings of the table; empty for any.
    pub sharding_types: Vec<String>,
    /// How ids are pooled.
    pub pooling: Pooling,
    /// True if every id has a weight.
    pub weighted: bool,
    /// Set for sequences.
    pub sequence: Option<SequenceForm>,
    /// The separator of values in text.
    pub separator: String,
}

/// Settings shared by all features of a pipeline, or of a grouped sequence.
pub(crate) struct Context<'a> {
    pub separator: &'a str,
    /// Name and step delimiter of the grouped sequence, if the feature is part of one.
    pub grouped: Option<(&'a str, &'a str)>,
}

impl Feature {
    /// Parses a feature of a kind such as `id_feature` or `sequence_raw_feature`.
    pub(crate) fn new(
        kind: &str,
        message: FeatureMessage,
        pointer: &str,
        context: &Context<'_>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let plain = kind.strip_prefix("sequence_").unwrap_or(kind);
        let is_sequence = context.grouped.is_some() || plain != kind;
        let name = match context.grouped {
            Some((sequence, _)) => format!("{sequence}__{}", message.feature_name),
            None => message.feature_name.clone(),
        };
        if plain == "tokenize_feature" {
            problems
                .push(pointer, "`tokenize_feature` is not supported: its vocabulary needs the reference's tokenizer");
            return None;
        }
        let delimiter = context.grouped.map_or(message.sequence_delim.as_str(), |(_, delimiter)| delimiter).to_owned();
        let value_dim = message.value_dim.unwrap_or(match plain {
            "id_feature" | "bool_mask_feature" if is_sequence => 1,
            "id_feature" | "combo_feature" | "bool_mask_feature" => 0,
            _ => 1,
        });
        let growing = growing(plain, &message, pointer, problems);
        let rows = match &growing {
            Some(growing) => Some(growing.rows()),
            None => table_rows(plain, &message, pointer, problems),
        };
        let default = message.fg_encoded_default_value.split(context.separator).filter(|text| !text.is_empty());
        let values = match rows {
            Some(rows) => {
                let default: Vec<i64> = parsed(default, pointer, problems);
                let is_row = |id: &i64| growing.is_some() || usize::try_from(*id).is_ok_and(|id| id < rows);
                if let Some(id) = default.iter().find(|id| !is_row(id)) {
                    let reason = format!("must be ids below {rows}, the rows of the table, got {id}");
                    problems.push(format!("{pointer}/fg_encoded_default_value"), reason);
                }
                FeatureValues::Ids { rows, default }
            }
            None => FeatureValues::Floats {
                default: parsed(default, pointer, problems),
                embedding: dense_embedding(&message),
            },
        };
        let is_embedded = !matches!(values, FeatureValues::Floats { embedding: None, .. });
        if is_embedded && message.embedding_dim == 0 && rows.is_none() {
            problems.push(format!("{pointer}/embedding_dim"), "must be at least 1");
        }
        let channels = message.autodis.as_ref().map(|autodis| autodis.num_channels);
        let sizes = [
            ("embedding_dim", Some(message.embedding_dim), MAX_WIDTH),
            ("value_dim", Some(value_dim), MAX_WIDTH),
            ("autodis/num_channels", channels, MAX_WIDTH),
            ("", rows, MAX_ROWS),
        ];
        for (key, size, most) in sizes {
            if let Some(size) = size.filter(|&size| size > most) {
                let reason = match key {
                    "" => format!("must have a table of at most {most} rows, got {size}"),
                    _ => format!("must be at most {most}, got {size}"),
                };
                problems.push(format!("{pointer}/{key}").trim_end_matches('/'), reason);
            }
        }
        let table = match message.embedding_name.as_str() {
            "" => format!("{name}_emb"),
            given => given.to_owned(),
        };
        Some(Self {
            pointer: pointer.to_owned(),
            value_dim: match values {
                FeatureValues::Ids { .. } => value_dim,
                // TorchEasyRec uses one value for both kinds.
                FeatureValues::Floats { .. } if matches!(plain, "match_feature" | "overlap_feature") => 1,
                FeatureValues::Floats { .. } => value_dim.max(1),
            },
            dim: if is_embedded { message.embedding_dim } else { 0 },
            table,
            init_fn: growing.as_ref().and_then(|growing| growing.init_fn.clone()).unwrap_or(message.init_fn),
            growing,
            dtype: match message.data_type {
                TableType::F32 => DType::F32,
                TableType::F16 => DType::F16,
            },
            trainable: message.trainable,
            sharding_types: message.embedding_constraints.sharding_types,
            pooling: message.pooling,
            weighted: message.weighted && !is_sequence,
            sequence: is_sequence.then_some(SequenceForm { delimiter }),
            separator: context.separator.to_owned(),
            name,
            values,
        })
    }

    /// True if values are rows of a table.
    pub fn is_sparse(&self) -> bool {
        matches!(self.values, FeatureValues::Ids { .. })
    }

    /// The name of one of the feature's inputs, `<feature>.<part>`.
    pub fn input(&self, part: &str) -> String {
        format!("{}.{part}", self.name)
    }
}

fn parsed<'a, T: std::str::FromStr>(
    texts: impl Iterator<Item = &'a str>,
    pointer: &str,
    problems: &mut Problems,
) -> Vec<T> {
    let mut values = vec![];
    for text in texts {
        match text.trim().parse() {
            Ok(value) => values.push(value),
            Err(_) => problems.push(
                format!("{pointer}/fg_encoded_default_value"),
                format!("must be encoded values, ids from 0 for a table and numbers otherwise, got `{text}`"),
            ),
        }
    }
    values
}

fn dense_embedding(message: &FeatureMessage) -> Option<DenseEmbedding> {
    match (&message.autodis, &message.mlp) {
        (Some(autodis), _) => Some(DenseEmbedding::AutoDis {
            channels: autodis.num_channels,
            temperature: autodis.temperature,
            keep_prob: autodis.keep_prob,
        }),
        (None, Some(_)) => Some(DenseEmbedding::Mlp),
        (None, None) => None,
    }
}

/// Number of rows of the feature's table; `None` for a dense feature.
fn table_rows(kind: &str, message: &FeatureMessage, pointer: &str, problems: &mut Problems) -> Option<usize> {
    let vocabulary = || {
        let list = message.vocab_list.len();
        let special = if message.default_bucketize_value.is_some() { 0 } else { 2 };
        (list > 0).then(|| list + special + usize::from(kind == "match_feature"))
    };
    let dictionary = || message.vocab_dict.values().max().map(|largest| largest.saturating_add(1));
    let boundaries = || (!message.boundaries.is_empty()).then(|| message.boundaries.len() + 1);
    let hashed = message.hash_bucket_size;
    let identified = hashed.or(message.num_buckets).or_else(vocabulary).or_else(dictionary);
    if identified.is_none() && !message.vocab_file.is_empty() {
        let reason = "a vocabulary in a file gives no size here: write the rows of the table as `num_buckets`, or import a checkpoint, which has them";
        problems.push(format!("{pointer}/vocab_file"), reason);
        return Some(1);
    }
    let rows = match kind {
        "raw_feature" | "expr_feature" | "overlap_feature" | "kv_dot_product" => boundaries(),
        _ => identified.or_else(boundaries),
    };
    match (kind, rows) {
        ("id_feature" | "combo_feature" | "bool_mask_feature", None) => {
            let reason = "needs the size of its table: `hash_bucket_size`, `num_buckets`, `vocab_list`, `vocab_dict`, `zch` or `dynamicemb`";
            problems.push(pointer, reason);
            Some(1)
        }
        (_, Some(0)) => {
            problems.push(pointer, "needs a table of at least one row");
            Some(1)
        }
        (_, rows) => rows,
    }
}
