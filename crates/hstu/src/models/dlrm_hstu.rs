//! The ranking model DLRM-HSTU: users' histories and candidates in, a logit for every candidate and task out.
//!
//! # Inputs
//!
//! `H` history rows and `C` candidates of all users lie back to back, user after user; `B` is the number of users.
//!
//! | input | type | what |
//! |---|---|---|
//! | `uih.lengths` | integers `[B]`, read on the host | history rows of every user |
//! | `uih.<feature>` | U32 `[H]` | ids of a history feature |
//! | `uih.timestamp` | I64 `[H]` | seconds since the epoch, ascending |
//! | `uih.action` | I64 `[H]` | bit masks; only with an action encoder |
//! | `uih.watchtime` | I64 `[H]` | seconds; only where watch times set action bits |
//! | `candidate.lengths` | integers `[B]`, read on the host | candidates of every user |
//! | `candidate.<feature>` | U32 `[C]` | ids of a candidate feature |
//! | `candidate.timestamp` | I64 `[C]` | time of the request |
//! | `contextual.<feature>` | U32 `[B]` | id of a user's feature |
//!
//! [`Config::inputs`] lists them for a configuration. An id beyond its table takes the table's last row.
//!
//! # Output
//!
//! `logits` `[C, tasks]`, tasks in the order of [`Config::task_names`].

mod cached;

pub use crate::modules::EMBEDDINGS;
pub use cached::CacheOptions;

use super::ModelError;
use crate::modules::{
    Buffer, ConfigError, EmbeddingTable, Features, FusionMtlTower, FusionMtlTowerConfig, HstuConfig, HstuTransducer,
    Sequence, normed_swish_mlp, parts, rows, width,
};
use rewire_graph::{DType, Dim, Graph, Ragged, Scope, Tensor};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::marker::PhantomData;

const TRANSDUCER: &str = "_hstu_transducer";
/// Input names that no feature of a history or candidate may have.
const RESERVED: [&str; 4] = ["lengths", "timestamp", "action", "watchtime"];
/// Keys of a request that no feature of a user may have.
const RESERVED_OF_USERS: [&str; 4] = ["user", "history", "candidates", "labels"];

/// A model's `config.json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `dlrm_hstu`.
    pub model: String,
    /// The tables by feature; a feature that is there twice is an error.
    #[serde(deserialize_with = "unique")]
    pub features: BTreeMap<String, FeatureConfig>,
    /// Which features describe what.
    pub feature_groups: FeatureGroups,
    /// The pipeline.
    pub hstu: HstuConfig,
    /// Width between the linear maps of the item MLP.
    pub item_embedding_hidden_dim: usize,
    /// The tasks.
    pub fusion_mtl_tower: FusionMtlTowerConfig,
    /// What every attention divides by.
    pub max_seq_len: usize,
}

/// The table of a feature.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureConfig {
    /// Number of rows.
    pub num_embeddings: usize,
    /// Width of a row.
    pub embedding_dim: usize,
}

/// Names of features, in the order in which their rows are joined.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureGroups {
    /// Of a user, a token each.
    #[serde(default)]
    pub contextual: Vec<String>,
    /// Of a history row.
    pub uih: Vec<String>,
    /// Of a candidate.
    pub candidate: Vec<String>,
}

/// A map whose keys differ.
fn unique<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error> {
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

/// How an input is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRows {
    /// One entry a user.
    Users,
    /// One entry a history row.
    History,
    /// One entry a candidate.
    Candidates,
}

/// An input of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// The name.
    pub name: String,
    /// Element type; `None` for lengths, which the host reads as integers of any type.
    pub dtype: Option<DType>,
    /// What it has an entry for.
    pub rows: InputRows,
    /// Number of table rows, for ids.
    pub num_embeddings: Option<usize>,
}

/// The graph of a configuration.
///
/// # Errors
/// [`ModelError`] names the key of the configuration, or the operator, that does not fit.
pub fn trace(config: &Config) -> Result<Graph, ModelError> {
    let scope = Scope::new();
    let logits = forward(config, &scope)?;
    Ok(scope.finish(&[("logits", logits)])?)
}

/// The logits `[C, tasks]` of a configuration, traced in a scope: to go on from, with a loss for instance.
///
/// # Errors
/// [`ModelError`] names the key of the configuration that is not good.
pub fn forward(config: &Config, scope: &Scope) -> Result<Tensor, ModelError> {
    Ok(Model::new(config)?.forward(scope))
}

impl Config {
    /// From the text of a `config.json`. Unknown keys are errors.
    ///
    /// # Errors
    /// [`ModelError`] if the text is no JSON, or a key is unknown, missing or out of bounds.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let config = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let (keys, source) = (error.path().to_string(), error.into_inner());
            if keys == "." || !source.is_data() { ModelError::Parse(source) } else { ModelError::Key { keys, source } }
        })?;
        deserializer.end()?;
        Ok(config)
    }

    /// Names of the tasks, in the order of the logits.
    pub fn task_names(&self) -> Vec<&str> {
        self.fusion_mtl_tower.task_configs.iter().map(|task| task.task_name.as_str()).collect()
    }

    /// The inputs of the traced graph.
    pub fn inputs(&self) -> Vec<InputSpec> {
        let encoder = self.hstu.input_preprocessor.action_encoder().map(|encoder| encoder.encoder());
        let groups = [
            ("contextual", InputRows::Users, &self.feature_groups.contextual),
            ("uih", InputRows::History, &self.feature_groups.uih),
            ("candidate", InputRows::Candidates, &self.feature_groups.candidate),
        ];
        let mut specs = vec![];
        for (group, rows, features) in groups {
            let mut add = |name: &str, dtype, rows, num_embeddings| {
                specs.push(InputSpec { name: format!("{group}.{name}"), dtype, rows, num_embeddings });
            };
            if rows != InputRows::Users {
                add("lengths", None, InputRows::Users, None);
                add("timestamp", Some(DType::I64), rows, None);
            }
            for feature in features {
                let size = self.features.get(feature).map(|table| table.num_embeddings);
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

    /// The parameters that are embedding tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = String> {
        self.features.keys().map(|feature| EmbeddingTable::parameter(feature))
    }

    /// State-dict tensors that follow from the configuration and are no parameters of the graph. A checkpoint in which
    /// they differ was made with another configuration.
    ///
    /// # Errors
    /// [`ModelError`] if the configuration is not valid.
    pub fn buffers(&self) -> Result<Vec<Buffer>, ModelError> {
        let buffers = self.hstu.buffers()?;
        Ok(buffers.into_iter().map(|buffer| buffer.within(TRANSDUCER)).collect())
    }

    /// Those of the names of a state dict that the model does not know: neither parameters of its `graph`, nor
    /// [`Config::buffers`], nor tables of features that no group has, nor the counts of batches that batch norms learned from.
    ///
    /// # Errors
    /// [`ModelError`] if the configuration is not valid.
    pub fn unread<'a>(&self, graph: &Graph, names: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, ModelError> {
        let mut known: HashSet<String> = super::parameters(graph).into_iter().map(|parameter| parameter.name).collect();
        let counts = known.iter().filter_map(|name| name.strip_suffix("running_mean"));
        let counts: Vec<String> = counts.map(|norm| format!("{norm}num_batches_tracked")).collect();
        known.extend(counts);
        known.extend(self.buffers()?.into_iter().map(|buffer| buffer.name));
        known.extend(self.tables());
        Ok(names.filter(|name| !known.contains(*name)).collect())
    }

    /// Checks what a configuration can be checked for without tracing it: the kind of model, and its sizes.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.model != "dlrm_hstu" {
            return Err(ConfigError::new("model", "`dlrm_hstu`", format!("`{}`", self.model)));
        }
        rows("max_seq_len", self.max_seq_len)?;
        width("item_embedding_hidden_dim", self.item_embedding_hidden_dim)?;
        self.fusion_mtl_tower.check().map_err(|error| error.within("fusion_mtl_tower"))?;
        for (name, table) in &self.features {
            let within = |error: ConfigError| error.within(&format!("features.{name}"));
            rows("num_embeddings", table.num_embeddings).map_err(within)?;
            width("embedding_dim", table.embedding_dim).map_err(within)?;
        }
        Ok(())
    }

    /// The tables of a group and the sum of their widths.
    fn group_tables(&self, group: &str, features: &[String]) -> Result<(Vec<EmbeddingTable>, usize), ConfigError> {
        let key = format!("feature_groups.{group}");
        parts(&key, features.len())?;
        let reserved = if group == "contextual" { RESERVED_OF_USERS } else { RESERVED };
        let mut tables: Vec<EmbeddingTable> = vec![];
        for feature in features {
            let Some(config) = self.features.get(feature) else {
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
        let width = tables.iter().map(|table| table.embedding_dim).sum();
        Ok((tables, width))
    }
}

struct Model {
    contextual: Vec<EmbeddingTable>,
    uih: Vec<EmbeddingTable>,
    candidate: Vec<EmbeddingTable>,
    transducer: HstuTransducer,
    item_hidden: usize,
    tower: FusionMtlTower,
}

/// Takes a size that follows from the features, unless the configuration has another.
fn derive(key: &str, configured: &mut usize, size: usize) -> Result<(), ConfigError> {
    if *configured != 0 && *configured != size {
        return Err(ConfigError::new(format!("hstu.{key}"), format!("{size}, as the features have it"), *configured));
    }
    *configured = size;
    Ok(())
}

impl Model {
    fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let groups = &config.feature_groups;
        let (contextual, _) = config.group_tables("contextual", &groups.contextual)?;
        let (uih, uih_width) = config.group_tables("uih", &groups.uih)?;
        let (candidate, candidate_width) = config.group_tables("candidate", &groups.candidate)?;
        let contextual_width = contextual.first().map_or(0, |table| table.embedding_dim);
        if let Some(other) = contextual.iter().find(|table| table.embedding_dim != contextual_width) {
            let expected = format!("{contextual_width}, as wide as the other contextual features");
            let key = format!("features.{}.embedding_dim", other.feature);
            return Err(ConfigError::new(key, expected, other.embedding_dim));
        }
        let mut hstu = config.hstu.clone();
        derive("uih_embedding_dim", &mut hstu.uih_embedding_dim, uih_width)?;
        derive("target_embedding_dim", &mut hstu.target_embedding_dim, candidate_width)?;
        derive("contextual_feature_dim", &mut hstu.contextual_feature_dim, contextual_width)?;
        derive("max_contextual_seq_len", &mut hstu.max_contextual_seq_len, contextual.len())?;
        let scaling = i64::try_from(config.max_seq_len).unwrap_or(i64::MAX);
        if hstu.scaling_seqlen >= 0 && hstu.scaling_seqlen != scaling {
            return Err(ConfigError::new(
                "hstu.scaling_seqlen",
                format!("{scaling}, as `max_seq_len` is"),
                hstu.scaling_seqlen,
            ));
        }
        hstu.scaling_seqlen = scaling;
        let transducer = HstuTransducer::new(hstu).map_err(|error| error.within("hstu"))?;
        let tower = FusionMtlTower { config: config.fusion_mtl_tower.clone() };
        let item_hidden = config.item_embedding_hidden_dim;
        Ok(Self { contextual, uih, candidate, transducer, item_hidden, tower })
    }

    fn forward(&self, scope: &Scope) -> Tensor {
        let batch = scope.size("users");
        let features = Features {
            uih: self.history(scope, &batch),
            candidates: Some(self.candidates(scope, &batch)),
            contextual: self.context(scope, "contextual", &batch),
        };
        let item = features.candidates.as_ref().map(|candidates| candidates.embeddings.clone());
        let user = scope.module(TRANSDUCER, |scope| self.transducer.forward(scope, &features).candidates);
        self.logits(scope, &user, item.as_ref().unwrap_or(&user))
    }

    /// The logits of candidates, of what the transducer has of each and its embedding.
    fn logits(&self, scope: &Scope, user: &Tensor, item: &Tensor) -> Tensor {
        let width = self.transducer.hstu.config.stu.embedding_dim;
        let item = scope.module("_item_embedding_mlp", |scope| normed_swish_mlp(scope, item, self.item_hidden, width));
        scope.module("_multitask_module", |scope| self.tower.forward(scope, user, &item))
    }

    fn history(&self, scope: &Scope, batch: &Dim) -> Sequence {
        let rows = scope.lengths("uih.lengths", batch);
        let integers = |name: &str| scope.input(name, DType::I64, std::slice::from_ref(&rows.total));
        let timestamps = integers("uih.timestamp");
        let encoder = self.transducer.hstu.config.input_preprocessor.action_encoder().map(|encoder| encoder.encoder());
        let actions = encoder.map(|_| integers("uih.action"));
        let watchtimes = encoder.filter(|encoder| encoder.reads_watchtimes()).map(|_| integers("uih.watchtime"));
        let embeddings = lookup(scope, "uih", &self.uih, &rows.total);
        Sequence { embeddings, rows, timestamps, actions, watchtimes }
    }

    fn candidates(&self, scope: &Scope, batch: &Dim) -> Sequence {
        let rows: Ragged = scope.lengths("candidate.lengths", batch);
        let timestamps = scope.input("candidate.timestamp", DType::I64, std::slice::from_ref(&rows.total));
        let embeddings = lookup(scope, "candidate", &self.candidate, &rows.total);
        Sequence { embeddings, rows, timestamps, actions: None, watchtimes: None }
    }

    fn context(&self, scope: &Scope, group: &str, batch: &Dim) -> Option<Tensor> {
        if self.contextual.is_empty() { None } else { Some(lookup(scope, group, &self.contextual, batch)) }
    }
}

/// The rows of all tables of a group, side by side: `[n, sum of widths]`.
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
