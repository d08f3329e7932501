//! Matmuls of integers, whose factors are rounded to 8 bits by the kernels that compute them.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Computation, Plan, Precision};
use rewire_runtime::{Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, gpu, load_plan, on, oracle, plan, run};
use rewire_tests::noise::Noise;

/// The plan of a graph that multiplies integers.
fn rounded(graph: &Graph, precision: Precision) -> Plan {
    let mut plan = plan(graph).unwrap();
    plan.store(Precision { sums: Some(DType::I32), ..precision }, |_| None);
    plan
}

/// Every kernel: the CPU, and the GPU with and without matrices.
fn kernels() -> Vec<ModelOptions> {
    let cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let plain = |gpu: rewire_runtime::Gpu| on(gpu.restricted(&Target { matrix: 0, ..gpu.target().clone() }));
    [Some(cpu), gpu().map(on), gpu().map(plain)].into_iter().flatten().collect()
}

/// Rows rounded to whole multiples of their largest element divided by 127.
fn eight_bits(tensor: &HostTensor) -> Vec<f32> {
    let width = tensor.shape()[1];
    let round = |row: &[f32]| {
        let largest = row.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let (inverse, scale) = (127.0 / largest.max(1e-30), largest * (1.0 / 127.0));
        row.iter().map(|x| (x * inverse).round_ties_even() * scale).collect::<Vec<f32>>()
    };
    tensor.to_f32().chunks(width).flat_map(round).collect()
}

fn count(plan: &Plan, dtype: DType) -> usize {
    plan.buffers.iter().filter(|buffer| buffer.dtype == dtype).count()
}

#[test]
fn products_are_of_the_rounded_factors() {
    for (m, n, k) in [(1, 64, 32), (5, 65, 48), (37, 130, 512), (130, 256, 64), (0, 64, 32), (70, 512, 1040)] {
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, &[scope.size("rows"), k.into()]);
        let (weight, bias) = (scope.parameter("w", DType::F32, [n, k]), scope.parameter("b", DType::F32, [n]));
        let graph = scope.finish(&[("y", x.linear(&weight, Some(&bias)))]).unwrap();
        let mut noise = Noise::new(11, "quantized");
        let [x, w, b] = [[m, k], [n, k], [1, n]].map(|shape| noise.floats(DType::F32, &shape, 2.0));
        let same = |shape: &[usize], values: Vec<f32>| HostTensor::f32(shape.to_vec(), &values).unwrap();
        let bias = ("b".to_owned(), same(&[n], b.to_f32()));
        let coarse = Tensors::from([("w".to_owned(), same(&[n, k], eight_bits(&w))), bias.clone()]);
        let inputs = Tensors::from([("x".to_owned(), same(&[m, k], eight_bits(&x)))]);
        let expected = oracle(&graph, &inputs, &coarse).unwrap();
        let expected = expected.values().next().unwrap().to_f32();
        let parameters = Tensors::from([("w".to_owned(), w), bias]);
        let inputs = Tensors::from([("x".to_owned(), x)]);
        let plan = rounded(&graph, Precision::default());
        assert_eq!((count(&plan, DType::I8), plan.load.len(), plan.steps.len()), (2, 1, 2));
        let mut first: Option<Vec<f32>> = None;
        for options in kernels() {
            let kernel = options.kernel;
            let mut session = load_plan(plan.clone(), &parameters, options).unwrap();
            let found = run(&mut session, &inputs).unwrap().values().next().unwrap().to_f32();
            let largest = expected.iter().fold(1.0, |most: f32, y| most.max(y.abs()));
            let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f32::max);
            // An element halfway between two integers may be rounded to either on a GPU.
            assert!(off < 2e-3 && found.len() == expected.len(), "{m}x{n}x{k} on {kernel}: {off}");
            let all = first.get_or_insert_with(|| found.clone());
            let edges = found.iter().zip(&*all).filter(|(a, b)| (*a - *b).abs() / largest > 1e-5).count();
            assert!(edges * 10 <= found.len(), "{m}x{n}x{k} on {kernel}: {edges} of {} differ", found.len());
        }
    }
}

/// A norm writes integers and scales in place of its result if only matmuls read it, and beside it otherwise.
#[test]
fn the_kernel_that_holds_a_row_rounds_it() {
    for (is_read, expected) in [(false, 2), (true, 3)] {
        let (rows, width) = (19, 64);
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, &[scope.size("rows"), width.into()]);
        let normed = x.rms_norm(&scope.parameter("scale", DType::F32, [width]), 1e-5);
        let [a, b] = ["a", "b"].map(|name| scope.parameter(name, DType::F32, [width, 80]));
        let (left, right) = (normed.matmul(&a), normed.silu().matmul(&b));
        let mut outputs = vec![("y", &left + &right)];
        outputs.extend(is_read.then(|| ("exp", normed.exp())));
        let graph = scope.finish(&outputs).unwrap();
        let mut noise = Noise::new(7, "norm");
        let inputs = Tensors::from([("x".to_owned(), noise.floats(DType::F32, &[rows, width], 3.0))]);
        let mut parameters: Tensors =
            ["a", "b"].map(|name| (name.to_owned(), noise.floats(DType::F32, &[width, 80], 1.0))).into();
        parameters.insert("scale".to_owned(), noise.floats(DType::F32, &[width], 1.0));
        let exact = oracle(&graph, &inputs, &parameters).unwrap();
        let plan = rounded(&graph, Precision::default());
        assert!(count(&plan, DType::I8) >= expected, "{plan:?}");
        let is_integers = |step: &&rewire_graph_rewrite::plan::Step| {
            let nest = step.computation.nest();
            nest.is_some_and(|nest| nest.accumulations.last().is_some_and(|sum| sum.dtype == DType::I32))
        };
        assert!(plan.steps.iter().filter(is_integers).count() >= 1);
        assert!(plan.steps.iter().all(|step| !matches!(step.computation, Computation::Custom(_))));
        for options in kernels() {
            let kernel = options.kernel;
            for activations in [None, Some(DType::F16)] {
                let plan = rounded(&graph, Precision { activations, ..Precision::default() });
                let mut session = load_plan(plan, &parameters, options.clone()).unwrap();
                for (name, found) in run(&mut session, &inputs).unwrap() {
                    let (found, exact) = (found.to_f32(), exact[&name].to_f32());
                    let largest = exact.iter().fold(0.0, |most: f32, y| most.max(y.abs()));
                    let off = found.iter().zip(&exact).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f32::max);
                    assert!(off < 0.03, "{name} on {kernel}: {off}");
                }
            }
        }
    }
}

/// Storing a plan again, such as that of a package, changes nothing.
#[test]
fn plans_are_rounded_once() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 64.into()]);
    let weight = scope.parameter("w", DType::F32, [64, 64]);
    let graph = scope.finish(&[("y", x.matmul(&weight).silu())]).unwrap();
    let half = Precision { sums: None, ..Precision::all(DType::F16) };
    let plan = rounded(&graph, half);
    let mut again = plan.clone();
    again.store(Precision { sums: Some(DType::I32), ..half }, |_| None);
    assert_eq!(again, plan);
    assert_eq!(serde_json::from_str::<Plan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
}
