use super::{Model, Predictions};
use crate::modules::{beside, mlp, optional_mlp};
use rewire_features::Problems;
use rewire_hstu::modules::ranking::{CrossConfig, CrossV2Config};
use rewire_hstu::modules::{MlpConfig, linear_map};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DcnV1 {
    cross: CrossConfig,
    deep: MlpConfig,
    #[serde(rename = "final")]
    last: MlpConfig,
}

pub(super) fn dcn_v1(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: DcnV1 = model.read()?;
    let scope = model.scope;
    let x = model.dense(model.first_group()?)?.values;
    let cross = scope.module("cross", |scope| config.cross.forward(scope, &x));
    let deep = mlp(scope, "deep", &config.deep, &x);
    let hidden = mlp(scope, "final_dnn", &config.last, &beside(scope, &[cross, deep]));
    model.predict(&linear_map(scope, "output_linear", &hidden, model.num_class()), "")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DcnV2 {
    #[serde(default)]
    backbone: Option<MlpConfig>,
    cross: CrossV2Config,
    #[serde(default)]
    deep: Option<MlpConfig>,
    #[serde(rename = "final")]
    last: MlpConfig,
}

/// Default rank of a cross layer.
const RANK: usize = 32;

pub(super) fn dcn_v2(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: DcnV2 = model.read()?;
    let scope = model.scope;
    let x = model.dense(model.first_group()?)?.values;
    let first = optional_mlp(scope, "backbone", config.backbone.as_ref(), &x);
    let cross = CrossV2Config { low_rank: config.cross.low_rank.or(Some(RANK)), ..config.cross };
    let mut parts = vec![scope.module("cross", |scope| cross.forward(scope, &first))];
    parts.extend(config.deep.as_ref().map(|deep| mlp(scope, "deep", deep, &x)));
    let hidden = mlp(scope, "final", &config.last, &beside(scope, &parts));
    model.predict(&linear_map(scope, "output_mlp", &hidden, model.num_class()), "")
}
