//! Memory that a run on the CPU asks for and does not get is an error, and the next run is right.

use rewire::weights::{Weights, WeightsError, serialize};
use rewire_graph::{DType, Graph, HostTensor, Scope, StoredTypeError, TensorSizeError};
use rewire_runtime::{Inputs, Kernel, ModelOptions, RunError, Session, ThreadPool, ThreadPoolOptions};
use rewire_tests::backend::{Tensors, load, run};
use rewire_tests::compare::Results;
use rewire_tests::noise::Noise;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes from which on memory may be refused. Lists that grow with the number of tasks are smaller.
const LARGE: usize = 1 << 16;

/// Refuses one request for large memory, or those past a ceiling.
struct Refusing;

/// Large requests that are granted before one is refused.
static GRANTED: AtomicIsize = AtomicIsize::new(isize::MAX);

/// Bytes that the process holds.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Bytes that it may hold after a large request.
static CEILING: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: memory comes from the system allocator and returns to it; null means that none is available.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        let is_refused = layout.size() >= LARGE
            && (live > CEILING.load(Ordering::Relaxed) || GRANTED.fetch_sub(1, Ordering::Relaxed) == 0);
        if is_refused {
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static REFUSING: Refusing = Refusing;

/// Held by a test that refuses memory: it is refused to the whole process.
static REFUSED: Mutex<()> = Mutex::new(());

const F32: DType = DType::F32;
const WIDTH: usize = 60;
const LENGTHS: [i64; 3] = [700, 0, 1100];
const ROWS: usize = 1800;

/// Steps of every family, with rows that are padded and rows that are not, and a product of a single row.
fn graph() -> (Graph, Tensors) {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("samples"));
    let x = scope.input("x", F32, &[rows.total.clone(), WIDTH.into()]);
    let weight = |name: &str, columns: usize| scope.parameter(name, F32, &[WIDTH.into(), columns.into()]);
    let wide = x.matmul(&weight("wide", 3 * WIDTH)).normalize(1e-5);
    let heads = x.reshape(&[rows.total.clone(), 2.into(), (WIDTH / 2).into()]);
    let causal = rows.row_index(&rows, 2).ge(&rows.key_index(&rows, 2));
    let weights = causal.select(&heads.scores(&heads, &rows, &rows).silu(), &scope.scalar(F32, 0.0));
    let attended = weights.weighted_sum(&heads, &rows, &rows).reshape(&[rows.total.clone(), WIDTH.into()]);
    let narrow = attended.matmul(&weight("narrow", 25)).cast(DType::F16);
    let row = scope.parameter("row", F32, &[1.into(), 9_000.into()]);
    let single = row.matmul(&scope.parameter("long", F32, &[9_000.into(), 3.into()]));
    let outputs = [("wide", wide), ("attended", attended), ("narrow", narrow), ("single", single)];
    let floats = |(name, shape): (&str, [usize; 2])| (name.to_owned(), Noise::new(5, name).floats(F32, &shape, 0.3));
    let shapes = [("wide", [WIDTH, 3 * WIDTH]), ("narrow", [WIDTH, 25]), ("row", [1, 9_000]), ("long", [9_000, 3])];
    (scope.finish(&outputs).unwrap(), shapes.map(floats).into())
}

/// A session, inputs and what a run computes.
fn loaded() -> (Session, Tensors, Results) {
    let (graph, parameters) = graph();
    let inputs = Tensors::from([
        ("lengths".to_owned(), HostTensor::lengths(&LENGTHS)),
        ("x".to_owned(), Noise::new(6, "x").floats(F32, &[ROWS, WIDTH], 1.0)),
    ]);
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let mut session: Session = load(&graph, &parameters, options).unwrap();
    let expected = run(&mut session, &inputs).unwrap();
    (session, inputs, expected)
}

fn given(inputs: &Tensors) -> Inputs {
    inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect()
}

fn is_shortage(error: &RunError) -> bool {
    matches!(error, RunError::Cpu { .. }) && error.to_string().contains("no memory for")
}

#[test]
fn memory_that_is_refused_is_an_error_and_the_next_run_is_right() {
    let _refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut session, inputs, expected) = loaded();
    let given = given(&inputs);
    let mut refused = 0;
    for granted in 0.. {
        session.trim();
        GRANTED.store(granted, Ordering::Relaxed);
        let result = session.run(&given);
        if GRANTED.swap(isize::MAX, Ordering::Relaxed) >= 0 {
            assert!(result.is_ok());
            break;
        }
        let error = result.map(|_| ()).unwrap_err();
        assert!(is_shortage(&error), "{error}");
        refused += 1;
        assert!(run(&mut session, &inputs).unwrap() == expected, "after request {granted}");
    }
    assert!(refused > 8, "{refused} requests");
}

#[test]
fn a_new_thread_below_a_ceiling_of_memory_ends_with_an_error_and_the_next_run_is_right() {
    let _refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut session, inputs, expected) = loaded();
    let given = given(&inputs);
    let alone = ThreadPool::new(ThreadPoolOptions { threads: Some(1), ..ThreadPoolOptions::default() }).unwrap();
    let mut refused = 0;
    for room in (0..).step_by(LARGE) {
        session.trim();
        CEILING.store(LIVE.load(Ordering::Relaxed) + room, Ordering::Relaxed);
        let result = std::thread::scope(|scope| scope.spawn(|| alone.install(|| session.run(&given))).join().unwrap());
        CEILING.store(usize::MAX, Ordering::Relaxed);
        let Err(error) = result else { break };
        assert!(is_shortage(&error), "{error}");
        refused += 1;
        assert!(run(&mut session, &inputs).unwrap() == expected, "with {room} bytes");
    }
    assert!(refused > 8, "{refused} ceilings");
}

#[test]
fn a_tensor_that_finds_no_memory_in_another_type_is_an_error() {
    let _refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let table = Noise::new(7, "table").floats(F32, &[5_000, 64], 1.0);
    for dtype in [DType::F16, DType::Rows8, DType::Rows4] {
        GRANTED.store(0, Ordering::Relaxed);
        let refused = table.clone().stored_as(dtype);
        let granted = GRANTED.swap(isize::MAX, Ordering::Relaxed);
        let error = refused.unwrap_err();
        assert!(matches!(error, StoredTypeError::Size(TensorSizeError::Memory { .. })), "{error}");
        assert_eq!(granted, -1, "one large request");
        assert_eq!(table.clone().stored_as(dtype).unwrap().dtype(), dtype);
    }
}

#[test]
fn a_tensor_that_finds_no_memory_to_be_transposed_or_copied_is_an_error() {
    let _refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let table = Noise::new(7, "table").floats(F32, &[2, 3_000, 7], 1.0);
    let rows = table.clone().stored_as(DType::Rows8).unwrap();
    for (tensor, requests) in [(&table, 1), (&rows, 2)] {
        for granted in 0..requests {
            GRANTED.store(granted, Ordering::Relaxed);
            let refused = tensor.clone().transposed();
            let left = GRANTED.swap(isize::MAX, Ordering::Relaxed);
            assert!(matches!(refused, Err(TensorSizeError::Memory { .. })), "{refused:?}");
            assert_eq!(left, -1, "{requests} large requests");
        }
        assert_eq!(tensor.clone().transposed().unwrap().shape(), [2, 7, 3_000]);
    }
    let file = serialize(&BTreeMap::from([("table".to_owned(), table.clone())]), &BTreeMap::new()).unwrap();
    let weights = Weights::parse(&*file).unwrap();
    GRANTED.store(0, Ordering::Relaxed);
    let refused = weights.get("table");
    GRANTED.store(isize::MAX, Ordering::Relaxed);
    assert!(matches!(&refused, Err(WeightsError::Tensor { name, .. }) if name == "table"), "{refused:?}");
    assert_eq!(weights.get("table").unwrap(), Some(table));
}
