//! Embedding tables that grow as new ids occur: `zch` and `dynamicemb` of a feature.

use crate::Problems;
use crate::feature::MAX_ROWS;
use crate::message::{FeatureMessage, NoKeys, TableType};
use rewire_tables::{Admission, Eviction, Options, Threshold};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A growing table. Features with the same table name share its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Growing {
    /// How ids are admitted and evicted.
    pub options: Options,
    /// The configuration key that enables growth.
    pub origin: Origin,
    /// The last row of the table, used by ids without a row.
    pub default: DefaultRow,
    /// The initializer of new rows in `init_fn` syntax, if the configuration sets one.
    pub(crate) init_fn: Option<String>,
}

/// The configuration key that enables growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `zch`: ids are managed by torchrec's collision modules.
    Managed,
    /// `dynamicemb`.
    Dynamic,
}

/// The row used by ids without a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultRow {
    /// A trained row, updated by all of these ids.
    Trained,
    /// This constant in all columns.
    Constant(f32),
}

impl Growing {
    /// Rows of the table: one per admitted id, plus the default row.
    pub fn rows(&self) -> usize {
        self.options.rows as usize + 1
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZeroCollisionHash {
    #[serde(default)]
    zch_size: usize,
    #[serde(default = "one")]
    eviction_interval: u32,
    #[serde(default)]
    threshold_filtering_func: String,
    lfu: Option<NoKeys>,
    lru: Option<Decay>,
    distance_lfu: Option<Decay>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decay {
    #[serde(default = "unit")]
    decay_exponent: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DynamicEmbedding {
    initializer_args: Option<Initializer>,
    eval_initializer_args: Option<Initializer>,
    #[serde(default)]
    score_strategy: ScoreStrategy,
    #[serde(default)]
    max_capacity: usize,
    /// Maximum size of the rows in bytes; an extension of rewire.
    max_bytes: Option<u64>,
    #[serde(default, rename = "cache_load_factor")]
    _load: IgnoredAny,
    #[serde(default, rename = "init_capacity_per_rank")]
    _capacity: IgnoredAny,
    #[serde(default, rename = "init_table")]
    _table: IgnoredAny,
    frequency_admission_strategy: Option<FrequencyAdmission>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum ScoreStrategy {
    #[default]
    #[serde(rename = "STEP", alias = "TIMESTAMP")]
    Step,
    #[serde(rename = "LFU")]
    Lfu,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrequencyAdmission {
    #[serde(default)]
    threshold: u64,
    initializer_args: Option<Initializer>,
    counter_capacity: Option<usize>,
    #[serde(default, rename = "counter_bucket_capacity")]
    _bucket: IgnoredAny,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Initializer {
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    mean: f64,
    std_dev: Option<f64>,
    lower: Option<f64>,
    upper: Option<f64>,
    #[serde(default)]
    value: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Mode {
    #[serde(rename = "NORMAL")]
    Normal,
    #[serde(rename = "TRUNCATED_NORMAL")]
    TruncatedNormal,
    #[default]
    #[serde(rename = "UNIFORM")]
    Uniform,
    #[serde(rename = "CONSTANT")]
    Constant,
}

fn one() -> u32 {
    1
}

fn unit() -> f64 {
    1.0
}

impl Initializer {
    /// The initializer in `init_fn` syntax, for a table of `ids` rows and `columns` columns.
    fn function(&self, ids: usize, columns: usize) -> String {
        let bound = (ids.max(1) as f64).recip().sqrt();
        let deviation = || self.std_dev.unwrap_or((columns.max(1) as f64).recip().sqrt());
        match self.mode {
            Mode::Normal => format!("nn.init.normal_,mean={},std={}", self.mean, deviation()),
            Mode::TruncatedNormal => format!("nn.init.trunc_normal_,mean={},std={}", self.mean, deviation()),
            Mode::Uniform => {
                format!("nn.init.uniform_,a={},b={}", self.lower.unwrap_or(-bound), self.upper.unwrap_or(bound))
            }
            Mode::Constant => format!("nn.init.constant_,val={}", self.value),
        }
    }
}

/// Growth settings of a feature's table; `None` if it does not grow.
pub(crate) fn growing(kind: &str, message: &FeatureMessage, pointer: &str, problems: &mut Problems) -> Option<Growing> {
    if matches!(kind, "raw_feature" | "expr_feature" | "overlap_feature" | "kv_dot_product") {
        return None;
    }
    let growing = match (&message.zch, &message.dynamicemb) {
        (Some(zch), _) => zch.growing(&format!("{pointer}/zch"), problems),
        (None, Some(dynamic)) => dynamic.growing(message, &format!("{pointer}/dynamicemb"), problems),
        (None, None) => return None,
    };
    Some(growing)
}

/// Number of id rows in a table of `size` rows, which includes the default row.
fn ids(size: usize, (pointer, key): (&str, &str), problems: &mut Problems) -> u32 {
    let rows = size.checked_sub(1).filter(|ids| (1..MAX_ROWS).contains(ids)).and_then(|ids| u32::try_from(ids).ok());
    rows.unwrap_or_else(|| {
        problems
            .push(format!("{pointer}/{key}"), format!("must result in a table of 2 to {MAX_ROWS} rows, got {size}"));
        1
    })
}

impl ZeroCollisionHash {
    fn growing(&self, pointer: &str, problems: &mut Problems) -> Growing {
        let eviction = match (&self.lfu, &self.lru, &self.distance_lfu) {
            (None, Some(_), None) => Eviction::Lru,
            (None, None, Some(Decay { decay_exponent })) => Eviction::DistanceLfu { decay_exponent: *decay_exponent },
            (_, None, None) => Eviction::Lfu,
            _ => {
                problems.push(pointer, "must have at most one of `lfu`, `lru` and `distance_lfu`");
                Eviction::Lfu
            }
        };
        if self.eviction_interval == 0 {
            problems.push(format!("{pointer}/eviction_interval"), "must be at least 1");
        }
        let admission = match self.threshold_filtering_func.as_str() {
            "" => Admission::All,
            function => Threshold::parse(function).map_or_else(
                || {
                    let reason = "must be `lambda x: (x > N, N)`, or call `dynamic_threshold_filter`, `average_threshold_filter` or \
                                  `probabilistic_threshold_filter` with `x`";
                    problems.push(format!("{pointer}/threshold_filtering_func"), reason);
                    Admission::All
                },
                Admission::Filter,
            ),
        };
        let rows = ids(self.zch_size, (pointer, "zch_size"), problems);
        Growing {
            options: Options { rows, eviction, admission, interval: self.eviction_interval },
            origin: Origin::Managed,
            default: DefaultRow::Trained,
            init_fn: None,
        }
    }
}

impl DynamicEmbedding {
    fn growing(&self, message: &FeatureMessage, pointer: &str, problems: &mut Problems) -> Growing {
        let size = match message.data_type {
            TableType::F32 => 4,
            TableType::F16 => 2,
        };
        let fitting = self.max_bytes.map(|bytes| {
            let rows = bytes / (message.embedding_dim.max(1) * size) as u64;
            usize::try_from(rows).unwrap_or(usize::MAX)
        });
        let (key, most) = match (self.max_capacity, fitting) {
            (0, Some(fitting)) => ("max_bytes", fitting),
            (capacity, fitting) => (
                "max_capacity",
                fitting.map_or(capacity.saturating_add(1), |rows| rows.min(capacity.saturating_add(1))),
            ),
        };
        let rows = ids(most, (pointer, key), problems);
        let eviction = match self.score_strategy {
            ScoreStrategy::Step => Eviction::Lru,
            ScoreStrategy::Lfu => Eviction::Lfu,
        };
        let admission = match &self.frequency_admission_strategy {
            Some(FrequencyAdmission { threshold, counter_capacity, .. }) => {
                Admission::Count { threshold: *threshold, capacity: counter_capacity.unwrap_or(rows as usize) }
            }
            None => Admission::All,
        };
        let columns = message.embedding_dim;
        Growing {
            options: Options { rows, eviction, admission, interval: 1 },
            origin: Origin::Dynamic,
            default: DefaultRow::Constant(self.default(pointer, problems)),
            init_fn: self.initializer_args.as_ref().map(|args| args.function(rows as usize, columns)),
        }
    }

    /// The constant embedding of ids without a row, in training and inference.
    fn default(&self, pointer: &str, problems: &mut Problems) -> f32 {
        let waiting =
            self.frequency_admission_strategy.as_ref().and_then(|strategy| strategy.initializer_args.as_ref());
        let given: Vec<&Initializer> = self.eval_initializer_args.iter().chain(waiting).collect();
        if given.iter().any(|args| args.mode != Mode::Constant || args.value != given[0].value) {
            let reason = "has initializers of ids without a row: they must be `CONSTANT`, with the same value in \
                          `eval_initializer_args` and `frequency_admission_strategy`";
            problems.push(pointer, reason);
        }
        given.first().map_or(0.0, |args| args.value as f32)
    }
}
