//! Plans whose files were changed at random: errors or results, and neither panics nor memory without end.

use proptest::prelude::*;
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::Inputs;
use rewire_tests::fuzz::plans::{ABSURD, SMALL, changed, emitted, load, places, stored};
use serde_json::{Value, json};

fn choices() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((any::<usize>(), any::<u64>()), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_plans_load_and_run_or_say_why_not(choices in choices()) {
        let Ok(plan) = serde_json::from_value::<Plan>(changed(&stored().plan, SMALL, &choices)) else { return Ok(()) };
        emitted(&plan);
        let Ok(model) = load(plan) else { return Ok(()) };
        let inputs: Inputs = stored().inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        drop(model.session().run(&inputs));
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

/// The error of loading the stored plan with a changed value.
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
    assert_eq!(twice, "the plan is not valid: output `y` exists twice");
    let mut all = vec![];
    places(&stored().plan, "", &mut all);
    let first = all.iter().find(|place| place.ends_with("/dag/nodes/0/expr")).unwrap();
    let forward = error(first, json!({ "Unary": ["Exp", 3] }));
    assert!(forward.contains("expression 0 reads one that does not come before it"), "{forward}");
    let rank = error("/buffers/0/shape", json!(vec![json!({ "constant": 1, "terms": {} }); 17]));
    assert!(rank.contains("buffer 0 has 17 dimensions, more than 16"), "{rank}");
    let size = error("/buffers/0/shape/0/constant", json!(1i64 << 33));
    assert!(size.contains("beyond the limit of kernels"), "{size}");
}

#[test]
fn deep_and_long_expressions_are_errors() {
    let node = |expr: Value| json!({ "expr": expr, "scalar": "F32", "range": null });
    let dag = |nodes: Vec<Value>| serde_json::from_value::<rewire_graph::pointwise::Dag>(json!({ "nodes": nodes }));
    let mut long = vec![node(json!({ "Float": 7 }))];
    long.extend((0..5000).map(|n| node(json!({ "Unary": ["Exp", n] }))));
    assert!(dag(long).unwrap_err().to_string().contains("has 5001 expressions, more than 4096"));
    let mut deep =
        vec![node(json!({ "Float": 7 })), json!({ "expr": { "Bool": true }, "scalar": "Bool", "range": null })];
    deep.push(node(json!({ "Select": [1, 0, 0] })));
    deep.extend((2..200).map(|n| node(json!({ "Select": [1, n, 0] }))));
    assert!(dag(deep).unwrap_err().to_string().contains("has 199 choices within one another, more than 96"));
}
