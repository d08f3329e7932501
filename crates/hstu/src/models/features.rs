//! Features of requests: their tables, and the inputs of models that use them.

use crate::modules::{ConfigError, EmbeddingTable, HstuConfig, Sequence, parts, rows, width};
use rewire_graph::{DType, Dim, Scope, Tensor};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Input names that features of histories and candidates cannot have.
const RESERVED: [&str; 4] = ["lengths", "timestamp", "action", "watchtime"];
/// Request keys that user features cannot have.
const RESERVED_OF_USERS: [&str; 4] = ["user", "history", "candidates", "labels"];

/// The table of a feature.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureConfig {
    /// Number of table rows.
    pub num_embeddings: usize,
    /// Width of a row.
    pub embedding_dim: usize,
}

/// Names of features, in the order in which their embeddings are concatenated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureGroups {
    /// User features; each is one token.
    #[serde(default)]
    pub contextual: Vec<String>,
    /// Features of a history row.
    pub uih: Vec<String>,
    /// Features of a candidate.
    pub candidate: Vec<String>,
}

/// Deserializes a map; duplicate keys are errors.
pub(super) fn unique<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Unique<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Unique<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of different keys")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some(key) = entries.next_key::<String>()? {
                if map.contains_key(&key) {
                    return Err(A::Error::custom(format!("`{key}` is there twice")));
                }
                map.insert(key, entries.next_value()?);
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(Unique(PhantomData))
}

/// The rows of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRows {
    /// One entry per user.
    Users,
    /// One entry per history row.
    History,
    /// One entry per candidate.
    Candidates,
}

/// An input of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// The name.
    pub name: String,
    /// Element type; `None` for lengths, which the host reads as integers of any type.
    pub dtype: Option<DType>,
    /// The rows that its entries belong to.
    pub rows: InputRows,
    /// Number of rows of the table, if entries are ids.
    pub num_embeddings: Option<usize>,
}

/// The inputs of a model with these features.
pub(super) fn inputs(
    features: &BTreeMap<String, FeatureConfig>,
    feature_groups: &FeatureGroups,
    hstu: &HstuConfig,
) -> Vec<InputSpec> {
    let encoder = hstu.input_preprocessor.action_encoder().map(|encoder| encoder.encoder());
    let groups = [
        ("contextual", InputRows::Users, &feature_groups.contextual),
        ("uih", InputRows::History, &feature_groups.uih),
        ("candidate", InputRows::Candidates, &feature_groups.candidate),
    ];
    let mut specs = vec![];
    for (group, rows, names) in groups {
        let mut add = |name: &str, dtype, rows, num_embeddings| {
            specs.push(InputSpec { name: format!("{group}.{name}"), dtype, rows, num_embeddings });
        };
        if rows != InputRows::Users {
            add("lengths", None, InputRows::Users, None);
            add("timestamp", Some(DType::I64), rows, None);
        }
        for feature in names {
            let size = features.get(feature).map(|table| table.num_embeddings);
            add(feature, Some(DType::U32), rows, size);
        }
        if rows == InputRows::History && encoder.is_some() {
            add("action", Some(DType::I64), rows, None);
        }
        if rows == InputRows::History && encoder.is_some_and(|encoder| encoder.reads_watchtimes()) {
            add("watchtime", Some(DType::I64), rows, None);
        }
    }
    specs
}

/// Checks the sizes of tables.
pub(super) fn check(features: &BTreeMap<String, FeatureConfig>) -> Result<(), ConfigError> {
    for (name, table) in features {
        let within = |error: ConfigError| error.within(&format!("features.{name}"));
        rows("num_embeddings", table.num_embeddings).map_err(within)?;
        width("embedding_dim", table.embedding_dim).map_err(within)?;
    }
    Ok(())
}

/// The tables of a group.
fn tables(
    features: &BTreeMap<String, FeatureConfig>,
    group: &str,
    names: &[String],
) -> Result<Vec<EmbeddingTable>, ConfigError> {
    let key = format!("feature_groups.{group}");
    parts(&key, names.len())?;
    let reserved = if group == "contextual" { RESERVED_OF_USERS } else { RESERVED };
    let mut tables: Vec<EmbeddingTable> = vec![];
    for feature in names {
        let Some(config) = features.get(feature) else {
            return Err(ConfigError::new(key, "names of `features`", format!("`{feature}`")));
        };
        if reserved.contains(&feature.as_str()) || tables.iter().any(|table| table.feature == *feature) {
            let expected = "names that differ and are not reserved";
            return Err(ConfigError::new(key, expected, format!("`{feature}`")));
        }
        tables.push(EmbeddingTable {
            feature: feature.clone(),
            num_embeddings: config.num_embeddings,
            embedding_dim: config.embedding_dim,
        });
    }
    Ok(tables)
}

/// The tables of all groups.
pub(super) struct Tables {
    contextual: Vec<EmbeddingTable>,
    uih: Vec<EmbeddingTable>,
    candidate: Vec<EmbeddingTable>,
}

impl Tables {
    pub fn new(features: &BTreeMap<String, FeatureConfig>, groups: &FeatureGroups) -> Result<Self, ConfigError> {
        let contextual = tables(features, "contextual", &groups.contextual)?;
        let uih = tables(features, "uih", &groups.uih)?;
        let candidate = tables(features, "candidate", &groups.candidate)?;
        let width = contextual.first().map_or(0, |table| table.embedding_dim);
        if let Some(other) = contextual.iter().find(|table| table.embedding_dim != width) {
            let expected = format!("{width}, as wide as the other contextual features");
            let key = format!("features.{}.embedding_dim", other.feature);
            return Err(ConfigError::new(key, expected, other.embedding_dim));
        }
        Ok(Self { contextual, uih, candidate })
    }

    /// Width of a candidate's concatenated embeddings.
    pub fn candidate_width(&self) -> usize {
        sum(&self.candidate)
    }

    /// The pipeline's options with sizes derived from the features. Sizes in the configuration must be equal or 0.
    pub fn configure(&self, hstu: &HstuConfig, max_seq_len: usize) -> Result<HstuConfig, ConfigError> {
        let mut hstu = hstu.clone();
        let width = self.contextual.first().map_or(0, |table| table.embedding_dim);
        derive("uih_embedding_dim", &mut hstu.uih_embedding_dim, sum(&self.uih))?;
        if hstu.input_preprocessor.reads_candidates() {
            derive("target_embedding_dim", &mut hstu.target_embedding_dim, self.candidate_width())?;
        }
        derive("contextual_feature_dim", &mut hstu.contextual_feature_dim, width)?;
        derive("max_contextual_seq_len", &mut hstu.max_contextual_seq_len, self.contextual.len())?;
        let scaling = i64::try_from(max_seq_len).unwrap_or(i64::MAX);
        if hstu.scaling_seqlen >= 0 && hstu.scaling_seqlen != scaling {
            return Err(ConfigError::new(
                "hstu.scaling_seqlen",
                format!("{scaling}, as `max_seq_len` is"),
                hstu.scaling_seqlen,
            ));
        }
        hstu.scaling_seqlen = scaling;
        Ok(hstu)
    }

    /// The history inputs.
    pub fn history(&self, scope: &Scope, batch: &Dim, hstu: &HstuConfig) -> Sequence {
        let rows = scope.lengths("uih.lengths", batch);
        let integers = |name: &str| scope.input(name, DType::I64, std::slice::from_ref(&rows.total));
        let timestamps = integers("uih.timestamp");
        let encoder = hstu.input_preprocessor.action_encoder().map(|encoder| encoder.encoder());
        let actions = encoder.map(|_| integers("uih.action"));
        let watchtimes = encoder.filter(|encoder| encoder.reads_watchtimes()).map(|_| integers("uih.watchtime"));
        let embeddings = lookup(scope, "uih", &self.uih, &rows.total);
        Sequence { embeddings, rows, timestamps, actions, watchtimes }
    }

    /// The concatenated embeddings of `count` candidates.
    pub fn candidates(&self, scope: &Scope, count: &Dim) -> Tensor {
        lookup(scope, "candidate", &self.candidate, count)
    }

    /// The concatenated embeddings of user features; `None` if there are none.
    pub fn context(&self, scope: &Scope, group: &str, batch: &Dim) -> Option<Tensor> {
        if self.contextual.is_empty() { None } else { Some(lookup(scope, group, &self.contextual, batch)) }
    }
}

fn sum(tables: &[EmbeddingTable]) -> usize {
    tables.iter().map(|table| table.embedding_dim).sum()
}

/// Sets a size that follows from the features. It is an error if the configuration has another size, except 0.
fn derive(key: &str, configured: &mut usize, size: usize) -> Result<(), ConfigError> {
    if *configured != 0 && *configured != size {
        return Err(ConfigError::new(format!("hstu.{key}"), format!("{size}, as the features have it"), *configured));
    }
    *configured = size;
    Ok(())
}

/// The concatenated embeddings of a group's features, `[n, sum of widths]`.
fn lookup(scope: &Scope, group: &str, tables: &[EmbeddingTable], rows: &Dim) -> Tensor {
    let parts: Vec<Tensor> = tables
        .iter()
        .map(|table| {
            let ids = scope.input(&format!("{group}.{}", table.feature), DType::U32, std::slice::from_ref(rows));
            table.forward(scope, &ids)
        })
        .collect();
    scope.concat(&parts.iter().collect::<Vec<_>>(), 1)
}
