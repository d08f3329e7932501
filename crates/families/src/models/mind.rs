use super::matching::{SHORTEST, Similarity, Tower};
use super::{Model, Predictions};
use crate::modules::{CapsuleConfig, Init, mlp, padding, zeros};
use rewire_features::Problems;
use rewire_graph::{DType, Scope, Tensor};
use rewire_hstu::modules::{MlpConfig, linear, linear_map};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mind {
    user_tower: UserTower,
    item_tower: Tower,
    #[serde(default)]
    output_dim: usize,
    #[serde(default = "cosine")]
    similarity: Similarity,
    #[serde(default, rename = "temperature")]
    _temperature: f64,
    // Only used in training.
    #[serde(default, rename = "simi_pow")]
    _simi_pow: Value,
    #[serde(default, rename = "in_batch_negative")]
    _in_batch_negative: bool,
}

fn cosine() -> Similarity {
    Similarity::Cosine
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserTower {
    input: String,
    history_input: String,
    user_mlp: MlpConfig,
    #[serde(default)]
    hist_seq_mlp: Option<MlpConfig>,
    #[serde(default)]
    user_seq_combine: Option<String>,
    capsule_config: CapsuleConfig,
    concat_mlp: MlpConfig,
}

/// The MLP without its last layer, and the width of that layer.
fn split(config: &MlpConfig) -> (MlpConfig, Option<usize>) {
    let mut config = config.clone();
    let last = config.hidden_units.pop();
    (config, last)
}

/// Maximum number of history steps with random initial routing logits.
const MOST_DRAWN: i64 = 1 << 16;

pub(super) fn mind(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Mind = model.read()?;
    let tower = &config.user_tower;
    if tower.user_seq_combine.as_deref().is_some_and(|combine| combine != "CONCAT") {
        return Err(model.problem("/user_tower/user_seq_combine", "must be CONCAT, sums are not supported"));
    }
    let capsules = &tower.capsule_config;
    if capsules.routing_init_method == Init::Normal && !(1..=MOST_DRAWN).contains(&capsules.max_seq_len) {
        let reason = format!(
            "must be in 1..={MOST_DRAWN} where `routing_init_method` is `normal`, got {}",
            capsules.max_seq_len
        );
        return Err(model.problem("/user_tower/capsule_config/max_seq_len", reason));
    }
    if tower.user_mlp.hidden_units.len() < 2 {
        return Err(model.problem("/user_tower/user_mlp/hidden_units", "must have at least two entries"));
    }
    let (interests, on) = model.scope.module("user_tower", |scope| tower.forward(model, scope))?;
    let users = model.scope.module("user_tower", |scope| match config.output_dim {
        0 => interests,
        width => linear_map(scope, "output", &interests, width),
    });
    let users = match config.similarity {
        Similarity::Cosine => users.unit_rows(SHORTEST),
        Similarity::InnerProduct => users,
    };
    let items = config.item_tower.forward(&model.of_items(), "item_tower", config.output_dim, config.similarity)?;
    Ok(vec![
        ("user_tower_emb".to_owned(), users),
        ("item_tower_emb".to_owned(), items.values),
        ("interest_mask".to_owned(), on.cast(DType::I32)),
    ])
}

impl UserTower {
    /// The interests of users `[B, K, D]` before the output layer, and a mask of active interests `[B, K]`.
    fn forward(&self, model: &Model<'_>, scope: &Scope) -> Result<(Tensor, Tensor), Problems> {
        let user = model.dense_in(scope, &self.input)?.values;
        let (hidden, last) = split(&self.user_mlp);
        let user = linear(scope, "user_mlp_out", &mlp(scope, "user_mlp", &hidden, &user), last.unwrap_or(0));
        let history = model.sequence_in(scope, &self.history_input)?;
        let steps = match &self.hist_seq_mlp {
            None => history.steps,
            Some(config) => {
                let (hidden, last) = split(&MlpConfig { bias: false, ..config.clone() });
                let (steps, rows) = (&history.steps, &history.rows);
                let padding = || Some(padding(scope, rows, &[&zeros(scope, rows, steps.width())]));
                let x = scope.module("_hist_seq_mlp", |scope| hidden.forward_steps(scope, steps, padding));
                linear_map(scope, "_hist_seq_mlp_out", &x, last.unwrap_or(0))
            }
        };
        let capsules = &self.capsule_config;
        let (high, on) = scope.module("_capsule_layer", |scope| capsules.forward(scope, &steps, &history.rows));
        let (batch, count) = (high.dim(0), high.dim(1));
        let weight = on.cast(DType::F32).reshape([batch.clone(), count.clone(), 1.into()]);
        let user =
            user.reshape([batch.clone(), 1.into(), user.width().into()]).broadcast([batch, count, user.width().into()]);
        let both = scope.concat(&[&user, &high], 2) * &weight;
        let out = scope.module("_concat_mlp", |scope| self.concat_mlp.forward_steps(scope, &both, || None));
        Ok((out * &weight, on))
    }
}
