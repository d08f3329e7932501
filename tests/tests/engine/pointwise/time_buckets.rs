//! Time buckets at their edges: every backend computes the exact one.

use rewire_graph::{DType, HostTensor, Scope};
use rewire_hstu::ops::{Positions, TimeBucketFn, TimeBuckets, add_timestamp_positional_embeddings};
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, oracle, run, session};
use rewire_tests::noise::Noise;

/// The time of the request.
const NOW: i64 = 1_762_000_000;

/// The bucket as the reference computes it, each step rounded to f32, with `increments` in halves.
fn exact(bucket_fn: TimeBucketFn, gap: i64, halves: i64, buckets: i64) -> i64 {
    let units = (gap as f32).max(1e-6) / (halves as f32 / 2.0);
    let z = match bucket_fn {
        TimeBucketFn::Sqrt => f64::from(units).sqrt() as f32,
        TimeBucketFn::Log => f64::from(units).ln() as f32,
    };
    ((z / buckets as f32).clamp(0.0, 1.0) * buckets as f32) as i64
}

/// Gaps around every edge, and some far from them.
fn gaps(bucket_fn: TimeBucketFn, halves: i64, buckets: i64) -> Vec<i64> {
    let edge = |bucket: i64| match bucket_fn {
        TimeBucketFn::Sqrt => (bucket * bucket * halves) as f64 / 2.0,
        TimeBucketFn::Log => (bucket as f64).exp() * halves as f64 / 2.0,
    };
    let near = (0..=buckets).map(edge).filter(|&edge| edge < 4e12);
    let around = near.flat_map(|edge| (-3..=3).map(move |step| edge.round() as i64 + step));
    around.chain([-9_000_000_000, 5_000_000_000_000]).collect()
}

fn check(bucket_fn: TimeBucketFn, dtype: DType, halves: i64, buckets: i64) {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("samples"));
    let total = std::slice::from_ref(&rows.total);
    let x = scope.input("x", DType::F32, &[rows.total.clone(), 1.into()]);
    let timestamps = scope.input("timestamps", dtype, total);
    let query = scope.input("query", dtype, std::slice::from_ref(&rows.batch));
    let positions = scope.parameter("positions", DType::F32, &[1.into(), 1.into()]);
    let times = scope.parameter("times", DType::F32, &[(buckets as usize + 1).into(), 1.into()]);
    let place = Positions {
        rows: &rows,
        seq_lengths: &rows.lengths,
        num_targets: None,
        interleave_targets: false,
        first: None,
    };
    let increments = halves as f64 / 2.0;
    let time = TimeBuckets { timestamps: &timestamps, query_time: Some(&query), bucket_fn, increments };
    let out = add_timestamp_positional_embeddings(&scope, &x, [&positions, &times], 0.0, &place, 0, &time);
    let graph = scope.finish(&[("out", out)]).unwrap();

    let now = if dtype == DType::I64 { NOW } else { 0 };
    let whole = |gap: &i64| dtype == DType::I64 || (*gap as f32) as i64 == *gap;
    let gaps: Vec<i64> = gaps(bucket_fn, halves, buckets).into_iter().filter(whole).collect();
    let stamps: Vec<f64> = gaps.iter().map(|gap| (now - gap) as f64).collect();
    let ramp: Vec<f32> = (0..=buckets).map(|bucket| bucket as f32).collect();
    let inputs: Tensors = [
        ("lengths".to_owned(), HostTensor::lengths(&[gaps.len() as i64])),
        ("x".to_owned(), Noise::new(1, "x").floats(DType::F32, &[gaps.len(), 1], 1.0)),
        ("timestamps".to_owned(), HostTensor::from_f64(dtype, vec![gaps.len()], &stamps).unwrap()),
        ("query".to_owned(), HostTensor::from_f64(dtype, vec![1], &[now as f64]).unwrap()),
    ]
    .into();
    let parameters: Tensors = [
        ("positions".to_owned(), HostTensor::f32(vec![1, 1], &[0.25]).unwrap()),
        ("times".to_owned(), HostTensor::f32(vec![ramp.len(), 1], &ramp).unwrap()),
    ]
    .into();
    let mut results = vec![("interpreter".to_owned(), oracle(&graph, &inputs, &parameters).unwrap())];
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
        results.push((kernel.to_string(), run(&mut session, &inputs).unwrap()));
    }
    for (backend, outputs) in results {
        for (&gap, out) in gaps.iter().zip(outputs["out"].to_f64()) {
            let expected = exact(bucket_fn, gap, halves, buckets);
            assert_eq!(out - 0.25, expected as f64, "{backend} {bucket_fn:?} {dtype}: gap {gap}, unit {increments}");
        }
    }
}

#[test]
fn square_roots_take_the_exact_bucket_at_every_edge() {
    for (halves, buckets) in [(120, 2048), (2, 300), (15, 500), (1, 1), (7200, 5000)] {
        check(TimeBucketFn::Sqrt, DType::I64, halves, buckets);
        check(TimeBucketFn::Sqrt, DType::F32, halves, buckets);
    }
}

#[test]
fn logarithms_take_the_exact_bucket_at_every_edge() {
    for (halves, buckets) in [(120, 24), (2, 100), (15, 20), (1, 3)] {
        check(TimeBucketFn::Log, DType::I64, halves, buckets);
        check(TimeBucketFn::Log, DType::F32, halves, buckets);
    }
}

#[test]
fn gaps_of_more_than_64_bits_are_the_longest_or_of_the_future() {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("samples"));
    let x = scope.input("x", DType::F32, &[rows.total.clone(), 1.into()]);
    let timestamps = scope.input("timestamps", DType::I64, std::slice::from_ref(&rows.total));
    let query = scope.input("query", DType::I64, std::slice::from_ref(&rows.batch));
    let [positions, times] = [("positions", 1), ("times", 8)]
        .map(|(name, count)| scope.parameter(name, DType::F32, &[count.into(), 1.into()]));
    let place = Positions {
        rows: &rows,
        seq_lengths: &rows.lengths,
        num_targets: None,
        interleave_targets: false,
        first: None,
    };
    let (bucket_fn, increments) = (TimeBucketFn::Sqrt, 60.0);
    let time = TimeBuckets { timestamps: &timestamps, query_time: Some(&query), bucket_fn, increments };
    let out = add_timestamp_positional_embeddings(&scope, &x, [&positions, &times], 0.0, &place, 0, &time);
    let graph = scope.finish(&[("out", out)]).unwrap();
    let stamps = [i64::MIN, i64::MIN + NOW, -1, 0, NOW, i64::MAX, i64::MAX, i64::MIN, 0, i64::MAX];
    let inputs: Tensors = [
        ("lengths".to_owned(), HostTensor::lengths(&[6, 4])),
        ("x".to_owned(), Noise::new(1, "x").floats(DType::F32, &[10, 1], 1.0)),
        ("timestamps".to_owned(), HostTensor::i64(vec![10], &stamps).unwrap()),
        ("query".to_owned(), HostTensor::i64(vec![2], &[NOW, i64::MIN]).unwrap()),
    ]
    .into();
    let ramp: Vec<f32> = (0..8u8).map(f32::from).collect();
    let parameters: Tensors = [
        ("positions".to_owned(), HostTensor::f32(vec![1, 1], &[0.0]).unwrap()),
        ("times".to_owned(), HostTensor::f32(vec![8, 1], &ramp).unwrap()),
    ]
    .into();
    let expected = [7.0, 7.0, 7.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(oracle(&graph, &inputs, &parameters).unwrap()["out"].to_f64(), expected);
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
        assert_eq!(run(&mut session, &inputs).unwrap()["out"].to_f64(), expected, "{kernel}");
    }
}
