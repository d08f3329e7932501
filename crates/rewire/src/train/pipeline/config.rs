//! The training configuration of a TorchEasyRec pipeline.

use crate::train::config::Sharding;
use crate::train::{ConfigError, TrainConfig};
use rewire_families::TracedLosses;
use serde_json::{Map, Value, json};

/// The prefix of the reference's names, which regular expressions of `part_optimizers` match as well.
const WRAPPER: &str = "model.";

/// The default of `batch_size`.
const BATCH_SIZE: u64 = 1024;

/// Defaults of the reference's optimizers that [`TrainConfig`] lacks or sets differently.
const DEFAULTS: [(&str, &str, f64); 10] = [
    ("sgd_optimizer", "lr", 0.002),
    ("adagrad_optimizer", "lr", 0.002),
    ("adam_optimizer", "lr", 0.002),
    ("adamw_optimizer", "lr", 0.002),
    ("rowwise_adagrad_optimizer", "lr", 0.002),
    ("partial_rowwise_adam_optimizer", "lr", 0.002),
    ("lars_sgd_optimizer", "lr", 0.002),
    ("lamb_optimizer", "lr", 0.002),
    ("partial_rowwise_lamb_optimizer", "lr", 0.002),
    ("adamw_optimizer", "weight_decay", 0.0),
];

/// The momentum of `sgd_optimizer` for dense parameters; for tables it is 0.
const MOMENTUM: f64 = 0.9;

/// The training configuration from the fields of an `EasyRecConfig`. `parameters` are those that `part_optimizers` may name.
pub(super) fn train_config<'n>(
    pipeline: &Value,
    parameters: impl Iterator<Item = &'n str> + Clone,
) -> Result<TrainConfig, ConfigError> {
    let given = pipeline.get("train_config").and_then(Value::as_object).cloned().unwrap_or_default();
    let positive = |key: &str| given.get(key).filter(|value| value.as_u64() != Some(0)).cloned();
    let batch_size = pipeline.pointer("/data_config/batch_size").cloned().unwrap_or_else(|| json!(BATCH_SIZE));
    let mut config = Map::new();
    config.insert("batch_size".to_owned(), batch_size);
    config.insert("fused_tables".to_owned(), json!(true));
    let counts = [
        ("num_steps", "steps"),
        ("num_epochs", "epochs"),
        ("gradient_accumulation_steps", "gradient_accumulation_steps"),
    ];
    for (theirs, own) in counts {
        config.extend(positive(theirs).map(|value| (own.to_owned(), value)));
    }
    for key in ["grad_scaler", "mixed_precision"] {
        let value = given.get(key).filter(|value| value.as_str() != Some(""));
        config.extend(value.map(|value| (key.to_owned(), value.clone())));
    }
    config.extend(given.get("grad_clipping").map(|value| ("grad_clipping".to_owned(), clipping(value))));
    let mut dense = optimizer(given.get("dense_optimizer"), true);
    let parts = dense.remove("part_optimizers");
    let parts = parts_of(parts.as_ref(), &dense, parameters)?;
    config.insert("part_optimizers".to_owned(), parts.into());
    config.insert("dense_optimizer".to_owned(), dense.into());
    config.insert("sparse_optimizer".to_owned(), optimizer(given.get("sparse_optimizer"), false).into());
    TrainConfig::from_json(&Value::from(config).to_string())
}

/// An optimizer with the reference's defaults.
fn optimizer(given: Option<&Value>, is_dense: bool) -> Map<String, Value> {
    let mut given = given.and_then(Value::as_object).cloned().unwrap_or_default();
    let momentum = is_dense.then_some(("sgd_optimizer", "momentum", MOMENTUM));
    for (kind, key, value) in DEFAULTS.into_iter().chain(momentum) {
        if let Some(message) = given.get_mut(kind).and_then(Value::as_object_mut) {
            message.entry(key).or_insert(json!(value));
        }
    }
    let rowwise = if is_dense { None } else { given.get_mut("rowwise_adagrad_optimizer") };
    if let Some(message) = rowwise.and_then(Value::as_object_mut) {
        WITHOUT_EFFECT.iter().for_each(|key| drop(message.remove(*key)));
    }
    given
}

/// Keys of `rowwise_adagrad_optimizer` that the reference's CPU kernel ignores.
const WITHOUT_EFFECT: [&str; 2] = ["weight_decay", "weight_decay_mode"];

fn clipping(given: &Value) -> Value {
    let mut given = given.clone();
    if let Some(message) = given.as_object_mut() {
        // Norms over all ranks equal those of the only rank.
        message.remove("enable_global_grad_clip");
        let kind = message.get("clipping_type").and_then(Value::as_str).map(str::to_lowercase);
        message.extend(kind.map(|kind| ("clipping_type".to_owned(), kind.into())));
    }
    given
}

/// Every part optimizer with its parameters: those whose full name matches the expression but no earlier one. Their learning rate follows
/// the schedule of all dense parameters unless they have their own.
fn parts_of<'n>(
    parts: Option<&Value>,
    dense: &Map<String, Value>,
    parameters: impl Iterator<Item = &'n str> + Clone,
) -> Result<Vec<Value>, ConfigError> {
    let schedule = dense.iter().find(|(key, _)| is_schedule(key));
    let part = |(index, part): (usize, &Value)| {
        let mut part = optimizer(Some(part), true);
        let pattern = part.remove("regex_pattern");
        let pattern = pattern.as_ref().and_then(Value::as_str).unwrap_or_default();
        let whole = regex::Regex::new(&format!("^(?:{pattern})$")).map_err(|error| ConfigError::Value {
            key: format!("dense_optimizer.part_optimizers[{index}].regex_pattern"),
            expected: "a regular expression".to_owned(),
            actual: error.to_string(),
        })?;
        let names = parameters.clone().filter(|name| whole.is_match(&format!("{WRAPPER}{name}")));
        part.insert("parameters".to_owned(), names.collect());
        if !part.keys().any(|key| is_schedule(key)) {
            part.extend(schedule.map(|(key, value)| (key.clone(), value.clone())));
        }
        Ok(part.into())
    };
    parts.and_then(Value::as_array).into_iter().flatten().enumerate().map(part).collect()
}

fn is_schedule(key: &str) -> bool {
    key.ends_with("_learning_rate")
}

/// Assigns the parameters of a pipeline to optimizers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Tables of the sparse optimizer.
    pub tables: Vec<String>,
    /// Parameters that are not trained.
    pub frozen: Vec<String>,
    /// How ranks divide tables.
    pub sharding: Vec<(String, Sharding)>,
}

impl Assignment {
    /// With the sharding plan of a checkpoint, the sparse optimizer trains all tables except those that are `data_parallel` in the plan.
    /// Without a plan, the exceptions are the tables for which the configuration allows nothing else.
    pub fn new<'n>(
        pipeline: &Value,
        plan: Option<&Value>,
        traced: &TracedLosses,
        parameters: impl Iterator<Item = &'n str>,
    ) -> Self {
        let constraints = pipeline.pointer("/train_config/global_embedding_constraints/sharding_types");
        let constraints = constraints.and_then(Value::as_array).into_iter().flatten();
        let global: Vec<String> = constraints.filter_map(|kind| Some(kind.as_str()?.to_owned())).collect();
        let mut all = Self::default();
        for name in parameters {
            match traced.features.feature_of_table(name) {
                Some((feature, _)) if !feature.trainable => all.frozen.push(name.to_owned()),
                Some((feature, _)) => {
                    let own = if feature.sharding_types.is_empty() { &global } else { &feature.sharding_types };
                    let kind = match plan {
                        Some(plan) => sharding(plan, name),
                        None => own.iter().find(|kind| *kind != DATA_PARALLEL).or(own.first()).map(String::as_str),
                    };
                    // Rows of growing tables are trained separately.
                    if kind != Some(DATA_PARALLEL) || feature.growing.is_some() {
                        all.tables.push(name.to_owned());
                        all.sharding.extend(kind.and_then(divided).map(|kind| (name.to_owned(), kind)));
                    }
                }
                None if BUFFERS.iter().any(|end| name.ends_with(end)) => all.frozen.push(name.to_owned()),
                None => {}
            }
        }
        all
    }
}

/// A table that is replicated on every device; the dense optimizer trains it.
const DATA_PARALLEL: &str = "data_parallel";

/// Parameters of the graph that are buffers of the reference's modules, by name suffix.
const BUFFERS: [&str; 1] = [".parametrizations.weight.0.base"];

/// How ranks divide a table for a sharding type. The results do not depend on it.
fn divided(kind: &str) -> Option<Sharding> {
    match kind {
        "row_wise" | "table_row_wise" | "grid_shard" => Some(Sharding::RowWise),
        "table_wise" | "column_wise" | "table_column_wise" => Some(Sharding::TableWise),
        _ => None,
    }
}

/// The sharding of a parameter's table in a plan.
fn sharding<'p>(plan: &'p Value, parameter: &str) -> Option<&'p str> {
    let (module, rest) = parameter.split_once(".embedding_bags.").or_else(|| parameter.split_once(".embeddings."))?;
    let table = rest.strip_suffix(".weight")?;
    let module = module.strip_suffix("._embedding_module").unwrap_or(module);
    plan.get(format!("{WRAPPER}{module}"))?.get(table)?.get("sharding_type")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn rowwise_adagrad_has_no_weight_decay() -> Result<(), ConfigError> {
        let config = |sparse: Value| {
            let dense = json!({ "adam_optimizer": { "lr": 0.1 } });
            let pipeline =
                json!({ "train_config": { "sparse_optimizer": sparse, "dense_optimizer": dense, "num_steps": 1 } });
            Ok::<_, ConfigError>(train_config(&pipeline, std::iter::empty())?.sparse_optimizer)
        };
        let plain = json!({ "rowwise_adagrad_optimizer": { "lr": 0.5 } });
        let decayed =
            json!({ "rowwise_adagrad_optimizer": { "lr": 0.5, "weight_decay": 0.1, "weight_decay_mode": "L2" } });
        assert_eq!(config(plain)?, config(decayed)?);
        Ok(())
    }

    /// The assignment for a pipeline with one table per kind of constraint, by feature name.
    fn assigned(global: &[&str], plan: Option<&[(&str, &str)]>) -> (Vec<String>, BTreeMap<String, Sharding>) {
        let features =
            [("free", json!([])), ("own", json!(["data_parallel", "row_wise"])), ("dense", json!(["data_parallel"]))];
        let feature = |(name, kinds): &(&str, Value)| {
            let constraints = json!({ "sharding_types": kinds });
            json!({ "id_feature": { "feature_name": name, "num_buckets": 9, "embedding_dim": 4, "embedding_constraints": constraints } })
        };
        let names = features.iter().map(|(name, _)| *name);
        let group = json!({ "group_name": "all", "feature_names": names.collect::<Vec<_>>(), "group_type": "DEEP" });
        let pipeline = json!({
            "train_config": { "global_embedding_constraints": { "sharding_types": global } },
            "data_config": { "label_fields": ["clicked"] },
            "feature_configs": features.iter().map(feature).collect::<Vec<_>>(),
            "model_config": {
                "feature_groups": [group],
                "multi_tower": { "towers": [{ "input": "all", "mlp": { "hidden_units": [4] } }], "final": { "hidden_units": [4] } },
                "losses": [{ "binary_cross_entropy": {} }],
            },
        });
        let traced = rewire_families::trace_losses(&pipeline, rewire_graph::Mode::Train).unwrap();
        let known = traced.graph.parameters();
        let tables: BTreeMap<&str, &str> = known
            .iter()
            .filter_map(|known| {
                Some((known.name.as_str(), traced.features.feature_of_table(&known.name)?.0.name.as_str()))
            })
            .collect();
        assert_eq!(tables.len(), features.len());
        let plan = plan.map(|kinds| {
            let mut plan = Map::new();
            for (name, feature) in &tables {
                let (module, table) = name.split_once(".embedding_bags.").unwrap();
                let kind = kinds.iter().find(|(known, _)| known == feature).map(|(_, kind)| *kind);
                let tables = plan.entry(format!("{WRAPPER}{module}")).or_insert(json!({}));
                tables[table.strip_suffix(".weight").unwrap()] = json!({ "sharding_type": kind });
            }
            Value::from(plan)
        });
        let assigned = Assignment::new(&pipeline, plan.as_ref(), &traced, tables.keys().copied());
        assert!(assigned.frozen.is_empty());
        let named = |name: &String| tables[name.as_str()].to_owned();
        let sharding = assigned.sharding.iter().map(|(name, kind)| (named(name), *kind)).collect();
        (assigned.tables.iter().map(named).collect(), sharding)
    }

    #[test]
    fn tables_are_divided_by_their_constraints_or_by_the_plan() {
        let all = |kinds: &[(&str, Sharding)]| kinds.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        // The first kind of a table, or of all tables, that is not `data_parallel`; `dense` has none.
        let (tables, sharding) = assigned(&["table_wise", "row_wise"], None);
        assert_eq!(tables, ["free", "own"]);
        assert_eq!(sharding, all(&[("free", Sharding::TableWise), ("own", Sharding::RowWise)]));
        let (tables, sharding) = assigned(&[], None);
        assert_eq!((tables.len(), sharding), (2, all(&[("own", Sharding::RowWise)])));
        // A plan takes precedence over constraints.
        let (tables, sharding) = assigned(
            &["table_wise"],
            Some(&[("free", "data_parallel"), ("own", "column_wise"), ("dense", "table_row_wise")]),
        );
        assert_eq!(tables, ["dense", "own"]);
        assert_eq!(sharding, all(&[("dense", Sharding::RowWise), ("own", Sharding::TableWise)]));
    }
}
