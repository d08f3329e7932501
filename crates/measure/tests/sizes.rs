//! Invalid sizes of workloads are errors.
#![allow(clippy::unwrap_used)]

use rewire::Kernel;
use rewire_measure::{Bench, BenchError, BenchOptions, Lengths, Shape, Workload, operators};

type Change = fn(&mut Shape, usize);

const SIZES: [(&str, Change); 12] = [
    ("batch", |shape, size| shape.batch = size),
    ("heads", |shape, size| shape.heads = size),
    ("attn_dim", |shape, size| shape.attn_dim = size),
    ("hidden_dim", |shape, size| shape.hidden_dim = size),
    ("embedding_dim", |shape, size| shape.embedding_dim = size),
    ("layers", |shape, size| shape.layers = size),
    ("max_len", |shape, size| shape.max_len = size),
    ("m", |shape, size| shape.m = size),
    ("k", |shape, size| shape.k = size),
    ("rows", |shape, size| shape.rows = size),
    ("width", |shape, size| shape.width = size),
    ("table", |shape, size| shape.table = size),
];

#[test]
fn no_size_takes_what_there_is_not() {
    let small = Shape { batch: 4, max_len: 64, rows: 512, m: 512, table: 64, ..Shape::default() };
    for (op, _) in operators() {
        let read = Workload::operator(op, &small).unwrap().shape;
        for (name, change) in SIZES.into_iter().filter(|(name, _)| read.contains_key(*name)) {
            let with = |size: usize| {
                let mut shape = small.clone();
                change(&mut shape, size);
                Workload::operator(op, &shape).map(|_| ()).unwrap_err()
            };
            for size in [0, 1 << 31, 1 << 32, usize::MAX] {
                let error = with(size);
                assert!(matches!(&error, BenchError::Size { name: size, .. } if *size == name), "{op}: {error}");
            }
            // Kernels could count this many, but the data would exceed the available memory.
            with(i32::MAX as usize);
        }
    }
}

#[test]
fn rows_that_there_are_none_of_are_refused() {
    let refused = |shape: Shape, size: &str| {
        let found = Workload::operator("attention", &shape).map(|_| ()).unwrap_err();
        assert!(matches!(&found, BenchError::Size { name, .. } if *name == size), "{found}");
    };
    let small = || Shape { batch: 3, max_len: 40, ..Shape::default() };
    refused(Shape { len_dist: Lengths::NONE, ..small() }, "len_dist");
    refused(Shape { len_dist: Lengths::Share(0, 0), ..small() }, "len_dist");
    refused(Shape { len_dist: Lengths::Uniform(1, 41), ..small() }, "len_dist");
    refused(Shape { targets: Lengths::Uniform(0, 41), ..small() }, "targets");
    refused(Shape { context: 40, ..small() }, "context");
    refused(Shape { window: usize::MAX, ..small() }, "window");
}

#[test]
fn seconds_have_bounds() {
    for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        let options = BenchOptions { kernel: Kernel::Cpu, seconds, ..BenchOptions::default() };
        assert!(matches!(Bench::new(&options), Err(BenchError::Seconds(_))), "{seconds}");
    }
}
