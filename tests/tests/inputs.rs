//! Host inputs that are not what they are declared to be: every kernel and the interpreter say so, with the same words.

use rewire_graph::{DType, Graph, HostTensor, Ragged, Scope, Tensor, interpret};
use rewire_runtime::{Inputs, Kernel, Session, Value};
use rewire_tests::backend::{Tensors, gpu, plan, session};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::golden::{Golden, cases, hold, sample};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;

/// The kernels that there are here.
fn kernels() -> Vec<Kernel> {
    let mut kernels = vec![Kernel::Cpu];
    kernels.extend(gpu().map(|_| Kernel::Wgpu));
    kernels
}

/// What a run gives, or what it says.
fn run(session: &mut Session, inputs: &Tensors) -> Result<Results, String> {
    let inputs: Inputs = inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    let host = |(name, value)| match value {
        Value::Host(tensor) => (name, tensor),
        Value::Device(_) => unreachable!("outputs stay on the host"),
    };
    session.run(&inputs).map(|outputs| outputs.into_iter().map(host).collect()).map_err(|error| error.to_string())
}

/// What every kernel and the interpreter say of a run, which is the same; `None` if they compute, the same too.
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
                return Err(format!("{kernel} says {other}, the interpreter {expected}"));
            }
        }
    }
    Ok(expected.err())
}

/// What a run of a model says, everywhere.
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

/// Rows of a size of their own.
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
            let said = said(&replay.graph, &mut sessions, &inputs, &parameters, relative)
                .map_err(|error| format!("`{name}` changed in way {way} to {values:?}: {error}"))?;
            if said.as_ref().is_some_and(|said| !said.contains(&name)) {
                return Err(format!("`{name}` changed in way {way} to {values:?}: {said:?} does not name it"));
            }
            if said.is_none() && way != MAY_BE && !(way == LONGER && may_be_longer(golden, &name)) {
                return Err(format!("`{name}` changed in way {way} to {values:?} is taken"));
            }
        }
    }
    Ok(())
}

/// More targets than rows are all rows to semi-local attention, and nothing where targets do not count. The actions of targets are learned
/// rows, as many as the offsets say.
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
