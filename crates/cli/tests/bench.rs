//! Timing operators and models. Figures are looked at for being there, never for their size.
#![allow(clippy::unwrap_used)]

mod program;

use program::run;
use serde_json::Value;

const FIELDS: [&str; 15] = [
    "op",
    "shape",
    "dtype",
    "kernel",
    "adapter",
    "wall_ms",
    "gpu_ms",
    "min_ms",
    "p95_ms",
    "tflops",
    "gbps",
    "ceiling_tflops",
    "ceiling_gbps",
    "peak_bytes",
    "predicted_ms",
];

fn bench(arguments: &[&str]) -> Vec<Value> {
    let common = ["bench", "--kernel", "cpu", "--json", "--seconds", "0"];
    let run = run(&[&common[..], arguments].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.json()
}

#[test]
fn every_operator_has_a_record_of_all_fields() {
    let names: Vec<&str> = rewire::bench::operators().map(|(name, _)| name).collect();
    let sizes = ["--shape", "on-device", "--rows", "40", "--m", "50", "--k", "24", "--n", "36", "--table", "70"];
    let records = bench(&[&names[..], &["demo"], &sizes].concat());
    assert_eq!(records.len(), names.len() + 1);
    for (record, name) in records.iter().zip(names.iter().chain(&["demo"])) {
        assert_eq!(record["op"], *name);
        let missing: Vec<_> = FIELDS.iter().filter(|field| record.get(**field).is_none()).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
        assert_eq!((&record["kernel"], &record["adapter"]), (&"cpu".into(), &"cpu".into()));
        assert!(record["gpu_ms"].is_null() && record["error"].is_null(), "{record}");
        for field in ["wall_ms", "min_ms", "p95_ms", "gbps", "ceiling_tflops", "ceiling_gbps", "predicted_ms"] {
            assert!(record[field].as_f64().is_some_and(|value| value > 0.0), "{name} {field}: {record}");
        }
        assert!(record["peak_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{record}");
        let [least, median, most] = ["min_ms", "wall_ms", "p95_ms"].map(|field| record[field].as_f64().unwrap());
        assert!(least <= median && median <= most, "{record}");
    }
}

#[test]
fn sizes_and_seed_decide_the_work() {
    let attention = |arguments: &[&str]| {
        let sizes = ["attention", "--batch", "3", "--heads", "2", "--attn-dim", "8", "--max-len", "64"];
        bench(&[&sizes[..], arguments].concat()).remove(0)
    };
    let full = attention(&[]);
    assert_eq!(full["operations"], 4 * 8 * 2 * 3 * (64 * 65 / 2));
    assert_eq!((&full["shape"]["batch"], &full["shape"]["hidden_dim"]), (&3.into(), &8.into()));
    assert_eq!(full["shape"]["m"], Value::Null);
    let jagged = |seed: &str| attention(&["--len-dist", "uniform:10:60", "--seed", seed])["operations"].clone();
    assert_eq!(jagged("3"), jagged("3"));
    assert_ne!(jagged("3"), jagged("4"));
    assert!(attention(&["--window", "8"])["operations"].as_u64() < full["operations"].as_u64());
    let half = attention(&["--dtype", "f16"]);
    assert_eq!(half["dtype"], "f16");
    assert!(half["bytes"].as_u64().unwrap() * 2 == full["bytes"].as_u64().unwrap());
}

#[test]
fn what_cannot_be_benched_is_named() {
    run(&["bench", "nonsense", "--kernel", "cpu"]).failed_with(&["`nonsense`", "attention", "stu-layer"]);
    let sizes = ["bench", "stu-layer", "--kernel", "cpu", "--seconds", "0"];
    run(&[&sizes[..], &["--heads", "0"]].concat()).failed_with(&["stu-layer", "num_heads"]);
    let usage = run(&[&sizes[..], &["--len-dist", "uniform:9:3"]].concat());
    assert_eq!(usage.code, Some(2));
    assert!(usage.stderr.contains("uniform:LO:HI"), "{}", usage.stderr);
}
