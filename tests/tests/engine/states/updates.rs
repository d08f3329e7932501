//! Parameters that are replaced in a model that runs.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{Gpu, Inputs, Kernel, Model, ModelOptions, RuntimeError};
use rewire_tests::backend::{Tensors, options, oracle, plan, run};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::{Tolerance, differences};
use std::sync::atomic::{AtomicBool, Ordering};

const F32: DType = DType::F32;
const SIZES: &[(&str, usize)] = &[("rows", 9)];

/// A linear layer with a batch norm that becomes part of it, a norm with small parameters, one of odd width, and a parameter
/// that is an output itself.
fn graph() -> Graph {
    let scope = Scope::new();
    let parameter = |name: &str, shape: &[usize]| {
        scope.parameter(name, F32, &shape.iter().map(|&extent| extent.into()).collect::<Vec<_>>())
    };
    let x = scope.input("x", F32, &[scope.size("rows"), 7.into()]);
    let h = x.linear(&parameter("weight", &[25, 7]), None);
    let [mean, var] = ["bn.mean", "bn.var"].map(|name| parameter(name, &[25]));
    let h = &(&h - &mean) / &(&var + 1e-3).sqrt();
    let h = &(&h.layer_norm(&parameter("ln.weight", &[25]), &parameter("ln.bias", &[25]), 1e-5) * 1.5) + 0.25;
    let given = parameter("given", &[3]);
    scope.finish(&[("y", h.silu()), ("given", given)]).unwrap()
}

fn cases() -> [GraphCase; 2] {
    let [first, mut second] = [11, 12].map(|seed| GraphCase::random(graph(), SIZES, seed));
    second.inputs = first.inputs.clone();
    [first, second]
}

fn kernels() -> impl Iterator<Item = (Kernel, ModelOptions)> {
    [Kernel::Cpu, Kernel::Wgpu].into_iter().filter_map(|kernel| Some((kernel, options(kernel)?)))
}

fn load(plan: &Plan, parameters: &Tensors, options: ModelOptions) -> Model {
    Model::load(plan.clone(), parameters, options).unwrap()
}

#[test]
fn each_parameter_is_replaced_and_what_follows_from_it() {
    let [first, second] = cases();
    let plan = plan(&first.graph).unwrap();
    assert!(!plan.load.is_empty());
    for (kernel, options) in kernels() {
        let model = load(&plan, &first.parameters, options);
        let mut session = model.session();
        let mut parameters = first.parameters.clone();
        let mut names: Vec<&String> = second.parameters.keys().collect();
        names.sort();
        for name in names {
            let bytes = (model.report().device_bytes, model.report().host_bytes);
            model.update([(name, second.parameters[name].clone())]).unwrap();
            assert_eq!((model.report().device_bytes, model.report().host_bytes), bytes);
            parameters.insert(name.clone(), second.parameters[name].clone());
            let expected = oracle(&first.graph, &first.inputs, &parameters).unwrap();
            for session in [&mut session, &mut model.session()] {
                let found = differences(&run(session, &first.inputs).unwrap(), &expected, Tolerance::SINGLE);
                assert!(found.is_empty(), "{kernel}, `{name}`: {found:?}");
            }
        }
        let fresh = run(
            &mut load(&plan, &second.parameters, rewire_tests::backend::options(kernel).unwrap()).session(),
            &first.inputs,
        );
        assert_eq!(run(&mut session, &first.inputs).unwrap(), fresh.unwrap());
    }
}

#[test]
fn a_parameter_that_does_not_fit_changes_nothing() {
    let [first, second] = cases();
    for (_, options) in kernels() {
        let model = load(&plan(&first.graph).unwrap(), &first.parameters, options);
        let mut session = model.session();
        let before = run(&mut session, &first.inputs).unwrap();
        let good = || ("weight".to_owned(), second.parameters["weight"].clone());
        let refused = |name: &str, tensor: HostTensor| model.update([good(), (name.to_owned(), tensor)]).unwrap_err();
        let name = refused("bn.means", second.parameters["bn.mean"].clone());
        assert_eq!(name.to_string(), "there is no parameter `bn.means`: did you mean `bn.mean`?");
        let shape = refused("ln.bias", HostTensor::f32(vec![24], &[0.0; 24]).unwrap());
        assert!(matches!(shape, RuntimeError::ParameterShape { .. }), "{shape}");
        let dtype = refused("ln.bias", HostTensor::i64(vec![25], &[0; 25]).unwrap());
        assert!(matches!(dtype, RuntimeError::ParameterType { .. }), "{dtype}");
        let value = refused("ln.bias", HostTensor::f32(vec![25], &[f32::NAN; 25]).unwrap());
        assert!(matches!(value, RuntimeError::ParameterValue { element: 0, .. }), "{value}");
        assert_eq!(run(&mut session, &first.inputs).unwrap(), before);
    }
}

/// `y = x * a + b`, where both are the same number everywhere.
fn affine() -> Plan {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 40.into()]);
    let [a, b] = ["a", "b"].map(|name| scope.parameter(name, F32, &[40.into()]));
    plan(&scope.finish(&[("y", &(&x * &a) + &b)]).unwrap()).unwrap()
}

fn number(value: usize) -> HostTensor {
    HostTensor::f32(vec![40], &[value as f32; 40]).unwrap()
}

#[test]
fn a_run_beside_an_update_reads_all_of_the_old_or_all_of_the_new() {
    for (kernel, options) in kernels() {
        let model = Model::load(affine(), |_: &str| Some(number(0)), options).unwrap();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let runs = || {
                let mut session = model.session();
                let x = Inputs::new().with("x", HostTensor::f32(vec![50, 40], &[2.0; 2000]).unwrap());
                let mut latest = 0.0;
                while !ends.load(Ordering::Relaxed) {
                    let y = session.run(&x).unwrap().get("y").unwrap().to_f32();
                    assert!(y.iter().all(|value| *value == y[0]), "{kernel}: {y:?}");
                    assert!(y[0] >= latest && y[0] % 3.0 == 0.0, "{kernel}: {} after {latest}", y[0]);
                    latest = y[0];
                }
            };
            let threads = [scope.spawn(runs), scope.spawn(runs)];
            for value in 1..60 {
                model.update([("a", number(value)), ("b", number(value))]).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            ends.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

#[test]
fn new_parameters_outlive_a_device() {
    let Some(_) = options(Kernel::Wgpu) else { return };
    let gpu = Gpu::open(std::env::var("REWIRE_TEST_ADAPTER").ok().as_deref()).unwrap();
    let options = ModelOptions { kernel: Kernel::Auto, gpu: Some(gpu.clone()), ..ModelOptions::default() };
    let model = Model::load(affine(), |_: &str| Some(number(1)), options).unwrap();
    let mut session = model.session();
    let mut y = || {
        let x = HostTensor::f32(vec![1, 40], &[2.0; 40]).unwrap();
        session.run(&Inputs::new().with("x", x)).unwrap().get("y").unwrap().to_f32()
    };
    assert_eq!(y(), [3.0; 40]);
    model.update([("a", number(5))]).unwrap();
    gpu.device().destroy();
    assert_eq!(y(), [11.0; 40]);
    assert_eq!(model.report().adapter, None);
    model.update([("b", number(7))]).unwrap();
    assert_eq!(y(), [17.0; 40]);
}
