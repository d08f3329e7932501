use crate::BenchError;
use crate::draft::DraftError;
use rewire_graph::DType;
use rewire_graph::limits::MAX_EXTENT;
use rewire_hstu::modules::MAX_PARTS;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// The sizes of a benchmark. Each operator uses some of them.
///
/// ```
/// use rewire_measure::Shape;
/// let shape = Shape { max_len: 4096, ..Shape::named("training")? };
/// assert_eq!((shape.batch, shape.max_len), (32, 4096));
/// # Ok::<(), rewire_measure::BenchError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shape {
    /// Number of samples.
    pub batch: usize,
    /// Number of heads.
    pub heads: usize,
    /// Width of queries and keys per head.
    pub attn_dim: usize,
    /// Width of values per head.
    pub hidden_dim: usize,
    /// Width of the rows of layers.
    pub embedding_dim: usize,
    /// Number of layers.
    pub layers: usize,
    /// Maximum number of rows of a sample.
    pub max_len: usize,
    /// Number of rows of a sample.
    pub len_dist: Lengths,
    /// Number of candidates among the rows of a sample.
    pub targets: Lengths,
    /// Maximum attention distance; 0 for no limit.
    pub window: usize,
    /// Number of contextual rows of a sample.
    pub context: usize,
    /// Rows of a matmul (M).
    pub m: usize,
    /// Inner dimension of a matmul (K).
    pub k: usize,
    /// Columns of a matmul (N).
    pub n: usize,
    /// Rows of norms, pointwise operators and lookups.
    pub rows: usize,
    /// Columns of norms, pointwise operators, jagged operators and lookups.
    pub width: usize,
    /// Rows of the lookup table.
    pub table: usize,
    /// Whether dropout is active.
    pub train: bool,
    /// Whether the norm concatenates gate and input with its result.
    pub concat: bool,
    /// Whether the matmul has an epilogue with an activation and a residual.
    pub epilogue: bool,
    /// Whether to compute gradients of all float inputs and parameters, given random gradients of the results.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// Type of inputs, weights and results.
    #[serde(serialize_with = "as_text")]
    pub dtype: DType,
    /// Type of embedding tables; `None` for the same type as all other tensors.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "storage_type")]
    pub tables: Option<DType>,
    /// Storage type of weights, which may be rows of integers with a scale; `None` for the type of inputs.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "storage_type")]
    pub weights: Option<DType>,
    /// Accumulators of matmuls, `F16` or `I32`; `None` for `F32`.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "storage_type")]
    pub sums: Option<DType>,
    /// Seed of lengths, targets and data.
    pub seed: u64,
}

/// The distribution of rows per sample.
///
/// ```
/// use rewire_measure::Lengths;
/// assert_eq!("full".parse(), Ok(Lengths::Full));
/// assert_eq!("uniform:50:512".parse(), Ok(Lengths::Uniform(50, 512)));
/// assert_eq!("uniform:90%:100%".parse(), Ok(Lengths::Share(90, 100)));
/// assert_eq!("20".parse(), Ok(Lengths::Uniform(20, 20)));
/// assert!("uniform:9:3".parse::<Lengths>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// Always the maximum.
    Full,
    /// Uniform between two numbers, both included.
    Uniform(usize, usize),
    /// Uniform between two percentages of the maximum.
    Share(usize, usize),
}

impl Lengths {
    /// No rows.
    pub const NONE: Self = Self::Uniform(0, 0);

    /// The largest number of the distribution; 1 if it depends on the maximum.
    fn most(self) -> usize {
        match self {
            Self::Full | Self::Share(..) => 1,
            Self::Uniform(_, high) => high,
        }
    }

    /// The smallest and the largest number if the maximum is `most`.
    pub fn within(self, most: usize) -> (usize, usize) {
        let share = |percent: usize| (most as u128 * percent as u128 / 100) as usize;
        match self {
            Self::Full => (most, most),
            Self::Uniform(low, high) => (low.min(most), high.min(most)),
            Self::Share(low, high) => (share(low), share(high)),
        }
    }
}

/// The largest allowed size: kernels use 32-bit counters.
const MOST: usize = MAX_EXTENT as usize;

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Uniform(low, high) if low == high => write!(f, "{low}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low}:{high}"),
            Self::Share(low, high) => write!(f, "uniform:{low}%:{high}%"),
        }
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected full, N, uniform:LO:HI or uniform:LO%:HI%, got `{text}`");
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let Some(range) = text.strip_prefix("uniform:") else {
            return if text == "full" { Ok(Self::Full) } else { number(text).map(|n| Self::Uniform(n, n)) };
        };
        let (low, high) = range.split_once(':').ok_or_else(wrong)?;
        let (found, most) = match (low.strip_suffix('%'), high.strip_suffix('%')) {
            (Some(low), Some(high)) => (Self::Share(number(low)?, number(high)?), 100),
            _ => (Self::Uniform(number(low)?, number(high)?), usize::MAX),
        };
        match found {
            Self::Share(low, high) | Self::Uniform(low, high) if low > high || high > most => Err(wrong()),
            found => Ok(found),
        }
    }
}

impl Serialize for Lengths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Uniform(low, high) if low == high => serializer.serialize_u64(*low as u64),
            other => serializer.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Lengths {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn as_text<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(dtype)
}

fn storage_type<S: Serializer>(dtype: &Option<DType>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&dtype.map_or("", |dtype| dtype.format().name))
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            batch: 8,
            heads: 4,
            attn_dim: 64,
            hidden_dim: 64,
            embedding_dim: 256,
            layers: 3,
            max_len: 512,
            len_dist: Lengths::Full,
            targets: Lengths::NONE,
            window: 0,
            context: 0,
            m: 4096,
            k: 512,
            n: 2048,
            rows: 16384,
            width: 512,
            table: 1 << 18,
            train: false,
            concat: false,
            epilogue: false,
            backward: false,
            dtype: DType::F32,
            tables: None,
            weights: None,
            sums: None,
            seed: 1,
        }
    }
}

impl Shape {
    /// Names of the standard shapes.
    pub const NAMES: [&str; 7] = ["default", "on-device", "on-device-8", "match", "server", "published", "training"];

    /// A standard shape: ranking on a device for one or eight users, matching, ranking on a server, the published H100 profile (2048
    /// candidates in total), and a training batch.
    ///
    /// # Errors
    /// [`BenchError::UnknownShape`] lists the names.
    pub fn named(name: &str) -> Result<Self, BenchError> {
        let layer = |embedding_dim, heads, head, layers| Self {
            embedding_dim,
            heads,
            attn_dim: head,
            hidden_dim: head,
            layers,
            width: embedding_dim,
            ..Self::default()
        };
        let exactly = |n| Lengths::Uniform(n, n);
        let on_device = Self { batch: 1, max_len: 220, targets: exactly(20), ..layer(64, 2, 32, 2) };
        Ok(match name {
            "default" => Self::default(),
            "on-device" => on_device,
            "on-device-8" => Self { batch: 8, ..on_device },
            "match" => Self { batch: 8, max_len: 4096, ..layer(32, 4, 32, 3) },
            "server" => Self { batch: 8, max_len: 4196, targets: exactly(100), ..layer(512, 4, 128, 3) },
            "published" => Self { batch: 32, max_len: 1088, targets: exactly(64), ..layer(512, 4, 128, 5) },
            "training" => Self {
                batch: 32,
                max_len: 2048,
                len_dist: Lengths::Share(90, 100),
                targets: Lengths::Uniform(1, 20),
                ..layer(512, 4, 128, 3)
            },
            _ => return Err(BenchError::UnknownShape { name: name.to_owned(), known: Self::NAMES.join(", ") }),
        })
    }

    /// Checks the sizes with these names.
    pub(crate) fn check(&self, names: &[&str]) -> Result<(), DraftError> {
        let positive = [
            ("batch", self.batch),
            ("heads", self.heads),
            ("attn_dim", self.attn_dim),
            ("hidden_dim", self.hidden_dim),
            ("embedding_dim", self.embedding_dim),
            ("max_len", self.max_len),
            ("m", self.m),
            ("k", self.k),
            ("n", self.n),
            ("rows", self.rows),
            ("width", self.width),
            ("table", self.table),
        ];
        let ranges = positive.map(|(name, value)| (name, value, 1, MOST)).into_iter().chain([
            ("layers", self.layers, 1, MAX_PARTS),
            ("window", self.window, 0, MOST),
            ("context", self.context, 0, self.max_len.saturating_sub(1)),
            ("len_dist", self.len_dist.most(), 1, self.max_len),
            ("targets", self.targets.most(), 0, self.max_len),
        ]);
        let mut of_names = ranges.filter(|(name, ..)| names.contains(name));
        match of_names.find(|(_, value, least, most)| value < least || value > most) {
            None => Ok(()),
            Some((name, value, least, most)) => {
                let why = if most == self.max_len { ", as max_len is" } else { "" };
                let expected = format!("in {least}..={most}{why}");
                Err(DraftError::Size { name, expected, actual: value.to_string() })
            }
        }
    }

    /// The sizes with these names.
    pub(crate) fn only(&self, names: &[&str]) -> Map<String, Value> {
        let Ok(Value::Object(all)) = serde_json::to_value(self) else { return Map::new() };
        all.into_iter().filter(|(name, _)| name == "backward" || names.contains(&name.as_str())).collect()
    }
}
