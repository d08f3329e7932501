//! States with rows that a run sets in place, on every kernel, against the interpreter with its own earlier results as
//! input.

use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor};
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::optimize;
use rewire_graph_rewrite::plan::{Binding, BufferId, Computation, Plan, PlanOutput, Source};
use rewire_runtime::{Gpu, Inputs, Kernel, Model, ModelOptions, RunError, Session};
use rewire_tests::backend::{Tensors, options, oracle, plan, run};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use std::collections::BTreeMap;
use std::time::Duration;

const F32: DType = DType::F32;
const F16_TOLERANCE: Tolerance = Tolerance { relative: 4e-3, floor: 1.0 };

/// A table with two moments, one a row, that a step changes in the rows that are looked up.
#[derive(Clone, Copy)]
struct Table {
    rows: usize,
    width: usize,
    dtype: DType,
    /// Of ids.
    index: DType,
}

impl Table {
    fn trace(self, scope: &Scope) -> Vec<(&'static str, Tensor)> {
        let ids = scope.input("ids", self.index, [scope.size("ids")]);
        let g = scope.input("g", F32, (ids.dim(0), self.width));
        let x = scope.input("x", F32, (scope.size("n"), self.width));
        scope.module("table", |scope| {
            let table = scope.state("weight", self.dtype, (self.rows, self.width));
            let (first, second) =
                (scope.state("first", F32, (self.rows, self.width)), scope.state("second", F32, (self.rows,)));
            let m = first.gather(&ids) * 0.75 + &g * 0.25;
            let v = second.gather(&ids) * 0.5 + g.square().sum(1).reshape([g.dim(0)]) * 0.5;
            let scale = v.sqrt() + 0.5;
            let stepped = table.gather(&ids).cast(F32) - &m / scale.reshape((g.dim(0), 1)) * 0.5;
            scope.set_state_rows("weight", &ids, &stepped.cast(self.dtype));
            scope.set_state_rows("first", &ids, &m);
            scope.set_state_rows("second", &ids, &v);
            // Reads all of the states, before and after the rows are computed, without feeding them.
            let all = table.cast(F32);
            let scores = x.matmul(&all.transpose(0, 1));
            let mixed = scores.softmax(1).matmul(&(&all + &first));
            vec![("scores", scores), ("mixed", mixed + stepped.sum(0)), ("sums", second.sum(0))]
        })
    }

    fn graph(self) -> Graph {
        let scope = Scope::new();
        let outputs = self.trace(&scope);
        scope.finish(&outputs).unwrap()
    }

    /// Inputs with `count` ids, all different.
    fn inputs(self, count: usize, seed: u64) -> Tensors {
        let mut noise = Noise::new(seed, "ids");
        let mut ids: Vec<i64> = (0..self.rows as i64).collect();
        for place in (1..ids.len()).rev() {
            ids.swap(place, noise.below(0, place as i64 + 1) as usize);
        }
        let ids = match self.index {
            DType::I64 => HostTensor::i64(vec![count], &ids[..count]).unwrap(),
            _ => HostTensor::new([count], &ids[..count].iter().map(|&id| id as i32).collect::<Vec<i32>>()).unwrap(),
        };
        let mut floats = |shape: [usize; 2]| noise.floats(F32, &shape, 1.0);
        let (g, x) = (floats([count, self.width]), floats([3, self.width]));
        [("ids".to_owned(), ids), ("g".to_owned(), g), ("x".to_owned(), x)].into()
    }
}

const TABLES: [Table; 4] = [
    Table { rows: 37, width: 25, dtype: F32, index: DType::I32 },
    Table { rows: 64, width: 8, dtype: DType::F16, index: DType::I64 },
    Table { rows: 1, width: 3, dtype: F32, index: DType::I64 },
    Table { rows: 19, width: 50, dtype: DType::F16, index: DType::I32 },
];

fn sessions(graph: &Graph) -> Vec<Session> {
    let plan = plan(graph).unwrap();
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    let loaded = |kernel| Some(Model::load(read.clone(), (), options(kernel)?).unwrap().session());
    [Kernel::Cpu, Kernel::Wgpu].into_iter().filter_map(loaded).collect()
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

#[test]
fn rows_are_set_as_the_interpreter_does() {
    for (number, table) in TABLES.into_iter().enumerate() {
        let graph = table.graph();
        let tolerance = if table.dtype == F32 { Tolerance::SINGLE } else { F16_TOLERANCE };
        for mut session in sessions(&graph) {
            let mut held = Tensors::new();
            let mut noise = Noise::new(number as u64, "counts");
            for turn in 0..8 {
                let count = [table.rows, 0, 1][turn % 3].min(noise.below(0, 99) as usize + table.rows * (turn % 2));
                let given = table.inputs(count, turn as u64);
                let expected = interpret(&graph, &mut held, &given);
                let actual = run(&mut session, &given).unwrap();
                assert_eq!(actual.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
                let found = differences(&actual, &expected, tolerance);
                assert!(found.is_empty(), "table {number}, run {turn}, {:?}: {found:?}", session.report());
                let expected = held.iter().map(|(name, held)| (name.clone(), held.clone())).collect();
                let found = differences(&session.states().unwrap(), &expected, tolerance);
                assert!(found.is_empty(), "table {number}, run {turn}, {:?}: {found:?}", session.report());
            }
        }
    }
}

#[test]
fn a_kernel_sets_rows_of_several_states_and_nothing_has_the_size_of_a_table() {
    let table = TABLES[0];
    let plan = plan(&table.graph()).unwrap();
    let writers: Vec<_> = plan.steps.iter().filter(|step| step.writes.iter().any(|id| plan.is_state(*id))).collect();
    let mut written: Vec<usize> = writers.iter().map(|step| step.writes.len()).collect();
    written.sort_unstable();
    assert_eq!(written, [1, 2], "the moment a row is apart");
    let copies = plan.buffers.iter().filter(|buffer| buffer.shape.first() == Some(&table.rows.into()));
    let own = |source: &Source| matches!(source, Source::State(_));
    assert!(copies.clone().count() == 3 && copies.clone().all(|buffer| own(&buffer.source)));
    let set: Vec<&str> = plan.states_in_place().map(|(name, _)| name).collect();
    assert!(set.len() == 3 && set.contains(&"table.second"), "{set:?}");
    let first = plan.steps.iter().position(|step| writers.iter().any(|writer| **writer == *step)).unwrap();
    assert_eq!(plan.steps.len() - first, writers.len(), "they come last");
}

/// Rows of a cache, computed by the kernel that sets them.
fn cache() -> Graph {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::I32, [scope.size("ids")]);
    let x = scope.input("x", F32, (ids.dim(0), 6));
    let cache = scope.state("cache", F32, [9, 6]);
    scope.set_state_rows("cache", &ids, &(x.silu() * 2.0));
    scope.finish(&[("y", cache.sum(0))]).unwrap()
}

#[test]
fn a_kernel_that_reads_no_table_computes_the_rows_that_it_sets() {
    let plan = plan(&cache()).unwrap();
    let writer = plan.steps.last().unwrap();
    assert!(plan.is_state(writer.writes[0]) && writer.reads.len() == 2, "{}", writer.name);
    assert!(plan.buffers.iter().all(|buffer| buffer.source != Source::Step || buffer.shape[0] == 1.into()));
}

fn cached(ids: &[i32]) -> Tensors {
    let x = Noise::new(7, "x").floats(F32, &[ids.len(), 6], 1.0);
    [("ids".to_owned(), HostTensor::new([ids.len()], ids).unwrap()), ("x".to_owned(), x)].into()
}

#[test]
fn an_index_outside_is_an_error_or_sets_the_nearest_row() {
    let graph = cache();
    for session in sessions(&graph) {
        let mut session = session;
        let error = run(&mut session, &cached(&[3, 9])).unwrap_err();
        assert!(error.contains("ids"), "{error}");
        assert_eq!(session.state("cache").unwrap().to_f32(), [0.0; 54]);
    }
    let options = [Kernel::Cpu, Kernel::Wgpu].into_iter().filter_map(options);
    for options in options {
        let options = ModelOptions { clamp_ids: true, ..options };
        let mut session = Model::load(plan(&graph).unwrap(), (), options).unwrap().session();
        let mut near = Model::load(plan(&graph).unwrap(), (), session.model().options().clone()).unwrap().session();
        run(&mut session, &cached(&[-5, 4, 12])).unwrap();
        run(&mut near, &cached(&[0, 4, 8])).unwrap();
        assert_eq!(session.state("cache").unwrap(), near.state("cache").unwrap());
        assert_ne!(near.state("cache").unwrap().to_f32()[..6], [0.0; 6]);
    }
}

#[test]
fn states_are_read_and_set_between_runs() {
    let table = TABLES[0];
    for mut session in sessions(&table.graph()) {
        (0..3).for_each(|turn| drop(run(&mut session, &table.inputs(5, turn)).unwrap()));
        // A copy that the app has does not change when the session runs.
        let held = session.states().unwrap();
        let copy: Vec<Vec<f64>> = held.values().map(HostTensor::to_f64).collect();
        let mut other = session.model().session();
        held.iter().for_each(|(name, tensor)| other.set_state(name, tensor.clone()).unwrap());
        for turn in 3..6 {
            let given = table.inputs(7, turn);
            assert_eq!(run(&mut other, &given).unwrap(), run(&mut session, &given).unwrap());
            assert_eq!(other.states().unwrap(), session.states().unwrap());
        }
        assert_eq!(held.values().map(HostTensor::to_f64).collect::<Vec<_>>(), copy);
        assert_ne!(session.states().unwrap(), held);
        other.reset_states();
        assert!(other.state("table.weight").unwrap().to_f32().iter().all(|&x| x == 0.0));
    }
}

#[test]
fn a_run_that_fails_and_measuring_change_no_rows() {
    let table = TABLES[0];
    for mut session in sessions(&table.graph()) {
        run(&mut session, &table.inputs(9, 1)).unwrap();
        let held = session.states().unwrap();
        let mut wrong = table.inputs(4, 2);
        wrong.remove("x");
        assert!(run(&mut session, &wrong).is_err());
        assert_eq!(session.states().unwrap(), held);
        let given: Inputs = table.inputs(9, 2).into_iter().collect();
        match session.refine(&given, Duration::ZERO) {
            Ok(_) | Err(RunError::NoTimes { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(session.states().unwrap(), held);
        run(&mut session, &table.inputs(9, 2)).unwrap();
        assert_ne!(session.states().unwrap(), held);
    }
}

#[test]
fn runs_without_results_on_the_host_follow_one_another() {
    let graph = cache();
    for mut session in sessions(&graph).into_iter().filter(|session| session.report().adapter.is_some()) {
        let mut held = Tensors::new();
        for turn in 0..40 {
            let given = cached(&[turn % 9, (turn + 4) % 9]);
            interpret(&graph, &mut held, &given);
            let mut inputs: Inputs = given.into_iter().collect();
            inputs.keep_on_device("y");
            session.run(&inputs).unwrap();
        }
        let found = differences(&session.states().unwrap(), &held.into_iter().collect(), Tolerance::SINGLE);
        assert!(found.is_empty(), "{found:?}");
    }
}

/// Outputs of a model with a state.
type Results<'a> = &'a dyn Fn(&Scope, &Tensor) -> Vec<(&'static str, Tensor)>;

#[test]
fn wrong_rows_are_refused() {
    let traced = |index: DType, rows: [usize; 2], state: &str| {
        let scope = Scope::new();
        scope.state("s", F32, [4, 5]);
        let index = scope.input("i", index, [3]);
        scope.set_state_rows(state, &index, &scope.input("rows", F32, rows));
        scope.finish(&[]).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(traced(DType::I32, [3, 5], "s"), Ok(()));
    let said =
        |result: Result<(), String>, part: &str| assert!(result.as_ref().unwrap_err().contains(part), "{result:?}");
    said(traced(F32, [3, 5], "s"), "`index` must be a device tensor of integers");
    said(traced(DType::I32, [3, 4], "s"), "`rows` must be f32[3, 5]");
    said(traced(DType::I32, [2, 5], "s"), "`rows` must be f32[3, 5]");
    said(traced(DType::I32, [3, 5], "t"), "state `t`");
    let lowered = |model: Results| {
        let scope = Scope::new();
        let table = scope.state("s", F32, [4, 5]);
        let (index, rows) = (scope.input("i", DType::I32, [3]), scope.input("rows", F32, [3, 5]));
        scope.set_state_rows("s", &index, &rows);
        let outputs = model(&scope, &table);
        lower(&optimize(scope.finish(&outputs).unwrap()).unwrap().0).map(drop).map_err(|error| error.to_string())
    };
    said(lowered(&|_, table| vec![("old", table.clone())]), "state `s` is set in place");
    let second = |scope: &Scope, table: &Tensor| {
        scope.state("t", F32, [4, 5]);
        scope.set_state("t", table);
        vec![]
    };
    said(lowered(&second), "state `s` is set in place");
    assert_eq!(lowered(&|_, table| vec![("old", table + 1.0)]), Ok(()));
}

#[test]
fn plans_that_set_rows_wrongly_are_refused() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::I32, [3]);
    let [x, weight] = [scope.input("x", F32, [9, 6]), scope.parameter("weight", F32, [9, 6])];
    let cache = scope.state("cache", F32, [9, 6]);
    let y = (&cache.gather(&ids) + 1.0).sum(0);
    scope.set_state_rows("cache", &ids, &x.gather(&ids).silu());
    let plan = plan(&scope.finish(&[("y", y), ("z", x.sum(0) + weight.sum(0))]).unwrap()).unwrap();
    let find = |source: &Source| BufferId(plan.buffers.iter().position(|own| own.source == *source).unwrap() as u32);
    let state = find(&Source::State("cache".into()));
    let writer = plan.steps.iter().position(|step| step.writes == [state]).unwrap();
    let load = |plan: Plan| {
        let weight = HostTensor::f32(vec![9, 6], &[1.0; 54]).unwrap();
        Model::load(plan, [("weight", weight)], options(Kernel::Cpu).unwrap()).map(drop)
    };
    assert!(load(plan.clone()).is_ok());
    let refused = |part: &str, change: &dyn Fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        let said = load(changed).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    };
    refused("after a step has set it", &|plan| plan.steps[..=writer].rotate_right(1));
    refused("after a step has set it", &|plan| plan.steps.push(plan.steps[writer].clone()));
    refused("is set when the plan is loaded", &|plan| plan.load.push(plan.steps.remove(writer)));
    refused("is set in place", &|plan| plan.outputs.retain(|output| output.name != "cache"));
    refused("is set in place", &|plan| {
        let result = plan.outputs.iter().find(|output| output.name == "cache").unwrap().clone();
        plan.outputs.push(PlanOutput { name: "old".into(), ..result });
    });
    for source in [Source::Input("x".into()), Source::Parameter("weight".into())] {
        let other = find(&source);
        refused("which it must not write", &|plan| plan.steps[writer].writes = vec![other]);
    }
    refused("after a step has set it", &|plan| {
        let step = &mut plan.steps[writer];
        let Computation::Nest(kernel) = &mut step.computation else { panic!("it sets rows") };
        step.reads.push(Binding::Buffer(state));
        kernel.edit(|nest| nest.body.operands.push(nest.body.operands[0].clone())).unwrap();
    });
}

/// A state of as many rows as the app gives it, that a run sets and sums rows of.
fn open() -> Graph {
    let scope = Scope::new();
    let rows = scope.state("rows", DType::F16, [scope.size("room"), 6.into()]);
    let more = scope.state("more", F32, [scope.size("room"), 3.into()]);
    let [index, read] = ["index", "read"].map(|name| scope.input(name, DType::U32, [scope.size(name)]));
    let values = scope.input("values", F32, (index.dim(0), 6));
    scope.set_state_rows("rows", &index, &values.cast(DType::F16));
    scope.set_state_rows("more", &index, &values.slice(1, 2, 3));
    let found = rows.gather(&read).cast(F32).slice(1, 0, 3) + more.gather(&read);
    scope.finish(&[("found", found)]).unwrap()
}

fn room(session: &mut Session, index: &[u32], read: &[u32], seed: u64) -> Result<Vec<f32>, String> {
    let values = Noise::new(seed, "values").floats(F32, &[index.len(), 6], 1.0);
    let ids = |ids: &[u32]| HostTensor::u32(vec![ids.len()], ids).unwrap();
    let given =
        [("index".to_owned(), ids(index)), ("read".to_owned(), ids(read)), ("values".to_owned(), values)].into();
    Ok(run(session, &given)?["found"].to_f32())
}

#[test]
fn states_are_reserved_where_the_device_was_lost_before() {
    let Some(ModelOptions { gpu: Some(_), .. }) = options(Kernel::Wgpu) else { return };
    let gpu = Gpu::open(std::env::var("REWIRE_TEST_ADAPTER").ok().as_deref()).unwrap();
    let options = ModelOptions { kernel: Kernel::Auto, gpu: Some(gpu.clone()), ..ModelOptions::default() };
    let model = Model::load(plan(&open()).unwrap(), (), options).unwrap();
    let (mut session, mut later) = (model.session(), model.session());
    later.reserve_states(8).unwrap();
    gpu.device().destroy();
    session.reserve_states(40).unwrap();
    assert_eq!(session.report().adapter, None);
    assert_eq!(session.state("more").unwrap().shape(), [40, 3]);
    room(&mut session, &[3], &[], 1).unwrap();
    // Those on the device are lost, and are not zeros.
    assert!(later.state("more").is_err());
}

#[test]
fn rows_of_states_go_to_the_host_and_come_back() {
    for mut session in sessions(&open()) {
        assert_eq!(room(&mut session, &[], &[0], 0).unwrap(), [0.0; 3], "one row of zeros until there are more");
        session.reserve_states(40).unwrap();
        session.reserve_states(8).unwrap();
        assert_eq!(session.state("more").unwrap().shape(), [40, 3]);
        assert_eq!(session.state_row_bytes(), 8 * 2 + 4 * 4);
        room(&mut session, &[3, 4, 5, 20], &[], 1).unwrap();
        let expected = room(&mut session, &[], &[3, 4, 5, 20], 0).unwrap();
        assert!(expected.iter().all(|value| *value != 0.0));
        let spilled = session.spill_rows(&[3..6, 20..21]).unwrap();
        assert_eq!((spilled.rows(), spilled.bytes()), (4, 4 * 32));
        // Later writes do not affect the spilled rows.
        room(&mut session, &[3, 4, 5, 20], &[], 2).unwrap();
        assert_ne!(room(&mut session, &[], &[3, 4, 5, 20], 0).unwrap(), expected);
        session.restore_rows(&[38..40, 0..1, 7..8], spilled).unwrap();
        assert_eq!(room(&mut session, &[], &[38, 39, 0, 7], 0).unwrap(), expected);
        let error = session.spill_rows(std::slice::from_ref(&(39..41))).unwrap_err().to_string();
        assert!(error.contains("it has 40 rows, and not those of 39..41"), "{error}");
        let spilled = session.spill_rows(std::slice::from_ref(&(1..3))).unwrap();
        let error = session.restore_rows(std::slice::from_ref(&(1..2)), spilled).unwrap_err().to_string();
        assert!(error.contains("2 rows were kept, and 1 are to be restored"), "{error}");
        assert!(session.set_state("more", HostTensor::zeros(F32, vec![0, 3]).unwrap()).is_ok());
        let error = room(&mut session, &[], &[0], 0).unwrap_err();
        assert!(error.contains("of at least one row") || error.contains("expected"), "{error}");
    }
}
