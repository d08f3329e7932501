//! The demo model: loading it, and ranking its 256 users.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rewire::prelude::{RankOptions, Ranker};
use rewire::rank::Batch;
use rewire_benches::{Backend, backends, shape};
use std::path::Path;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/demo");

fn load(backend: &Backend) -> Ranker {
    let options = RankOptions { kernel: backend.kernel(), gpu: backend.gpu.clone(), ..RankOptions::default() };
    Ranker::load(&Path::new(DEMO).join("model"), &options).unwrap()
}

fn requests(ranker: &Ranker, users: usize) -> Batch {
    let text = std::fs::read_to_string(Path::new(DEMO).join("interactions.jsonl")).unwrap();
    let mut batch = ranker.batch();
    text.lines().take(users).for_each(|line| batch.push_json(line.as_bytes()).unwrap());
    batch
}

fn loading(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("load");
    group.sample_size(10);
    for backend in backends() {
        group.bench_function(backend.name(), |bencher| bencher.iter(|| load(&backend)));
    }
    group.finish();
}

fn ranking(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rank");
    group.sample_size(10);
    for backend in backends() {
        let ranker = load(&backend);
        let requests = requests(&ranker, shape(256, 4));
        group.throughput(Throughput::Elements(requests.len() as u64));
        group.bench_function(backend.name(), |bencher| bencher.iter(|| ranker.rank_batch(&requests).unwrap()));
    }
    group.finish();
}

criterion_group!(demo, loading, ranking);
criterion_main!(demo);
