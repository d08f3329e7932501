//! One benchmark per kernel family: pointwise, reduction, matmul and attention.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rewire::graph::Graph;
use rewire::hstu::ops::{Attention, StandardMask, hstu_mha};
use rewire::prelude::{DType, HostTensor, Scope};
use rewire_benches::{BenchCase, backends, noise, shape};

/// Benchmarks a graph on every backend.
fn bench(
    criterion: &mut Criterion,
    family: &str,
    work: Throughput,
    graph: &Graph,
    tensors: &[(&str, HostTensor)],
    host: &[(&str, HostTensor)],
) {
    let mut group = criterion.benchmark_group(family);
    group.throughput(work).sample_size(10);
    for backend in backends() {
        let mut case = BenchCase::new(graph, &backend, tensors, host);
        group.bench_function(backend.name(), |bencher| bencher.iter(|| case.run()));
    }
    group.finish();
}

fn pointwise(criterion: &mut Criterion) {
    let [rows, width] = shape([1 << 15, 256], [8, 16]);
    let scope = Scope::new();
    let size = scope.size("rows");
    let a = scope.input("a", DType::F32, &[size.clone(), width.into()]);
    let b = scope.input("b", DType::F32, &[size, width.into()]);
    let graph = scope.finish(&[("y", &(&a.silu() * &b) + &a)]).unwrap();
    let tensors = [("a", noise(1, &[rows, width])), ("b", noise(2, &[rows, width]))];
    bench(criterion, "pointwise", Throughput::Bytes(12 * (rows * width) as u64), &graph, &tensors, &[]);
}

fn reduction(criterion: &mut Criterion) {
    let [rows, width] = shape([1 << 15, 512], [8, 16]);
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), width.into()]);
    let [weight, bias] = ["weight", "bias"].map(|name| scope.parameter(name, DType::F32, &[width.into()]));
    let graph = scope.finish(&[("y", x.layer_norm(&weight, &bias, 1e-6))]).unwrap();
    let bytes = Throughput::Bytes(8 * (rows * width) as u64);
    bench(criterion, "layer norm", bytes, &graph, &[("x", noise(1, &[rows, width]))], &[]);
}

fn product(criterion: &mut Criterion) {
    let [rows, inner, width] = shape([4096, 512, 1024], [8, 16, 16]);
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), inner.into()]);
    let weight = scope.parameter("weight", DType::F32, &[inner.into(), width.into()]);
    let bias = scope.parameter("bias", DType::F32, &[width.into()]);
    let y = (&x.matmul(&weight) + &bias).silu();
    let graph = scope.finish(&[("y", y)]).unwrap();
    let operations = Throughput::Elements(2 * (rows * inner * width) as u64);
    bench(criterion, "addmm", operations, &graph, &[("x", noise(1, &[rows, inner]))], &[]);
}

fn attention(criterion: &mut Criterion) {
    let [samples, heads, dim, longest] = shape([16, 4, 64, 512], [3, 2, 8, 20]);
    let lengths: Vec<i64> = (0..samples).map(|sample| (longest - sample * longest / (2 * samples)) as i64).collect();
    let rows = lengths.iter().sum::<i64>() as usize;
    let pairs: i64 = lengths.iter().map(|length| length * (length + 1) / 2).sum();
    let scope = Scope::new();
    let ragged = scope.lengths("lengths", &scope.size("samples"));
    let heads_of = |name: &str| scope.input(name, DType::F32, &[ragged.total.clone(), heads.into(), dim.into()]);
    let (q, k, v) = (heads_of("q"), heads_of("k"), heads_of("v"));
    let causal = |pairs: &rewire::hstu::ops::Pairs| StandardMask::default().trace(pairs);
    let options = Attention::new(1.0 / (dim as f64).sqrt(), longest);
    let y = hstu_mha(&scope, [&q, &k, &v], &ragged, &options, causal);
    let graph = scope.finish(&[("y", y)]).unwrap();
    let tensors = [("q", 1), ("k", 2), ("v", 3)].map(|(name, seed)| (name, noise(seed, &[rows, heads, dim])));
    let operations = Throughput::Elements(4 * pairs as u64 * (heads * dim) as u64);
    let host = [("lengths", HostTensor::lengths(&lengths))];
    bench(criterion, "causal silu attention", operations, &graph, &tensors, &host);
}

criterion_group!(kernels, pointwise, reduction, product, attention);
criterion_main!(kernels);
