use super::{Model, Predictions};
use crate::modules::{MultiWindow, beside, din, mlp, optional_mlp};
use rewire_features::{GroupType, Problems};
use rewire_hstu::modules::MlpConfig;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MultiTower {
    #[serde(default)]
    towers: Vec<Tower>,
    #[serde(default)]
    din_towers: Vec<DinTower>,
    #[serde(default, rename = "final")]
    last: Option<MlpConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tower {
    input: String,
    mlp: MlpConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DinTower {
    input: String,
    attn_mlp: MlpConfig,
}

pub(super) fn multi_tower(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: MultiTower = model.read()?;
    let scope = model.scope;
    let mut parts = vec![];
    for tower in &config.towers {
        let x = model.dense(&tower.input)?.values;
        parts.push(mlp(scope, &format!("towers.{}", tower.input), &tower.mlp, &x));
    }
    for (index, tower) in config.din_towers.iter().enumerate() {
        let sequence = model.sequence_in(scope, &tower.input)?;
        let out = scope.module(&format!("din_towers.{index}"), |scope| din(scope, &tower.attn_mlp, &sequence));
        parts.push(out.map_err(|reason| model.problem(&format!("/din_towers/{index}"), reason))?);
    }
    let hidden = optional_mlp(scope, "final_mlp", config.last.as_ref(), &beside(scope, &parts));
    model.output("output_mlp", &hidden)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tdm {
    multiwindow_din: Windows,
    #[serde(rename = "final")]
    last: MlpConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Windows {
    windows_len: Vec<usize>,
    attn_mlp: MlpConfig,
}

pub(super) fn tdm(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Tdm = model.read()?;
    let (scope, groups) = (model.scope, &model.features.groups);
    let is_sequence = |group_type| matches!(group_type, GroupType::Sequence | GroupType::JaggedSequence);
    let sequence = groups.iter().find(|group| is_sequence(group.group_type));
    let sequence = sequence.ok_or_else(|| model.problem("", "needs a group of type SEQUENCE"))?;
    let steps = model.sequence_in(scope, &sequence.group_name)?;
    let Windows { windows_len, attn_mlp } = &config.multiwindow_din;
    let window = MultiWindow { windows_len, attn_mlp };
    let lengths: Vec<i64> = windows_len.iter().filter_map(|length| i64::try_from(*length).ok()).collect();
    scope.module("multiwindow_din", |scope| model.note_windows(scope, &lengths))?;
    let first = scope.module("multiwindow_din", |scope| window.of(scope, &steps));
    let mut parts = vec![first.map_err(|reason| model.problem("/multiwindow_din", reason))?];
    for group in groups.iter().filter(|group| !is_sequence(group.group_type)) {
        parts.push(model.dense(&group.group_name)?.values);
    }
    model.output("output_mlp", &mlp(scope, "deep_mlp", &config.last, &beside(scope, &parts)))
}
