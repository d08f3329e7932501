//! Bytes and operations of kernels, counted by hand.
#![allow(clippy::unwrap_used, clippy::panic)]

use rewire_graph::{DType, Graph, Scope};
use rewire_graph_rewrite::cost::{Count, Sizes};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Plan, ScheduledNest};
use rewire_graph_rewrite::schedule::Schedule;
use rewire_graph_rewrite::{lower, optimize};
use serde_json::json;

fn plan(graph: Graph) -> Plan {
    lower(&optimize(graph).unwrap().0).unwrap()
}

fn only(plan: &Plan) -> &Computation {
    assert_eq!(plan.steps.len(), 1);
    &plan.steps[0].computation
}

/// The sizes of a run with these lengths.
fn run(plan: &Plan, inputs: &[(&str, Vec<i64>)], rows: usize) -> Sizes {
    let host = plan.host_inputs.iter().map(|input| {
        let value = inputs.iter().find(|(name, _)| *name == input.name).unwrap();
        (input, value.1.clone())
    });
    let extent =
        |name: &str, _| inputs.iter().find(|(known, _)| *known == name).map_or(Some(rows), |(_, v)| Some(v.len()));
    Sizes::of_run(&plan.steps[0], &plan.shapes.run(host, extent).unwrap())
}

#[test]
fn a_broadcast_is_read_once() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
    let bias = scope.input("bias", DType::F16, &[8.into()]);
    let plan = plan(scope.finish(&[("y", (&x + &bias).relu())]).unwrap());
    let count = Count::of(only(&plan), &run(&plan, &[], 100));
    assert_eq!((count.read, count.written, count.reread), (100 * 8 * 4 + 8 * 2, 100 * 8 * 4, 0));
    // An addition and a maximum.
    assert_eq!((count.products, count.scalar), (0, 2 * 800));
    assert_eq!((count.bytes(), count.operations()), (100 * 8 * 8 + 16, 1600));
}

#[test]
fn a_lookup_reads_the_rows_it_finds_and_no_more_than_the_table() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    let table = scope.parameter("table", DType::F32, &[1_000_000.into(), 16.into()]);
    let plan = plan(scope.finish(&[("y", table.gather(&ids))]).unwrap());
    let read = |rows| Count::of(only(&plan), &run(&plan, &[], rows)).read;
    assert_eq!(read(50), 50 * 4 + 50 * 16 * 4);
    assert_eq!(read(2_000_000), 2_000_000 * 4 + 1_000_000 * 16 * 4);
}

#[test]
fn a_norm_reads_its_rows_again() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 32.into()]);
    let [weight, bias] = ["weight", "bias"].map(|name| scope.parameter(name, DType::F32, &[32.into()]));
    let plan = plan(scope.finish(&[("y", x.layer_norm(&weight, &bias, 1e-6))]).unwrap());
    let sums = &only(&plan).nest().unwrap().accumulations;
    assert!(sums.iter().all(|sum| sum.factors.len() == 1), "{plan:?}");
    let count = Count::of(only(&plan), &run(&plan, &[], 10));
    assert_eq!((count.read, count.written), (10 * 32 * 4 + 2 * 32 * 4, 10 * 32 * 4));
    assert_eq!(count.reread, sums.len() as u64 * 10 * 32 * 4);
}

#[test]
fn tiles_of_a_product_read_operands_again() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 48.into()]);
    let weight = scope.parameter("weight", DType::F32, &[48.into(), 200.into()]);
    let bias = scope.parameter("bias", DType::F32, &[200.into()]);
    let plan = plan(scope.finish(&[("y", (&x.matmul(&weight) + &bias).relu())]).unwrap());
    let count = Count::of(only(&plan), &run(&plan, &[], 130));
    assert_eq!(count.products, 2 * 130 * 48 * 200);
    assert_eq!((count.read, count.written), (4 * (130 * 48 + 48 * 200 + 200), 4 * 130 * 200));
    // 4 tiles of columns, 3 of rows.
    assert_eq!(count.reread, 4 * (3 * 130 * 48 + 2 * 48 * 200));
    assert_eq!(count.scalar, 2 * 130 * 200);
}

#[test]
fn matmuls_that_fill_no_tiles_take_other_forms() {
    let scope = Scope::new();
    let batch = scope.size("batch");
    let x = scope.input("x", DType::F32, &[batch.clone(), 3.into(), 48.into()]);
    let long = scope.input("long", DType::F32, &[batch.clone(), 80.into(), 48.into()]);
    let other = scope.input("other", DType::F32, &[batch.clone(), 3.into(), 48.into()]);
    let term = scope.input("term", DType::F32, &[batch.clone(), 1.into()]);
    let weight =
        |name: &str, rows: usize, columns: usize| scope.parameter(name, DType::F32, &[rows.into(), columns.into()]);
    let outputs = [
        ("entries", x.matmul(&weight("square", 48, 48)).relu()),
        ("long", long.matmul(&weight("another", 48, 48))),
        ("column", other.matmul(&weight("column", 48, 1))),
        ("term", term.matmul(&weight("row", 1, 40))),
        ("own", x.matmul(&x.transpose(1, 2))),
    ];
    let plan = plan(scope.finish(&outputs).unwrap());
    let found: Vec<(&str, usize)> = plan
        .steps
        .iter()
        .map(|step| {
            let Computation::Nest(nest) = &step.computation else { panic!("a nest") };
            (nest.schedule().name(), nest.rank())
        })
        .collect();
    // Batch entries of 3 rows are merged into one matrix. Entries of 80 rows, and entries with separate right operands,
    // are not.
    for form in [("product", 2), ("product", 3), ("reduction", 3), ("map", 2)] {
        assert!(found.contains(&form), "{form:?} in {found:?}");
    }
    assert_eq!(found.iter().filter(|form| **form == ("product", 3)).count(), 2, "{found:?}");
}

#[test]
fn attention_counts_the_pairs_that_its_mask_lets_through() {
    let count = |lengths: &[i64], window: Option<f64>| {
        let scope = Scope::new();
        let rows = scope.lengths("lengths", &scope.size("batch"));
        let heads =
            |name: &str, width: usize| scope.input(name, DType::F32, &[rows.total.clone(), 2.into(), width.into()]);
        let (q, k, v) = (heads("q", 16), heads("k", 16), heads("v", 8));
        let (row, key) = (rows.row_index(&rows, 2), rows.key_index(&rows, 2));
        let mut mask = row.ge(&key);
        if let Some(window) = window {
            mask = mask.and(&(&row - &key).le(&scope.scalar(DType::I32, window)));
        }
        let weights = mask.select(&q.scores(&k, &rows, &rows).silu(), &scope.scalar(DType::F32, 0.0));
        let plan = plan(scope.finish(&[("out", weights.weighted_sum(&v, &rows, &rows))]).unwrap());
        Count::of(only(&plan), &run(&plan, &[("lengths", lengths.to_vec())], lengths.iter().sum::<i64>() as usize))
    };
    let causal = count(&[1024, 0, 512], None);
    let rows = 1024 + 512;
    assert_eq!(causal.products, 2 * (1024 * 1024 + 512 * 512) / 2 * 2 * (16 + 8));
    assert_eq!(causal.read, 4 * rows * 2 * (16 + 16 + 8));
    assert_eq!(causal.written, 4 * rows * 2 * 8);
    let window = count(&[1024], Some(127.0)).products as f64 / f64::from(2 * 128 * 1024 * 2 * (16 + 8));
    assert!((0.9..1.1).contains(&window), "{window}");
}

#[test]
fn a_nest_without_a_schedule_is_no_kernel() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
    let weight = scope.parameter("weight", DType::F32, &[8.into(), 16.into()]);
    let plan = plan(scope.finish(&[("y", x.matmul(&weight))]).unwrap());
    let Computation::Nest(kernel) = only(&plan) else { panic!("a nest") };
    let mut nest = kernel.clone().into_nest();
    nest.axes.push(Axis::sum(Extent::Dense(7.into())));
    nest.accumulations.push(Accumulation { axis: 3, ..nest.accumulations[0].clone() });
    assert!(Schedule::of(&nest).is_err());
    let mut stored = serde_json::to_value(kernel).unwrap();
    for (part, value) in [("axes", json!(nest.axes)), ("accumulations", json!(nest.accumulations))] {
        stored[part] = value;
    }
    stored["schedule"] = json!(null);
    assert!(serde_json::from_value::<ScheduledNest>(stored).is_err());
    assert!(ScheduledNest::of(nest).is_err());
}

#[test]
fn kernels_of_every_schedule_have_a_cost() {
    let scope = Scope::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F32, &[scope.size("rows"), 8.into()]));
    let weight = scope.parameter("weight", DType::F32, &[8.into(), 16.into()]);
    let outputs = [
        ("map", q.relu()),
        ("reduction", k.softmax(1)),
        ("product", v.matmul(&weight)),
        ("pairs", q.matmul(&k.transpose(0, 1)).softmax(1).matmul(&v)),
        ("fold", v.sum(0)),
    ];
    let plan = plan(scope.finish(&outputs.clone()).unwrap());
    let names: Vec<&str> = plan.steps.iter().map(|step| schedule(&step.computation)).collect();
    assert!(outputs.iter().all(|(name, _)| names.contains(name)), "{names:?}");
    for step in &plan.steps {
        let count = Count::of(&step.computation, &Sizes::uniform(100, 10));
        assert!(count.read > 0 && count.written > 0 && count.operations() > 0, "{}: {count:?}", step.name);
    }
}

fn schedule(kernel: &Computation) -> &str {
    let Computation::Nest(nest) = kernel else { panic!("a nest") };
    nest.schedule().name()
}
