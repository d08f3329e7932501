//! Sizes past the limits of a binding, of the integers that a float holds, and of an index.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_graph_rewrite::device::Target;
use rewire_runtime::{Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, gpu, load, on, oracle, run};
use rewire_tests::build::build;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use rewire_tests::program::hold;
use std::cell::Cell;

#[test]
fn tensors_beyond_a_binding_compute_the_same() {
    let Some(gpu) = gpu() else { return };
    let bytes = 4 << 10;
    let small = gpu.restricted(&Target { binding_bytes: bytes, ..gpu.target().clone() });
    let (large, refused) = (Cell::new(0), Cell::new(0));
    hold(20, 9, |program| {
        let case = build(program)?;
        let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
        let mut session = match load(&case.graph, &case.parameters, on(small.clone())) {
            Ok(session) => session,
            Err(error) if error.contains("storage buffers") => return Ok(()),
            Err(error) => return Err(error),
        };
        let actual = match run(&mut session, &case.inputs) {
            Ok(actual) => actual,
            Err(error) if error.contains("max_storage_buffer_binding_size") => {
                refused.set(refused.get() + 1);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        large.set(large.get() + i32::from(actual.values().any(|tensor| tensor.bytes().len() as u64 > bytes)));
        let found = differences(&actual, &expected, Tolerance::SINGLE);
        if found.is_empty() { Ok(()) } else { Err(format!("{}\n{}", found.join("\n"), case.graph.text())) }
    });
    assert!(large.get() > 0 && refused.get() <= 10, "{} large, {} refused", large.get(), refused.get());
}

/// A lookup in a table, and a product with its rows.
fn lookup() -> (Graph, Tensors, Tensors) {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    let table = scope.parameter("table", DType::F32, &[7000.into(), 16.into()]);
    let weight = scope.parameter("weight", DType::F32, &[16.into(), 8.into()]);
    let graph = scope.finish(&[("rows", table.gather(&ids)), ("product", table.gather(&ids).matmul(&weight))]).unwrap();
    let mut noise = Noise::new(4, "lookup");
    let ids = noise.integers(DType::U32, &[300], 0, 7000);
    let parameters = Tensors::from([
        ("table".to_owned(), noise.floats(DType::F32, &[7000, 16], 1.0)),
        ("weight".to_owned(), noise.floats(DType::F32, &[16, 8], 1.0)),
    ]);
    (graph, Tensors::from([("ids".to_owned(), ids)]), parameters)
}

#[test]
fn a_table_beyond_a_binding_is_looked_up() {
    let Some(gpu) = gpu() else { return };
    let (graph, inputs, parameters) = lookup();
    for storage in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
        let rounded = |tensor: HostTensor| tensor.stored_as(storage).unwrap().stored_as(DType::F32).unwrap();
        let rounded = parameters.iter().map(|(name, tensor)| match name.as_str() {
            // A scale belongs to a column of the product.
            "weight" => (name.clone(), rounded(tensor.clone().transposed().unwrap()).transposed().unwrap()),
            _ => (name.clone(), rounded(tensor.clone())),
        });
        let rounded = rounded.collect();
        let expected = oracle(&graph, &inputs, &rounded).unwrap();
        for f16 in [false, true] {
            let table = storage.format().host_bytes(&[7000, 16]).unwrap() as u64;
            let target = Target { binding_bytes: table / 3, f16, ..gpu.target().clone() };
            let mut plan = rewire_tests::backend::plan(&graph).unwrap();
            plan.store_floats_as(storage);
            let options = on(gpu.restricted(&target));
            let mut session = rewire_tests::backend::load_plan(plan, &parameters, options).unwrap();
            let actual = run(&mut session, &inputs).unwrap();
            let relative = if storage == DType::F16 { 2e-3 } else { 2e-5 };
            let found = differences(&actual, &expected, Tolerance { relative, floor: 1.0 });
            assert!(found.is_empty(), "{storage}, f16 {f16}: {found:?}");
        }
    }
}

#[test]
fn a_table_beyond_all_bindings_is_refused() {
    let Some(gpu) = gpu() else { return };
    let (graph, _, parameters) = lookup();
    let target = Target { binding_bytes: 40_960, storage_buffers: 8, ..gpu.target().clone() };
    let error = load(&graph, &parameters, on(gpu.restricted(&target))).unwrap_err();
    assert!(error.contains("storage buffers"), "{error}");
    let options = ModelOptions { kernel: Kernel::Auto, ..on(gpu.restricted(&target)) };
    let session = load(&graph, &parameters, options).unwrap();
    assert!(session.report().cpu_steps > 0, "{:?}", session.report());
}

/// Positions, and a mark of every sample, for more rows than an `f32` counts.
fn many_rows(options: ModelOptions) {
    let scope = Scope::new();
    let batch = scope.size("batch");
    let rows = scope.lengths("lengths", &batch);
    let marks = scope.input("marks", DType::F32, &[batch, 1.into()]);
    let marked = marks.jagged_broadcast(&rows).reshape(std::slice::from_ref(&rows.total));
    let graph = scope.finish(&[("position", rows.position()), ("marked", &marked + 1.0)]).unwrap();
    let lengths = [5, (1 << 24) + 7, 0, 3];
    let inputs = Tensors::from([
        ("lengths".to_owned(), HostTensor::lengths(&lengths)),
        ("marks".to_owned(), HostTensor::f32(vec![4, 1], &[0.5, 1.5, 2.5, 3.5]).unwrap()),
    ]);
    let results = run(&mut load(&graph, &Tensors::new(), options).unwrap(), &inputs).unwrap();
    let (position, marked) = (results["position"].to_i64(), results["marked"].to_f32());
    let mut row = 0;
    for (sample, &length) in lengths.iter().enumerate() {
        let wrong = (0..length).find(|&n| {
            let at = row + n as usize;
            position[at] != n || marked[at] != sample as f32 + 1.5
        });
        assert_eq!(wrong, None, "row of sample {sample}");
        row += length as usize;
    }
    assert_eq!((position.len(), marked.len()), (row, row));
}

#[test]
fn rows_are_counted_beyond_the_integers_of_a_float_on_the_cpu() {
    many_rows(ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() });
}

#[test]
#[ignore = "half a gigabyte of device memory; `cargo xtask drivers` runs it"]
fn rows_are_counted_beyond_the_integers_of_a_float_on_the_gpu() {
    if let Some(gpu) = gpu() {
        many_rows(on(gpu));
    }
}

#[test]
fn elements_beyond_an_index_are_refused() {
    let Some(gpu) = gpu() else { return };
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let column = rows.position().cast(DType::F32).reshape(&[rows.total.clone(), 1.into()]);
    let wide = &column + &scope.parameter("row", DType::F32, &[8.into()]);
    let graph = scope.finish(&[("y", wide)]).unwrap();
    let parameters = Tensors::from([("row".to_owned(), Noise::new(1, "row").floats(DType::F32, &[8], 1.0))]);
    let mut session = load(&graph, &parameters, on(gpu)).unwrap();
    let mut run =
        |lengths: &[i64]| run(&mut session, &Tensors::from([("lengths".to_owned(), HostTensor::lengths(lengths))]));
    let error = run(&[1 << 28, 1 << 28]).unwrap_err();
    assert!(error.contains("32-bit index"), "{error}");
    for lengths in [[1 << 31, 0], [1 << 30, 1 << 31], [i64::MAX, 1]] {
        let error = run(&lengths).unwrap_err();
        assert!(error.starts_with("run: "), "{error}");
    }
    assert_eq!(run(&[2, 1]).unwrap()["y"].shape(), [3, 8]);
}
