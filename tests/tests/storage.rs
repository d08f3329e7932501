//! Plans that store floats in 16 bits: parameters and values between kernels, not inputs and outputs.

use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::emit::Target;
use rewire_runtime::{Kernel, SessionOptions};
use rewire_tests::backend::{Tensors, gpu, load_plan, on, oracle, plan, run};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::golden::{Golden, cases, hold, sample};
use rewire_tests::noise::Noise;

const TOLERANCE: f64 = 5e-3;

/// The types, and how far results may be off.
const STORED: [(DType, f64); 2] = [(DType::F16, TOLERANCE), (DType::BF16, 8.0 * TOLERANCE)];

fn check(golden: &Golden, options: &SessionOptions) -> Result<(), String> {
    let replay = golden.trace()?;
    let mut found = vec![];
    for (dtype, tolerance) in STORED {
        let mut plan = plan(&replay.graph)?;
        plan.store_floats_as(dtype);
        let mut session = load_plan(plan, &golden.parameters(&replay.graph), options.clone())?;
        let differences = golden.differences(&run(&mut session, &golden.inputs(&replay.graph))?, tolerance);
        found.extend(differences.into_iter().map(|difference| format!("{dtype}: {difference}")));
    }
    if found.is_empty() { Ok(()) } else { Err(found.join("\n  ")) }
}

#[test]
fn the_cpu_stores_16_bits() {
    let options = SessionOptions { kernel: Kernel::Cpu, ..SessionOptions::default() };
    hold(&cases(), |golden| check(golden, &options));
}

#[test]
fn the_gpu_stores_16_bits() {
    hold(&sample(), |golden| match gpu().filter(|gpu| gpu.target().f16) {
        Some(gpu) => check(golden, &on(gpu)),
        None => Ok(()),
    });
}

#[test]
fn the_gpu_packs_halves_without_the_feature() {
    hold(&sample(), |golden| match gpu() {
        Some(gpu) => check(golden, &on(gpu.restricted(&Target { f16: false, ..gpu.target().clone() }))),
        None => Ok(()),
    });
}

/// The bytes of device memory that three products in a row take in a storage type.
#[test]
fn halves_take_half_the_memory() {
    let Some(gpu) = gpu() else { return };
    let (rows, width) = (500, 128);
    let scope = Scope::new();
    let mut x = scope.input("ids", DType::U32, &[scope.size("rows")]);
    x = scope.parameter("table", DType::F32, &[2000.into(), width.into()]).gather(&x);
    for name in ["a", "b", "c"] {
        x = x.matmul(&scope.parameter(name, DType::F32, &[width.into(), width.into()])).softmax(1);
    }
    x = x.matmul(&scope.parameter("d", DType::F32, &[width.into(), 4.into()]));
    let graph = scope.finish(&[("last", x)]).unwrap();
    let mut noise = Noise::new(3, "memory");
    let mut parameters = Tensors::from([("table".to_owned(), noise.floats(DType::F32, &[2000, width], 1.0))]);
    parameters.insert("d".to_owned(), noise.floats(DType::F32, &[width, 4], 5.0));
    parameters.extend(["a", "b", "c"].map(|name| (name.to_owned(), noise.floats(DType::F32, &[width, width], 0.2))));
    let ids: Vec<u32> = (0..rows).map(|n| (n * 37) % 2000).collect();
    let inputs = Tensors::from([("ids".to_owned(), HostTensor::u32(vec![ids.len()], &ids).unwrap())]);
    let expected = oracle(&graph, &inputs, &parameters).unwrap();
    let bytes = |storage: DType| {
        let mut plan = plan(&graph).unwrap();
        plan.store_floats_as(storage);
        let mut session = load_plan(plan, &parameters, on(gpu.clone())).unwrap();
        let found =
            differences(&run(&mut session, &inputs).unwrap(), &expected, Tolerance { relative: TOLERANCE, floor: 1.0 });
        assert!(found.is_empty(), "{storage}: {found:?}");
        session.report().device_bytes as f64
    };
    let ratio = bytes(DType::F16) / bytes(DType::F32);
    assert!((0.48..0.53).contains(&ratio), "halves take {ratio} of the memory");
}
