//! Plans whose files were changed at random: errors or results, and neither panics nor memory without end.

use proptest::prelude::*;
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::emit::{Target, Tuning, emit};
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{Inputs, Kernel, RuntimeError, Session, SessionOptions};
use rewire_tests::backend::{Tensors, options, oracle, plan, run};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use serde_json::{Value, json};
use std::sync::OnceLock;

const F32: DType = DType::F32;

/// A plan as a file holds it, with what it runs on.
struct Stored {
    plan: Value,
    inputs: Tensors,
    parameters: Tensors,
}

/// A jagged model with a lookup, a product, a norm, a concatenation, attention and a bag.
fn stored() -> &'static Stored {
    static STORED: OnceLock<Stored> = OnceLock::new();
    STORED.get_or_init(|| {
        let scope = Scope::new();
        let rows = scope.lengths("lengths", &scope.size("samples"));
        let ids = scope.input("ids", DType::I64, std::slice::from_ref(&rows.total));
        let x = scope.parameter("table", F32, &[11.into(), 6.into()]).gather(&ids);
        let [weight, bias] =
            [("weight", 6), ("bias", 1)].map(|(name, n)| scope.parameter(name, F32, &[n.into(), 8.into()]));
        let h = &x.matmul(&(&weight * 2.0)) + &bias;
        let h = h.softmax(1);
        let heads = h.reshape(&[rows.total.clone(), 2.into(), 4.into()]);
        let causal = rows.row_index(&rows, 2).ge(&rows.key_index(&rows, 2));
        let weights = causal.select(&heads.scores(&heads, &rows, &rows).silu(), &scope.scalar(F32, 0.0));
        let y = weights.weighted_sum(&heads, &rows, &rows).reshape(&[rows.total.clone(), 8.into()]);
        let both = scope.concat(&[&y, &x], 1);
        let outputs = [("y", both), ("bags", x.gather(&ids).jagged_softmax(&rows)), ("lengths", rows.lengths.clone())];
        let graph = scope.finish(&outputs).unwrap();
        let (lengths, total) = ([2i64, 0, 3], 5);
        let inputs: Tensors = [
            ("lengths".to_owned(), HostTensor::lengths(&lengths)),
            ("ids".to_owned(), Noise::new(2, "ids").integers(DType::I64, &[total], 0, 5)),
        ]
        .into();
        let floats = |name: &str, shape: &[usize]| (name.to_owned(), Noise::new(3, name).floats(F32, shape, 1.0));
        let parameters: Tensors =
            [floats("table", &[11, 6]), floats("weight", &[6, 8]), floats("bias", &[1, 8])].into();
        let plan = plan(&graph).unwrap();
        let expected = oracle(&graph, &inputs, &parameters).unwrap();
        let again: Plan = serde_json::from_value(json!(plan)).unwrap();
        assert!(again == plan && !again.origin.is_lowered() && plan.origin.is_lowered());
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(options) = options(kernel) else { continue };
            let mut session = Session::load(again.clone(), |name| parameters.get(name).cloned(), options).unwrap();
            let found = differences(&run(&mut session, &inputs).unwrap(), &expected, Tolerance::SINGLE);
            assert!(found.is_empty(), "{kernel}: {found:?}");
        }
        Stored { plan: json!(plan), inputs, parameters }
    })
}

/// The places in a value, by JSON pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| places(item, &format!("{at}/{n}"), found));
        }
        Value::Object(entries) => {
            entries.iter().for_each(|(key, item)| places(item, &format!("{at}/{}", key.replace('/', "~1")), found));
        }
        _ => {}
    }
}

/// Changes one place. `numbers` are what numbers become.
fn change(value: &mut Value, numbers: &[i64], choice: u64) {
    let number = || json!(numbers[(choice >> 8) as usize % numbers.len()]);
    match value {
        Value::Array(items) if !items.is_empty() => {
            let at = (choice >> 8) as usize % items.len();
            match choice % 4 {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.swap(at, 0),
                _ => items.clear(),
            }
        }
        Value::Object(entries) if choice.is_multiple_of(3) => {
            let key = entries.keys().nth((choice >> 8) as usize % entries.len().max(1)).cloned();
            key.map(|key| entries.remove(&key));
        }
        Value::Bool(truth) => *truth = !*truth,
        Value::String(text) => {
            let other = ["x", "ids", "table", "Add", "F16", "I32", "I64", "Host", "Device", "Packed", "Scores", "Sum"];
            *text = other[(choice >> 8) as usize % other.len()].to_owned();
        }
        Value::Null => *value = json!([0, 3]),
        _ => *value = number(),
    }
}

fn changed(plan: &Value, numbers: &[i64], choices: &[(usize, u64)]) -> Value {
    let mut plan = plan.clone();
    for &(place, choice) in choices {
        let mut found = vec![];
        places(&plan, "", &mut found);
        if let Some(value) = plan.pointer_mut(&found[place % found.len()]) {
            change(value, numbers, choice);
        }
    }
    plan
}

const SMALL: &[i64] = &[0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 16, 31, 64, -1, -3];
const ABSURD: &[i64] = &[
    -1,
    31,
    32,
    255,
    65_535,
    65_536,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    u32::MAX as i64,
    1 << 40,
    i64::MAX,
    i64::MIN,
];

fn load(plan: Plan) -> Result<Session, RuntimeError> {
    let options = SessionOptions { kernel: Kernel::Cpu, ..SessionOptions::default() };
    Session::load(plan, |name| stored().parameters.get(name).cloned(), options)
}

fn emitted(plan: &Plan) {
    for step in &plan.steps {
        drop(emit(&step.kernel, &Target::BASELINE, &Tuning::default()));
    }
}

fn choices() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((any::<usize>(), any::<u64>()), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_plans_load_and_run_or_say_why_not(choices in choices()) {
        let Ok(plan) = serde_json::from_value::<Plan>(changed(&stored().plan, SMALL, &choices)) else { return Ok(()) };
        emitted(&plan);
        let Ok(mut session) = load(plan) else { return Ok(()) };
        let inputs: Inputs = stored().inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        drop(session.run(&inputs));
    }

    #[test]
    fn absurd_sizes_load_or_say_why_not(choices in choices()) {
        let Ok(plan) = serde_json::from_value::<Plan>(changed(&stored().plan, ABSURD, &choices)) else { return Ok(()) };
        emitted(&plan);
        drop(load(plan));
    }
}

#[test]
fn changes_reach_every_stage() {
    let (mut unread, mut unloaded, mut loaded) = (0, 0, 0);
    for n in 0..150u64 {
        let choice = (n as usize * 7919, n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8);
        match serde_json::from_value::<Plan>(changed(&stored().plan, SMALL, &[choice])).map(load) {
            Err(_) => unread += 1,
            Ok(Err(_)) => unloaded += 1,
            Ok(Ok(_)) => loaded += 1,
        }
    }
    assert!(unread > 9 && unloaded > 9 && loaded > 9, "{unread} unread, {unloaded} unloaded, {loaded} loaded");
}

/// What loading says of the stored plan with a value at a place.
fn error(pointer: &str, value: Value) -> String {
    let mut plan = stored().plan.clone();
    *plan.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    match serde_json::from_value::<Plan>(plan) {
        Err(error) => error.to_string(),
        Ok(plan) => load(plan).map(drop).unwrap_err().to_string(),
    }
}

#[test]
fn what_a_plan_must_not_say_has_an_error() {
    let slots = error("/shapes/slots", json!(1u64 << 40));
    assert!(slots.contains("the shape program has 1099511627776 slots, and"), "{slots}");
    let twice = error("/outputs/1/name", json!("y"));
    assert_eq!(twice, "the plan is not valid: there are two outputs `y`");
    let mut all = vec![];
    places(&stored().plan, "", &mut all);
    let first = all.iter().find(|place| place.ends_with("/dag/nodes/0/expr")).unwrap();
    let forward = error(first, json!({ "Unary": ["Exp", 3] }));
    assert!(forward.contains("expression 0 reads one that does not come before it"), "{forward}");
    let rank = error("/buffers/0/shape", json!(vec![json!({ "constant": 1, "terms": {} }); 17]));
    assert!(rank.contains("buffer 0 has 17 dimensions, more than 16"), "{rank}");
    let size = error("/buffers/0/shape/0/constant", json!(1i64 << 33));
    assert!(size.contains("which no kernel can count"), "{size}");
}

#[test]
fn deep_and_long_expressions_are_errors() {
    let node = |expr: Value| json!({ "expr": expr, "scalar": "F32", "range": null });
    let dag = |nodes: Vec<Value>| serde_json::from_value::<rewire_graph::pointwise::Dag>(json!({ "nodes": nodes }));
    let mut long = vec![node(json!({ "Float": 7 }))];
    long.extend((0..5000).map(|n| node(json!({ "Unary": ["Exp", n] }))));
    assert!(dag(long).unwrap_err().to_string().contains("is one too many"));
    let mut deep =
        vec![node(json!({ "Float": 7 })), json!({ "expr": { "Bool": true }, "scalar": "Bool", "range": null })];
    deep.push(node(json!({ "Select": [1, 0, 0] })));
    deep.extend((2..200).map(|n| node(json!({ "Select": [1, n, 0] }))));
    assert!(dag(deep).unwrap_err().to_string().contains("within too many others"));
}
