use super::{Model, Predictions};
use crate::modules::{CinConfig, MaskNetConfig, WukongLayerConfig, beside, fields, mlp, pairs_of_fields};
use rewire_features::Problems;
use rewire_graph::Tensor;
use rewire_hstu::modules::ranking::factorization_machine;
use rewire_hstu::modules::{MlpConfig, linear, linear_map};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wide {
    deep: MlpConfig,
    #[serde(default, rename = "final")]
    last: Option<MlpConfig>,
    // Only used by the features.
    #[serde(default, rename = "wide_embedding_dim")]
    _wide_embedding_dim: Value,
    #[serde(default, rename = "wide_init_fn")]
    _wide_init_fn: Value,
}

pub(super) fn wide_and_deep(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Wide = model.read()?;
    let wide = model.dense("wide")?.values.sum(1);
    let deep = mlp(model.scope, "deep_mlp", &config.deep, &model.dense("deep")?.values);
    match &config.last {
        Some(last) => {
            let both = beside(model.scope, &[wide, deep]);
            model.output("output_mlp", &mlp(model.scope, "final_mlp", last, &both))
        }
        None => model.predict(&(linear(model.scope, "output_mlp", &deep, model.num_class()) + &wide), ""),
    }
}

pub(super) fn deepfm(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Wide = model.read()?;
    let (scope, deep) = (model.scope, model.dense("deep")?);
    let wide = model.dense("wide")?.values.sum(1);
    let fm = match model.features.group("fm") {
        Some(_) => model.dense("fm")?.parts,
        None => deep.parts,
    };
    if fm.iter().any(|part| Some(part.width()) != fm.first().map(Tensor::width)) {
        return Err(
            model.problem("", "needs features of equal width in the group `fm`, or in `deep` without that group")
        );
    }
    let pairs = factorization_machine(&fields(scope, &fm));
    let deep = mlp(scope, "deep_mlp", &config.deep, &deep.values);
    match &config.last {
        Some(last) => {
            let all = beside(scope, &[wide, pairs, deep]);
            model.output("output_mlp", &mlp(scope, "final_mlp", last, &all))
        }
        None => {
            let rest = &wide + &pairs.sum(1);
            model.predict(&(linear(scope, "output_mlp", &deep, model.num_class()) + &rest), "")
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dlrm {
    #[serde(default)]
    dense_mlp: Option<MlpConfig>,
    #[serde(default = "yes")]
    arch_with_sparse: bool,
    #[serde(rename = "final")]
    last: MlpConfig,
}

fn yes() -> bool {
    true
}

/// The output of the dense features' MLP, if there is one, and the sparse features.
fn dense_and_sparse(model: &Model<'_>, config: Option<&MlpConfig>) -> Result<(Option<Tensor>, Vec<Tensor>), Problems> {
    let is_single = model.features.groups.len() == 1;
    let sparse = model.dense(if is_single { model.first_group()? } else { "sparse" })?.parts;
    let dense = match (model.features.group("dense").filter(|_| !is_single), config) {
        (Some(_), Some(config)) => Some(mlp(model.scope, "dense_mlp", config, &model.dense("dense")?.values)),
        (Some(_), None) => return Err(model.problem("/dense_mlp", "is needed for the group `dense`")),
        (None, _) => None,
    };
    let width = dense.as_ref().or(sparse.first()).map_or(0, Tensor::width);
    if let Some(other) = sparse.iter().find(|part| part.width() != width) {
        let reason = format!("needs sparse features of the width of its dense row, {width}, got {}", other.width());
        return Err(model.problem("", reason));
    }
    Ok((dense, sparse))
}

pub(super) fn dlrm(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Dlrm = model.read()?;
    let (dense, sparse) = dense_and_sparse(model, config.dense_mlp.as_ref())?;
    let all: Vec<Tensor> = dense.iter().chain(&sparse).cloned().collect();
    let mut parts = vec![pairs_of_fields(model.scope, &all)];
    parts.extend(dense);
    parts.extend(sparse.into_iter().filter(|_| config.arch_with_sparse));
    model.output("output_mlp", &mlp(model.scope, "final_mlp", &config.last, &beside(model.scope, &parts)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wukong {
    #[serde(default)]
    dense_mlp: Option<MlpConfig>,
    wukong_layers: Vec<WukongLayerConfig>,
    #[serde(rename = "final")]
    last: MlpConfig,
}

pub(super) fn wukong(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Wukong = model.read()?;
    let (dense, sparse) = dense_and_sparse(model, config.dense_mlp.as_ref())?;
    let all: Vec<Tensor> = dense.into_iter().chain(sparse).collect();
    let first = fields(model.scope, &all);
    let x = config.wukong_layers.iter().enumerate().fold(first, |x, (index, layer)| {
        model.scope.module(&format!("_wukong_layers.{index}"), |scope| layer.forward(scope, &x))
    });
    let flat = x.reshape([x.dim(0), (x.ty().extent(1).unwrap_or(0) * x.width()).into()]);
    model.output("output_mlp", &mlp(model.scope, "final_mlp", &config.last, &flat))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskNet {
    mask_net_module: MaskNetConfig,
}

pub(super) fn mask_net(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: MaskNet = model.read()?;
    let x = model.dense(model.first_group()?)?.values;
    let hidden = model.scope.module("mask_net_layer", |scope| config.mask_net_module.forward(scope, &x));
    model.predict(&linear_map(model.scope, "output_linear", &hidden, model.num_class()), "")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct XDeepFm {
    cin: CinConfig,
    deep: MlpConfig,
    #[serde(rename = "final")]
    last: MlpConfig,
    // Only used by the features.
    #[serde(default, rename = "wide_embedding_dim")]
    _wide_embedding_dim: Value,
    #[serde(default, rename = "wide_init_fn")]
    _wide_init_fn: Value,
}

pub(super) fn xdeepfm(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: XDeepFm = model.read()?;
    let (scope, wide) = (model.scope, model.dense("wide")?.parts);
    let cin = scope.module("cin", |scope| config.cin.forward(scope, &fields(scope, &wide)));
    let deep = mlp(scope, "deep", &config.deep, &model.dense("deep")?.values);
    model.output("output_mlp", &mlp(scope, "final", &config.last, &beside(scope, &[cin, deep])))
}
