use super::{Model, Predictions};
use crate::modules::{beside, optional_mlp, unit};
use rewire_features::Problems;
use rewire_graph::{Scope, Tensor};
use rewire_hstu::modules::{MlpConfig, linear};
use serde::Deserialize;
use serde_json::Value;

/// What embeddings are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Similarity {
    #[serde(rename = "COSINE")]
    Cosine,
    #[serde(rename = "INNER_PRODUCT")]
    InnerProduct,
}

/// Below which an embedding counts as this long.
pub(super) const SHORTEST: f64 = 1e-12;

impl Similarity {
    /// Embeddings as they are compared.
    pub fn normalized(self, x: &Tensor) -> Tensor {
        match self {
            Self::Cosine => unit(x, SHORTEST),
            Self::InnerProduct => x.clone(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TwoTowers {
    user_tower: Tower,
    item_tower: Tower,
    #[serde(default)]
    output_dim: usize,
    #[serde(default = "inner_product")]
    similarity: Similarity,
    #[serde(default, rename = "temperature")]
    _temperature: f64,
    // Of training.
    #[serde(default, rename = "in_batch_negative")]
    _in_batch_negative: bool,
    #[serde(default, rename = "amm_i_weight")]
    _amm_i_weight: Value,
    #[serde(default, rename = "amm_u_weight")]
    _amm_u_weight: Value,
}

fn inner_product() -> Similarity {
    Similarity::InnerProduct
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tower {
    pub input: String,
    #[serde(default)]
    pub augment_input: Option<String>,
    #[serde(default)]
    pub mlp: Option<MlpConfig>,
}

impl Tower {
    /// The embeddings of a tower `[B, D]`, in its module.
    pub fn forward(
        &self,
        model: &Model<'_>,
        module: &str,
        output_dim: usize,
        similarity: Similarity,
    ) -> Result<Tensor, Problems> {
        let x = match model.kind {
            "dssm_v2" => model.dense(&self.input)?.values,
            _ => model.scope.module(module, |scope| self.inputs(model, scope))?,
        };
        Ok(model.scope.module(module, |scope| {
            let hidden = optional_mlp(scope, "mlp", self.mlp.as_ref(), &x);
            let out = if output_dim > 0 { linear(scope, "output", &hidden, output_dim) } else { hidden };
            similarity.normalized(&out)
        }))
    }

    fn inputs(&self, model: &Model<'_>, scope: &Scope) -> Result<Tensor, Problems> {
        let mut parts = vec![model.dense_in(scope, &self.input)?.values];
        if let Some(augment) = &self.augment_input {
            parts.push(model.dense_in(scope, augment)?.values);
        }
        Ok(beside(scope, &parts))
    }
}

/// `dssm`, `dssm_v2`, whose towers share tables, and `dat`, whose towers have augmented vectors.
pub(super) fn two_towers(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: TwoTowers = model.read()?;
    let embed = |tower: &Tower, module: &str| tower.forward(model, module, config.output_dim, config.similarity);
    let (users, items) = (embed(&config.user_tower, "user_tower")?, embed(&config.item_tower, "item_tower")?);
    Ok(vec![("user_tower_emb".to_owned(), users), ("item_tower_emb".to_owned(), items)])
}
