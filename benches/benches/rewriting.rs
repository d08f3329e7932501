//! Rewriting graphs of 10,000 operators.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rewire::graph::{Graph, GraphError};
use rewire::optimize;
use rewire_benches::{graphs, shape};

type Generator = fn(usize) -> Result<Graph, GraphError>;

const GENERATORS: [(&str, Generator); 4] = [
    ("blocks", graphs::large),
    ("pointwise_chain", graphs::pointwise_chain),
    ("residual_stream", graphs::residual_stream),
    ("sparse_towers", graphs::sparse_towers),
];

fn rewriting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("optimize");
    group.sample_size(10);
    for (name, generate) in GENERATORS {
        let graph = generate(shape(10_000, 200)).unwrap();
        group.throughput(Throughput::Elements(graph.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| graph.clone(), |graph| optimize(graph).unwrap(), BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, rewriting);
criterion_main!(benches);
