use super::{Model, Predictions};
use crate::losses::{first_rows, sum_or_mean};
use crate::modules::{beside, optional_mlp};
use rewire_features::Problems;
use rewire_graph::{Mode, Tensor};
use rewire_hstu::modules::{MlpConfig, linear};
use serde::Deserialize;

/// The similarity of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Similarity {
    #[serde(rename = "COSINE")]
    Cosine,
    #[serde(rename = "INNER_PRODUCT")]
    InnerProduct,
}

/// The minimum norm; shorter embeddings are divided by it.
pub(crate) const SHORTEST: f64 = 1e-12;

impl Similarity {
    /// Scales embeddings to unit norm if the similarity is the cosine.
    pub fn normalized(self, x: &Tensor) -> Tensor {
        match self {
            Self::Cosine => x.unit_rows(SHORTEST),
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
    // Only used by the loss.
    #[serde(default, rename = "in_batch_negative")]
    _in_batch_negative: bool,
    #[serde(default = "half")]
    amm_i_weight: f64,
    #[serde(default = "half")]
    amm_u_weight: f64,
}

fn half() -> f64 {
    0.5
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

/// The output of a tower.
pub(super) struct Embedded {
    /// The embeddings `[B, D]`.
    pub values: Tensor,
    /// The augmented vectors `[B, A]`; only in `dat`.
    augment: Option<Tensor>,
}

impl Tower {
    /// Embeddings of a tower, traced in its module.
    pub fn forward(
        &self,
        model: &Model<'_>,
        module: &str,
        output_dim: usize,
        similarity: Similarity,
    ) -> Result<Embedded, Problems> {
        let own = match model.kind {
            "dssm_v2" => model.dense(&self.input)?.values,
            _ => model.scope.module(module, |scope| model.dense_in(scope, &self.input))?.values,
        };
        let augment = self.augment_input.as_ref().map(|augment| {
            let group = model.scope.module(module, |scope| model.dense_in(scope, augment));
            group.map(|group| group.values)
        });
        let augment = augment.transpose()?;
        let parts: Vec<Tensor> = std::iter::once(own).chain(augment.clone()).collect();
        let values = model.scope.module(module, |scope| {
            let hidden = optional_mlp(scope, "mlp", self.mlp.as_ref(), &beside(scope, &parts));
            let out = if output_dim > 0 { linear(scope, "output", &hidden, output_dim) } else { hidden };
            similarity.normalized(&out)
        });
        Ok(Embedded { values, augment })
    }
}

/// The two-tower models: `dssm`; `dssm_v2`, whose towers share tables; `dat`, whose towers have augmented vectors.
pub(super) fn two_towers(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: TwoTowers = model.read()?;
    let embed = |model: &Model<'_>, tower: &Tower, module: &str| {
        tower.forward(model, module, config.output_dim, config.similarity)
    };
    let users = embed(model, &config.user_tower, "user_tower")?;
    let items = embed(&model.of_items(), &config.item_tower, "item_tower")?;
    if let Some(extra) = model.extra.filter(|_| model.scope.mode() == Mode::Train) {
        let rows = users.values.dim(0);
        let own = |x: &Tensor| first_rows(model.scope, x, &rows);
        let mimic = |name: &str, augment: &Option<Tensor>, other: &Tensor, weight: f64| {
            let Some(augment) = augment else { return };
            let distance = (own(augment).unit_rows(SHORTEST) - own(other).detach()).square().sum(1);
            extra.add(name.to_owned(), distance.reshape([rows.clone()]) * weight, sum_or_mean);
        };
        mimic("amm_loss_u", &users.augment, &items.values, config.amm_u_weight);
        mimic("amm_loss_i", &items.augment, &users.values, config.amm_i_weight);
    }
    Ok(vec![("user_tower_emb".to_owned(), users.values), ("item_tower_emb".to_owned(), items.values)])
}
