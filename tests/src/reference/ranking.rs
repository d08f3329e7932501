use super::primitives::{floats, function, rows};
use super::{Function, Module, Sketch};
use rewire_graph::{DType, Dim, Graph, Tensor};
use rewire_hstu::modules::ranking::{
    CrossConfig, CrossV2Config, DeepFmConfig, DinConfig, EmbeddingBag, MmoeConfig, PleConfig, TowerConfig,
    dlrm_interaction, factorization_machine, pairwise_dots,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// `[n, 6]`
fn x(scope: &Sketch) -> Tensor {
    floats(scope, "x", [scope.size("n"), 6.into()])
}

/// `[n, count, 6]`
fn fields(scope: &Sketch, count: usize) -> Tensor {
    let n: Dim = x(scope).dim(0);
    floats(scope, &format!("fields{count}"), [n, count.into(), 6.into()])
}

pub(super) fn functions() -> Vec<Function> {
    vec![
        function(
            "factorization_machine",
            |s| factorization_machine(&fields(s, 4)),
            &[|s| factorization_machine(&x(s))],
        ),
        function(
            "pairwise_dots",
            |s| pairwise_dots(s, &fields(s, 4)),
            &[|s| pairwise_dots(s, &fields(s, 1)), |s| pairwise_dots(s, &x(s))],
        ),
        function(
            "dlrm_interaction",
            |s| dlrm_interaction(s, &x(s), &fields(s, 3)),
            &[|s| dlrm_interaction(s, &x(s).slice(1, 0, 5), &fields(s, 3))],
        ),
    ]
}

/// The graph of a configuration that is checked, then traced.
pub(super) fn traced<T: DeserializeOwned>(
    config: Value,
    check: impl FnOnce(&T) -> Result<(), rewire_hstu::modules::ConfigError>,
    forward: impl FnOnce(&T, &Sketch) -> Vec<Tensor>,
) -> Result<Graph, String> {
    let config: T = serde_json::from_value(config).map_err(|error| error.to_string())?;
    check(&config).map_err(|error| error.to_string())?;
    let scope = Sketch::default();
    let outputs = forward(&config, &scope);
    let names: Vec<String> = (0..outputs.len()).map(|n| format!("out{n}")).collect();
    let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
    scope.finish(&named).map_err(|error| error.to_string())
}

pub(super) fn all() -> Vec<Module> {
    let mlp = json!({ "hidden_units": [5, 4] });
    let narrow = json!({ "hidden_units": [3] });
    let layer = |shared: &Value| json!({ "expert_num_per_task": 2, "share_num": 1, "task_expert_net": mlp, "share_expert_net": shared });
    let module = |item, config, build, violations: &[(&'static str, Value)]| Module {
        item,
        kind: "",
        config,
        build,
        violations: violations.to_vec(),
    };
    vec![
        module(
            "CrossConfig",
            json!({ "cross_num": 2 }),
            |c| traced(c, CrossConfig::check, |m, s| vec![m.forward(s, &x(s))]),
            &[("/cross_num", json!(1 << 21)), ("/cross_num", json!(-1)), ("/surprise", json!(1))],
        ),
        module(
            "CrossV2Config",
            json!({ "cross_num": 2, "low_rank": 3 }),
            |c| traced(c, CrossV2Config::check, |m, s| vec![m.forward(s, &x(s))]),
            &[("/low_rank", json!(0)), ("/cross_num", json!(1 << 21))],
        ),
        module(
            "DinConfig",
            json!({ "attn_mlp": mlp }),
            |c| {
                traced(c, DinConfig::check, |m, s| {
                    let rows = rows(s);
                    let history = floats(s, "history", [rows.total.clone(), 6.into()]);
                    vec![m.forward(s, &floats(s, "query", [rows.batch.clone(), 6.into()]), &history, &rows)]
                })
            },
            &[("/attn_mlp/hidden_units", json!([0])), ("/attn_mlp", Value::Null)],
        ),
        module(
            "EmbeddingBag",
            json!({ "num_embeddings": 9, "embedding_dim": 6, "mode": "mean" }),
            |c| {
                traced(c, EmbeddingBag::check, |m, s| {
                    let rows = rows(s);
                    vec![m.forward(s, &s.input("ids", DType::I64, std::slice::from_ref(&rows.total)), &rows)]
                })
            },
            &[("/num_embeddings", json!(0)), ("/embedding_dim", json!(0)), ("/mode", json!("max"))],
        ),
        module(
            "DeepFmConfig",
            json!({ "deep": mlp }),
            |c| {
                traced(c, DeepFmConfig::check, |m, s| {
                    vec![m.forward(s, &floats(s, "wide", [x(s).dim(0), 4.into()]), &fields(s, 4))]
                })
            },
            &[("/deep/hidden_units", json!([4, 0]))],
        ),
        module(
            "MmoeConfig",
            json!({ "expert_mlp": mlp, "num_expert": 3, "num_task": 2 }),
            |c| traced(c, MmoeConfig::check, |m, s| m.forward(s, &x(s))),
            &[
                ("/num_expert", json!(0)),
                ("/num_task", json!(0)),
                ("/expert_mlp/hidden_units", json!([0])),
                ("/gate_mlp", json!({ "hidden_units": [0] })),
            ],
        ),
        module(
            "PleConfig",
            json!({ "extraction_networks": [layer(&mlp)], "num_task": 2 }),
            |c| traced(c, PleConfig::check, |m, s| m.forward(s, &x(s))),
            &[
                ("/extraction_networks", json!([])),
                ("/num_task", json!(0)),
                ("/extraction_networks/0", layer(&narrow)),
                ("/extraction_networks/0/share_num", json!(0)),
                ("/extraction_networks/0/expert_num_per_task", json!(0)),
            ],
        ),
        module(
            "TowerConfig",
            json!({ "mlp": mlp, "num_class": 2 }),
            |c| traced(c, TowerConfig::check, |m, s| vec![m.forward(s, &x(s))]),
            &[("/num_class", json!(0)), ("/mlp/hidden_units", json!([0]))],
        ),
    ]
}
