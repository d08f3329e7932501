//! Ranking with models of other shapes than the demo's: invariances of scores.
#![allow(clippy::unwrap_used)]

mod caches;
mod cancellation;
mod deltas;
mod files;
mod fork;
mod growing;
mod refining;
mod waiting;

use rewire::graph::{DType, HostTensor};
use rewire::rank::{Config, RankError, RankOptions, Ranked, Ranker, Request, Spread, parse_config, trace};
use rewire::runtime::Report;
use rewire::weights::{Weights, serialize};
use rewire::{Gpu, Kernel};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Numbers that look random, equal on every machine.
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as i64) % bound
    }

    fn float(&mut self) -> f64 {
        self.below(2001) as f64 / 1000.0 - 1.0
    }
}

fn plain() -> Value {
    json!({
        "model": "dlrm_hstu",
        "features": {
            "film": {"num_embeddings": 50, "embedding_dim": 12}, "kind": {"num_embeddings": 7, "embedding_dim": 5},
            "price": {"num_embeddings": 9, "embedding_dim": 3}, "land": {"num_embeddings": 4, "embedding_dim": 6},
        },
        "feature_groups": {"contextual": ["land"], "uih": ["film", "kind"], "candidate": ["film", "kind"]},
        "hstu": {
            "stu": {"embedding_dim": 20, "num_heads": 2, "hidden_dim": 12, "attention_dim": 8},
            "attn_num_layers": 2,
            "positional_encoder": {"num_position_buckets": 64, "num_time_buckets": 20, "use_time_encoding": true},
            "input_preprocessor": {"contextual_preprocessor": {
                "action_encoder": {"simple_action_encoder": {"action_embedding_dim": 4, "action_weights": [1, 2]}},
                "action_mlp": {"simple_mlp": {"hidden_dim": 16}},
                "content_encoder": {"slice_content_encoder": {}}, "content_mlp": {"simple_mlp": {"hidden_dim": 16}}
            }},
            "output_postprocessor": {"layernorm_postprocessor": {}}
        },
        "item_embedding_hidden_dim": 16,
        "fusion_mtl_tower": {"task_configs": [
            {"task_name": "click", "task_bitmask": 1}, {"task_name": "like", "task_bitmask": 2}
        ]},
        "max_seq_len": 40
    })
}

fn interleaved() -> Value {
    let mut config = plain();
    let preprocessor = config["hstu"]["input_preprocessor"]["contextual_preprocessor"].take();
    config["hstu"]["input_preprocessor"] = json!({"contextual_interleave_preprocessor": preprocessor});
    config["hstu"]["output_postprocessor"] = json!({"l2norm_postprocessor": {}});
    config["feature_groups"]["contextual"] = json!(["land", "home"]);
    config["features"]["home"] = json!({"num_embeddings": 4, "embedding_dim": 6});
    config
}

fn bare() -> Value {
    let mut config = plain();
    config["feature_groups"] = json!({"contextual": [], "uih": ["film"], "candidate": ["film", "price"]});
    config["hstu"]["stu"] = json!({
        "embedding_dim": 24, "num_heads": 3, "hidden_dim": 4, "attention_dim": 12, "use_group_norm": true, "max_attn_len": 5
    });
    config["hstu"]["attn_num_layers"] = json!(3);
    config["hstu"].as_object_mut().unwrap().remove("positional_encoder");
    config["hstu"]["input_preprocessor"] = json!({"contextual_preprocessor": {
        "content_encoder": {"pad_content_encoder": {}}, "content_mlp": {"simple_mlp": {"hidden_dim": 8}}
    }});
    config["fusion_mtl_tower"]["task_configs"] = json!([{"task_name": "buy", "task_bitmask": 8}]);
    config
}

fn config(value: &Value) -> Config {
    parse_config("test", &value.to_string()).unwrap()
}

fn weights(config: &Config) -> Vec<u8> {
    let mut noise = Noise(1);
    let mut tensor = |shape: Vec<usize>| {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| noise.float()).collect();
        HostTensor::from_f64(DType::F32, shape, &values).unwrap()
    };
    let specs = trace(config).unwrap().parameters();
    let tensors = specs.into_iter().map(|spec| (spec.name, tensor(spec.shape))).collect();
    serialize(&tensors, &BTreeMap::new()).unwrap()
}

fn load(config: &Config, options: &RankOptions) -> Ranker {
    Ranker::new(config, &Weights::parse(weights(config)).unwrap(), options).unwrap()
}

fn on_cpu() -> RankOptions {
    RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() }
}

fn request(ranker: &Ranker, noise: &mut Noise, events: i64, candidates: i64) -> Request {
    let schema = ranker.schema();
    let mut list = |name: &str, rows: Option<usize>, len: i64| match (name, rows) {
        ("timestamp", _) => (0..len).map(|at| 1_700_000_000 + at * 977).collect(),
        (_, rows) => (0..len).map(|_| noise.below(rows.map_or(4, |rows| rows as i64))).collect::<Vec<_>>(),
    };
    let mut lists = |columns: &[rewire::rank::Column], len: i64| {
        let pair = |c: &rewire::rank::Column| (c.name.clone(), list(&c.name, c.table.as_ref().map(|t| t.rows), len));
        columns.iter().map(pair).collect::<BTreeMap<_, _>>()
    };
    let offered = lists(&schema.candidates, candidates).into_iter().map(|(name, values)| match name.as_str() {
        "timestamp" => (name, vec![1_700_100_000; values.len()]),
        _ => (name, values),
    });
    let offered = offered.collect();
    Request {
        user: format!("{events} {candidates}").into(),
        contextual: lists(&schema.contextual, 1).into_iter().map(|(name, values)| (name, values[0])).collect(),
        history: lists(&schema.history, events),
        candidates: offered,
        labels: None,
    }
}

fn requests(ranker: &Ranker) -> Vec<Request> {
    let mut noise = Noise(2);
    let sizes = [(0, 1), (1, 1), (5, 3), (0, 0), (30, 9), (17, 20), (90, 2), (3, 70), (16, 1), (33, 5)];
    sizes.iter().map(|&(events, candidates)| request(ranker, &mut noise, events, candidates)).collect()
}

fn one_by_one(ranker: &Ranker, requests: &[Request]) -> Vec<Ranked> {
    requests.iter().flat_map(|request| ranker.rank(std::slice::from_ref(request)).unwrap()).collect()
}

fn check_independence(config: &Config, options: &RankOptions) -> Vec<Ranked> {
    let ranker = load(config, options);
    let requests = requests(&ranker);
    let together = ranker.rank(&requests).unwrap();
    assert_eq!(together, one_by_one(&ranker, &requests));
    let mut reversed: Vec<Request> = requests.clone();
    reversed.reverse();
    let mut backwards = ranker.rank(&reversed).unwrap();
    backwards.reverse();
    assert_eq!(together, backwards);
    together
}

#[test]
fn scores_do_not_depend_on_who_shares_the_batch() {
    for value in [plain(), interleaved(), bare()] {
        let ranked = check_independence(&config(&value), &on_cpu());
        let tasks = value["fusion_mtl_tower"]["task_configs"].as_array().unwrap().len();
        assert!(ranked.iter().flat_map(|r| &r.candidates).all(|candidate| candidate.logits.len() == tasks));
    }
}

#[test]
fn an_adapter_gives_the_same_scores() {
    let Ok(gpu) = Gpu::open(None) else { return eprintln!("skipped: there is no adapter") };
    for value in [plain(), interleaved(), bare()] {
        let config = config(&value);
        let options = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..RankOptions::default() };
        let there = check_independence(&config, &options);
        let here = check_independence(&config, &on_cpu());
        for (there, here) in there.iter().zip(&here) {
            for a in &there.candidates {
                let b = here.candidates.iter().find(|b| b.position == a.position).unwrap();
                assert!(a.logits.iter().zip(&b.logits).all(|(a, b)| (a - b).abs() < 1e-3), "{a:?} {b:?}");
            }
        }
    }
}

/// The scores of a model whose kernels are chosen by rules, and the steps that ran on a device and on the CPU.
fn ruled(gpu: &Gpu, kernel: Kernel, rules: &[&str]) -> (Vec<Ranked>, usize, usize) {
    let kernel_rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let options = RankOptions { kernel, kernel_rules, gpu: Some(gpu.clone()), ..RankOptions::default() };
    let ranker = load(&config(&plain()), &options);
    let ranked = ranker.rank(&requests(&ranker)).unwrap();
    (ranked, ranker.report().gpu_steps, ranker.report().cpu_steps)
}

#[test]
fn modules_and_operators_run_where_rules_say() {
    let Ok(gpu) = Gpu::open(None) else { return eprintln!("skipped: there is no adapter") };
    let (expected, all, none) = ruled(&gpu, Kernel::Wgpu, &[]);
    let layers = ruled(&gpu, Kernel::Wgpu, &["stu*=cpu"]);
    let others = ruled(&gpu, Kernel::Cpu, &["attention=wgpu"]);
    let linear = ruled(&gpu, Kernel::Wgpu, &["stu_layers.*=cpu", "attention=wgpu"]);
    assert!(none == 0 && 0 < others.1 && others.1 < layers.2 && layers.2 < all);
    assert_eq!((layers.1, others.2, linear.2), (all - layers.2, all - others.1, layers.2 - others.1));
    for (own, expected) in [layers, others, linear].iter().flat_map(|(ranked, ..)| ranked.iter().zip(&expected)) {
        for a in &own.candidates {
            let b = expected.candidates.iter().find(|b| b.position == a.position).unwrap();
            assert!(a.logits.iter().zip(&b.logits).all(|(a, b)| (a - b).abs() < 1e-3), "{a:?} {b:?}");
        }
    }
    let options = RankOptions { kernel_rules: vec!["stu_layer.0=cpu".parse().unwrap()], ..on_cpu() };
    let config = config(&plain());
    let weights = Weights::parse(weights(&config)).unwrap();
    let error = rewire::describe(&Ranker::new(&config, &weights, &options).unwrap_err());
    assert!(error.contains("`stu_layer.0`") && error.contains("`stu_layers.0`"), "{error}");
}

#[test]
fn a_device_that_is_lost_hands_its_requests_to_another() {
    let (Ok(first), Ok(second)) = (Gpu::open(None), Gpu::open(None)) else {
        return eprintln!("skipped: there is no adapter");
    };
    let config = config(&plain());
    let on = |gpu: &Gpu| {
        load(&config, &RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..RankOptions::default() })
    };
    let rankers = Spread::new(on(&first), [on(&second)]);
    let requests = requests(rankers.first());
    let rank = || rankers.run(|ranker| ranker.rank(&requests));
    let before = rank().unwrap();
    first.report_loss("a test");
    assert!(rankers.first().rank(&requests).unwrap_err().is_of_device());
    assert_eq!(rank().unwrap(), before);
    second.report_loss("a test");
    assert!(rank().unwrap_err().is_of_device());
}

#[test]
fn a_ranker_tells_its_tasks_and_its_room() {
    let ranker = load(&config(&plain()), &on_cpu());
    let tasks: Vec<(&str, i64)> = ranker.tasks().iter().map(|task| (task.name.as_str(), task.bitmask)).collect();
    assert_eq!((tasks, ranker.max_seq_len()), (vec![("click", 1), ("like", 2)], 40));
}

/// A model whose history sees candidates, so that both are one sequence.
fn both_ways() -> Value {
    let mut config = interleaved();
    config["hstu"]["stu"]["causal"] = json!(false);
    config
}

#[test]
fn long_requests_are_laid_out_as_told() {
    let told = |value: &Value| -> Vec<_> {
        let ranker = load(&config(value), &on_cpu());
        let ranked = ranker.rank(&requests(&ranker)).unwrap();
        ranked.iter().map(|r| (r.dropped_events, r.sequences)).collect()
    };
    let apart = told(&interleaved());
    assert_eq!(apart[4], (12, 1), "18 of 30 events, two rows each, leave room for a candidate: {apart:?}");
    assert_eq!((apart[5], apart[3], apart[7]), ((0, 1), (0, 0), (0, 1)));
    let whole = told(&both_ways());
    let rows = |events: i64| (40 - 2 - events * 2) as usize;
    assert_eq!(whole[4], (12, 5), "18 of 30 events, two rows each, leave room for two candidates: {whole:?}");
    assert_eq!(whole[5], (0, 20_usize.div_ceil(rows(17))));
    assert_eq!(whole[3], (0, 0));
    assert_eq!(whole[7], (0, 70_usize.div_ceil(rows(3))));
}

/// Scores of 70 candidates, in runs of few rows, against those of single ones and pairs.
fn check_company(options: &RankOptions) {
    for value in [plain(), interleaved(), bare()] {
        let all = requests(&load(&config(&value), &on_cpu())).remove(7);
        let [whole, pieces] = [1 << 13, 16].map(|batch_rows| {
            let ranker = load(&config(&value), &RankOptions { batch_rows, ..options.clone() });
            let ranked = ranker.rank(std::slice::from_ref(&all)).unwrap().remove(0);
            for own in [&[0][..], &[1], &[35], &[69], &[35, 69], &[69, 0]] {
                let mut some = all.clone();
                some.candidates.values_mut().for_each(|list| *list = own.iter().map(|&at| list[at]).collect());
                for candidate in ranker.rank(&[some]).unwrap().remove(0).candidates {
                    let at = own[candidate.position];
                    let same = ranked.candidates.iter().find(|candidate| candidate.position == at).unwrap();
                    assert_eq!(candidate.logits, same.logits, "candidate {at} of {own:?}");
                }
            }
            ranked
        });
        assert_eq!(whole, pieces);
    }
}

#[test]
fn a_score_has_the_same_bits_whoever_shares_the_request() {
    let gpu = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")).ok();
    let on_gpu = gpu.map(|gpu| RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() });
    for options in [on_cpu()].into_iter().chain(on_gpu) {
        check_company(&options);
    }
}

#[test]
fn a_request_has_one_time() {
    let ranker = load(&config(&plain()), &on_cpu());
    let mut mixed = requests(&ranker).remove(2);
    let times = mixed.candidates.get_mut("timestamp").unwrap();
    times[2] += 1;
    let error = ranker.rank(std::slice::from_ref(&mixed)).unwrap_err().to_string();
    let expected = "user `5 3`: `candidates.timestamp[2]` is 1700100001, but `candidates.timestamp[0]` is 1700100000: expected one time";
    assert!(error.starts_with(expected), "{error}");
    let timeless = load(&config(&bare()), &on_cpu());
    let mut request = requests(&timeless).remove(2);
    let whole = timeless.rank(std::slice::from_ref(&request)).unwrap();
    request.candidates.insert("timestamp".into(), vec![3, 1, 2]);
    assert_eq!(timeless.rank(&[request]).unwrap(), whole, "times that the model does not read");
}

#[test]
fn columns_that_a_model_does_not_read_may_be_left_out() {
    let ranker = load(&config(&bare()), &on_cpu());
    let mut request = requests(&ranker).remove(2);
    let whole = ranker.rank(std::slice::from_ref(&request)).unwrap();
    assert!(!ranker.schema().history.iter().any(|column| column.name == "action"));
    request.history.remove("timestamp");
    request.candidates.remove("timestamp");
    assert_eq!(ranker.rank(&[request]).unwrap(), whole);
}

#[test]
fn a_ranker_moves_to_another_thread_and_goes_on_where_its_device_is_lost() {
    let config = config(&plain());
    let expected = check_independence(&config, &on_cpu());
    let gpu = Gpu::open(None).ok();
    let options = RankOptions { kernel: Kernel::Auto, gpu: gpu.clone(), ..RankOptions::default() };
    let ranker = load(&config, &options);
    let requests = requests(&ranker);
    let ranked = std::thread::spawn(move || {
        let before = ranker.rank(&requests).unwrap();
        gpu.iter().for_each(|gpu| gpu.device().destroy());
        let after = ranker.rank(&requests).unwrap();
        assert_eq!(ranker.report().adapter, None);
        [before, after]
    });
    let [before, after] = ranked.join().unwrap();
    assert_eq!(after, expected);
    assert_eq!(before.len(), expected.len());
}

#[test]
fn threads_share_a_ranker() {
    let config = config(&plain());
    let expected = check_independence(&config, &on_cpu());
    let ranker = std::sync::Arc::new(load(&config, &on_cpu()));
    let requests = requests(&ranker);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (ranker, requests) = (ranker.clone(), requests.clone());
            std::thread::spawn(move || (0..3).map(|_| ranker.rank(&requests).unwrap()).collect::<Vec<_>>())
        })
        .collect();
    let ranked = threads.into_iter().flat_map(|thread| thread.join().unwrap());
    assert!(ranked.into_iter().all(|ranked| ranked == expected));
    let parameters = ranker.model().report();
    let held = ranker.report();
    assert!(held.host_bytes > parameters.host_bytes && held.packed_bytes > 0 && held.scratch_bytes > 0, "{held:?}");
    ranker.trim();
    let trimmed = ranker.report();
    assert_eq!((trimmed.packed_bytes, trimmed.scratch_bytes), (0, 0));
    assert_eq!(trimmed, Report { packed_bytes: 0, scratch_bytes: 0, ..parameters });
    assert_eq!(ranker.rank(&requests).unwrap(), expected);
    assert_eq!(ranker.refine(&requests, std::time::Duration::ZERO).unwrap(), Default::default());
}

#[test]
fn nothing_is_ranked_if_one_request_is_bad() {
    let ranker = load(&config(&plain()), &on_cpu());
    let mut requests = requests(&ranker);
    requests[6].candidates.get_mut("film").unwrap()[1] = 50;
    let error = ranker.rank(&requests).unwrap_err();
    assert!(matches!(error, RankError::Request(_)));
    assert_eq!(error.to_string(), "user `90 2`: `candidates.film[1]` is 50, but the table `film` has 50 rows");
    assert!(ranker.rank(&[]).unwrap().is_empty());
    let other = load(&config(&bare()), &on_cpu());
    assert!(matches!(ranker.rank_batch(&other.batch()), Err(RankError::Schema)));
}

#[test]
fn overflow_is_reported() {
    let config = config(&plain());
    let bytes = weights(&config);
    let parsed = Weights::parse(&bytes[..]).unwrap();
    let tensors = parsed.names().map(|name| {
        let tensor = parsed.get(name).unwrap().unwrap();
        let scale = if name.starts_with("_multitask_module") { f64::from(f32::MAX) } else { 1.0 };
        let values: Vec<f64> = tensor.to_f64().iter().map(|value| value * scale).collect();
        (name.to_owned(), HostTensor::from_f64(DType::F32, tensor.shape().to_vec(), &values).unwrap())
    });
    let bytes = serialize(&tensors.collect(), &BTreeMap::new()).unwrap();
    let ranker = Ranker::new(&config, &Weights::parse(bytes).unwrap(), &on_cpu()).unwrap();
    let request = requests(&ranker).remove(4);
    let error = ranker.rank(&[request]).unwrap_err().to_string();
    assert!(error.contains("`logits` is ") && error.contains("user `30 9`"), "{error}");
}
