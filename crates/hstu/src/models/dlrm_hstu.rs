//! The ranking model DLRM-HSTU. It maps users' histories and candidates to a logit per candidate and task.
//!
//! # Inputs
//!
//! The `H` history rows and `C` candidates of all users are concatenated, user after user; `B` is the number of users.
//!
//! | input | type | meaning |
//! |---|---|---|
//! | `uih.lengths` | integers `[B]`, read on the host | history rows of every user |
//! | `uih.<feature>` | U32 `[H]` | ids of a history feature |
//! | `uih.timestamp` | I64 `[H]` | seconds since the epoch, ascending |
//! | `uih.action` | I64 `[H]` | bit masks; only with an action encoder |
//! | `uih.watchtime` | I64 `[H]` | seconds; only if watch times set action bits |
//! | `candidate.lengths` | integers `[B]`, read on the host | candidates of every user |
//! | `candidate.<feature>` | U32 `[C]` | ids of a candidate feature |
//! | `candidate.timestamp` | I64 `[C]` | time of the request |
//! | `contextual.<feature>` | U32 `[B]` | id of a user's feature |
//!
//! [`Config::inputs`] lists them for a configuration. An id beyond its table is clamped to the table's last row.
//!
//! # Output
//!
//! `logits` `[C, tasks]`, tasks in the order of [`Config::task_names`].

mod cached;

pub use super::features::{FeatureConfig, FeatureGroups, InputRows, InputSpec};
pub use crate::modules::EMBEDDINGS;
pub use cached::CacheOptions;

use super::ModelError;
use super::features::{self, Tables};
use crate::modules::{
    Buffer, ConfigError, EmbeddingTable, Features, FusionMtlTower, FusionMtlTowerConfig, HstuConfig, HstuTransducer,
    Sequence, normed_swish_mlp, rows, width,
};
use rewire_graph::{DType, Dim, Graph, Ragged, Scope, Tensor};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};

const TRANSDUCER: &str = "_hstu_transducer";

/// A model's `config.json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `dlrm_hstu`.
    pub model: String,
    /// The tables by feature; a duplicate feature is an error.
    #[serde(deserialize_with = "features::unique")]
    pub features: BTreeMap<String, FeatureConfig>,
    /// The features of users, histories and candidates.
    pub feature_groups: FeatureGroups,
    /// The pipeline.
    pub hstu: HstuConfig,
    /// Width of the hidden layer of the item MLP.
    pub item_embedding_hidden_dim: usize,
    /// The tasks.
    pub fusion_mtl_tower: FusionMtlTowerConfig,
    /// The divisor of attention weights in all layers.
    pub max_seq_len: usize,
}

/// Traces the graph of a configuration.
///
/// # Errors
/// [`ModelError`] names the invalid key of the configuration, or the failed operator.
pub fn trace(config: &Config) -> Result<Graph, ModelError> {
    let scope = Scope::new().without_places();
    let logits = forward(config, &scope)?;
    Ok(scope.finish(&[("logits", logits)])?)
}

/// Traces the graph of user vectors. Its output is `embeddings` `[C, E]`, one vector per candidate.
///
/// # Errors
/// As [`trace`].
pub fn trace_users(config: &Config) -> Result<Graph, ModelError> {
    let (scope, model) = (Scope::new().without_places(), Model::new(config)?);
    let users = model.users(&scope, &model.features(&scope));
    Ok(scope.finish(&[("embeddings", users)])?)
}

/// Traces the graph of candidate vectors. Its output is `embeddings` `[C, E]`.
///
/// # Errors
/// As [`trace`].
pub fn trace_items(config: &Config) -> Result<Graph, ModelError> {
    let (scope, model) = (Scope::new().without_places(), Model::new(config)?);
    let rows = model.tables.candidates(&scope, &scope.size("candidates"));
    let items = model.items(&scope, &rows);
    Ok(scope.finish(&[("embeddings", items)])?)
}

/// Traces the logits `[C, tasks]` of a configuration in a scope, for instance to add a loss.
///
/// # Errors
/// [`ModelError`] names the invalid key of the configuration.
pub fn forward(config: &Config, scope: &Scope) -> Result<Tensor, ModelError> {
    Ok(Model::new(config)?.forward(scope))
}

impl Config {
    /// Parses the text of a `config.json`. Unknown keys are errors.
    ///
    /// # Errors
    /// [`ModelError`] if the text is not JSON, or a key is unknown, missing or out of bounds.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        super::from_json(text)
    }

    /// Names of the tasks, in the order of the logits.
    pub fn task_names(&self) -> Vec<&str> {
        self.fusion_mtl_tower.task_configs.iter().map(|task| task.task_name.as_str()).collect()
    }

    /// The inputs of the traced graph.
    pub fn inputs(&self) -> Vec<InputSpec> {
        features::inputs(&self.features, &self.feature_groups, &self.hstu)
    }

    /// Names of the parameters that are embedding tables.
    pub fn tables(&self) -> impl Iterator<Item = String> {
        self.features.keys().map(|feature| EmbeddingTable::parameter(feature))
    }

    /// Names of the embedding tables, with their numbers of rows and widths.
    pub fn table_sizes(&self) -> impl Iterator<Item = (String, [usize; 2])> {
        self.tables().zip(self.features.values().map(|feature| [feature.num_embeddings, feature.embedding_dim]))
    }

    /// State-dict tensors that follow from the configuration and are not parameters of the graph. If a checkpoint has other values,
    /// it belongs to another configuration.
    ///
    /// # Errors
    /// [`ModelError`] if the configuration is not valid.
    pub fn buffers(&self) -> Result<Vec<Buffer>, ModelError> {
        let buffers = self.hstu.buffers()?;
        Ok(buffers.into_iter().map(|buffer| buffer.within(TRANSDUCER)).collect())
    }

    /// The given state-dict names that the model does not use. Names of the graph's parameters, [`Config::buffers`], all embedding
    /// tables and the batch counters of batch norms count as used.
    ///
    /// # Errors
    /// [`ModelError`] if the configuration is not valid.
    pub fn unread<'a>(&self, graph: &Graph, names: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, ModelError> {
        let mut known: HashSet<String> = graph.parameters().into_iter().map(|parameter| parameter.name).collect();
        let counts = known.iter().filter_map(|name| name.strip_suffix("running_mean"));
        let counts: Vec<String> = counts.map(|norm| format!("{norm}num_batches_tracked")).collect();
        known.extend(counts);
        known.extend(self.buffers()?.into_iter().map(|buffer| buffer.name));
        known.extend(self.tables());
        Ok(names.filter(|name| !known.contains(*name)).collect())
    }

    /// Checks the kind of model and its sizes without tracing.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.model != "dlrm_hstu" {
            return Err(ConfigError::new("model", "`dlrm_hstu`", format!("`{}`", self.model)));
        }
        rows("max_seq_len", self.max_seq_len)?;
        width("item_embedding_hidden_dim", self.item_embedding_hidden_dim)?;
        let tower = &self.fusion_mtl_tower;
        tower.check().map_err(|error| error.within("fusion_mtl_tower"))?;
        if let Some(task) = tower.task_configs.iter().find(|task| task.num_class != 1) {
            return Err(ConfigError::new("fusion_mtl_tower.task_configs.num_class", "1", task.num_class));
        }
        features::check(&self.features)
    }
}

struct Model {
    tables: Tables,
    transducer: HstuTransducer,
    item_hidden: usize,
    tower: FusionMtlTower,
}

/// The tables of a configuration, and the module options with the widths that follow from the features.
fn configured(config: &Config) -> Result<(Tables, HstuConfig), ConfigError> {
    let tables = Tables::new(&config.features, &config.feature_groups)?;
    let hstu = tables.configure(&config.hstu, config.max_seq_len)?;
    Ok((tables, hstu))
}

impl Model {
    fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let (tables, hstu) = configured(config)?;
        let transducer = HstuTransducer::new(hstu).map_err(|error| error.within("hstu"))?;
        let tower = FusionMtlTower { config: config.fusion_mtl_tower.clone() };
        let item_hidden = config.item_embedding_hidden_dim;
        Ok(Self { tables, transducer, item_hidden, tower })
    }

    fn forward(&self, scope: &Scope) -> Tensor {
        let features = self.features(scope);
        let item = features.candidates.as_ref().map(|candidates| candidates.embeddings.clone());
        let user = self.users(scope, &features);
        self.logits(scope, &user, item.as_ref().unwrap_or(&user))
    }

    /// The logits of candidates from their user vectors and item embeddings.
    fn logits(&self, scope: &Scope, user: &Tensor, item: &Tensor) -> Tensor {
        let item = self.items(scope, item);
        scope.module("_multitask_module", |scope| self.tower.forward(scope, user, &item))
    }

    fn features(&self, scope: &Scope) -> Features {
        let batch = scope.size("users");
        Features {
            uih: self.tables.history(scope, &batch, &self.transducer.hstu.config),
            candidates: Some(self.candidates(scope, &batch)),
            contextual: self.tables.context(scope, "contextual", &batch),
        }
    }

    fn users(&self, scope: &Scope, features: &Features) -> Tensor {
        scope.module(TRANSDUCER, |scope| self.transducer.forward(scope, features).candidates)
    }

    fn items(&self, scope: &Scope, rows: &Tensor) -> Tensor {
        let width = self.transducer.hstu.config.stu.embedding_dim;
        scope.module("_item_embedding_mlp", |scope| normed_swish_mlp(scope, rows, self.item_hidden, width))
    }

    fn candidates(&self, scope: &Scope, batch: &Dim) -> Sequence {
        let rows: Ragged = scope.lengths("candidate.lengths", batch);
        let timestamps = scope.input("candidate.timestamp", DType::I64, std::slice::from_ref(&rows.total));
        let embeddings = self.tables.candidates(scope, &rows.total);
        Sequence { embeddings, rows, timestamps, actions: None, watchtimes: None }
    }
}
