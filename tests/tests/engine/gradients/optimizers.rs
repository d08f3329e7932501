//! Steps of optimizers as states of a session, on every kernel, against the interpreter; and their number of kernels.

use rewire_graph::{DType, Dim, Graph, HostTensor, Scope};
use rewire_graph_rewrite::cost::kernels;
use rewire_graph_rewrite::optimize;
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, kernels as on_kernels, oracle, run, session};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use rewire_train::config::{ClippingType, Configured, DenseOptimizer, GradClipping, SparseOptimizer};
use rewire_train::{Moment, Optimizer};
use serde_json::json;
use std::collections::BTreeMap;

const F32: DType = DType::F32;
const SHAPES: [&[usize]; 4] = [&[25, 7], &[50], &[], &[3, 1, 129]];

/// Optimizers of all rules, with all that they keep.
fn optimizers() -> Vec<(String, Optimizer)> {
    let dense = [
        json!({ "sgd_optimizer": { "lr": 1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1 } }),
        json!({ "sgd_optimizer": { "lr": 1, "momentum": 0.9, "nesterov": true } }),
        json!({ "adagrad_optimizer": { "lr": 1, "initial_accumulator_value": 0.1 } }),
        json!({ "adam_optimizer": { "lr": 1, "weight_decay": 0.1 } }),
        json!({ "adamw_optimizer": { "lr": 1, "weight_decay": 0.1 } }),
        json!({ "adadelta_optimizer": { "lr": 1, "eps": 1e-3 } }),
        json!({ "rmsprop_optimizer": { "lr": 1, "alpha": 0.8, "momentum": 0.5, "centered": true, "eps": 1e-3 } }),
    ];
    let built = |config: serde_json::Value| {
        let optimizer: DenseOptimizer = serde_json::from_value(config.clone()).unwrap();
        (config.to_string(), optimizer.build().unwrap())
    };
    dense.map(built).into()
}

/// A state with its initial value.
struct State {
    name: String,
    begin: HostTensor,
}

/// A step of parameters of `SHAPES`, with their states.
fn step(optimizer: &Optimizer, clipping: GradClipping) -> (Graph, Vec<State>) {
    let scope = Scope::new();
    let mut states = vec![];
    let mut state = |name: String, shape: &[usize], initial: f32| {
        let begin = HostTensor::f32(shape, &vec![initial; shape.iter().product()]).unwrap();
        let tensor = scope.state(&name, F32, shape.iter().map(|&extent| extent.into()).collect::<Vec<Dim>>());
        states.push(State { name: name.clone(), begin });
        (name, tensor)
    };
    let rate = scope.input("rate", F32, [1]);
    let mut kept = |moments: Vec<Moment>, of: &str, shape: &[usize]| {
        let kept = moments.into_iter().map(|own| state(format!("{of}.{}", own.name), shape, own.initial));
        kept.unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let (names, shared) = kept(optimizer.shared(), "shared", &[1]);
    let advanced = optimizer.advance(&shared);
    names.iter().zip(&advanced).for_each(|(name, value)| scope.set_state(name, value));
    let gradients: Vec<_> = (0..)
        .zip(SHAPES)
        .map(|(at, shape)| {
            let shape: Vec<Dim> = shape.iter().map(|&extent| extent.into()).collect();
            scope.input(&format!("g{at}"), F32, shape)
        })
        .collect();
    for (at, (shape, gradient)) in SHAPES.into_iter().zip(clipping.apply(&gradients)).enumerate() {
        let (names, moments) = kept(optimizer.moments(), &format!("moment{at}"), shape);
        let parameter = Moment { name: "value", rows: false, initial: 0.5 };
        let (own, parameters) = kept(vec![parameter], &format!("w{at}"), shape);
        let updated = optimizer.update(&rate, &advanced, &parameters[0], &gradient, &moments);
        let values = updated.moments.into_iter().chain([updated.parameter]);
        names.iter().chain(&own).zip(values).for_each(|(name, value)| scope.set_state(name, &value));
    }
    (scope.finish(&[]).unwrap(), states)
}

fn inputs(turn: u64) -> Tensors {
    let mut inputs: Tensors = (0..)
        .zip(SHAPES)
        .map(|(at, shape)| (format!("g{at}"), Noise::new(turn, &format!("g{at}")).floats(F32, shape, 1.5)))
        .collect();
    inputs.insert("rate".to_owned(), HostTensor::vector(&[0.1 / (1.0 + turn as f32)]));
    inputs
}

/// Compares four steps on kernels.
fn hold(name: &str, (graph, states): &(Graph, Vec<State>), on: &[Kernel]) {
    let mut held: Tensors = states.iter().map(|state| (state.name.clone(), state.begin.clone())).collect();
    let mut expected = vec![];
    for turn in 0..4 {
        let all: Tensors = held.clone().into_iter().chain(inputs(turn)).collect();
        let after = oracle(graph, &all, &Tensors::new()).unwrap();
        held.extend(after.clone());
        expected.push(after);
    }
    for &kernel in on {
        let Some(mut session) = session(graph, &Tensors::new(), kernel).unwrap() else { continue };
        for state in states {
            session.set_state(&state.name, state.begin.clone()).unwrap();
        }
        for (turn, expected) in (0..).zip(&expected) {
            run(&mut session, &inputs(turn)).unwrap();
            let actual: BTreeMap<_, _> = session.states().unwrap().into_iter().collect();
            let found = differences(&actual, expected, Tolerance::SINGLE);
            assert!(found.is_empty(), "{name}, step {turn}, {kernel}: {found:?}");
        }
    }
}

#[test]
fn steps_are_those_of_the_interpreter() {
    for (number, (name, optimizer)) in optimizers().into_iter().enumerate() {
        for (more, clipping_type, max_gradient) in [(0, ClippingType::None, 1.0), (3, ClippingType::Norm, 2.0)] {
            let clipping = GradClipping { clipping_type, max_gradient, ..GradClipping::default() };
            hold(&name, &step(&optimizer, clipping), on_kernels(number + more));
        }
    }
}

#[test]
fn a_parameter_takes_a_kernel_or_two() {
    for (name, optimizer) in optimizers() {
        let (graph, _) = step(&optimizer, GradClipping::default());
        let (fused, _) = optimize(graph).unwrap();
        // A kernel has 8 bindings: the parameter and its moments before and after, the gradient, and the shared states.
        let (moments, shared) = (optimizer.moments().len(), optimizer.shared().len());
        let each = if 2 * (1 + moments) + 2 + shared <= 8 { 1 } else { 2 };
        let expected = SHAPES.len() * each + shared.min(1);
        assert_eq!(kernels(&fused).unwrap(), expected, "{name}\n{}", fused.text());
    }
}

#[test]
fn rows_of_tables_are_those_of_the_interpreter() {
    for name in ["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"] {
        let config =
            json!({ format!("{name}_optimizer"): { "lr": 1, "gradient_clipping": true, "max_gradient": 0.75 } });
        let optimizer: SparseOptimizer = serde_json::from_value(config).unwrap();
        let optimizer = optimizer.build().unwrap();
        let scope = Scope::new();
        let rows = scope.size("rows");
        let row = |kind: &str, moment: &Moment| {
            let shape = if moment.rows { vec![rows.clone()] } else { vec![rows.clone(), 50.into()] };
            scope.input(&format!("{kind}.{}", moment.name), F32, shape)
        };
        let element = |name| Moment { name, rows: false, initial: 0.0 };
        let (rate, shared) = (scope.input("rate", F32, [1]), optimizer.shared());
        let shared: Vec<_> = shared.iter().map(|own| scope.input(&format!("shared.{}", own.name), F32, [1])).collect();
        let moments = optimizer.moments();
        let before: Vec<_> = moments.iter().map(|own| row("moment", own)).collect();
        let [table, gradient] = ["w", "g"].map(|name| row("row", &element(name)));
        let updated = optimizer.update(&rate, &optimizer.advance(&shared), &table, &gradient, &before);
        let names: Vec<&str> = ["w"].into_iter().chain(moments.iter().map(|own| own.name)).collect();
        let values = [updated.parameter].into_iter().chain(updated.moments);
        let graph = scope.finish(&names.into_iter().zip(values).collect::<Vec<_>>()).unwrap();
        for rows in [0, 1, 37] {
            let mut inputs: Tensors = [("rate".to_owned(), HostTensor::vector(&[0.1f32]))].into();
            for own in optimizer.shared() {
                inputs.insert(format!("shared.{}", own.name), HostTensor::vector(&[0.25f32]));
            }
            for (kind, own) in
                moments.iter().map(|own| ("moment", *own)).chain(["w", "g"].map(|name| ("row", element(name))))
            {
                let shape = if own.rows { vec![rows] } else { vec![rows, 50] };
                let name = format!("{kind}.{}", own.name);
                let values: Vec<f64> = Noise::new(rows as u64, &name).floats(F32, &shape, 1.0).to_f64();
                // Sums of squares are at least 0.
                let values: Vec<f64> = values.into_iter().map(|x| if kind == "row" { x } else { x.abs() }).collect();
                inputs.insert(name, HostTensor::from_f64(F32, shape, &values).unwrap());
            }
            let expected = oracle(&graph, &inputs, &Tensors::new()).unwrap();
            for kernel in [Kernel::Cpu, Kernel::Wgpu] {
                let Some(mut session) = session(&graph, &Tensors::new(), kernel).unwrap() else { continue };
                let found = differences(&run(&mut session, &inputs).unwrap(), &expected, Tolerance::SINGLE);
                assert!(found.is_empty(), "{name}, {rows} rows, {kernel}: {found:?}");
            }
        }
    }
}
