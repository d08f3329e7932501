//! Proofs hold: confined plans are evaluated at every point, both lowered plans and plans from modified files. No
//! access is out of range, and no element of a result stays unwritten.

mod evaluate;
mod plans;

use super::region::{Region, Values};
use super::*;
use crate::plan::{
    Binding, Body, Check, Computation, HostInput, HostOp, HostSlot, MemorySpace, Nest, Operand, Output, ShapeEntry,
    ShapeProgram, ShapeValues,
};
use evaluate::{Wrong, check};
use plans::{changed, numbers, sizes, stored};
use proptest::prelude::*;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr};
use rewire_graph::{DType, Dim};
use serde_json::json;

/// Confines a plan from a file and evaluates it in one run, unless loading or the run rejects it.
fn stays_within(mut plan: Plan, lengths: [&[i64]; 2], seed: u64) -> Result<(), Wrong> {
    if plan.steps.iter().any(|step| !is_sound(&plan, step)) || confine(&mut plan).is_err() {
        return Ok(());
    }
    match sizes(&plan, lengths).filter(|values| fits(&plan, values)) {
        Some(values) => check(&plan, &values, seed),
        None => Ok(()),
    }
}

/// A regression: modifications of a file, with the lengths and the seed of a run, for which a proof was wrong.
struct Finding {
    plan: usize,
    changes: &'static [(&'static str, i64)],
    lengths: [&'static [i64]; 2],
    seed: u64,
}

const FINDINGS: &[Finding] = &[
    // A store at an index that is a float.
    Finding {
        plan: 0,
        changes: &[("/steps/1/computation/Nest/outputs/0/index/0", 3)],
        lengths: [&[1], &[0]],
        seed: 33612990945387467,
    },
];

#[test]
fn what_was_found_stays_within() {
    for Finding { plan, changes, lengths, seed } in FINDINGS {
        if let Some(plan) = changed(&stored()[*plan], changes.iter().copied()) {
            assert_eq!(stays_within(plan, *lengths, *seed), Ok(()), "{changes:?}");
        }
    }
}

/// A check that compares an empty vector with scalars implies nothing about them.
#[test]
fn what_no_entry_is_compared_with_may_be_anything() {
    let (count, position) = (Dim::from(10), HostSlot);
    let mut dag = Dag::new();
    let (index, at) = (dag.load(1, DType::I32, vec![]), dag.coord(0, Some(1)));
    let value = dag.load(0, DType::F32, vec![index]);
    let operand = |dtype, shape, space| Operand { dtype, shape, space };
    let operands = vec![
        operand(DType::F32, vec![count.clone()], MemorySpace::Device),
        operand(DType::I32, vec![], MemorySpace::Host),
    ];
    let output = Output { target: 0, dtype: DType::F32, shape: vec![1.into()], index: vec![at], value, columns: None };
    let body = Body { dag, operands, sizes: vec![] };
    let step = Step {
        name: String::new(),
        path: String::new(),
        computation: Computation::of(Nest::map(body, vec![1.into()], vec![output])).unwrap(),
        reads: vec![Binding::Buffer(BufferId(0)), Binding::Host(position(0))],
        writes: vec![BufferId(1)],
    };
    let compute = |op, inputs: &[u32], output| ShapeEntry::Compute {
        op,
        inputs: inputs.iter().map(|&slot| position(slot)).collect(),
        output: position(output),
    };
    let at_most = |value, bound| ShapeEntry::Check {
        check: Check::AtMost,
        inputs: vec![position(value), position(bound)],
        argument: String::new(),
    };
    let plan = |vector: HostOp| Plan {
        shapes: ShapeProgram {
            entries: vec![
                compute(vector, &[], 1),
                compute(HostOp::Size(9.into()), &[], 2),
                compute(HostOp::Binary(BinaryOp::Sub), &[2, 0], 3),
                at_most(1, 0),
                at_most(1, 3),
            ],
            slots: 4,
            ..ShapeProgram::default()
        },
        host_inputs: vec![HostInput { name: "n".to_owned(), slot: position(0), shape: vec![] }],
        steps: vec![step.clone()],
        ..Plan::default()
    };
    let clamped = |vector| confine(&mut plan(vector)).unwrap().clamped.len();
    assert_eq!(clamped(HostOp::Iota(0.into())), 1);
    assert_eq!(clamped(HostOp::Size(0.into())), 0, "a scalar is compared always");
}

fn lengths() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    prop::collection::vec((0i64..5, 0i64..5), 0..4).prop_map(|pairs| pairs.into_iter().unzip())
}

/// Numbers of a file, most of them small.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![9 => -2i64..12, 1 => -1000i64..1000, 1 => (0i64..4).prop_map(|n| i64::from(i32::MAX) - n)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_lowered_is_proven_and_stays_within((a, b) in lengths(), seed: u64) {
        for lowered in stored() {
            let mut plan = lowered.clone();
            prop_assert_eq!(confine(&mut plan), Ok(Confined::default()));
            prop_assert_eq!(&plan, lowered);
            let values = sizes(&plan, [&a, &b]).unwrap();
            prop_assert_eq!(check(&plan, &values, seed), Ok(()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_plans_stay_within_once_confined(
        plan in 0..stored().len(),
        changes in prop::collection::vec((any::<usize>(), number()), 1..4),
        (a, b) in lengths(),
        seed: u64,
    ) {
        let plan = &stored()[plan];
        let places = numbers(&json!(plan));
        let changes: Vec<(&str, i64)> =
            changes.into_iter().map(|(place, number)| (places[place % places.len()].as_str(), number)).collect();
        if let Some(plan) = changed(plan, changes.iter().copied()) {
            let found = stays_within(plan, [&a, &b], seed);
            prop_assert_eq!(found, Ok(()), "{:?}", changes);
        }
    }
}

/// The checks of a step's loops when a plan is loaded.
fn is_sound(plan: &Plan, step: &Step) -> bool {
    let body = step.computation.body();
    let operands = &body.operands;
    let refers = body.dag.ids().all(|id| match body.dag.expr(id) {
        Expr::Load { operand, index } => {
            operands.get(usize::from(*operand)).is_some_and(|operand| operand.shape.len() == index.len())
        }
        Expr::Sample { offsets, .. } => operands.get(usize::from(*offsets)).is_some_and(|o| o.shape.len() == 1),
        Expr::Size(position) => usize::from(*position) < body.sizes.len(),
        _ => true,
    });
    let has_roots =
        step.computation.nest().is_none_or(|nest| nest.roots().iter().all(|root| (root.0 as usize) < body.dag.len()));
    if !has_roots {
        return false;
    }
    let ragged =
        Region::of(&step.computation).into_iter().flat_map(|region| region.coords).all(|extent| match extent {
            Values::Ragged(offsets) => operands.get(usize::from(offsets)).is_some_and(|o| o.space == MemorySpace::Host),
            _ => true,
        });
    let results = step.computation.written();
    let bound = results.iter().all(|result| {
        let buffer = step.writes.get(usize::from(result.target)).and_then(|&id| plan.buffer(id));
        buffer.is_some_and(|buffer| buffer.shape == result.shape)
    });
    let written = (0..step.writes.len()).all(|n| results.iter().any(|result| usize::from(result.target) == n));
    step.reads.len() == operands.len() && refers && ragged && bound && written
}

/// The checks of host vectors and sizes in a run.
fn fits(plan: &Plan, values: &ShapeValues) -> bool {
    let dim = |dim: &Dim| dim.evaluate(|symbol| values.symbols.get(&symbol).copied()).filter(|&n| n < 1 << 20);
    plan.steps.iter().all(|step| {
        let body = step.computation.body();
        let written = step.computation.written();
        let read = body.operands.iter().map(|operand| operand.shape.as_slice());
        let shapes = read.chain(written.iter().map(|written| written.shape));
        let sized = shapes.flatten().chain(&body.sizes).all(|size| dim(size).is_some());
        let vectors = step.reads.iter().zip(&body.operands).all(|(read, operand)| match read {
            Binding::Host(slot) => {
                let entries = values.slots.get(slot.0 as usize).map_or(0, Vec::len);
                operand.space == MemorySpace::Host && operand.shape.first().map_or(Some(1), dim) == Some(entries)
            }
            Binding::Buffer(_) => operand.space != MemorySpace::Host,
        });
        let samples = Region::of(&step.computation).into_iter().all(|region| {
            let ragged = region.coords.iter().filter_map(|extent| match extent {
                Values::Ragged(offsets) => body.operands.get(usize::from(*offsets)),
                _ => None,
            });
            let count = match region.coords.first() {
                Some(Values::Dim(count)) => dim(count),
                _ => None,
            };
            ragged
                .into_iter()
                .all(|offsets| count.is_some() && offsets.shape.first().and_then(dim) == count.map(|count| count + 1))
        });
        sized && vectors && samples
    })
}
