//! States of a session from run to run, on every kernel, against the interpreter with its own earlier results as input.

use rewire::weights::{Weights, serialize};
use rewire_graph::{DType, Graph, GraphError, HostTensor, Scope, Tensor};
use rewire_graph_rewrite::plan::{Binding, Plan, Source};
use rewire_runtime::{Detail, Inputs, Kernel, Model, ModelOptions, RunError, RunValue, Session};
use rewire_tests::backend::{Tensors, options, oracle, plan, run};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use std::collections::BTreeMap;
use std::time::Duration;

const F32: DType = DType::F32;
/// Rows of the cache.
const ROWS: usize = 7;
const WIDTH: usize = 5;

/// The number of runs.
fn counter(scope: &Scope) -> Vec<(&'static str, Tensor)> {
    let count = scope.state("count", DType::I32, &[]);
    let next = &count + 1;
    scope.set_state("count", &next);
    vec![("before", count), ("after", next)]
}

/// A moving average of the rows of `x`, in a module.
fn average(scope: &Scope) -> Vec<(&'static str, Tensor)> {
    let x = scope.input("x", F32, &[scope.size("rows"), WIDTH.into()]);
    scope.module("norm", |norm| {
        let mean = norm.state("mean", F32, &[1.into(), WIDTH.into()]);
        let next = &(&mean * 0.9) + &(&x.sum(0) * 0.1);
        norm.set_state("mean", &next);
        vec![("y", &x - &mean)]
    })
}

/// Rows of a cache that are written one after the other, then again from the first; all of them are read.
fn cache(scope: &Scope) -> Vec<(&'static str, Tensor)> {
    let x = scope.input("x", F32, &[scope.size("rows"), WIDTH.into()]);
    let (at, rows) = (scope.state("at", DType::I32, &[]), scope.state("cache", F32, &[ROWS.into(), WIDTH.into()]));
    let index: Vec<f64> = (0..ROWS).map(|row| row as f64).collect();
    let index = scope.constant(HostTensor::from_f64(DType::I32, vec![ROWS, 1], &index).unwrap());
    let written = index.equal(&at).select(&x.sum(0), &rows);
    scope.set_state("cache", &written);
    let next = &at + 1;
    scope.set_state("at", &next.binary_scalar(rewire_graph::pointwise::BinaryOp::Mod, ROWS as i32));
    // Reads the old rows after the new ones are made.
    vec![("y", &x.matmul(&written.transpose(0, 1)).matmul(&rows) + 0.5)]
}

/// Two states that change places, one that only the app sets, and one that is set to a state.
fn exchange(scope: &Scope) -> Vec<(&'static str, Tensor)> {
    let x = scope.input("x", F32, &[scope.size("rows"), WIDTH.into()]);
    let [a, b, fixed, last] = ["a", "b", "fixed", "last"].map(|name| scope.state(name, F32, &[1.into(), WIDTH.into()]));
    scope.set_state("a", &b);
    scope.set_state("b", &(&(&a * 0.5) + &x.sum(0)));
    scope.set_state("last", &a);
    vec![("y", &(&x * &fixed) + &last)]
}

type Trace = fn(&Scope) -> Vec<(&'static str, Tensor)>;

const MODELS: &[(&str, Trace)] =
    &[("counter", counter), ("average", average), ("cache", cache), ("exchange", exchange)];

fn graph(trace: Trace) -> Graph {
    let scope = Scope::new();
    let outputs = trace(&scope);
    scope.finish(&outputs).unwrap()
}

fn inputs(rows: usize, seed: u64) -> Tensors {
    [("x".to_owned(), Noise::new(seed, "x").floats(F32, &[rows, WIDTH], 1.0))].into()
}

/// The plan, and the plan parsed from its file.
fn plans(graph: &Graph) -> [Plan; 2] {
    let plan = plan(graph).unwrap();
    let read = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(read, plan);
    [plan, read]
}

/// Sessions of the plans, on the CPU and on the adapter if there is one.
fn sessions(graph: &Graph) -> Vec<Session> {
    let mut all = vec![];
    for plan in plans(graph) {
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(options) = options(kernel) else { continue };
            all.push(Model::load(plan.clone(), (), options).unwrap().session());
        }
    }
    all
}

/// One run of the interpreter, which changes `held`.
fn interpret(graph: &Graph, held: &mut Tensors, given: &Tensors) -> BTreeMap<String, HostTensor> {
    let all: Tensors = held.iter().chain(given).map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    let mut results = oracle(graph, &all, &Tensors::new()).unwrap();
    for name in graph.states() {
        held.extend(results.remove(name).map(|tensor| (name.clone(), tensor)));
    }
    results
}

fn check(session: &Session, held: &Tensors) {
    let states = session.states().unwrap().into_iter().filter(|(name, _)| held.contains_key(name)).collect();
    let held: BTreeMap<String, HostTensor> = held.iter().map(|(name, held)| (name.clone(), held.clone())).collect();
    let found = differences(&states, &held, Tolerance::SINGLE);
    assert!(found.is_empty(), "{:?}: {found:?}", session.report());
}

#[test]
fn sessions_hold_what_the_interpreter_returns() {
    for (name, trace) in MODELS {
        let graph = graph(*trace);
        for mut session in sessions(&graph) {
            let mut held = Tensors::new();
            for (turn, rows) in [3, 1, 0, 12, 12, 2, 5, 3, 3, 1].into_iter().enumerate() {
                let given = inputs(rows, turn as u64);
                let expected = interpret(&graph, &mut held, &given);
                let actual = run(&mut session, &given).unwrap();
                assert_eq!(actual.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
                let found = differences(&actual, &expected, Tolerance::SINGLE);
                assert!(found.is_empty(), "{name}, run {turn}, {:?}: {found:?}", session.report());
                check(&session, &held);
            }
        }
    }
}

#[test]
fn sessions_of_a_model_hold_states_of_their_own() {
    for mut first in sessions(&graph(counter)) {
        let mut second = first.model().session();
        let count = |session: &Session| session.state("count").unwrap().to_i64();
        for _ in 0..3 {
            run(&mut first, &Tensors::new()).unwrap();
        }
        run(&mut second, &Tensors::new()).unwrap();
        assert_eq!((count(&first), count(&second)), (vec![3], vec![1]));
        first.reset_states();
        run(&mut first, &Tensors::new()).unwrap();
        assert_eq!((count(&first), count(&first.model().session())), (vec![1], vec![0]));
    }
}

#[test]
fn states_are_written_to_a_file_and_read_from_it() {
    let graph = graph(cache);
    for mut session in sessions(&graph) {
        (0..4).for_each(|turn| drop(run(&mut session, &inputs(2, turn)).unwrap()));
        let file = serialize(&session.states().unwrap(), &BTreeMap::new()).unwrap();
        let states = Weights::parse(file).unwrap().tensors().unwrap();
        let mut other = session.model().session();
        for (name, state) in states {
            other.set_state(&name, state).unwrap();
        }
        for turn in 4..9 {
            let given = inputs(3, turn);
            assert_eq!(run(&mut other, &given).unwrap(), run(&mut session, &given).unwrap());
            assert_eq!(other.states().unwrap(), session.states().unwrap());
        }
    }
}

#[test]
fn states_are_read_and_replaced_in_their_memory() {
    for mut session in sessions(&graph(cache)) {
        run(&mut session, &inputs(2, 1)).unwrap();
        let held = session.state("cache").unwrap();
        let tensor = match session.state_value("cache").unwrap() {
            RunValue::Device(tensor) => tensor,
            RunValue::Host(tensor) => {
                assert_eq!(tensor, held);
                continue;
            }
        };
        let content = Noise::new(7, "content").floats(F32, &[ROWS, WIDTH], 1.0);
        session.overwrite(&tensor, &[(0, RunValue::Host(content.clone()))]).unwrap();
        assert_eq!(session.state("cache").unwrap(), content);
        // Rows of the device and of the host, with a row between them that stays.
        let other = session.zeros(F32, &[2, WIDTH]).unwrap();
        let last = HostTensor::f32(vec![1, WIDTH], &[7.0; WIDTH]).unwrap();
        let parts = [(1, RunValue::Device(other)), (ROWS - 1, RunValue::Host(last))];
        session.overwrite(&tensor, &parts).unwrap();
        let mut expected = content.to_f32();
        expected[WIDTH..3 * WIDTH].fill(0.0);
        expected[(ROWS - 1) * WIDTH..].fill(7.0);
        assert_eq!(session.state("cache").unwrap().to_f32(), expected);
        let vector = session.zeros(F32, &[9]).unwrap();
        let contents = [(4, &[1.0f32; 5][..]), (0, &[2.0; 4])];
        let parts = contents.map(|(first, values)| (first, RunValue::Host(HostTensor::vector(values))));
        session.overwrite(&vector, &parts).unwrap();
        assert_eq!(session.read(&vector).unwrap().to_f32(), [2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let misplaced = [
            (&tensor, 0, vec![1]),
            (&tensor, ROWS, vec![1, WIDTH]),
            (&tensor, usize::MAX, vec![1, WIDTH]),
            (&vector, 2, vec![4]),
            (&vector, 0, vec![5]),
        ];
        for (to, first, shape) in misplaced {
            let part = RunValue::Host(HostTensor::zeros(F32, shape).unwrap());
            assert!(matches!(session.overwrite(to, &[(first, part)]), Err(RunError::InputPlace { .. })));
        }
    }
}

/// Outputs of a run, the first of which is complete before the last step.
fn sent(scope: &Scope) -> Vec<(&'static str, Tensor)> {
    let x = scope.input("x", F32, &[scope.size("rows"), WIDTH.into()]);
    let square = x.transpose(0, 1).matmul(&x).tanh();
    let late = x.matmul(&square).matmul(&square).tanh();
    vec![("late", late.matmul(&square)), ("early", x.matmul(&square).exp()), ("sum", late.sum(0)), ("x", x)]
}

#[test]
fn outputs_that_a_run_sends_arrive_one_by_one() {
    let mut plan = plan(&graph(sent)).unwrap();
    let writer = |plan: &Plan| {
        let early = plan.outputs.iter().find(|output| output.name == "early").map(|output| output.value);
        plan.steps.iter().position(|step| step.writes.iter().any(|id| Some(Binding::Buffer(*id)) == early)).unwrap()
    };
    let before = writer(&plan);
    plan.complete_early(|output| output == "early");
    assert!(writer(&plan) < before && before < plan.steps.len(), "{plan:?}");
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(options) = options(kernel) else { continue };
        let mut session = Model::load(plan.clone(), (), options).unwrap().session();
        // The first output is a download of its own.
        for rows in [100_000, 0, 3] {
            let given = inputs(rows, 5);
            let expected = run(&mut session, &given).unwrap();
            let mut wanted: Inputs = given.into_iter().collect();
            let names = ["late", "early", "x"];
            names.iter().for_each(|name| wanted.send(*name));
            if session.gpu().is_none() {
                assert!(session.run(&wanted).is_err() && session.read_each(|_, _| {}).is_err());
                continue;
            }
            // Results that nobody reads are dropped by the next run.
            session.run(&wanted).unwrap();
            let outputs = session.run(&wanted).unwrap();
            let mut read = vec![];
            session.read_each(|name, bytes| read.push((name.to_owned(), bytes.to_vec()))).unwrap();
            assert_eq!(read.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["early", "late", "x"]);
            for (name, bytes) in read {
                assert!(bytes == expected[&name].bytes() && outputs.get(&name).is_none(), "{name}");
            }
            assert_eq!(outputs.get("sum"), Some(&expected["sum"]));
        }
    }
}

#[test]
fn a_run_that_fails_changes_no_state() {
    for mut session in sessions(&graph(average)) {
        run(&mut session, &inputs(4, 1)).unwrap();
        let held = session.states().unwrap();
        let narrow = [("x".to_owned(), HostTensor::f32(vec![2, 3], &[1.0; 6]).unwrap())].into();
        assert!(run(&mut session, &narrow).is_err());
        assert_eq!(session.states().unwrap(), held);
        run(&mut session, &inputs(4, 2)).unwrap();
        assert_ne!(session.states().unwrap(), held);
    }
}

#[test]
fn measuring_kernels_changes_no_state() {
    for mut session in sessions(&graph(average)) {
        run(&mut session, &inputs(4, 1)).unwrap();
        let held = session.states().unwrap();
        let given: Inputs = inputs(4, 2).into_iter().collect();
        match session.refine(&given, Duration::ZERO) {
            Ok(_) | Err(RunError::NoTimes { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(session.states().unwrap(), held);
        session.run_timed(&given, Detail::Steps).unwrap();
        assert_ne!(session.states().unwrap(), held);
    }
}

#[test]
fn the_memory_of_states_does_not_grow() {
    for mut session in sessions(&graph(cache)) {
        let mut bytes = |runs: u64| {
            (0..runs).for_each(|turn| drop(run(&mut session, &inputs(3, turn)).unwrap()));
            let report = session.report();
            report.device_bytes + report.host_bytes
        };
        let early = bytes(5);
        assert_eq!(bytes(50), early);
    }
}

#[test]
fn states_that_do_not_fit_are_named() {
    for mut session in sessions(&graph(cache)) {
        let row = |width: usize| HostTensor::f32(vec![ROWS, width], &vec![1.0; ROWS * width]).unwrap();
        let shape = session.set_state("cache", row(4)).unwrap_err();
        assert_eq!(shape.to_string(), "input `cache`: expected shape [7, 5], got [7, 4]");
        let dtype = session.set_state("at", HostTensor::f32(vec![], &[1.0]).unwrap()).unwrap_err();
        assert_eq!(dtype.to_string(), "input `at`: expected i32, got f32");
        let name = session.set_state("cach", row(5)).unwrap_err();
        assert_eq!(name.to_string(), "state `cach`: it does not exist: the plan has cache, at");
        assert_eq!(session.state("cach").unwrap_err(), name);
        let mut given = inputs(2, 1);
        given.insert("cache".to_owned(), row(5));
        assert!(run(&mut session, &given).unwrap_err().contains("set it with `Session::set_state`"));
        assert!(run(&mut session, &inputs(2, 1)).is_ok());
    }
}

#[test]
fn what_was_on_a_lost_device_is_not_taken_for_zeros() {
    let Some(ModelOptions { gpu: Some(_), .. }) = options(Kernel::Wgpu) else { return };
    let gpu = rewire_runtime::Gpu::open(std::env::var("REWIRE_TEST_ADAPTER").ok().as_deref()).unwrap();
    let options = ModelOptions { kernel: Kernel::Auto, gpu: Some(gpu.clone()), ..ModelOptions::default() };
    let mut session = Model::load(plan(&graph(average)).unwrap(), (), options).unwrap().session();
    run(&mut session, &inputs(4, 1)).unwrap();
    let held = session.state("norm.mean").unwrap();
    gpu.device().destroy();
    let given: Inputs = inputs(4, 2).into_iter().collect();
    assert!(session.run(&given).is_err());
    let lost = RunError::StateLost { name: "norm.mean".into() };
    assert_eq!(session.run(&given).unwrap_err(), lost);
    assert_eq!(session.states().unwrap_err(), lost);
    session.set_state("norm.mean", held).unwrap();
    assert!(session.run(&given).is_ok());
    assert_eq!(session.report().adapter, None);
}

#[test]
fn states_that_were_not_on_a_device_yet_outlive_its_loss() {
    let Some(ModelOptions { gpu: Some(_), .. }) = options(Kernel::Wgpu) else { return };
    let given: Inputs = inputs(4, 1).into_iter().collect();
    for is_set in [false, true] {
        let gpu = rewire_runtime::Gpu::open(std::env::var("REWIRE_TEST_ADAPTER").ok().as_deref()).unwrap();
        let on = |kernel: Kernel, gpu: Option<rewire_runtime::Gpu>| {
            let options = ModelOptions { kernel, gpu, ..ModelOptions::default() };
            let mut session = Model::load(plan(&graph(average)).unwrap(), (), options).unwrap().session();
            if is_set {
                let mean = session.state("norm.mean").unwrap();
                let shape = mean.shape().to_vec();
                let values: Vec<f32> = (0..mean.len()).map(|n| n as f32 + 0.5).collect();
                session.set_state("norm.mean", HostTensor::f32(shape, &values).unwrap()).unwrap();
            }
            session
        };
        let (mut session, mut expected) = (on(Kernel::Auto, Some(gpu.clone())), on(Kernel::Cpu, None));
        assert!(session.report().adapter.is_some());
        gpu.device().destroy();
        session.run(&given).unwrap();
        expected.run(&given).unwrap();
        assert_eq!(session.report().adapter, None);
        assert_eq!(session.states().unwrap(), expected.states().unwrap());
    }
}

#[test]
fn graphs_with_wrong_states_are_refused() {
    let traced = |model: &dyn Fn(&Scope)| {
        let scope = Scope::new();
        model(&scope);
        scope.finish(&[]).unwrap_err()
    };
    let x = |scope: &Scope| scope.input("x", F32, &[3.into()]);
    let named = |error: GraphError| match error {
        GraphError::State { name, actual, .. } => (name, actual),
        other => panic!("{other}"),
    };
    let unknown = traced(&|scope| scope.module("m", |m| m.set_state("s", &x(scope))));
    assert_eq!(named(unknown), ("m.s".into(), "a name that is not".into()));
    let input = traced(&|scope| scope.set_state("x", &x(scope)));
    assert_eq!(named(input).0, "x");
    let twice = traced(&|scope| {
        let s = scope.state("s", F32, &[3.into()]);
        scope.set_state("s", &s);
        scope.set_state("s", &x(scope));
    });
    assert_eq!(named(twice), ("s".into(), "two values".into()));
    let wider = traced(&|scope| {
        scope.state("s", F32, &[4.into()]);
        scope.set_state("s", &x(scope));
    });
    assert_eq!(named(wider).0, "s");
    let sized = traced(&|scope| drop(scope.state("s", F32, &[scope.size("rows") * 2])));
    assert!(matches!(sized, GraphError::Type { .. }), "{sized}");
}

#[test]
fn plans_with_wrong_states_are_refused() {
    let plan = plan(&graph(average)).unwrap();
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        Model::load(changed, (), options(Kernel::Cpu).unwrap()).unwrap_err().to_string()
    };
    let after = plan.outputs.iter().position(|output| output.name == "norm.mean").unwrap();
    let state = plan.buffers.iter().position(|buffer| buffer.source == Source::State("norm.mean".into()));
    let state = state.unwrap();
    let said = refused(&|plan| plan.outputs[after].shape[0] = 2.into());
    assert!(said.contains("state `norm.mean` is set to a value of another type or shape"), "{said}");
    let said = refused(&|plan| plan.buffers[state].shape[0] = plan.buffers[0].shape[0].clone());
    assert!(said.contains("state `norm.mean`") || said.contains("shape"), "{said}");
    let said = refused(&|plan| plan.buffers.push(plan.buffers[state].clone()));
    assert!(said.contains("has the name of another input or state"), "{said}");
}

/// A table and a number for each of its rows, of which a run changes some in place.
fn table(scope: &Scope) -> Vec<(&'static str, Tensor)> {
    let at = scope.input("at", DType::U32, [scope.size("rows")]);
    let (table, moment) = (scope.state("table", F32, [ROWS, WIDTH]), scope.state("moment", F32, [ROWS]));
    let (rows, moments) = (table.gather(&at), moment.gather(&at));
    scope.set_state_rows("table", &at, &(&rows + 1.0));
    scope.set_state_rows("moment", &at, &(&moments + 10.0));
    vec![("y", rows)]
}

#[test]
fn rows_of_states_are_replaced_between_runs() {
    for mut session in sessions(&graph(table)) {
        let (mut held, mut moments) = (vec![0.0; ROWS * WIDTH], vec![0.0; ROWS]);
        for (turn, rows) in [&[6u32, 0, 1][..], &[], &[3], &[2, 3, 4, 5], &[0, 6]].into_iter().enumerate() {
            let values: Vec<f32> = (0..rows.len() * WIDTH).map(|place| (place * 3 + turn * 100) as f32).collect();
            let own: Vec<f32> = rows.iter().map(|row| *row as f32 + 0.5).collect();
            for (place, row) in rows.iter().map(|row| *row as usize).enumerate() {
                held[row * WIDTH..][..WIDTH].copy_from_slice(&values[place * WIDTH..][..WIDTH]);
                moments[row] = own[place];
            }
            session.set_state_rows("table", rows, &HostTensor::f32([rows.len(), WIDTH], &values).unwrap()).unwrap();
            session.set_state_rows("moment", rows, &HostTensor::vector(&own)).unwrap();
            let at = [turn as u32, 6];
            let given = Inputs::new().with("at", HostTensor::vector(&at));
            let read: Vec<f32> = at.iter().flat_map(|row| held[*row as usize * WIDTH..][..WIDTH].to_vec()).collect();
            assert_eq!(session.run(&given).unwrap().get("y").unwrap().to_f32(), read, "{:?}", session.report());
            for row in at.map(|row| row as usize) {
                held[row * WIDTH..][..WIDTH].iter_mut().for_each(|value| *value += 1.0);
                moments[row] += 10.0;
            }
            assert_eq!(session.state("table").unwrap().to_f32(), held);
            assert_eq!(session.state("moment").unwrap().to_f32(), moments);
            let alone = session.state_rows("table", &[6]).unwrap();
            assert_eq!((alone.shape(), alone.to_f32()), (&[1, WIDTH][..], held[6 * WIDTH..][..WIDTH].to_vec()));
        }
        let row = HostTensor::f32([1, WIDTH], &[0.0; WIDTH]).unwrap();
        assert!(matches!(session.set_state_rows("table", &[ROWS as u32], &row), Err(RunError::State { .. })));
        assert!(matches!(session.set_state_rows("table", &[0, 1], &row), Err(RunError::InputShape { .. })));
        assert!(matches!(session.set_state_rows("other", &[0], &row), Err(RunError::State { .. })));
    }
}
