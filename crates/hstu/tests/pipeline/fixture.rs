//! A ranker with two channels, and three users.

use rewire_graph::ParameterSpec;
use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor};
use rewire_hstu::pipeline::{Group, Groups, HstuModel};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Tensors by name.
pub type Tensors = HashMap<String, HostTensor>;

/// Deterministic numbers between -1 and 1 that depend on the name.
fn noise(name: &str, count: usize) -> Vec<f32> {
    let mut state = name.bytes().fold(7u64, |state, byte| state.wrapping_mul(31).wrapping_add(byte.into()));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn channel(name: &str, kind: &str) -> Value {
    let mlp = json!({ "simple_mlp": { "hidden_dim": 6 } });
    let preprocessor = json!({
        "action_encoder": { "simple_action_encoder": {
            "action_embedding_dim": 3, "action_weights": [1, 2],
            "watchtime_to_action_thresholds": [30], "watchtime_to_action_weights": [4]
        } },
        "action_mlp": mlp, "content_encoder": { "slice_content_encoder": {} },
        "content_mlp": { "parameterized_mlp": { "hidden_dim": 5 } }
    });
    json!({
        "name": name,
        "stu": { "embedding_dim": 8, "num_heads": 2, "hidden_dim": 4, "attention_dim": 3, "max_attn_len": 9, "sort_by_length": false },
        "positional_encoder": { "num_position_buckets": 20, "num_time_buckets": 12, "use_time_encoding": true },
        "input_preprocessor": { kind: preprocessor },
        "output_postprocessor": { "timestamp_layernorm_postprocessor": {
            "time_duration_period_units": [3600], "time_duration_units_per_period": [24]
        } },
        "attn_truncation_split_layer": 2, "attn_truncation_tail_len": 4
    })
}

/// `ultra_hstu` with two channels, one of them interleaved.
pub fn ultra() -> Value {
    json!({
        "hstu": [channel("click", "contextual_preprocessor"), channel("view", "contextual_interleave_preprocessor")],
        "fusion_mtl_tower": {
            "mlp": { "hidden_units": [9], "activation": "nn.PReLU()", "use_ln": true, "dropout_ratio": [0.1] },
            "task_configs": [
                { "task_name": "click", "label_name": "label", "losses": [{ "binary_cross_entropy": {} }] },
                { "task_name": "like", "num_class": 2, "losses": [{ "jrc_loss": { "session_name": "user" } }] },
                { "task_name": "time", "losses": [{ "l2_loss": {} }], "metrics": [{ "mean_absolute_error": {} }] }
            ]
        },
        "max_seq_len": 32
    })
}

/// Parses the model of a message.
pub fn model(message: &Value) -> HstuModel {
    HstuModel::parse("ultra_hstu", message).unwrap().unwrap()
}

/// The channels.
pub const CHANNELS: [&str; 2] = ["click", "view"];
const COLUMNS: [(&str, usize); 4] = [("", 5), ("_action", 1), ("_watchtime", 1), ("_timestamp", 1)];

/// Groups whose values are inputs with the prefixed names of the groups.
pub fn groups(scope: &Scope, prefix: &str, names: &[(&str, usize)]) -> Groups {
    let batch = scope.size(&format!("{prefix}rows"));
    let mut groups = Groups::new();
    for &(name, width) in names {
        let input = format!("{prefix}{name}");
        let group = match name {
            "contextual" => {
                let values = scope.input(&input, DType::F32, &[batch.clone(), (2 * width).into()]);
                Group::Dense { values, widths: vec![width; 2] }
            }
            _ => {
                let rows = scope.lengths(&format!("{input}.lengths"), &batch);
                let values = scope.input(&input, DType::F32, &[rows.total.clone(), width.into()]);
                Group::Jagged { values, rows }
            }
        };
        groups.insert(name.to_owned(), group);
    }
    groups
}

/// Names of the history groups, with their numbers of columns.
pub fn histories() -> Vec<(String, usize)> {
    let sequences = CHANNELS.iter().flat_map(|c| COLUMNS.map(|(suffix, width)| (format!("{c}{suffix}"), width)));
    std::iter::once(("contextual".to_owned(), 4)).chain(sequences).collect()
}

/// Names of the request groups, with their numbers of columns.
pub const REQUESTS: [(&str, usize); 3] = [("contextual", 4), ("candidate", 6), ("candidate_timestamp", 1)];

/// Names with their columns.
pub fn named(names: &[(String, usize)]) -> Vec<(&str, usize)> {
    names.iter().map(|(name, width)| (name.as_str(), *width)).collect()
}

/// Number of steps of a sequence for each of the three users.
pub fn lengths(name: &str) -> [usize; 3] {
    match name.split('_').next() {
        Some("click") => [7, 0, 3],
        Some("view") => [2, 9, 0],
        _ => [2, 3, 1],
    }
}

const TIMES: [f32; 3] = [900_000.0, 1_000_000.0, 800_000.0];

/// The inputs of the groups for some users, with prefixed names.
pub fn inputs(prefix: &str, names: &[(&str, usize)], users: &[usize]) -> Tensors {
    let mut all = Tensors::new();
    for &(name, width) in names {
        let (lengths, width) = if name == "contextual" { ([1; 3], 2 * width) } else { (lengths(name), width) };
        let of = |user: usize| -> Vec<f32> {
            let (length, seed) = (lengths[user], format!("{name} {user}"));
            match name.rsplit('_').next() {
                Some("timestamp") => (0..length).rev().map(|step| TIMES[user] - 700.0 * step as f32).collect(),
                Some("action" | "watchtime") => noise(&seed, length).iter().map(|x| (x.abs() * 60.0).floor()).collect(),
                _ => noise(&seed, length * width),
            }
        };
        let values: Vec<f32> = users.iter().flat_map(|&user| of(user)).collect();
        let shape = vec![values.len() / width, width];
        all.insert(format!("{prefix}{name}"), HostTensor::f32(shape, &values).unwrap());
        if name != "contextual" {
            let lengths: Vec<i64> = users.iter().map(|&user| lengths[user] as i64).collect();
            all.insert(format!("{prefix}{name}.lengths"), HostTensor::lengths(&lengths));
        }
    }
    all
}

/// Deterministic parameters of a graph.
pub fn weights(graph: &Graph) -> Tensors {
    let weight = |parameter: &ParameterSpec| {
        let scale = 1.0 / (parameter.shape.last().copied().unwrap_or(1) as f32).sqrt();
        let values = noise(&parameter.name, parameter.shape.iter().product());
        let values: Vec<f32> = values.iter().map(|x| x * scale + f32::from(parameter.name.contains("norm"))).collect();
        (parameter.name.clone(), HostTensor::f32(parameter.shape.clone(), &values).unwrap())
    };
    graph.parameters().iter().map(weight).collect()
}

/// The whole ranker with two channels.
pub fn whole(message: &Value) -> Graph {
    let scope = Scope::new();
    let (histories, requests) = (histories(), &REQUESTS[1..]);
    let all: Vec<(&str, usize)> = named(&histories).into_iter().chain(requests.iter().copied()).collect();
    let groups = groups(&scope, "", &all);
    let outputs = model(message).forward(&scope, &groups).unwrap();
    finish(scope, &outputs.values)
}

/// Finishes the graph with named outputs.
pub fn finish(scope: Scope, values: &[(String, Tensor)]) -> Graph {
    let outputs: Vec<_> = values.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    scope.finish(&outputs).unwrap()
}

/// The inputs of the whole model for some users.
pub fn of_users(users: &[usize]) -> Tensors {
    let mut all = inputs("", &named(&histories()), users);
    all.extend(inputs("", &REQUESTS[1..], users));
    all
}

/// The ranker traced in two parts.
pub fn cached(message: &Value) -> Graph {
    let scope = Scope::new();
    let kept = groups(&scope, "kept.", &named(&histories()));
    let requests = groups(&scope, "request.", &REQUESTS);
    let outputs = model(message).forward_cached(&scope, &kept, &requests, DType::F32).unwrap();
    finish(scope, &outputs.values)
}

/// Number of cache rows.
pub const CACHE_ROWS: usize = 40;

/// The inputs of both parts: histories of some users, and requests of some.
pub fn of_parts(histories: &[usize], users: &[usize]) -> Tensors {
    let mut all = inputs("kept.", &named(&self::histories()), histories);
    all.extend(inputs("request.", &REQUESTS, users));
    let times = |users: &[usize]| HostTensor::vector(&users.iter().map(|&user| TIMES[user]).collect::<Vec<_>>());
    for channel in CHANNELS {
        // Two contextual tokens, then one token per click or two per view.
        let steps = if channel == "view" { 2 } else { 1 };
        let tokens = |user: usize| 2 + steps * lengths(channel)[user];
        let rows = |user: usize| {
            let before: usize = (0..user).map(tokens).sum();
            (before..before + tokens(user)).map(|row| (CACHE_ROWS - 1 - row) as u32)
        };
        let rows = |users: &[usize]| HostTensor::vector(&users.iter().flat_map(|&user| rows(user)).collect::<Vec<_>>());
        let lengths: Vec<i64> = users.iter().map(|&user| tokens(user) as i64).collect();
        all.insert(format!("{channel}.query_time"), times(histories));
        all.insert(format!("{channel}.kept"), rows(histories));
        all.insert(format!("{channel}.cached.lengths"), HostTensor::lengths(&lengths));
        all.insert(format!("{channel}.cached"), rows(users));
    }
    all.insert("candidate.query_time".to_owned(), times(users));
    all
}

/// Caches with arbitrary contents.
pub fn stale(graph: &Graph) -> Tensors {
    let state = |name: &String| {
        let width = if name.ends_with("k_cache") { 6 } else { 8 };
        let values = vec![9.0; CACHE_ROWS * width];
        (name.clone(), HostTensor::f32(vec![CACHE_ROWS, width], &values).unwrap())
    };
    graph.states().iter().map(state).collect()
}
