//! The ranking model in two parts that meet in a cache, against the whole model, and to the bit against itself.

use rewire_graph::{DType, HostTensor};
use rewire_hstu::models::dlrm_hstu::{CacheOptions, Config, trace};
use rewire_runtime::{Kernel, Session};
use rewire_tests::backend::{Tensors, kernels, oracle, run, session};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use serde_json::{Value, json};

/// A user of the model: times, and ids and actions for each.
struct User {
    contextual: [i64; 2],
    events: Vec<[i64; 5]>,
    candidates: Vec<[i64; 2]>,
    time: i64,
}

const EVENT: [&str; 5] = ["item", "genre", "timestamp", "action", "watchtime"];
const CANDIDATE: [&str; 2] = ["item", "genre"];
const CONTEXTUAL: [&str; 2] = ["age", "country"];
const PREPROCESSOR: &str = "/hstu/input_preprocessor/contextual_preprocessor";
const CACHE_ROWS: usize = 400;

fn demo() -> Value {
    let mlp = json!({ "simple_mlp": { "hidden_dim": 20 } });
    json!({
        "model": "dlrm_hstu",
        "features": {
            "item": { "num_embeddings": 50, "embedding_dim": 12 }, "genre": { "num_embeddings": 9, "embedding_dim": 6 },
            "age": { "num_embeddings": 5, "embedding_dim": 10 }, "country": { "num_embeddings": 7, "embedding_dim": 10 }
        },
        "feature_groups": { "contextual": CONTEXTUAL, "uih": CANDIDATE, "candidate": CANDIDATE },
        "hstu": {
            "stu": { "embedding_dim": 25, "num_heads": 2, "hidden_dim": 12, "attention_dim": 10 },
            "attn_num_layers": 3,
            "positional_encoder": {
                "num_position_buckets": 40, "num_time_buckets": 32, "use_time_encoding": true,
                "time_bucket_fn": "sqrt", "time_bucket_increments": 60.0
            },
            "input_preprocessor": { "contextual_preprocessor": {
                "action_encoder": { "simple_action_encoder": {
                    "action_embedding_dim": 5, "action_weights": [1, 2],
                    "watchtime_to_action_thresholds": [100], "watchtime_to_action_weights": [4]
                } },
                "action_mlp": mlp, "content_encoder": { "slice_content_encoder": {} }, "content_mlp": mlp
            } },
            "output_postprocessor": { "timestamp_layernorm_postprocessor": {
                "time_duration_period_units": [3600], "time_duration_units_per_period": [24]
            } }
        },
        "item_embedding_hidden_dim": 22,
        "fusion_mtl_tower": { "task_configs": [{ "task_name": "click" }, { "task_name": "like" }] },
        "max_seq_len": 80
    })
}

fn config(changes: &[(&str, Value)]) -> Config {
    let mut config = demo();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value.clone());
    }
    Config::from_json(&config.to_string()).unwrap()
}

fn users(seed: u64, sizes: &[(usize, usize)]) -> Vec<User> {
    let mut noise = Noise::new(seed, "users");
    let mut user = |&(events, candidates): &(usize, usize)| {
        let mut time = 1_700_000_000 + noise.below(0, 100_000);
        let mut event = || {
            time += noise.below(0, 900);
            [noise.below(0, 50), noise.below(0, 9), time, noise.below(0, 4), noise.below(0, 300)]
        };
        let events: Vec<[i64; 5]> = (0..events).map(|_| event()).collect();
        let candidates = (0..candidates).map(|_| [noise.below(0, 50), noise.below(0, 9)]).collect();
        User { contextual: [noise.below(0, 5), noise.below(0, 7)], events, candidates, time: time + 77 }
    };
    sizes.iter().map(&mut user).collect()
}

fn u32s(values: Vec<i64>) -> HostTensor {
    HostTensor::u32(vec![values.len()], &values.into_iter().map(|value| value as u32).collect::<Vec<_>>()).unwrap()
}

/// The new part of each of `histories`, and `users` with their candidates.
fn columns(histories: &[(&User, usize)], users: &[&User]) -> Tensors {
    let mut all = Tensors::new();
    let new = |user: &(&User, usize)| user.0.events[user.1..].to_vec();
    all.insert(
        "uih.lengths".into(),
        HostTensor::lengths(&histories.iter().map(|user| new(user).len() as i64).collect::<Vec<_>>()),
    );
    for (place, name) in EVENT.into_iter().enumerate() {
        let values: Vec<i64> = histories.iter().flat_map(new).map(|event| event[place]).collect();
        let tensor = if place < 2 { u32s(values) } else { HostTensor::lengths(&values) };
        all.insert(format!("uih.{name}"), tensor);
    }
    let lengths: Vec<i64> = users.iter().map(|user| user.candidates.len() as i64).collect();
    all.insert("candidate.lengths".into(), HostTensor::lengths(&lengths));
    for (place, name) in CANDIDATE.into_iter().enumerate() {
        let values = users.iter().flat_map(|user| &user.candidates).map(|candidate| candidate[place]);
        all.insert(format!("candidate.{name}"), u32s(values.collect()));
    }
    let times = users.iter().flat_map(|user| vec![user.time; user.candidates.len()]);
    all.insert("candidate.timestamp".into(), HostTensor::lengths(&times.collect::<Vec<_>>()));
    for (place, name) in CONTEXTUAL.into_iter().enumerate() {
        all.insert(format!("contextual.{name}"), u32s(histories.iter().map(|user| user.0.contextual[place]).collect()));
        let of_users = u32s(users.iter().map(|user| user.contextual[place]).collect());
        all.insert(format!("candidate.contextual.{name}"), of_users);
    }
    all.insert(
        "uih.query_time".into(),
        HostTensor::lengths(&histories.iter().map(|user| user.0.time).collect::<Vec<_>>()),
    );
    all.insert(
        "candidate.query_time".into(),
        HostTensor::lengths(&users.iter().map(|user| user.time).collect::<Vec<_>>()),
    );
    all
}

/// Rows of the cache by history, scattered.
fn rows(seed: u64, lengths: &[usize]) -> Vec<Vec<i64>> {
    let mut noise = Noise::new(seed, "rows");
    let mut free: Vec<i64> = (0..CACHE_ROWS as i64).collect();
    let mut take = || free.swap_remove(noise.below(0, free.len() as i64) as usize);
    lengths.iter().map(|&length| (0..length).map(|_| take()).collect()).collect()
}

fn with_rows(mut inputs: Tensors, kept: &[Vec<i64>], before: &[Vec<i64>], read: &[Vec<i64>]) -> Tensors {
    let lengths =
        |rows: &[Vec<i64>]| HostTensor::lengths(&rows.iter().map(|rows| rows.len() as i64).collect::<Vec<_>>());
    inputs.insert("uih.kept".into(), u32s(kept.concat()));
    inputs.insert("uih.before.lengths".into(), lengths(before));
    inputs.insert("uih.before".into(), u32s(before.concat()));
    inputs.insert("history.lengths".into(), lengths(read));
    inputs.insert("history".into(), u32s(read.concat()));
    inputs
}

struct Model {
    config: Config,
    weights: Tensors,
    rows_per_event: usize,
    context: usize,
}

impl Model {
    fn new(changes: &[(&str, Value)]) -> Self {
        let config = config(changes);
        let graph = trace(&config).unwrap();
        let weight = |parameter: &rewire_graph::ParameterSpec| {
            let mut noise = Noise::new(7, &parameter.name);
            let inner = parameter.shape.first().copied().unwrap_or(1).max(1) as f64;
            let scale = if parameter.name.contains("norm") { 1.0 } else { 1.5 / inner.sqrt() };
            (parameter.name.clone(), noise.floats(DType::F32, &parameter.shape, scale))
        };
        let weights = graph.parameters().iter().map(weight).collect();
        let interleaved = config.hstu.input_preprocessor.kind() == "contextual_interleave_preprocessor";
        let context = config.feature_groups.contextual.len();
        Self { config, weights, rows_per_event: if interleaved { 2 } else { 1 }, context }
    }

    fn length(&self, user: &User) -> usize {
        self.context + self.rows_per_event * user.events.len()
    }

    fn session(&self, kernel: Kernel, dtype: DType) -> Option<Session> {
        let graph = self.config.trace_cached(&CacheOptions { dtype }).unwrap();
        let mut session = session(&graph, &self.weights, kernel).unwrap()?;
        let names: Vec<String> = session.plan().states().into_keys().map(str::to_owned).collect();
        for name in names {
            let width = if name.ends_with("k_cache") { 20 } else { 24 };
            let mut noise = Noise::new(1, &name);
            session.set_state(&name, noise.floats(dtype, &[CACHE_ROWS, width], 9.0)).unwrap();
        }
        Some(session)
    }
}

fn logits(session: &mut Session, inputs: &Tensors) -> Vec<f32> {
    run(session, inputs).unwrap()["logits"].to_f32()
}

/// The logits of all users: first their histories in one run, then their candidates in another.
fn in_two_runs(model: &Model, session: &mut Session, users: &[User], seed: u64) -> (Vec<f32>, Vec<Vec<i64>>) {
    let all: Vec<&User> = users.iter().collect();
    let rows = rows(seed, &users.iter().map(|user| model.length(user)).collect::<Vec<_>>());
    let histories: Vec<(&User, usize)> = users.iter().map(|user| (user, 0)).collect();
    let nothing = vec![vec![]; users.len()];
    let keep = with_rows(columns(&histories, &[]), &rows, &nothing, &[]);
    assert_eq!(logits(session, &keep), [0.0; 0]);
    (logits(session, &with_rows(columns(&[], &all), &[], &[], &rows)), rows)
}

const SIZES: [(usize, usize); 6] = [(17, 3), (0, 2), (33, 1), (5, 0), (1, 9), (21, 5)];

fn variants() -> Vec<Vec<(&'static str, Value)>> {
    let interleaved = json!({ "contextual_interleave_preprocessor": demo().pointer(PREPROCESSOR).unwrap() });
    let content = "/hstu/input_preprocessor/contextual_preprocessor/content_mlp";
    let action = "/hstu/input_preprocessor/contextual_preprocessor/action_mlp";
    let parameterized = json!({ "parameterized_mlp": { "hidden_dim": 8 } });
    vec![
        vec![],
        vec![("/feature_groups/contextual", json!([])), ("/hstu/positional_encoder/use_time_encoding", json!(false))],
        vec![("/hstu/input_preprocessor", interleaved), ("/hstu/stu/use_group_norm", json!(true))],
        vec![("/hstu/stu/max_attn_len", json!(9))],
        vec![("/hstu/stu/sla_k1", json!(8)), ("/hstu/stu/sla_k2", json!(3))],
        vec![("/hstu/attn_truncation_split_layer", json!(1)), ("/hstu/attn_truncation_tail_len", json!(12))],
        vec![(content, parameterized.clone()), (action, parameterized)],
    ]
}

#[test]
fn two_parts_give_the_scores_of_the_whole() {
    let users = users(3, &SIZES);
    for (number, changes) in variants().into_iter().enumerate() {
        let model = Model::new(&changes);
        let all: Vec<&User> = users.iter().collect();
        let histories: Vec<(&User, usize)> = users.iter().map(|user| (user, 0)).collect();
        let whole = trace(&model.config).unwrap();
        let inputs = columns(&histories, &all);
        let expected = oracle(&whole, &inputs, &model.weights).unwrap();
        for &kernel in kernels(number) {
            let Some(mut session) = model.session(kernel, DType::F32) else { continue };
            let (actual, _) = in_two_runs(&model, &mut session, &users, 5);
            let actual = HostTensor::f32(expected["logits"].shape().to_vec(), &actual).unwrap();
            let actual = [("logits".to_owned(), actual)].into();
            let found = differences(&expected, &actual, Tolerance::SINGLE);
            assert!(found.is_empty(), "{kernel} {changes:?}: {found:?}");
        }
    }
}

/// Logits of every candidate on its own.
fn alone(session: &mut Session, users: &[User], rows: &[Vec<i64>]) -> Vec<f32> {
    let mut all = vec![];
    for (user, rows) in users.iter().zip(rows) {
        for candidate in &user.candidates {
            let one = User { candidates: vec![*candidate], events: vec![], ..*user };
            let inputs = with_rows(columns(&[], &[&one]), &[], &[], std::slice::from_ref(rows));
            all.extend(logits(session, &inputs));
        }
    }
    all
}

#[test]
fn scores_have_the_same_bits_wherever_histories_lie_and_whoever_reads_them() {
    let users = users(9, &SIZES);
    for dtype in [DType::F32, DType::F16] {
        let model = Model::new(&variants()[1]);
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(mut session) = model.session(kernel, dtype) else { continue };
            let (expected, rows) = in_two_runs(&model, &mut session, &users, 5);
            assert!(expected.iter().any(|logit| logit.abs() > 1e-3));
            assert_eq!(alone(&mut session, &users, &rows), expected, "{kernel} {dtype}: alone");
            let (moved, _) = in_two_runs(&model, &mut session, &users, 6);
            assert_eq!(moved, expected, "{kernel} {dtype}: elsewhere");
            assert_eq!(in_pieces(&model, &mut session, &users), expected, "{kernel} {dtype}: in pieces");
        }
    }
}

/// The logits of all users, whose histories come in three runs, and the candidates with the last of them.
fn in_pieces(model: &Model, session: &mut Session, users: &[User]) -> Vec<f32> {
    let all = rows(8, &users.iter().map(|user| model.length(user)).collect::<Vec<_>>());
    let cuts = |user: &User| [0, user.events.len() / 3, user.events.len() * 4 / 5, user.events.len()];
    for step in 0..3 {
        let until: Vec<User> = users
            .iter()
            .map(|user| User { events: user.events[..cuts(user)[step + 1]].to_vec(), candidates: vec![], ..*user })
            .collect();
        let histories: Vec<(&User, usize)> =
            until.iter().zip(users).map(|(until, user)| (until, cuts(user)[step])).collect();
        let part = |from: usize, to: usize| {
            users
                .iter()
                .zip(&all)
                .map(|(user, rows)| rows[cuts(user)[from]..cuts(user)[to]].to_vec())
                .collect::<Vec<_>>()
        };
        let keep = with_rows(columns(&histories, &[]), &part(step, step + 1), &part(0, step), &[]);
        assert_eq!(logits(session, &keep), [0.0; 0]);
    }
    logits(session, &with_rows(columns(&[], &users.iter().collect::<Vec<_>>()), &[], &[], &all))
}

#[test]
fn models_whose_candidates_are_not_apart_are_not_cached() {
    for change in [("/hstu/stu/causal", json!(false)), ("/hstu/stu/target_aware", json!(false))] {
        let config = config(&[change]);
        assert!(!config.is_cacheable());
        let error = config.trace_cached(&CacheOptions::default()).unwrap_err().to_string();
        assert!(error.contains("`hstu.stu` must be causal or semi-local, and aware of targets"), "{error}");
    }
    let appendable: Vec<bool> = variants().iter().map(|changes| config(changes).is_appendable()).collect();
    assert_eq!(appendable, [false, true, false, false, false, false, false]);
}
