//! Host inputs that do not match their declarations: every kernel and the interpreter report the same error.

use rewire_graph::{DType, Graph, HostTensor, Ragged, Scope, Tensor, interpret};
use rewire_runtime::{Inputs, Kernel, Model, ModelOptions, RunValue, Session};
use rewire_tests::backend::{Tensors, gpu, options, plan, session};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::golden::{Golden, cases, hold, sample};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;

/// The kernels available here.
fn kernels() -> Vec<Kernel> {
    let mut kernels = vec![Kernel::Cpu];
    kernels.extend(gpu().map(|_| Kernel::Wgpu));
    kernels
}

/// The result of a run, or its error.
fn run(session: &mut Session, inputs: &Tensors) -> Result<Results, String> {
    let inputs: Inputs = inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    let host = |(name, value)| match value {
        RunValue::Host(tensor) => (name, tensor),
        RunValue::Device(_) => unreachable!("outputs stay on the host"),
    };
    session.run(&inputs).map(|outputs| outputs.into_iter().map(host).collect()).map_err(|error| error.to_string())
}

/// The error of a run, which is the same for every kernel and the interpreter; `None` if they compute the same results.
fn said(
    graph: &Graph,
    sessions: &mut [Session],
    inputs: &Tensors,
    parameters: &Tensors,
    relative: f64,
) -> Result<Option<String>, String> {
    let expected = interpret(graph, inputs, parameters).map_err(|error| error.to_string());
    for session in sessions {
        let kernel = session.report().kernel;
        match (run(session, inputs), &expected) {
            (Ok(results), Ok(expected)) => {
                let found = differences(&results, expected, Tolerance { relative, floor: 1e-30 });
                if !found.is_empty() {
                    return Err(format!("{kernel}: {found:?}"));
                }
            }
            (Err(error), Err(expected)) if error == *expected => {}
            (other, expected) => {
                let short = |result: Result<usize, &String>| format!("{result:?}");
                let (other, expected) =
                    (short(other.as_ref().map(|r| r.len())), short(expected.as_ref().map(|r| r.len())));
                return Err(format!("{kernel} reports {other}, the interpreter {expected}"));
            }
        }
    }
    Ok(expected.err())
}

/// The error of a model's run on all backends.
fn error(model: impl Fn(&Scope) -> Tensor, inputs: &[(&str, HostTensor)]) -> String {
    let scope = Scope::new();
    let y = model(&scope);
    let graph = scope.finish(&[("y", y)]).unwrap();
    let none = Tensors::new();
    let mut sessions: Vec<Session> =
        kernels().into_iter().map(|kernel| session(&graph, &none, kernel).unwrap().unwrap()).collect();
    let inputs: Tensors = inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
    said(&graph, &mut sessions, &inputs, &none, 1e-5).unwrap().unwrap_or_else(|| "nothing".to_owned())
}

fn rows(name: &str, count: usize) -> (&str, HostTensor) {
    (name, Noise::new(3, name).floats(F32, &[count, 4], 1.0))
}

fn lengths<'a>(name: &'a str, values: &[i64]) -> (&'a str, HostTensor) {
    (name, HostTensor::lengths(values))
}

/// Rows with their own size.
fn input(scope: &Scope, name: &str) -> Tensor {
    scope.input(name, F32, &[scope.size(name), 4.into()])
}

#[test]
fn offsets_begin_at_0_ascend_and_end_at_the_rows() {
    let sum = |scope: &Scope| input(scope, "x").jagged_sum(&scope.offsets("offsets"));
    let said = |offsets: &[i64]| error(sum, &[lengths("offsets", offsets), rows("x", 5)]);
    assert_eq!(said(&[0, 2, 5]), "nothing");
    assert_eq!(said(&[5, 10]), "input `offsets`: expected 0, where offsets begin, got 5 at element 0");
    assert_eq!(said(&[0, 10]), "input `offsets`: expected 5, the rows that the offsets divide, got 10 at element 1");
    assert_eq!(said(&[0, 2]), "input `offsets`: expected 5, the rows that the offsets divide, got 2 at element 1");
    assert_eq!(said(&[0, 3, 2, 5]), "input `offsets`: expected at least 3, got 2 at element 2");
    assert_eq!(
        said(&[i64::MIN, i64::MAX]),
        "input `offsets`: expected a result of 64 bits, got 9223372036854775807 at element 1"
    );
}

#[test]
fn attention_stays_within_its_rows() {
    let attention = |scope: &Scope| {
        let offsets = scope.offsets("offsets");
        let [flat, heads] =
            [vec![], vec![1.into()]].map(|heads| [vec![scope.size("rows")], heads, vec![4.into()]].concat());
        let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, F32, &flat).reshape(&heads));
        q.scores(&k, &offsets, &offsets).silu().weighted_sum(&v, &offsets, &offsets)
    };
    let said =
        |offsets: &[i64]| error(attention, &[lengths("offsets", offsets), rows("q", 3), rows("k", 3), rows("v", 3)]);
    assert_eq!(said(&[0, 1, 3]), "nothing");
    assert_eq!(
        said(&[0, 5000]),
        "input `offsets`: expected 3, the rows that the offsets divide, got 5000 at element 1"
    );
}

#[test]
fn no_slice_reads_a_neighbour() {
    let divided = |scope: &Scope| scope.lengths("lengths", &scope.size("samples"));
    let part = |scope: &Scope| scope.lengths("kept", &scope.size("samples"));
    let x = |scope: &Scope, rows: &Ragged| scope.input("x", F32, &[rows.total.clone(), 4.into()]);
    let both = |all: &[i64], kept: &[i64]| {
        let count = all.iter().sum::<i64>() as usize;
        [lengths("lengths", all), lengths("kept", kept), rows("x", count)]
    };
    let tail = |scope: &Scope| x(scope, &divided(scope)).jagged_tail(&divided(scope), &part(scope));
    assert_eq!(error(tail, &both(&[2, 1, 3], &[1, 1, 1])), "nothing");
    assert_eq!(
        error(tail, &both(&[2, 0, 3], &[1, 1, 1])),
        "the starts of jagged_slice (from inputs `kept`, `lengths`): expected at least 0, got -1 at element 1"
    );
    let head = |scope: &Scope| x(scope, &divided(scope)).jagged_head(&divided(scope), &part(scope));
    assert_eq!(error(head, &both(&[2, 0, 3], &[1, 0, 3])), "nothing");
    assert!(
        error(head, &both(&[2, 3], &[5, 0]))
            .contains("expected at most 2, the rows of the sample from row 0 on, by input `lengths`, got 5")
    );
    let from_the_second = |scope: &Scope| {
        let rows = divided(scope);
        let starts = scope.counts("starts", &rows.batch);
        x(scope, &rows).jagged_slice(&rows, &starts, &part(scope))
    };
    let starts = |all: &[i64], starts: &[i64], kept: &[i64]| {
        let [a, b, c] = both(all, kept);
        error(from_the_second, &[a, b, c, lengths("starts", starts)])
    };
    assert_eq!(starts(&[4, 2], &[1, 2], &[3, 0]), "nothing");
    assert!(starts(&[4, 2], &[1, 1], &[3, 2]).contains("expected at most 1, the rows of the sample from row 1 on,"));
    assert_eq!(starts(&[4, 2], &[1, -1], &[3, 2]), "input `starts`: expected 0 to 2147483647, got -1 at element 1");
}

#[test]
fn kernels_read_32_bits() {
    let count = |scope: &Scope| scope.host_input("n", &[scope.size("samples")]).cast(F32);
    let said = |values: &[i64]| error(count, &[lengths("n", values)]);
    assert_eq!(said(&[1, -7, i64::from(i32::MAX)]), "nothing");
    assert_eq!(said(&[1, 1 << 32]), "input `n`: expected a 32-bit integer, got 4294967296 at element 1");
    let doubled = |scope: &Scope| (&scope.host_input("n", &[scope.size("samples")]) * 2.0).cast(F32);
    let said = |values: &[i64]| error(doubled, &[lengths("n", values)]);
    assert!(
        said(&[3, 1 << 62]).contains("`n`,: expected a result of 64 bits")
            || said(&[3, 1 << 62]).starts_with("input `n`")
    );
    assert!(said(&[1 << 31, 3]).contains("got 4294967296 at element 0"));
}

/// Ids of two inputs, one after the other, in a table of 7 rows, and one of them in one of 9 as well.
fn lookups(scope: &Scope) -> Tensor {
    let ids = |name: &str, dtype| scope.input(name, dtype, &[scope.size(name), 2.into()]);
    let (long, short) = (ids("long", DType::I64), ids("short", DType::I32));
    let tables = [("seven", 7), ("nine", 9)].map(|(name, rows)| scope.input(name, F32, &[rows.into(), 4.into()]));
    let both = scope.concat(&[&long.cast(DType::I32), &short], 0).transpose(0, 1);
    &tables[0].gather(&both).sum(1) + &tables[1].gather(&long.reshape(&[long.dim(0), 1.into(), 2.into()])).sum(0)
}

fn lookup(long: &[i64], short: &[i32]) -> [(&'static str, HostTensor); 4] {
    let long = HostTensor::i64(vec![long.len() / 2, 2], long).unwrap();
    let words = short.iter().flat_map(|id| id.to_le_bytes()).collect();
    let short = HostTensor::from_bytes(DType::I32, vec![short.len() / 2, 2], words).unwrap();
    [("long", long), ("short", short), rows("seven", 7), rows("nine", 9)]
}

#[test]
fn ids_are_rows_of_their_smallest_table() {
    let said = |long: &[i64], short: &[i32]| error(lookups, &lookup(long, short));
    assert_eq!(said(&[0, 6, 3, 1], &[6, 0]), "nothing");
    assert_eq!(said(&[], &[]), "nothing");
    assert_eq!(
        said(&[0, 6, 7, 1], &[6, 0]),
        "input `long`: expected 0 to 6, the rows of the table, got 7 at element 2"
    );
    assert_eq!(said(&[0, 6], &[0, -1]), "input `short`: expected 0 to 6, the rows of the table, got -1 at element 1");
    let far = said(&[1 << 32, 6], &[0, 0]);
    assert_eq!(far, "input `long`: expected 0 to 6, the rows of the table, got 4294967296 at element 0");
}

#[test]
fn ids_are_rows_of_tables_of_any_size() {
    let samples = |scope: &Scope| {
        let (ids, count) = (scope.input("ids", DType::U32, &[scope.size("ids")]), scope.size("rows"));
        let small = scope.input("small", F32, &[count.clone(), 4.into()]).gather(&ids);
        &small + &scope.input("large", F32, &[count + 1.into(), 4.into()]).gather(&ids)
    };
    let said = |ids: &[u32], count: usize| {
        let words = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let ids = HostTensor::from_bytes(DType::U32, vec![ids.len()], words).unwrap();
        error(samples, &[("ids", ids), rows("small", count), rows("large", count + 1)])
    };
    assert_eq!(said(&[0, 4], 5), "nothing");
    assert_eq!(said(&[0, 5], 5), "input `ids`: expected 0 to 4, the rows of the table, got 5 at element 1");
    assert_eq!(said(&[], 0), "nothing");
    assert_eq!(said(&[0], 0), "input `ids`: expected no id, since the table has no rows, got 0 at element 0");
}

/// Rewriting turns what it likes into what it likes: the ids are those of the model that was traced.
#[test]
fn ids_are_those_of_the_model() {
    let model = |scope: &Scope| {
        let ids = |name: &str| scope.input(name, DType::I64, &[scope.size("ids")]);
        let table = scope.input("seven", F32, &[7.into(), 4.into()]);
        // Both are the input itself once they are simplified.
        let computed = [&ids("sum") + 0, &ids("product") * 1].map(|ids| table.gather(&ids));
        // A lookup that no result needs.
        let unused = table.gather(&ids("unused"));
        drop(unused);
        &computed[0] + &computed[1]
    };
    let given = |name: &'static str, id: i64| (name, HostTensor::i64(vec![2], &[1, id]).unwrap());
    let all = |sum, product, unused| {
        [given("sum", sum), given("product", product), given("unused", unused), rows("seven", 7)]
    };
    assert_eq!(error(model, &all(-1, 9, 6)), "nothing");
    assert_eq!(
        error(model, &all(0, 0, 7)),
        "input `unused`: expected 0 to 6, the rows of the table, got 7 at element 1"
    );
}

#[test]
fn ids_on_the_device_take_the_nearest_row() {
    let Some(options) = options(Kernel::Wgpu) else { return };
    let scope = Scope::new();
    let ids = scope.input("ids", DType::I64, &[scope.size("ids")]);
    let y = scope.input("seven", F32, &[7.into(), 4.into()]).gather(&ids);
    let plan = plan(&scope.finish(&[("y", y)]).unwrap()).unwrap();
    let mut session = Model::load(plan, (), options).unwrap().session();
    let mut run = |ids: &[i64]| {
        let ids = session.upload(&HostTensor::i64(vec![3], ids).unwrap()).unwrap();
        let mut inputs: Inputs = [rows("seven", 7)].into_iter().collect();
        inputs.insert_device("ids", ids);
        session.run(&inputs).unwrap().get("y").cloned().unwrap()
    };
    assert_eq!(run(&[-5, 3, 1 << 40]), run(&[0, 3, 6]));
}

/// A plan from a file checks what it checked, and nothing that is not there.
#[test]
fn stored_plans_check_ids() {
    let scope = Scope::new();
    let (ids, x) = (scope.input("ids", DType::I64, &[scope.size("ids")]), input(&scope, "x"));
    let graph = scope.finish(&[("y", x.gather(&ids))]).unwrap();
    let stored = serde_json::to_value(plan(&graph).unwrap()).unwrap();
    assert_eq!(stored["shapes"]["ids"].as_array().map(Vec::len), Some(1));
    let load = |stored: &serde_json::Value| {
        let plan = serde_json::from_value(stored.clone()).unwrap();
        Model::load(plan, (), options(Kernel::Cpu).unwrap()).map_err(|error| error.to_string())
    };
    let ids = HostTensor::i64(vec![1], &[3]).unwrap();
    let inputs: Tensors = [("ids", ids), rows("x", 3)].map(|(name, tensor)| (name.to_owned(), tensor)).into();
    let said = run(&mut load(&stored).unwrap().session(), &inputs).unwrap_err();
    assert_eq!(said, "input `ids`: expected 0 to 2, the rows of the table, got 3 at element 0");
    let wrong = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut changed = stored.clone();
        change(&mut changed["shapes"]["ids"][0]);
        load(&changed).err().unwrap_or_default()
    };
    assert!(wrong(&|ids| ids["input"] = "x".into()).contains("the ids `x` are not an input of integers"));
    assert!(wrong(&|ids| ids["input"] = "y".into()).contains("the ids `y` are not an input of integers"));
    assert!(wrong(&|ids| ids["rows"]["terms"] = serde_json::json!({ "9": 1 })).contains("does not define"));
}

#[test]
fn computed_ids_take_the_nearest_row() {
    let model = |scope: &Scope| {
        let ids = scope.input("ids", DType::I64, &[scope.size("ids")]);
        let table = scope.input("seven", F32, &[7.into(), 4.into()]);
        &table.gather(&ids.clamp(Some(0), Some(6))) + &table.gather(&(&ids + 1))
    };
    let ids = HostTensor::i64(vec![3], &[-5, 3, 100]).unwrap();
    assert_eq!(error(model, &[("ids", ids), rows("seven", 7)]), "nothing");
}

#[test]
fn ids_take_the_nearest_row_where_that_is_asked_for() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::I64, &[scope.size("ids")]);
    let y = scope.input("seven", F32, &[7.into(), 4.into()]).gather(&ids);
    let graph = scope.finish(&[("y", y)]).unwrap();
    let inputs = |ids: &[i64]| -> Tensors {
        let ids = HostTensor::i64(vec![ids.len()], ids).unwrap();
        [("ids", ids), rows("seven", 7)].map(|(name, tensor)| (name.to_owned(), tensor)).into()
    };
    let nearest = interpret(&graph, &inputs(&[0, 3, 6]), &Tensors::new()).unwrap();
    for kernel in kernels() {
        let options = ModelOptions { clamp_ids: true, ..options(kernel).unwrap() };
        let mut session = Model::load(plan(&graph).unwrap(), (), options).unwrap().session();
        assert_eq!(run(&mut session, &inputs(&[-5, 3, 1 << 40])).unwrap(), nearest, "{kernel}");
    }
}

/// Ways in which a vector of lengths, offsets or counts can be wrong.
const CHANGES: [fn(&mut [i64]); 7] = [
    |values| values[0] = -1,
    |values| values[0] = 1,
    |values| values[values.len() / 2] = i64::MIN,
    |values| values[values.len() - 1] = 1 << 32,
    |values| values[values.len() - 1] = 1 << 62,
    |values| values[values.len() - 1] += 1000,
    |values| values.iter_mut().for_each(|value| *value += 1 << 32),
];

/// The change that leaves some vectors right.
const MAY_BE: usize = 1;
const LONGER: usize = 5;

/// Changes every host input of a case in every way.
fn changed(golden: &Golden, kernels: &[Kernel]) -> Result<(), String> {
    let replay = golden.trace()?;
    let (inputs, parameters) = (golden.inputs(&replay.graph), golden.parameters(&replay.graph));
    let names: Vec<String> = plan(&replay.graph)?.host_inputs.into_iter().map(|input| input.name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut sessions = vec![];
    for &kernel in kernels {
        sessions.extend(session(&replay.graph, &parameters, kernel)?);
    }
    let relative = if golden.half { 3e-3 } else { 2e-5 };
    for name in names {
        for (way, change) in CHANGES.iter().enumerate() {
            let mut values = inputs[&name].to_i64();
            if values.is_empty() {
                continue;
            }
            change(&mut values);
            let mut inputs = inputs.clone();
            inputs.insert(name.clone(), HostTensor::lengths(&values));
            let reported = said(&replay.graph, &mut sessions, &inputs, &parameters, relative)
                .map_err(|error| format!("`{name}` changed in way {way} to {values:?}: {error}"))?;
            if reported.as_ref().is_some_and(|error| !error.contains(&name)) {
                return Err(format!("`{name}` changed in way {way} to {values:?}: {reported:?} does not name it"));
            }
            if reported.is_none() && way != MAY_BE && !(way == LONGER && may_be_longer(golden, &name)) {
                return Err(format!("`{name}` changed in way {way} to {values:?} is taken"));
            }
        }
    }
    Ok(())
}

/// If there are more targets than rows, all rows are targets for semi-local attention, and none if targets do not count. The actions of
/// targets are learned rows, as many as the offsets define.
fn may_be_longer(golden: &Golden, name: &str) -> bool {
    name.ends_with("num_targets")
        && ["STULayer", "STULayer_cached", "build_sla_func_tensor"].contains(&golden.op.as_str())
        || golden.op == "SimpleActionEncoder" && name == "target_offsets"
}

#[test]
fn golden_cases_with_changed_host_inputs_are_errors_that_name_them() {
    hold(&cases(), |golden| changed(golden, &[Kernel::Cpu]));
}

#[test]
fn the_gpu_says_what_the_cpu_says() {
    if gpu().is_some() {
        hold(&sample(), |golden| changed(golden, &[Kernel::Cpu, Kernel::Wgpu]));
    }
}
