//! Thousands of candidates of one user: with the history computed, and from the cache.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use rewire::rank::{CacheLimits, Caches, RankOptions, Ranker, Request, parse_config};
use rewire::weights::{Weights, serialize};
use rewire::{Gpu, Kernel};
use rewire_measure::{Shape, Workload};
use std::collections::BTreeMap;

const DEMO: &str = include_str!("../../crates/cli/demo/model/config.json");
const EVENTS: i64 = 1000;
const CANDIDATES: i64 = 5000;

/// The demo model for longer histories, with random weights.
fn ranker(options: &RankOptions) -> Ranker {
    let config = parse_config("demo", &DEMO.replace("\"max_seq_len\": 160", "\"max_seq_len\": 1100")).unwrap();
    assert!(config.max_seq_len > EVENTS as usize);
    let workload = Workload::model("demo", &config, None, &Shape { batch: 1, max_len: 9, ..Shape::default() }).unwrap();
    let weights = serialize(&workload.parameters.into_iter().collect(), &BTreeMap::new()).unwrap();
    Ranker::new(&config, &Weights::parse(weights).unwrap(), options).unwrap()
}

fn request(candidates: i64) -> Request {
    let ids = |count: i64, rows: i64| (0..count).map(|id| id * 7 % rows).collect::<Vec<_>>();
    let now = 1_700_000_000;
    Request::new("u")
        .contextual("age_bucket", 3)
        .contextual("country", 5)
        .history("item_id", ids(EVENTS, 1500))
        .history("genre", ids(EVENTS, 16))
        .history("timestamp", (0..EVENTS).map(|event| now - (EVENTS - event) * 977).collect::<Vec<_>>())
        .history("action", ids(EVENTS, 4))
        .history("watchtime", ids(EVENTS, 2000))
        .candidates("item_id", ids(candidates, 1500))
        .candidates("genre", ids(candidates, 16))
        .candidates("timestamp", vec![now; candidates as usize])
}

fn caches(criterion: &mut Criterion) {
    let on_cpu = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let gpu = Gpu::for_kernel(Kernel::Auto, None).unwrap();
    let on_gpu = gpu.map(|gpu| RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() });
    for options in [Some(on_cpu), on_gpu].into_iter().flatten() {
        let ranker = ranker(&options);
        let mut caches = Caches::new(&ranker, CacheLimits::default()).unwrap();
        let [none, one, all] = [0, 1, CANDIDATES].map(|candidates| [request(candidates)]);
        let mut group = criterion.benchmark_group(format!("{EVENTS} events, {}", options.kernel));
        group.sample_size(20);
        group.bench_function("history and 1 candidate", |bencher| bencher.iter(|| ranker.rank(&one).unwrap()));
        group.bench_function("history and 5000 candidates", |bencher| bencher.iter(|| ranker.rank(&all).unwrap()));
        group.bench_function("1 candidate, history kept", |bencher| bencher.iter(|| caches.rank(&one).unwrap()));
        group.bench_function("5000 candidates, history kept", |bencher| bencher.iter(|| caches.rank(&all).unwrap()));
        // The time of the request is that of its last candidate, and is part of a history's identity.
        caches.rank(&none).unwrap();
        let mut batch = ranker.batch();
        batch.push(&none[0]).unwrap();
        group.bench_function("kept history found", |bencher| bencher.iter(|| caches.rank_batch(&batch).unwrap()));
        group.finish();
    }
}

criterion_group!(kept, caches);
criterion_main!(kept);
