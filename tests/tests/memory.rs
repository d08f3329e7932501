//! Memory of results that stay on the device.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_runtime::{DeviceTensor, Gpu, Inputs, Kernel, Outputs, RunValue, Session, wgpu};
use rewire_tests::backend::{Tensors, load, on, session};

const WIDTH: usize = 8;

/// `first = x w`, which is also an output of another name, and `second = first w`.
fn products() -> (Graph, Tensors) {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), WIDTH.into()]);
    let w = scope.parameter("w", DType::F32, &[WIDTH.into(), WIDTH.into()]);
    let first = x.matmul(&w);
    let second = first.matmul(&w);
    let graph = scope.finish(&[("first", first.clone()), ("again", first), ("second", second)]).unwrap();
    (graph, Tensors::from([("w".to_owned(), weight())]))
}

fn weight() -> HostTensor {
    let values: Vec<f32> = (0..WIDTH * WIDTH).map(|n| (n * 5 % 3) as f32).collect();
    HostTensor::f32(vec![WIDTH, WIDTH], &values).unwrap()
}

fn x(rows: usize, seed: usize) -> HostTensor {
    let values: Vec<f32> = (0..rows * WIDTH).map(|n| ((n * 7 + seed * 13) % 32) as f32).collect();
    HostTensor::f32(vec![rows, WIDTH], &values).unwrap()
}

/// The product with the weight; all numbers are small integers.
fn times_weight(x: &[f32]) -> Vec<f32> {
    let w = weight().to_f32();
    let dot = |row: &[f32], column: usize| row.iter().enumerate().map(|(k, x)| x * w[k * WIDTH + column]).sum();
    x.chunks(WIDTH).flat_map(|row| (0..WIDTH).map(move |column| (row, column))).map(|(row, c)| dot(row, c)).collect()
}

/// Expected values of `first` and `second`.
fn expected(rows: usize, seed: usize) -> [Vec<f32>; 2] {
    let first = times_weight(&x(rows, seed).to_f32());
    let second = times_weight(&first);
    [first, second]
}

fn inputs(rows: usize, seed: usize, kept: &[&str]) -> Inputs {
    let mut inputs = Inputs::new().with("x", x(rows, seed));
    kept.iter().for_each(|name| inputs.keep_on_device(*name));
    inputs
}

fn device<'a>(outputs: &'a Outputs, name: &str) -> &'a DeviceTensor {
    match outputs.value(name) {
        Some(RunValue::Device(tensor)) => tensor,
        other => panic!("{name} is not on the device: {other:?}"),
    }
}

fn read(session: &Session, tensor: &DeviceTensor) -> Vec<f32> {
    pollster::block_on(session.read_async(tensor)).unwrap().to_f32()
}

fn on_device() -> Option<Session> {
    let (graph, parameters) = products();
    session(&graph, &parameters, Kernel::Wgpu).unwrap()
}

#[test]
fn a_tensor_that_is_held_keeps_its_values() {
    let Some(mut session) = on_device() else { return };
    let sizes = [5, 5, 9, 3, 300, 5, 5];
    let mut held = Vec::new();
    for (seed, rows) in sizes.into_iter().enumerate() {
        let outputs = session.run(&inputs(rows, seed, &["first", "second"])).unwrap();
        if seed == 3 {
            session.trim();
        }
        held.push(["first", "second"].map(|name| device(&outputs, name).clone()));
    }
    for (seed, (rows, tensors)) in sizes.into_iter().zip(&held).enumerate() {
        let values = tensors.each_ref().map(|tensor| read(&session, tensor));
        assert_eq!(values, expected(rows, seed), "run {seed}");
    }
}

#[test]
fn the_memory_of_a_dropped_tensor_serves_again() {
    let Some(mut session) = on_device() else { return };
    let mut run = |rows| {
        let outputs = session.run(&inputs(rows, rows, &["second"])).unwrap();
        let buffer = device(&outputs, "second").buffer().clone();
        drop(outputs);
        (buffer, session.report().device_bytes)
    };
    let (first, bytes) = run(1000);
    // A smaller one fits as well, unless most of the memory would be waste.
    for rows in [1000, 990, 600, 1000] {
        assert_eq!(run(rows), (first.clone(), bytes), "{rows} rows");
    }
    assert_ne!(run(10).0, first);
    assert_eq!(run(1000).0, first);
    session.trim();
    assert_eq!(session.report().device_bytes, (WIDTH * WIDTH * 4) as u64);
}

#[test]
fn results_that_alternate_take_two_buffers() {
    let Some(mut session) = on_device() else { return };
    let mut seen: Vec<wgpu::Buffer> = Vec::new();
    let mut before: Option<(DeviceTensor, usize)> = None;
    for seed in 0..20 {
        let outputs = session.run(&inputs(100, seed, &["second"])).unwrap();
        let tensor = device(&outputs, "second").clone();
        if !seen.contains(tensor.buffer()) {
            seen.push(tensor.buffer().clone());
        }
        if let Some((before, seed)) = before.replace((tensor, seed)) {
            assert_eq!(read(&session, &before), expected(100, seed)[1]);
        }
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_result_is_read_later_in_the_run() {
    let Some(mut session) = on_device() else { return };
    for (seed, rows) in [7, 0, 50, 7].into_iter().enumerate() {
        let outputs = session.run(&inputs(rows, seed, &["first"])).unwrap();
        let [first, second] = expected(rows, seed);
        assert_eq!(read(&session, device(&outputs, "first")), first);
        assert_eq!(outputs.get("second").unwrap().to_f32(), second);
    }
}

#[test]
fn one_value_has_two_names() {
    let Some(mut session) = on_device() else { return };
    let [first, second] = expected(6, 1);
    let outputs = session.run(&inputs(6, 1, &["again"])).unwrap();
    assert_eq!(outputs.get("first").unwrap().to_f32(), first);
    assert_eq!(outputs.get("second").unwrap().to_f32(), second);
    assert_eq!(read(&session, device(&outputs, "again")), first);

    let outputs = session.run(&inputs(6, 1, &["again", "first"])).unwrap();
    let again = device(&outputs, "again").clone();
    drop(outputs);
    session.run(&inputs(6, 2, &["again", "first", "second"])).unwrap();
    assert_eq!(read(&session, &again), first);
}

#[test]
fn results_become_inputs_and_pass_through() {
    let scope = Scope::new();
    let x_of_run = scope.input("x", DType::F32, &[scope.size("rows"), WIDTH.into()]);
    let w = scope.parameter("w", DType::F32, &[WIDTH.into(), WIDTH.into()]);
    let graph = scope.finish(&[("next", x_of_run.matmul(&w)), ("same", x_of_run)]).unwrap();
    let Some(mut session) = session(&graph, &products().1, Kernel::Wgpu).unwrap() else { return };
    let mut values = x(4, 3).to_f32();
    let mut run_inputs = inputs(4, 3, &["next", "same"]);
    // Integers below 2^24 stay exact for three products.
    for _ in 0..3 {
        let outputs = session.run(&run_inputs).unwrap();
        assert_eq!(read(&session, device(&outputs, "same")), values);
        values = times_weight(&values);
        assert_eq!(read(&session, device(&outputs, "next")), values);
        run_inputs.insert_device("x", device(&outputs, "next").clone());
    }
}

/// A device that no other test allocates on.
fn own_gpu() -> Option<Gpu> {
    let filter = std::env::var("REWIRE_TEST_ADAPTER").ok();
    Gpu::open(filter.as_deref()).ok()
}

#[test]
fn runs_do_not_allocate_anew() {
    let Some(gpu) = own_gpu() else { return };
    let (graph, parameters) = products();
    let mut session = load(&graph, &parameters, on(gpu.clone())).unwrap();
    let mut allocated = |rows| {
        session.run(&inputs(rows, rows, &["first", "second"])).unwrap();
        gpu.wait().unwrap();
        gpu.device().generate_allocator_report().map(|report| report.total_allocated_bytes)
    };
    let mut after = [0, 0];
    for round in 0..20 {
        for rows in [3, 500, 40, 0, 501, 77] {
            after[round.min(1)] = allocated(rows).unwrap_or(0).max(after[round.min(1)]);
        }
    }
    assert!(after[1] <= after[0], "{after:?}");
}
