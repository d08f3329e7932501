//! Sessions that run thousands of times use no more memory than at first: on the heap, on the device, in caches.

use rewire_benches::idle_gpu;
use rewire_measure::{Lengths, Shape, Workload};
use rewire_runtime::{Gpu, Inputs, Kernel, Model, ModelOptions, Outputs, Session};
use rewire_tests::backend::{gpu, plan};
use rewire_tests::golden::is_wanted_whole;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts the bytes of the heap that are in use.
struct Counting;

static IN_USE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: memory comes from the system's allocator and goes back to it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the pointer came from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Different sizes that alternate.
const SIZES: usize = 40;
/// Rounds over all sizes before any is measured.
const WARM_UP: usize = 4;
/// Bytes by which the heap may differ between rounds: libraries keep vectors of changing capacity.
const SLACK: isize = 1 << 16;

/// A layer of jagged attention, with samples and lengths that change.
fn workload(seed: usize) -> Workload {
    let shape = Shape {
        batch: 1 + seed % 7,
        heads: 2,
        attn_dim: 8,
        hidden_dim: 8,
        embedding_dim: 16,
        max_len: 64,
        len_dist: Lengths::Uniform(0, 1 + seed * 3 % 64),
        seed: seed as u64,
        ..Shape::default()
    };
    Workload::operator("stu-layer", &shape).unwrap()
}

fn load(gpu: Option<Gpu>) -> Session {
    let workload = workload(0);
    let kernel = if gpu.is_some() { Kernel::Wgpu } else { Kernel::Cpu };
    let options = ModelOptions { kernel, gpu, ..ModelOptions::default() };
    Model::load(plan(workload.graph().unwrap()).unwrap(), &workload.parameters, options).unwrap().session()
}

/// The inputs of all sizes. On a device every other run leaves its results there.
fn inputs(session: &Session) -> Vec<Inputs> {
    let names: Vec<String> = session.plan().outputs.iter().map(|output| output.name.clone()).collect();
    let of_size = |seed: usize| {
        let mut inputs: Inputs = workload(seed).inputs.into_iter().collect();
        if session.report().adapter.is_some() && seed % 2 == 1 {
            names.iter().for_each(|name| inputs.keep_on_device(name.clone()));
        }
        inputs
    };
    (0..SIZES).map(of_size).collect()
}

/// Memory in use: the heap, and what the session accounts for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    heap: isize,
    device: u64,
    host: u64,
}

impl Used {
    fn most(rounds: &[Self]) -> Self {
        rounds.iter().fold(Self { heap: isize::MIN, ..Self::default() }, |most, used| Self {
            heap: most.heap.max(used.heap),
            device: most.device.max(used.device),
            host: most.host.max(used.host),
        })
    }
}

/// Runs a session `runs` times, or for as long as `time` lasts.
fn assert_bounded(gpu: Option<Gpu>, runs: usize, time: Duration) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut session = load(gpu.clone());
    let inputs = inputs(&session);
    let most = runs.div_ceil(SIZES);
    let mut rounds: Vec<Used> = Vec::with_capacity(most);
    let mut held: VecDeque<Outputs> = VecDeque::with_capacity(4);
    let begun = Instant::now();
    while rounds.len() < most && (begun.elapsed() < time || rounds.len() < 2 * WARM_UP) {
        for inputs in &inputs {
            held.push_back(session.run(inputs).unwrap());
            if held.len() > 2 {
                held.pop_front();
            }
        }
        held.clear();
        if let Some(gpu) = &gpu {
            gpu.wait().unwrap();
        }
        let report = session.report();
        let (device, host) = (report.device_bytes, report.host_bytes);
        rounds.push(Used { heap: IN_USE.load(Ordering::Relaxed), device, host });
    }
    let (early, late) = rounds[WARM_UP..].split_at((rounds.len() - WARM_UP) / 2);
    let (early, late) = (Used::most(early), Used::most(late));
    let bounded = late.heap <= early.heap + SLACK && late.device <= early.device && late.host <= early.host;
    assert!(bounded, "{early:?}, then {late:?} after {} runs", rounds.len() * SIZES);
}

/// All runs where tests are wanted whole, enough for a hundred rounds over all sizes otherwise.
fn runs() -> usize {
    if is_wanted_whole() { 10_000 } else { 4_000 }
}

#[test]
fn thousands_of_runs_on_the_cpu() {
    assert_bounded(None, runs(), Duration::MAX);
}

#[test]
fn thousands_of_runs_of_a_device_that_computes_nothing() {
    assert_bounded(Some(idle_gpu()), runs(), Duration::MAX);
}

#[test]
fn runs_of_an_adapter() {
    let Some(gpu) = gpu() else { return };
    let time = Duration::from_secs(if is_wanted_whole() { 8 } else { 2 });
    assert_bounded(Some(gpu), runs(), time);
}
