//! Two models on one device from four threads, and many runs of random sizes.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_runtime::{Gpu, Inputs, Kernel, ModelOptions, Session};
use rewire_tests::backend::{Tensors, gpu, load, on};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::noise::Noise;
use std::time::{Duration, Instant};

const F32: DType = DType::F32;
/// Rows of a run, at most.
const ROWS: i64 = 300;

/// Two products with a norm between them; `wide` has other widths and one output more.
fn model(wide: bool) -> (Graph, Tensors) {
    let width = if wide { 20 } else { 7 };
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), width.into()]);
    let w = scope.parameter("w", F32, &[width.into(), width.into()]);
    let first = x.matmul(&w).normalize(1e-5);
    let second = first.matmul(&w).silu();
    let mut outputs = vec![("second", second)];
    if wide {
        outputs.push(("first", first));
    }
    let weight = Noise::new(3, "w").floats(F32, &[width, width], 0.4);
    (scope.finish(&outputs).unwrap(), Tensors::from([("w".to_owned(), weight)]))
}

fn x(wide: bool, rows: i64, seed: u64) -> HostTensor {
    Noise::new(seed, "x").floats(F32, &[rows as usize, if wide { 20 } else { 7 }], 1.0)
}

fn run(session: &mut Session, x: HostTensor) -> Results {
    let outputs = session.run(&Inputs::new().with("x", x)).unwrap();
    outputs.iter().map(|(name, _)| (name.to_owned(), outputs.get(name).unwrap().clone())).collect()
}

fn on_cpu() -> ModelOptions {
    ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() }
}

/// Runs both models from four threads until `seconds` are over, at least `runs` times each.
fn share(options: &ModelOptions, seconds: u64, runs: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let wide = thread % 2 == 0;
                let (graph, parameters) = model(wide);
                let mut session = load(&graph, &parameters, options.clone()).unwrap();
                let mut oracle = load(&graph, &parameters, on_cpu()).unwrap();
                let mut noise = Noise::new(thread, "rows");
                let mut run_once = |number| {
                    let x = x(wide, noise.below(0, ROWS), number);
                    let found = differences(&run(&mut session, x.clone()), &run(&mut oracle, x), Tolerance::SINGLE);
                    assert!(found.is_empty(), "thread {thread}, run {number}: {found:?}");
                };
                (0..runs).for_each(&mut run_once);
                (runs..).take_while(|_| Instant::now() < end).for_each(run_once);
            });
        }
    });
}

/// Runs of random sizes; what the session and the device hold after every tenth part.
fn held(options: ModelOptions, device: Option<&Gpu>, runs: usize) -> Vec<(u64, u64, u64)> {
    let (graph, parameters) = model(true);
    let mut session = load(&graph, &parameters, options).unwrap();
    let mut noise = Noise::new(9, "sizes");
    let mut held = vec![];
    // The largest comes first: what it needs is enough.
    run(&mut session, x(true, ROWS, 0));
    for number in 0..runs {
        run(&mut session, x(true, noise.below(0, ROWS), number as u64));
        if number % (runs / 10) == 0 {
            let allocated = device.map(|gpu| {
                gpu.wait().unwrap();
                gpu.device().generate_allocator_report().map_or(0, |report| report.total_allocated_bytes)
            });
            held.push((session.report().device_bytes, session.report().host_bytes, allocated.unwrap_or(0)));
        }
    }
    held
}

fn check_held(runs: usize) {
    let [first, .., last] = held(on_cpu(), None, runs)[..] else { panic!("too few") };
    assert_eq!(last, first, "on the CPU");
    let filter = std::env::var("REWIRE_TEST_ADAPTER").ok();
    let Ok(gpu) = Gpu::open(filter.as_deref()) else { return };
    let [_, first, .., last] = held(on(gpu.clone()), Some(&gpu), runs)[..] else { panic!("too few") };
    assert_eq!((last.0, last.1), (first.0, first.1), "{}", gpu.name());
    assert!(last.2 <= first.2, "{} bytes after {} on {}", last.2, first.2, gpu.name());
}

/// Bytes of this process in memory.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn four_threads_with_two_models_share_a_device() {
    share(&on_cpu(), 0, 30);
    if let Some(gpu) = gpu() {
        share(&on(gpu), 0, 30);
    }
}

#[test]
fn memory_is_flat_over_runs_of_random_sizes() {
    check_held(200);
}

#[test]
#[ignore = "takes minutes"]
#[cfg(target_os = "linux")]
fn memory_is_flat_over_ten_thousand_runs_of_random_sizes() {
    check_held(2_000);
    let before = resident_bytes();
    check_held(10_000);
    let after = resident_bytes();
    assert!(after < before + (16 << 20), "{before} bytes, then {after}");
}

/// `REWIRE_TEST_SECONDS` sets the duration; an hour by default.
#[test]
#[ignore = "takes an hour"]
#[cfg(target_os = "linux")]
fn four_threads_share_a_device_for_long() {
    let seconds = std::env::var("REWIRE_TEST_SECONDS").map_or(3600, |text| text.parse().unwrap());
    let options = gpu().map_or_else(on_cpu, on);
    share(&options, seconds / 10, 100);
    let before = resident_bytes();
    share(&options, seconds, 100);
    let after = resident_bytes();
    assert!(after < before + (16 << 20), "{before} bytes, then {after}");
}
