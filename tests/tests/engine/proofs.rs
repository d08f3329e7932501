//! Indices are proven: always for built-in operators; for custom ones they are proven or clamped. Results are written
//! completely, or cleared.

use rewire_graph::op::{Elements, Elementwise, Op, Requirement};
use rewire_graph::pointwise::{BinaryOp, ExprId};
use rewire_graph::{DType, Graph, HostTensor, Ragged, Scope, Type, TypeError};
use rewire_graph_rewrite::plan::{Plan, Source};
use rewire_graph_rewrite::prove::{Confined, confine};
use rewire_runtime::{Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, load_plan, options, oracle, plan, run};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::golden::{Golden, cases, hold};
use rewire_tests::kernels::demo;
use rewire_tests::noise::Noise;
use serde_json::{Value, json};

/// The unproven indices of a plan.
fn unproven(plan: &Plan) -> Result<Vec<String>, String> {
    let mut confined = plan.clone();
    let found = confine(&mut confined).map_err(|error| error.to_string())?;
    assert_eq!(found.is_empty(), confined == *plan);
    let steps = || plan.load.iter().chain(&plan.steps);
    let clamped = found.clamped.iter().map(|access| {
        let name = steps().nth(access.step).map_or("", |step| &step.name);
        format!("{name} clamps {access:?}")
    });
    let cleared = found.cleared.iter().map(|id| {
        let writer = steps().find(|step| step.writes.contains(id));
        format!("{} may write buffer {} in part", writer.map_or("nothing", |step| &step.name), id.0)
    });
    Ok(clamped.chain(cleared).collect())
}

#[test]
fn golden_cases_are_proven() {
    let check = |golden: &Golden| {
        let found = unproven(&plan(&golden.trace()?.graph)?)?;
        if found.is_empty() { Ok(()) } else { Err(found.join("\n  ")) }
    };
    hold(&cases(), check);
}

#[test]
fn the_demo_model_is_proven() {
    assert_eq!(unproven(&plan(&demo().unwrap()).unwrap()), Ok(vec![]));
}

/// The row after each of `x` `[rows, width]`.
#[derive(Clone, Debug, PartialEq, Hash)]
struct NextRow;

/// For each row of `x` `[rows, width]`, by host offsets, the row at its place in the next sample, one column on.
#[derive(Clone, Debug, PartialEq, Hash)]
struct NextSample;

impl Op for NextRow {
    fn name(&self) -> &str {
        "next_row"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        Ok(vec![(*inputs[0]).clone()])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for NextRow {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let one = at.dag().int(1);
        let next = at.dag().binary(BinaryOp::Add, coords[0], one);
        at.load(0, &[next, coords[1]])
    }
}

impl Op for NextSample {
    fn name(&self) -> &str {
        "next_sample"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        Ok(vec![(*inputs[0]).clone()])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        vec![Requirement::offsets(1, &inputs[0].shape[0])]
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for NextSample {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let sample = at.sample(1, coords[0]);
        let one = at.dag().int(1);
        let next = at.dag().binary(BinaryOp::Add, sample, one);
        let [start, next] = [sample, next].map(|sample| at.load(1, &[sample]));
        let position = at.dag().binary(BinaryOp::Sub, coords[0], start);
        let row = at.dag().binary(BinaryOp::Add, next, position);
        let column = at.dag().binary(BinaryOp::Add, coords[1], one);
        at.load(0, &[row, column])
    }
}

/// The fill value of other users' rows.
const SECRET: f32 = 12_345.5;

/// Runs a plan of rows `x` with `lengths` after a run in which others had many rows of [`SECRET`], with shaders that check
/// nothing of themselves.
fn after_others(plan: &Plan, kernel: Kernel, inputs: &Tensors) -> Option<Result<Results, String>> {
    let options = ModelOptions { checked: false, clamp_ids: true, ..options(kernel)? };
    let secret = |name: &str, tensor: &HostTensor| match (name, tensor.dtype()) {
        ("lengths" | "more", _) => HostTensor::lengths(&[31, 40, 29]),
        (_, DType::I64) => HostTensor::from_f64(DType::I64, vec![100], &[3.0; 100]).unwrap(),
        _ => {
            let width = tensor.shape()[1];
            HostTensor::from_f64(DType::F32, vec![100, width], &vec![f64::from(SECRET); 100 * width]).unwrap()
        }
    };
    let others = inputs.iter().map(|(name, tensor)| (name.clone(), secret(name, tensor))).collect();
    let mut session = match load_plan(plan.clone(), &Tensors::new(), options) {
        Ok(session) => session,
        Err(error) => return Some(Err(error)),
    };
    let _ = run(&mut session, &others);
    Some(run(&mut session, inputs))
}

fn inputs(lengths: &[i64], more: &[i64]) -> Tensors {
    let count = |lengths: &[i64]| lengths.iter().sum::<i64>() as usize;
    let floats = |name: &str, rows: usize| (name.to_owned(), Noise::new(5, name).floats(DType::F32, &[rows, 5], 1.0));
    let vectors = [("lengths", lengths), ("more", more)];
    let vectors = vectors.map(|(name, lengths)| (name.to_owned(), HostTensor::lengths(lengths)));
    let ids = ("ids".to_owned(), Noise::new(7, "ids").integers(DType::I64, &[count(lengths)], -9, 9));
    vectors.into_iter().chain([floats("x", count(lengths)), floats("y", count(more)), ids]).collect()
}

fn known(plan: &Plan, inputs: &Tensors) -> Tensors {
    let device = plan.buffers.iter().filter_map(|buffer| match &buffer.source {
        Source::Input(name) => Some(name),
        _ => None,
    });
    let names: Vec<&String> = plan.host_inputs.iter().map(|input| &input.name).chain(device).collect();
    inputs.iter().filter(|(name, _)| names.contains(name)).map(|(n, t)| (n.clone(), t.clone())).collect()
}

#[test]
fn what_a_users_operator_reads_stays_within_its_operand() {
    for by_sample in [false, true] {
        let scope = Scope::new();
        let rows = scope.lengths("lengths", &scope.size("samples"));
        let x = scope.input("x", DType::F32, &[rows.total.clone(), 5.into()]);
        let y = match by_sample {
            true => scope.apply(NextSample, &[&x, &rows.offsets]),
            false => scope.apply(NextRow, &[&x]),
        };
        let graph = scope.finish(&[("y", &y * 2.0)]).unwrap();
        let plan = plan(&graph).unwrap();
        let found = confine(&mut plan.clone()).unwrap();
        assert_eq!(found.cleared, []);
        let clamped: Vec<Vec<usize>> = found.clamped.into_iter().map(|access| access.dimensions).collect();
        assert_eq!(clamped, [if by_sample { vec![0, 1] } else { vec![0] }]);
        for lengths in [&[2i64, 0, 3][..], &[1], &[0, 0], &[4, 2]] {
            let inputs = known(&plan, &inputs(lengths, &[]));
            let expected = oracle(&graph, &inputs, &Tensors::new()).unwrap();
            for kernel in [Kernel::Cpu, Kernel::Wgpu] {
                let Some(actual) = after_others(&plan, kernel, &inputs) else { continue };
                let found = differences(&actual.unwrap(), &expected, Tolerance::SINGLE);
                assert!(found.is_empty(), "{kernel} {lengths:?}: {found:?}");
            }
        }
    }
}

/// Rows that are only moved: joined, cut, padded, looked up, repeated, or pass through a reduction or a product unchanged.
fn moved() -> (Graph, Plan) {
    let scope = Scope::new();
    let batch = scope.size("samples");
    let [rows, more] = ["lengths", "more"].map(|name| scope.lengths(name, &batch));
    let input = |name: &str, rows: &Ragged| scope.input(name, DType::F32, &[rows.total.clone(), 5.into()]);
    let (x, y) = (input("x", &rows), input("y", &more));
    let ids = scope.input("ids", DType::I64, std::slice::from_ref(&rows.total));
    let (both, all) = x.jagged_concat(&rows, &y, &more);
    let tail = both.jagged_tail(&all, &rows);
    let diagonal: Vec<f64> = (0..25).map(|n| f64::from(u8::from(n % 6 == 0))).collect();
    let identity = scope.constant(HostTensor::from_f64(DType::F32, vec![5, 5], &diagonal).unwrap());
    let product = x.matmul(&identity);
    let outputs = [
        ("product", scope.concat(&[&product, &product], 1)),
        ("largest", y.max(1)),
        ("both", both.clone()),
        ("tail", scope.concat(&[&tail, &x.gather(&ids)], 1)),
        ("padded", y.jagged_to_padded(&more, &rows.max().as_dim(), 0.0)),
        ("columns", both.transpose(0, 1).slice(0, 1, 3)),
    ];
    let graph = scope.finish(&outputs).unwrap();
    let plan = plan(&graph).unwrap();
    (graph, plan)
}

#[test]
fn a_stored_plan_is_proven_as_it_was() {
    let (_, plan) = moved();
    let stored: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    let mut confined = stored.clone();
    assert_eq!(confine(&mut confined), Ok(Confined::default()));
    assert_eq!(confined, plan);
}

/// The numbers of a stored plan's loops, by JSON pointer: extents, results, constants, operands, and indices of loads.
fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| numbers(item, &format!("{at}/{n}"), found))
        }
        Value::Object(entries) => entries.iter().for_each(|(key, item)| numbers(item, &format!("{at}/{key}"), found)),
        Value::Number(_) => {
            let is_read = ["/expr/Int/", "/expr/Load/"].iter().any(|of| at.contains(of));
            let is_loop = at.contains("/computation/") && !at.contains("/body/");
            found.extend((is_read || is_loop).then(|| at.to_owned()));
        }
        _ => {}
    }
}

#[test]
fn changed_plans_show_no_rows_of_others() {
    let plan = json!(moved().1);
    let mut places = vec![];
    numbers(&plan, "", &mut places);
    let given = inputs(&[2, 0, 3], &[1, 4, 0]);
    // Runs on either kernel, of plans with results that are cleared and of others.
    let mut ran = [[0, 0], [0, 0]];
    let mut choose =
        (0u64..).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).wrapping_mul(0xBF58_476D_1CE4_E5B9));
    for case in 0..700 {
        let mut changed = plan.clone();
        for _ in 0..=case % 2 {
            let (place, number) = (choose.next().unwrap() >> 8, choose.next().unwrap() >> 8);
            *changed.pointer_mut(&places[place as usize % places.len()]).unwrap() =
                json!(number % 60 - 8.min(number % 60));
        }
        let Ok(changed) = serde_json::from_value::<Plan>(changed) else { continue };
        let Ok(found) = confine(&mut changed.clone()) else { continue };
        let ran = &mut ran[usize::from(found.cleared.is_empty())];
        let kernels: &[Kernel] = if ran[1] < 10 { &[Kernel::Cpu, Kernel::Wgpu] } else { &[Kernel::Cpu] };
        for (n, &kernel) in kernels.iter().enumerate() {
            let Some(Ok(outputs)) = after_others(&changed, kernel, &known(&changed, &given)) else { continue };
            ran[n] += 1;
            for (name, tensor) in outputs {
                let shown = tensor.dtype().is_float() && tensor.to_f64().contains(&f64::from(SECRET));
                assert!(!shown, "{kernel}, case {case}: `{name}` shows rows of another run");
            }
        }
    }
    assert!(ran.iter().all(|ran| ran[0] > 20), "{ran:?} of the changed plans run");
}
