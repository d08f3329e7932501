use super::primitives::{floats, rows};
use super::ranking::traced;
use super::{Module, Sketch};
use rewire_graph::{DType, Dim, Graph, Ragged, Tensor};
use rewire_hstu::models::dlrm_hstu;
use rewire_hstu::modules::{
    ConfigError, ContentEncoder, ContextualMlp, EmbeddingTable, Features, FusionMtlTower, FusionMtlTowerConfig, Hstu,
    HstuConfig, HstuMatchEncoder, HstuPositionalEncoder, HstuTransducer, InputPreprocessor, MlpConfig,
    OutputPostprocessor, RetrievalConfig, Sequence, SimpleActionEncoder, StuConfig, StuInput, StuLayer, StuStack,
};
use rewire_hstu::ops::{Positions, SeqLen};
use serde::Deserialize;
use serde_json::{Value, json};

fn module(
    item: &'static str,
    kind: &'static str,
    config: Value,
    build: fn(Value) -> Result<Graph, String>,
    violations: &[(&'static str, Value)],
) -> Module {
    Module { item, kind, config, build, violations: violations.to_vec() }
}

fn unchecked<T>(_: &T) -> Result<(), ConfigError> {
    Ok(())
}

/// Rows `[total, 6]`.
fn values(scope: &Sketch) -> Tensor {
    floats(scope, "x", [rows(scope).total, 6.into()])
}

fn column(scope: &Sketch, name: &str, rows: &Dim) -> Tensor {
    scope.input(name, DType::I64, std::slice::from_ref(rows))
}

fn stu() -> Value {
    json!({ "embedding_dim": 6, "num_heads": 2, "hidden_dim": 5, "attention_dim": 4, "contextual_seq_len": 1 })
}

fn stu_input(scope: &Sketch) -> StuInput {
    let rows = rows(scope);
    let num_targets = Some(scope.host_input("num_targets", std::slice::from_ref(&rows.batch)));
    StuInput { x: values(scope), rows, num_targets, max_seq_len: SeqLen::Fixed(64) }
}

#[derive(Deserialize)]
struct Stack {
    layers: Vec<StuConfig>,
    truncate_split_layer: usize,
    truncate_tail_len: usize,
}

impl Stack {
    fn check(&self) -> Result<(), ConfigError> {
        self.layers.iter().try_for_each(StuConfig::check)
    }

    fn forward(&self, scope: &Sketch) -> Tensor {
        let layers = self.layers.iter().map(|config| StuLayer { config: config.clone() }).collect();
        let (truncate_split_layer, truncate_tail_len) = (self.truncate_split_layer, self.truncate_tail_len);
        StuStack { layers, truncate_split_layer, truncate_tail_len }.forward(scope, &stu_input(scope)).x
    }
}

fn sequence(scope: &Sketch, name: &str, width: usize) -> Sequence {
    let rows: Ragged = scope.lengths(&format!("{name}.lengths"), &rows(scope).batch);
    let of = |feature: &str| column(scope, &format!("{name}.{feature}"), &rows.total);
    let embeddings = floats(scope, name, [rows.total.clone(), width.into()]);
    let (actions, watchtimes) = (Some(of("actions")), None);
    Sequence { embeddings, timestamps: of("timestamps"), actions, watchtimes, rows }
}

/// Features of width 6 and 8, with two contextual ones of width 3.
fn features(scope: &Sketch) -> Features {
    Features {
        uih: sequence(scope, "uih", 6),
        candidates: Some(sequence(scope, "candidate", 8)),
        contextual: Some(floats(scope, "contextual", [rows(scope).batch, 6.into()])),
    }
}

fn contextual() -> Value {
    json!({
        "content_encoder": { "slice_content_encoder": {} },
        "content_mlp": { "simple_mlp": { "hidden_dim": 7 } },
        "action_encoder": { "simple_action_encoder": { "action_embedding_dim": 2, "action_weights": [1, 2, 4] } },
        "action_mlp": { "parameterized_mlp": { "hidden_dim": 7 } },
    })
}

fn actions_only() -> Value {
    let mut config = contextual();
    let keys = config.as_object_mut().unwrap();
    keys.remove("content_encoder");
    keys.remove("content_mlp");
    config
}

fn preprocessor(config: Value) -> Result<Graph, String> {
    let config = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let preprocessor = InputPreprocessor {
        config,
        uih_embedding_dim: 6,
        target_embedding_dim: 8,
        output_embedding_dim: 10,
        contextual_feature_dim: 3,
        max_contextual_seq_len: 2,
    };
    preprocessor.check().map_err(|error| error.to_string())?;
    let scope = Sketch::default();
    let out = preprocessor.forward(&scope, &features(&scope)).embeddings;
    scope.finish(&[("out", out)]).map_err(|error| error.to_string())
}

fn pipeline(preprocessor: Value) -> Value {
    json!({
        "uih_embedding_dim": 6, "target_embedding_dim": 8, "stu": stu(), "attn_num_layers": 2,
        "input_preprocessor": preprocessor, "output_postprocessor": { "layernorm_postprocessor": {} },
        "positional_encoder": { "num_position_buckets": 20, "num_time_buckets": 30, "use_time_encoding": true },
        "contextual_feature_dim": 3, "max_contextual_seq_len": 2, "scaling_seqlen": 64,
        "attn_truncation_split_layer": 1, "attn_truncation_tail_len": 9,
    })
}

fn built<T>(
    config: Value,
    new: impl FnOnce(HstuConfig) -> Result<T, ConfigError>,
    forward: impl FnOnce(&T, &Sketch) -> Tensor,
) -> Result<Graph, String> {
    let config = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let pipeline = new(config).map_err(|error| error.to_string())?;
    let scope = Sketch::default();
    let out = forward(&pipeline, &scope);
    scope.finish(&[("out", out)]).map_err(|error| error.to_string())
}

pub(super) fn all() -> Vec<Module> {
    [layers(), encoders(), preprocessors(), postprocessors(), pipelines()].concat()
}

fn layers() -> Vec<Module> {
    vec![
        module(
            "StuLayer",
            "",
            stu(),
            |c| {
                traced(c, StuConfig::check, |config, s| {
                    vec![StuLayer { config: config.clone() }.forward(s, &stu_input(s))]
                })
            },
            &[
                ("/embedding_dim", json!(0)),
                ("/num_heads", json!(0)),
                ("/hidden_dim", json!(0)),
                ("/attention_dim", json!(0)),
                ("/embedding_dim", json!(7)),
                ("/output_dropout_ratio", json!(1.0)),
                ("/output_dropout_ratio", json!(-0.1)),
                ("/attn_alpha", json!("big")),
                ("/max_attn_len", json!(-1)),
                ("/contextual_seq_len", json!(1 << 30)),
                ("/sla_k1", json!(1 << 30)),
                ("/sla_k2", json!(-1)),
                ("/scaling_seqlen", json!(0)),
                ("/surprise", json!(1)),
                ("/num_heads", Value::Null),
            ],
        ),
        module(
            "StuStack",
            "",
            json!({ "layers": [stu(), stu()], "truncate_split_layer": 1, "truncate_tail_len": 9 }),
            |c| traced(c, Stack::check, |stack, s| vec![stack.forward(s)]),
            &[("/layers/1/embedding_dim", json!(5)), ("/layers/0/num_heads", json!(0))],
        ),
        module(
            "HstuPositionalEncoder",
            "",
            json!({
                "num_position_buckets": 9, "num_time_buckets": 12, "embedding_dim": 6, "use_time_encoding": true,
            }),
            |c| {
                traced(c, HstuPositionalEncoder::check, |encoder, s| {
                    let rows = rows(s);
                    let (seq_lengths, interleave_targets) = (&rows.lengths, false);
                    let positions =
                        Positions { rows: &rows, seq_lengths, num_targets: None, interleave_targets, first: None };
                    vec![encoder.forward(s, &values(s), &positions, &column(s, "timestamps", &rows.total), None)]
                })
            },
            &[
                ("/num_position_buckets", json!(0)),
                ("/num_time_buckets", json!(1u64 << 40)),
                ("/contextual_seq_len", json!(1u64 << 40)),
                ("/embedding_dim", json!(0)),
                ("/embedding_dim", json!(5)),
                ("/time_bucket_increments", json!(0.0)),
                ("/time_bucket_fn", json!("cube")),
            ],
        ),
        module(
            "MlpConfig",
            "",
            json!({ "hidden_units": [5, 4], "use_ln": true, "activation": "nn.SiLU" }),
            |c| traced(c, MlpConfig::check, |mlp, s| vec![mlp.forward(s, &values(s))]),
            &[
                ("/use_bn", json!(true)),
                ("/hidden_units", json!([5, 0])),
                ("/dropout_ratio", json!([0.5, 0.5, 0.5])),
                ("/dropout_ratio", json!([0.5, 1.5])),
                ("/activation", json!("nn.Swish")),
            ],
        ),
        module(
            "EmbeddingTable",
            "",
            json!([9, 6]),
            |c| {
                traced(c, unchecked, |&(num_embeddings, embedding_dim): &(usize, usize), s| {
                    let table = EmbeddingTable { feature: "item".to_owned(), num_embeddings, embedding_dim };
                    vec![table.forward(s, &s.input("ids", DType::U32, &[rows(s).total]))]
                })
            },
            &[],
        ),
        module(
            "FusionMtlTower",
            "",
            json!({ "task_configs": [{ "task_name": "click" }, { "task_name": "like" }] }),
            |c| {
                traced(c, FusionMtlTowerConfig::check, |config, s| {
                    let item = floats(s, "item", [rows(s).total, 6.into()]);
                    vec![FusionMtlTower { config: config.clone() }.forward(s, &values(s), &item)]
                })
            },
            &[("/task_configs", json!([])), ("/task_configs/1", json!({ "task_name": "click" }))],
        ),
    ]
}

fn content(config: Value) -> Result<Graph, String> {
    let check = |config: &Value| encoder(config).and_then(|encoder| encoder.check());
    traced(config, check, |config, s| {
        let Features { uih, candidates, .. } = features(s);
        let candidates = candidates.unwrap();
        let encoder = encoder(config).unwrap();
        vec![encoder.forward(s, (&uih.embeddings, &uih.rows), (&candidates.embeddings, &candidates.rows)).0]
    })
}

fn encoder(config: &Value) -> Result<ContentEncoder, ConfigError> {
    let wrong = |error: serde_json::Error| ConfigError {
        key: "content_encoder".to_owned(),
        expected: "a content encoder".to_owned(),
        actual: error.to_string(),
    };
    let config = serde_json::from_value(config.clone()).map_err(wrong)?;
    Ok(ContentEncoder { config, uih_embedding_dim: 6, target_embedding_dim: 8 })
}

fn encoders() -> Vec<Module> {
    let mlp = json!({ "mlp_content_encoder": {
        "uih_mlp": { "hidden_units": [5] }, "target_mlp": { "hidden_units": [7, 5], "use_bn": true },
    } });
    let contextual_mlp = |config: Value| {
        traced(config, rewire_hstu::modules::ContextualMlpConfig::check, |config, s| {
            let mlp = ContextualMlp { config: config.clone(), sequential_output_dim: 5 };
            let context = floats(s, "context", [rows(s).batch, 3.into()]);
            vec![mlp.forward(s, &values(s), &rows(s), Some(&context))]
        })
    };
    vec![
        module(
            "ContentEncoder",
            "slice_content_encoder",
            json!({ "slice_content_encoder": {} }),
            content,
            &[("/slice_content_encoder", json!({ "surprise": 1 }))],
        ),
        module("ContentEncoder", "pad_content_encoder", json!({ "pad_content_encoder": {} }), content, &[]),
        module(
            "ContentEncoder",
            "mlp_content_encoder",
            mlp,
            content,
            &[
                ("/mlp_content_encoder/target_mlp/hidden_units", json!([4])),
                ("/mlp_content_encoder/uih_mlp/hidden_units", json!([0])),
                ("/mlp_content_encoder/uih_mlp", Value::Null),
            ],
        ),
        module(
            "ContextualMlp",
            "simple_mlp",
            json!({ "simple_mlp": { "hidden_dim": 7 } }),
            contextual_mlp,
            &[("/simple_mlp/hidden_dim", json!(0))],
        ),
        module(
            "ContextualMlp",
            "parameterized_mlp",
            json!({ "parameterized_mlp": { "hidden_dim": 7 } }),
            contextual_mlp,
            &[("/parameterized_mlp/hidden_dim", json!(0)), ("/parameterized_mlp/contextual_dropout_ratio", json!(1.0))],
        ),
        module(
            "SimpleActionEncoder",
            "",
            json!({
                "action_embedding_dim": 3, "action_weights": [1, 2],
                "watchtime_to_action_thresholds": [30], "watchtime_to_action_weights": [4],
            }),
            |c| {
                traced(c, SimpleActionEncoder::check, |encoder, s| {
                    let Sequence { rows, actions, .. } = sequence(s, "uih", 6);
                    let watchtimes = column(s, "watchtimes", &rows.total);
                    vec![encoder.encode(s, &actions.unwrap(), Some(&watchtimes), &rows)]
                })
            },
            &[
                ("/action_embedding_dim", json!(0)),
                ("/action_weights", json!([])),
                ("/watchtime_to_action_weights", json!([4, 8])),
            ],
        ),
    ]
}

fn preprocessors() -> Vec<Module> {
    vec![
        module(
            "InputPreprocessor",
            "contextual_preprocessor",
            json!({ "contextual_preprocessor": contextual() }),
            preprocessor,
            &[
                ("/contextual_preprocessor/action_mlp", Value::Null),
                ("/contextual_preprocessor/action_encoder", Value::Null),
                ("/contextual_preprocessor/content_mlp", Value::Null),
                ("/contextual_preprocessor/content_mlp", json!({ "simple_mlp": { "hidden_dim": 0 } })),
                ("/contextual_preprocessor/content_encoder", json!({ "cut_content_encoder": {} })),
            ],
        ),
        module(
            "InputPreprocessor",
            "contextual_interleave_preprocessor",
            json!({
                "contextual_interleave_preprocessor": contextual()
            }),
            preprocessor,
            &[
                ("/contextual_interleave_preprocessor/enable_interleaving", json!(1)),
                ("/contextual_interleave_preprocessor/action_encoder/simple_action_encoder/action_weights", json!([])),
            ],
        ),
        module(
            "InputPreprocessor",
            "uih_preprocessor",
            json!({ "uih_preprocessor": actions_only() }),
            preprocessor,
            &[("/uih_preprocessor/content_mlp", json!({ "simple_mlp": { "hidden_dim": 3 } }))],
        ),
    ]
}

fn postprocessor(config: Value) -> Result<Graph, String> {
    let config = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let postprocessor = OutputPostprocessor { config, embedding_dim: 6 };
    postprocessor.check().map_err(|error| error.to_string())?;
    let scope = Sketch::default();
    let out = postprocessor.forward(&scope, &values(&scope), &column(&scope, "timestamps", &rows(&scope).total));
    scope.finish(&[("out", out)]).map_err(|error| error.to_string())
}

fn postprocessors() -> Vec<Module> {
    vec![
        module(
            "OutputPostprocessor",
            "l2norm_postprocessor",
            json!({ "l2norm_postprocessor": {} }),
            postprocessor,
            &[("/l2norm_postprocessor/eps", json!(1e-3))],
        ),
        module(
            "OutputPostprocessor",
            "layernorm_postprocessor",
            json!({ "layernorm_postprocessor": {} }),
            postprocessor,
            &[("/layernorm_postprocessor/eps", json!(-1e-3))],
        ),
        module(
            "OutputPostprocessor",
            "timestamp_layernorm_postprocessor",
            json!({
                "timestamp_layernorm_postprocessor": {
                    "time_duration_period_units": [3600, 86400], "time_duration_units_per_period": [24, 7],
                }
            }),
            postprocessor,
            &[
                ("/timestamp_layernorm_postprocessor/time_duration_units_per_period", json!([24])),
                ("/timestamp_layernorm_postprocessor/time_duration_units_per_period", json!([24, 0])),
                ("/timestamp_layernorm_postprocessor/time_duration_period_units", json!([0, 1])),
                ("/timestamp_layernorm_postprocessor/eps", json!(-1.0)),
            ],
        ),
    ]
}

fn pipelines() -> Vec<Module> {
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/demo/model/config.json");
    let demo: Value = serde_json::from_str(&std::fs::read_to_string(demo).unwrap()).unwrap();
    let ranked = json!({ "contextual_preprocessor": contextual() });
    let matched = json!({ "uih_preprocessor": actions_only() });
    vec![
        module(
            "Hstu",
            "",
            pipeline(ranked.clone()),
            |c| built(c, Hstu::new, |hstu, s| hstu.forward(s, &features(s), None).embeddings),
            &[
                ("/uih_embedding_dim", json!(0)),
                ("/attn_num_layers", json!(2000)),
                ("/attn_truncation_tail_len", json!(1u64 << 40)),
                ("/input_dropout_ratio", json!(1.0)),
                ("/scaling_seqlen", json!(0)),
                ("/stu/num_heads", json!(0)),
                ("/positional_encoder/num_position_buckets", json!(0)),
                ("/output_postprocessor", json!({ "rms_postprocessor": {} })),
                ("/max_contextual_seq_len", json!(0)),
            ],
        ),
        module(
            "HstuTransducer",
            "",
            pipeline(ranked),
            |c| built(c, HstuTransducer::new, |hstu, s| hstu.forward(s, &features(s)).candidates),
            &[
                ("/input_preprocessor", matched.clone()),
                ("/target_embedding_dim", json!(0)),
                ("/target_embedding_dim", json!(5)),
            ],
        ),
        module(
            "HstuMatchEncoder",
            "",
            pipeline(matched),
            |c| built(c, HstuMatchEncoder::new, |hstu, s| hstu.forward(s, &features(s), None)),
            &[("/input_preprocessor", json!({ "contextual_preprocessor": contextual() }))],
        ),
        module(
            "RetrievalConfig",
            "",
            json!({ "similarity": "COSINE", "top_k": 3 }),
            |c| {
                traced(c, RetrievalConfig::check, |m, s| {
                    let users = floats(s, "users", [s.size("users"), 6.into()]);
                    let found = m.forward(s, &users, &s.parameter("items", DType::F32, &[40.into(), 6.into()]));
                    vec![found.scores, found.items]
                })
            },
            &[("/top_k", json!(0)), ("/top_k", json!(1001)), ("/similarity", json!("L2"))],
        ),
        module(
            "Config",
            "dlrm_hstu",
            demo,
            |c| {
                let config = dlrm_hstu::Config::from_json(&c.to_string()).map_err(|error| error.to_string())?;
                dlrm_hstu::trace(&config).map_err(|error| error.to_string())
            },
            &[
                ("/model", json!("other")),
                ("/max_seq_len", json!(0)),
                ("/item_embedding_hidden_dim", json!(0)),
                ("/features/genre/num_embeddings", json!(0)),
                ("/feature_groups/uih", json!(["nothing"])),
                ("/feature_groups/uih", json!(["genre", "genre"])),
                ("/features/country/embedding_dim", json!(8)),
                ("/hstu/scaling_seqlen", json!(7)),
                ("/hstu/surprise", json!(1)),
            ],
        ),
    ]
}
