//! The matching model HSTU-Match. It maps each user's history to a vector, and each item to a vector; the score is their inner product.
//!
//! # Inputs
//!
//! As in [`dlrm_hstu`](super::dlrm_hstu): users have `uih.*` and `contextual.*`, items the ids `candidate.<feature>`.
//!
//! # Output
//!
//! [`USERS`] `[B, E]` and [`ITEMS`] `[C, E]`. To compute only one of them, bind empty inputs for the other.

use super::ModelError;
use super::features::{self, FeatureConfig, FeatureGroups, InputSpec, Tables};
use crate::modules::{
    ConfigError, EmbeddingTable, Features, HstuConfig, HstuMatchEncoder, MatchTower, MlpConfig, Similarity, rows,
};
use rewire_graph::{Graph, Scope, Tensor};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Name of the output with the user vectors.
pub const USERS: &str = "users";

/// Name of the output with the item vectors.
pub const ITEMS: &str = "items";

/// A model's `config.json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatchConfig {
    /// `hstu_match`.
    pub model: String,
    /// The tables by feature; a duplicate feature is an error.
    #[serde(deserialize_with = "features::unique")]
    pub features: BTreeMap<String, FeatureConfig>,
    /// The features of users, histories and items.
    pub feature_groups: FeatureGroups,
    /// The pipeline that computes user vectors.
    pub hstu: HstuConfig,
    /// The MLP from an item's features to its vector; `None` for the identity.
    #[serde(default)]
    pub item_mlp: Option<MlpConfig>,
    /// Width of a final linear layer of users and of items; 0 for none.
    #[serde(default)]
    pub output_dim: usize,
    /// The similarity. For the cosine, vectors are normalized to length 1.
    #[serde(default)]
    pub similarity: Similarity,
    /// The divisor of attention weights in all layers.
    pub max_seq_len: usize,
}

impl MatchConfig {
    /// Parses the text of a `config.json`. Unknown keys are errors.
    ///
    /// # Errors
    /// [`ModelError`] if the text is not JSON, or a key is unknown, missing or out of bounds.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        super::from_json(text)
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

    /// Checks the kind of model and its sizes without tracing.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.model != "hstu_match" {
            return Err(ConfigError::new("model", "`hstu_match`", format!("`{}`", self.model)));
        }
        rows("max_seq_len", self.max_seq_len)?;
        self.tower(None).check()?;
        if let Some(mlp) = &self.item_mlp {
            mlp.check().map_err(|error| error.within("item_mlp"))?;
        }
        features::check(&self.features)
    }

    /// Traces the graph of user and item vectors.
    ///
    /// # Errors
    /// [`ModelError`] names the invalid key of the configuration, or the failed operator.
    pub fn trace(&self) -> Result<Graph, ModelError> {
        self.check()?;
        let scope = Scope::new().without_places();
        let tables = Tables::new(&self.features, &self.feature_groups)?;
        let (users, items) = (self.users(&scope, &tables)?, self.items(&scope, &tables));
        Ok(scope.finish(&[(USERS, users), (ITEMS, items)])?)
    }

    fn users(&self, scope: &Scope, tables: &Tables) -> Result<Tensor, ModelError> {
        let hstu = tables.configure(&self.hstu, self.max_seq_len)?;
        let encoder = HstuMatchEncoder::new(hstu).map_err(|error| error.within("hstu"))?;
        let batch = scope.size("users");
        let uih = tables.history(scope, &batch, &encoder.hstu.config);
        let features = Features { uih, candidates: None, contextual: tables.context(scope, "contextual", &batch) };
        Ok(scope.module("user_tower", |scope| {
            let users = scope.module("_hstu_encoder", |scope| encoder.forward(scope, &features, None));
            self.tower(None).forward(scope, users)
        }))
    }

    fn items(&self, scope: &Scope, tables: &Tables) -> Tensor {
        let items = tables.candidates(scope, &scope.size("candidates"));
        scope.module("item_tower", |scope| self.tower(self.item_mlp.clone()).forward(scope, items))
    }

    fn tower(&self, mlp: Option<MlpConfig>) -> MatchTower {
        MatchTower { mlp, output_dim: self.output_dim, similarity: self.similarity }
    }
}
