//! The matching model HSTU-Match: a vector for every user, computed from the history only, and one for every item; their product
//! is the score.
//!
//! # Inputs
//!
//! Those of [`dlrm_hstu`](super::dlrm_hstu): users have `uih` and `contextual`, items the ids `candidate.<feature>`.
//!
//! # Output
//!
//! [`USERS`] `[B, E]` and [`ITEMS`] `[C, E]`. Either can be computed alone, with empty inputs of the other.

use super::ModelError;
use super::features::{self, FeatureConfig, FeatureGroups, InputSpec, Tables};
use crate::modules::{
    ConfigError, EmbeddingTable, Features, HstuConfig, HstuMatchEncoder, MatchTower, MlpConfig, Similarity, rows,
};
use rewire_graph::{Graph, Scope, Tensor};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The output of users' vectors.
pub const USERS: &str = "users";

/// The output of items' vectors.
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
    /// The pipeline of users.
    pub hstu: HstuConfig,
    /// The MLP from the features of an item to its vector; the identity if left out.
    #[serde(default)]
    pub item_mlp: Option<MlpConfig>,
    /// Width of a final linear layer of users and of items; 0 for none.
    #[serde(default)]
    pub output_dim: usize,
    /// The similarity; vectors have length 1 if it is the cosine.
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

    /// The inputs.
    pub fn inputs(&self) -> Vec<InputSpec> {
        features::inputs(&self.features, &self.feature_groups, &self.hstu)
    }

    /// The parameters that are embedding tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = String> {
        self.features.keys().map(|feature| EmbeddingTable::parameter(feature))
    }

    /// The embedding tables with their rows and widths.
    pub fn table_sizes(&self) -> impl Iterator<Item = (String, [usize; 2])> {
        self.tables().zip(self.features.values().map(|feature| [feature.num_embeddings, feature.embedding_dim]))
    }

    /// Checks the configuration without tracing it: the kind of model, and its sizes.
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

    /// The vectors of users and of items.
    ///
    /// # Errors
    /// [`ModelError`] names the key of the configuration, or the operator, that does not fit.
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
