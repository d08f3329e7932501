//! Timing operators and models. Figures are looked at for being there, never for their size.

use crate::program::{Folder, run};
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
fn every_operator_has_a_record_of_all_fields_and_its_backward_pass_timed() {
    let names: Vec<&str> = rewire_measure::operators().map(|(name, _)| name).collect();
    let sizes = ["--shape", "on-device", "--rows", "40", "--m", "50", "--k", "24", "--n", "36", "--table", "70"];
    let all = [&names[..], &["demo"], &sizes].concat();
    let records = bench(&all);
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
    let back = bench(&[&all[..], &["--backward"]].concat());
    assert_eq!(back.len(), records.len());
    for (forward, back) in records.iter().zip(back) {
        assert_eq!((&back["op"], &back["shape"]["backward"]), (&forward["op"], &true.into()));
        assert!(back["error"].is_null() && forward["shape"].get("backward").is_none(), "{back}");
        assert!(back["bytes"].as_u64() > forward["bytes"].as_u64(), "{forward}, {back}");
    }
}

/// A run is one token of every sequence after a prompt that all share.
#[test]
fn a_token_of_a_decoder_is_timed() {
    for name in ["qwen3", "t5"] {
        let folder = format!("{}/../../tests/decoders/{name}", env!("CARGO_MANIFEST_DIR"));
        let with = |batch: &str, prompt: &str, weights: &str| {
            let record = bench(&[&folder, "--batch", batch, "--max-len", prompt, "--weights", weights]).remove(0);
            assert!(record["error"].is_null() && record["wall_ms"].as_f64() > Some(0.0), "{record}");
            assert_eq!(record["op"], folder.as_str());
            record
        };
        let [one, three, longer, integers] =
            [("1", "40", "f32"), ("3", "40", "f32"), ("1", "400", "f32"), ("1", "40", "int8")]
                .map(|(b, p, w)| with(b, p, w));
        let of = |record: &Value, field: &str| record[field].as_u64().unwrap_or_else(|| panic!("{field}: {record}"));
        assert_eq!(of(&one, "kernels"), of(&three, "kernels"), "{name}");
        assert!(of(&three, "operations") > 2 * of(&one, "operations"), "{name}: {three}");
        assert!(of(&longer, "bytes") > of(&one, "bytes"), "{name}: {longer}");
        assert!(2 * of(&integers, "bytes") < of(&one, "bytes"), "{name}: {integers}");
    }
}

#[test]
fn the_effect_of_passes_is_timed() {
    let records = bench(&["norm-mul-dropout", "--rows", "40", "--width", "24", "--without", "fusion,merge_siblings"]);
    let [whole, without] = &records[..] else { panic!("{records:?}") };
    assert_eq!(
        (&whole["shape"]["without"], &without["shape"]["without"]),
        (&Value::Null, &"fusion+merge_siblings".into())
    );
    assert!(without["kernels"].as_u64() > whole["kernels"].as_u64(), "{records:?}");
    assert!(without["bytes"].as_u64() > whole["bytes"].as_u64(), "{records:?}");
    let unknown = run(&["bench", "layer-norm", "--kernel", "cpu", "--seconds", "0", "--without", "fuser"]);
    assert_eq!(unknown.code, Some(1), "{}", unknown.stdout);
    assert!(unknown.stderr.contains("fuser") && unknown.stderr.contains("merge_siblings"), "{}", unknown.stderr);
}

#[test]
fn weights_are_stored_in_a_type_of_their_own() {
    let sizes = ["addmm", "--m", "4", "--k", "300", "--n", "300"];
    let [plain, rows] = [&[][..], &["--weights", "int8"]].map(|more| bench(&[&sizes[..], more].concat()).remove(0));
    assert_eq!((&plain["shape"]["weights"], &rows["shape"]["weights"]), (&Value::Null, &"rows8".into()));
    assert_eq!((&plain["dtype"], &rows["dtype"]), (&"f32".into(), &"f32".into()));
    let [plain, rows] = [plain, rows].map(|record| record["bytes"].as_u64().unwrap());
    assert!(rows < plain / 2, "{rows} bytes in place of {plain}");
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

/// The interpreters here are shell scripts: one that answers every line as the script for PyTorch does, one that only starts, and one
/// that ends.
#[cfg(unix)]
#[test]
fn times_of_pytorch_are_beside_those_of_rewire() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let python = |name: &str, lines: &str| {
        let path = folder.write(name, format!("#!/bin/sh\n{lines}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let answers = r#"case "$line" in *layer-norm*) echo 1e9;; *addmm*) echo '"no memory"';; *) echo null;; esac"#;
    let answering = python("answering", &format!("echo '\"2.0\"'\nwhile read line; do\n{answers}\ndone"));
    let works = ["layer-norm", "pointwise", "addmm", "--rows", "40", "--width", "24", "--m", "5"];
    let records = bench(&[&works[..], &["--python", &answering]].concat());
    let times: Vec<Option<f64>> = records.iter().map(|record| record["pytorch_ms"].as_f64()).collect();
    assert_eq!(times, [Some(1e9), None, None]);
    let table = |python: &str| {
        run(&["bench", "layer-norm", "--width", "24", "--seconds", "0", "--kernel", "cpu", "--python", python])
    };
    let shown = table(&answering);
    assert!(shown.stdout.contains("PyTorch ms") && shown.stdout.contains("1000000000"), "{}", shown.stdout);
    let started = table(&python("started", "echo '\"2.0\"'"));
    assert!(started.code == Some(0) && started.stderr.contains("cannot time PyTorch with"), "{}", started.stderr);
    table(&python("ending", "exit 1")).failed_with(&["cannot time PyTorch with", "it ended early"]);
    table("/no/python").failed_with(&["cannot time PyTorch with /no/python: No such file"]);
}

#[test]
fn what_cannot_be_benched_is_named() {
    let sizes = ["bench", "stu-layer", "--kernel", "cpu", "--seconds", "0"];
    run(&[&sizes[..], &["--heads", "0"]].concat()).refused_with(&["stu-layer", "`heads` must be in 1..="]);
    let usage = run(&[&sizes[..], &["--len-dist", "uniform:9:3"]].concat());
    assert_eq!(usage.code, Some(2));
    assert!(usage.stderr.contains("uniform:LO:HI"), "{}", usage.stderr);
}

#[test]
fn records_are_compared_drawn_and_put_on_a_page() {
    let folder = Folder::new();
    let file = |name: &str| folder.0.join(name).display().to_string();
    let sizes = ["layer-norm", "addmm", "--rows", "30", "--m", "20", "--k", "8", "--n", "12"];
    let records = bench(&[&sizes[..], &["--svg", &file("roof.svg"), "--markdown", &file("page.md")]].concat());
    assert!(std::fs::read_to_string(file("roof.svg")).unwrap().matches("<circle").count() == 2);
    assert!(std::fs::read_to_string(file("page.md")).unwrap().contains("### addmm\n\nAll: m 20, k 8, n 12."));

    let lines: String =
        records.iter().map(|record| format!("{}\n", record.to_string().replace("\"cpu\"", "\"other\""))).collect();
    let other = folder.write("other.jsonl", lines);
    let paged = run(&["bench", "--svg", &file("both.svg"), "--records", &other, "--markdown", &file("both.md")]);
    assert_eq!(paged.code, Some(0), "{}", paged.stderr);
    assert!(std::fs::read_to_string(file("both.md")).unwrap().contains("## other"));
    assert!(std::fs::read_to_string(file("both.md")).unwrap().contains("](both.svg)"));
    assert_eq!(std::fs::read_to_string(file("both.svg")).unwrap().matches("<g ").count(), 1);

    let slower = |record: &Value, factor: f64| {
        let mut record = record.clone();
        for metric in ["wall_ms", "load_ms"] {
            record[metric] = (record[metric].as_f64().unwrap() * factor).into();
        }
        format!("{record}\n")
    };
    let compare = |earlier: String| {
        let earlier = folder.write("earlier.jsonl", earlier);
        let common = ["bench", "--kernel", "cpu", "--json", "--seconds", "0", "--compare", &earlier];
        run(&[&common[..], &sizes].concat())
    };
    let better = compare(records.iter().map(|record| slower(record, 1e6)).collect());
    assert_eq!(better.code, Some(0), "{}", better.stderr);
    let found = better.json();
    assert!(found[2..].iter().all(|comparison| comparison["category"] == "better"), "{found:?}");
    let worse = compare(slower(&records[0], 1e-6));
    worse.failed_with(&["1 of 1 are worse"]);
    assert_eq!(worse.json()[2]["category"], "worse");
    compare("no record".to_owned()).failed_with(&["earlier.jsonl", "line 1"]);
}

#[test]
fn people_read_a_table() {
    let run = run(&["bench", "addmm", "pointwise", "--m", "20", "--rows", "30", "--kernel", "cpu", "--seconds", "0"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("cpu: copies "), "{}", run.stdout);
    let header = ["work", "type", "run ms", "spread", "GPU ms", "floor ms", "share", "bound by"];
    assert!(header.iter().all(|name| lines[1].contains(name)), "{}", lines[1]);
    assert!(lines[2].contains("addmm (m 20, k ") && lines[2].contains(" to ") && lines[2].contains(" %  "));
    let bound = ["bandwidth", "arithmetic"].iter().any(|bound| lines[3].contains(bound));
    assert!(lines[3].contains("pointwise (rows 30") && bound, "{}", lines[3]);
    assert_eq!(lines[2].find("f32"), lines[3].find("f32"));
}

#[test]
fn work_is_announced_or_refused_before_anything_is_measured() {
    let folder = Folder::new();
    let with = |args: &[&str]| run(&[args, &["--m", "4", "--kernel", "cpu", "--seconds", "0"]].concat());
    let told = with(&["bench", "addmm", "pointwise", "--rows", "4"]);
    assert!(told.stderr.contains("timing 2 workloads on cpu: "), "{}", told.stderr);
    let missing = folder.0.join("none/page.md").display().to_string();
    for refused in [with(&["profile", "addmm", "--parts"]), with(&["bench", "addmm", "--markdown", &missing])] {
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
}

#[test]
fn a_profile_is_a_chrome_trace() {
    let profile = run(&["profile", "stu", "--kernel", "cpu", "--shape", "on-device"]);
    assert_eq!(profile.code, Some(0), "{}", profile.stderr);
    let trace = profile.json().remove(0);
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |category: &str| events.iter().filter(|event| event["cat"] == category).collect::<Vec<_>>();
    assert!(of("kernel").iter().any(|event| event["name"] == "attention" && event["args"]["path"] == "_stu_layers.1"));
    assert!(of("kernel").iter().all(|event| event["args"]["predicted_us"].as_f64().is_some_and(|us| us > 0.0)));
    assert!(of("run").iter().any(|event| event["name"] == "sizes"));
    let region = of("module").into_iter().find(|event| event["name"] == "1").unwrap();
    let span =
        |event: &Value| (event["ts"].as_f64().unwrap(), event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap());
    let inside = of("kernel").into_iter().filter(|event| event["args"]["path"] == "_stu_layers.1");
    for event in inside {
        assert!(span(event).0 >= span(region).0 && span(event).1 <= span(region).1 + 1e-3, "{event} {region}");
    }
}

#[test]
fn sizes_of_nothing_and_without_end_are_refused() {
    let bench = |args: &[&str]| run(&[&["bench", "--kernel", "cpu", "--seconds", "0"], args].concat());
    bench(&["addmm", "--m", "0"]).refused_with(&["cannot bench addmm: `m` must be in 1..=2147483647, got 0"]);
    bench(&["attention", "--batch", "0"]).refused_with(&["`batch` must be in 1..="]);
    bench(&["attention", "--targets", "100", "--max-len", "10"])
        .refused_with(&["`targets` must be in 0..=10, as max_len is, got 100"]);
    bench(&["demo", "--targets", "1000"]).refused_with(&["cannot bench demo: `targets` must be in 0..=160"]);
    bench(&["attention", "--len-dist", "0"]).refused_with(&["`len_dist` must be in 1..=512"]);
    bench(&["stu", "--layers", "1025"]).refused_with(&["`layers` must be in 1..=1024"]);
    bench(&["addmm", "--m", "2147483648"]).refused_with(&["`m` must be in"]);
    bench(&["addmm", "--m", "2147483647"]).failed_with(&["cannot bench addmm: the data needs", "are available"]);
    bench(&["pointwise", "--width", "4294967296", "--rows", "4294967296"]).refused_with(&["must be in 1..="]);
    for seconds in ["1e300", "-1", "inf", "NaN"] {
        let run = run(&["bench", "addmm", "--kernel", "cpu", &format!("--seconds={seconds}")]);
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains("expected a number from 0 to 86400"), "{}", run.stderr);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_limit_of_memory_leaves_is_not_exceeded() {
    let limited = |bytes: u64, args: &str| {
        let script = format!("ulimit -v {}; exec \"$0\" bench --kernel cpu --seconds 0 {args}", bytes >> 10);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_rewire")]);
        crate::program::finish(command.env("XDG_CACHE_HOME", std::env::temp_dir().join("rewire-test-caches")))
    };
    // The buffers for measuring copies do not fit.
    limited(256 << 20, "addmm --m 4").failed_with(&["measuring how fast memory is copied needs 268435456 bytes"]);
    limited(768 << 20, "addmm --m 2000000").failed_with(&["the data needs 4", "are available"]);
    // The data fits, but not the results.
    let run = limited(768 << 20, "pointwise --rows 180000 --width 510 --json");
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let error = run.json().remove(0)["error"].clone();
    assert!(error.as_str().is_some_and(|error| error.contains("a run of these sizes needs")), "{error}");
}

#[test]
fn files_are_written_whole_or_not_at_all() {
    let folder = Folder::new();
    let bench = |to: &str| run(&["bench", "addmm", "--m", "4", "--kernel", "cpu", "--seconds", "0", "--svg", to]);
    let missing = folder.0.join("none/roof.svg").display().to_string();
    bench(&missing).failed_with(&["none/roof.svg: No such file"]);
    assert!(std::fs::read_dir(&folder.0).unwrap().next().is_none());
    if cfg!(target_os = "linux") {
        bench("/dev/full").failed_with(&["/dev/full: No space left"]);
        run(&["profile", "addmm", "--m", "4", "--kernel", "cpu", "--output", "/dev/full"])
            .failed_with(&["/dev/full: No space left"]);
    }
}

#[test]
fn a_sweep_has_a_row_and_a_point_for_every_size_type_and_mode() {
    let folder = Folder::new();
    let [csv, svg] = ["sweep.csv", "sweep.svg"].map(|name| folder.0.join(name).display().to_string());
    let sizes = ["--m", "16", "--n", "8", "--seconds", "0", "--kernels", "cpu", "--json"];
    let axes = ["--dtypes", "f32,f16", "--modes", "forward,backward", "--csv", &csv, "--svg", &svg];
    let swept = run(&[&["bench", "addmm", "--sweep", "k=8:32"], &sizes[..], &axes[..]].concat());
    assert_eq!(swept.code, Some(0), "{}", swept.stderr);
    let records = swept.json();
    assert_eq!(records.len(), 12);
    let text = std::fs::read_to_string(&csv).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..6], ["op", "k", "kernel", "adapter", "dtype", "mode"]);
    assert_eq!(rows.len(), 13);
    for (row, record) in rows[1..].iter().zip(&records) {
        assert_eq!((row[1], row[4]), (&*record["shape"]["k"].to_string(), record["dtype"].as_str().unwrap()));
        assert_eq!(row[6].parse::<f64>().unwrap(), record["wall_ms"].as_f64().unwrap());
    }
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert_eq!((picture.matches("<polyline").count(), picture.matches("<circle").count()), (4, 12));
    run(&["bench", "addmm", "--sweep", "columns=1:2"]).refused_with(&["columns=1:2", "max-len"]);
}

#[test]
#[cfg(feature = "parquet")]
fn the_quality_of_a_pipeline_is_compared_with_a_baseline() {
    let folder = Folder::new();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tzrec/deepfm_taobao");
    let [pipeline, data] = ["pipeline.config", "data.parquet"].map(|name| format!("{golden}/{name}"));
    let spread = |mean: f64| serde_json::json!({"mean": mean, "std": 0.0});
    let earlier =
        serde_json::json!({"op": pipeline, "seeds": 3, "metrics": {"auc": spread(0.01), "gone": spread(1.0)}});
    let baseline = folder.write("baseline.jsonl", earlier.to_string());
    let args = ["bench", "--quality", &pipeline, "--data", &data, "--eval", &data, "--seeds", "1", "--json"];
    let run = run(&[&args[..], &["--baseline", &baseline, "--kernel", "cpu"]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let [quality, change] = <[Value; 2]>::try_from(run.json()).unwrap();
    let auc = quality["metrics"]["auc"]["mean"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&auc) && quality["metrics"]["auc"]["std"] == 0.0 && quality["seeds"] == 1);
    assert_eq!(change["category"], "better");
    assert!((change["changes"]["auc"].as_f64().unwrap() - (auc - 0.01) / 0.01).abs() < 1e-9);
    assert_eq!(change["changes"].as_object().unwrap().len(), 1);
}
