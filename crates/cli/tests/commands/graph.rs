//! Drawing and counting graphs.

use crate::program::{DEMO, Folder, run};
use rewire::graph::{DType, Scope};
use rewire::package::Package;
use rewire::weights::serialize;
use rewire::{HostTensor, Mapping};
use serde_json::Value;
use std::collections::BTreeMap;

fn counts(stage: &str) -> Value {
    let run = run(&["graph", &format!("{DEMO}/model"), "--stage", stage, "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.json().remove(0)
}

#[test]
fn counts_tell_what_was_fused() {
    let (traced, rewritten) = (counts("traced"), counts("rewritten"));
    assert_eq!((&traced["stage"], &rewritten["stage"]), (&"traced".into(), &"rewritten".into()));
    let number = |counts: &Value, key: &str| counts[key].as_u64().unwrap();
    assert!(number(&traced, "kernels") > 5 * number(&rewritten, "kernels"));
    assert_eq!(number(&traced, "parameters") * 4, number(&traced, "bytes"));
    assert!(traced["ops"]["matmul"].as_u64().unwrap() > 5 && traced["ops"].get("attention").is_none());
    assert_eq!(rewritten["ops"]["attention"], 2);
    assert!(number(&rewritten, "kernels") <= 22);
    assert_eq!(traced["bytes_before"], rewritten["bytes_before"]);
    assert!(number(&rewritten, "bytes_before") > 2 * number(&rewritten, "bytes_after"));
    assert!(traced["predicted_ms"].as_f64().unwrap() > rewritten["predicted_ms"].as_f64().unwrap());
    for counts in [traced, rewritten] {
        let all: u64 = counts["ops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(all, number(&counts, "nodes"));
    }
}

#[test]
fn gradients_of_parameters_are_drawn_and_fused() {
    let (traced, differentiated) = (counts("traced"), counts("differentiated"));
    assert!(differentiated["nodes"].as_u64() > traced["nodes"].as_u64().map(|nodes| 2 * nodes));
    assert_eq!(differentiated["ops"]["weighted_sum_by_key"], 4);
    let run = run(&["graph", &format!("{DEMO}/model"), "--backward", "--json"]);
    let rewritten = run.json().remove(0);
    assert!(
        rewritten["kernels"].as_u64() < differentiated["kernels"].as_u64().map(|kernels| kernels / 4),
        "{rewritten}"
    );
    // One kernel of attention by key a layer, for keys and values.
    assert_eq!(rewritten["ops"]["attention_by_key"], 2, "{rewritten}");
}

#[test]
fn kernels_are_the_dispatches_of_a_run() {
    let graph =
        rewire::rank::trace(&rewire::rank::read_config(format!("{DEMO}/model").as_ref(), Mapping::default()).unwrap())
            .unwrap();
    let plan = rewire::lower(&rewire::optimize(graph).unwrap().0).unwrap();
    assert_eq!(counts("rewritten")["kernels"], plan.steps.len());
}

#[test]
fn every_format_draws() {
    for (format, start) in [("text", "; "), ("dot", "digraph"), ("svg", "<svg")] {
        for stage in ["traced", "rewritten"] {
            let run = run(&["graph", "--stage", stage, "--format", format]);
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            assert!(run.stdout.starts_with(start), "{format}: {}", &run.stdout[..80]);
            assert!(run.stdout.contains(" predicted on a typical GPU"), "{format}");
        }
    }
}

#[test]
fn what_is_no_model_is_an_error() {
    let folder = Folder::new();
    run(&["graph", &folder.0.display().to_string()]).failed_with(&["config.json"]);
    run(&["graph", "/nonexistent"]).failed_with(&["cannot read /nonexistent"]);
    run(&["graph", &folder.write("x.safetensors", "x")]).failed_with(&["x.safetensors"]);
}

#[test]
fn passes_and_rules_can_be_left_out() {
    let text = |arguments: &[&str]| {
        let run = run(&[&["graph"], arguments].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout
    };
    assert!(text(&["--passes-up-to", "0"]) == text(&["--stage", "traced"]));
    assert!(text(&[]).contains("= attention("));
    assert!(!text(&["--without", "fuse"]).contains("= attention("));
    assert!(text(&["--only", "dead_code"]).lines().count() > text(&[]).lines().filter(|l| !l.starts_with(' ')).count());
}

#[test]
fn rewrites_are_explained_and_compared() {
    let explained = run(&["graph", "--explain"]);
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert!(explained.stdout.contains("fuse: ") && explained.stdout.contains("not one kernel with"));
    let diff = run(&["graph", "--diff"]);
    assert_eq!(diff.code, Some(0), "{}", diff.stderr);
    let has = |start: &str| diff.stdout.lines().any(|line| line.starts_with(start));
    assert!(has("-matmul : ") && has("+attention : ") && has(" parameter["), "{}", diff.stdout);
}

#[test]
fn a_kernel_is_shown_as_wgsl() {
    let graph = run(&["graph"]).stdout;
    let kernel =
        |start: &str| graph.lines().rfind(|line| line.contains(start)).unwrap().split(['%', ' ']).nth(1).unwrap();
    // The last one reads more small parameters than the baseline has bindings.
    for number in [kernel("= attention("), kernel("= layer_norm_addmm(")] {
        for target in [&[][..], &["--target", "baseline"]] {
            let wgsl = run(&[&["graph", "--wgsl", number], target].concat());
            assert_eq!(wgsl.code, Some(0), "{}", wgsl.stderr);
            assert!(wgsl.stdout.contains("@compute") && !wgsl.stdout.contains("where the baseline"), "{}", wgsl.stdout);
        }
    }
    assert_eq!(run(&["graph", "--target", "baseline", "--diff"]).code, Some(2));
    run(&["graph", "--wgsl", "0"]).failed_with(&["%0 has no WGSL", "not computed by a kernel"]);
    run(&["graph", "--wgsl", "99999"]).failed_with(&["the graph has nodes"]);
}

#[test]
fn a_case_is_bisected() {
    let cases = format!("{}/../../tests/golden/fusion_elementwise", env!("CARGO_MANIFEST_DIR"));
    let case = std::fs::read_dir(cases).unwrap().next().unwrap().unwrap().path();
    let bisected = run(&["graph", &case.display().to_string(), "--bisect"]);
    assert_eq!(bisected.code, Some(0), "{}", bisected.stderr);
    assert_eq!(bisected.stdout.trim(), "every rewrite keeps the results");
    run(&["graph", "--bisect"]).refused_with(&["golden case"]);
}

#[test]
fn kernels_are_mapped_to_a_target() {
    let run = run(&["graph", &format!("{DEMO}/model"), "--target", "baseline", "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let steps = run.json();
    assert_eq!(counts("rewritten")["kernels"], steps.len());
    for step in &steps {
        assert!((1..=8).contains(&step["bindings"].as_u64().unwrap()) && step["refused"].is_null(), "{step}");
    }
}

#[test]
fn the_text_begins_with_kernels_and_ends_with_parameters() {
    let text = run(&["graph"]).stdout;
    let at = |part: &str| text.find(part).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("; ") && lines[1].starts_with('%') && at("= addmm(") < at("return logits"),
        "{}",
        &text[..300]
    );
    assert!(at("return logits") < at("= input[uih.lengths]") && at("= input[uih.lengths]") < at("; parameters"));
    assert_eq!(text.matches("embedding.item_id.weight : f32[1500, 32]").count(), 1);
    let parameters = lines.iter().skip_while(|line| !line.starts_with("; parameters")).count() - 1;
    assert!(parameters > 40 && !text.contains("= parameter["), "{parameters}");
}

/// A package of a traced model without a configuration: a lookup, a product and an activation.
fn traced(folder: &Folder) -> String {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let ids = scope.input("ids", DType::U32, std::slice::from_ref(&rows));
    let x = scope.input("x", DType::F32, (rows, 8));
    let table = scope.parameter("table", DType::F32, [50, 8]);
    let weight = scope.parameter("weight", DType::F32, [8, 3]);
    let graph = scope.finish(&[("y", (table.gather(&ids) + x).matmul(&weight).silu())]).unwrap();
    let plan = rewire::lower(&rewire::optimize(graph).unwrap().0).unwrap();
    let tensor = |name: &str, shape: [usize; 2]| {
        (name.to_owned(), HostTensor::f32(shape, &vec![0.5; shape[0] * shape[1]]).unwrap())
    };
    let weights = BTreeMap::from([tensor("table", [50, 8]), tensor("weight", [8, 3])]);
    let bytes = serialize(&weights, &BTreeMap::new()).unwrap();
    folder.write("traced.rewire", Package::new(&plan, None, &bytes, &[]).unwrap().bytes())
}

#[test]
fn packages_of_traced_models_are_described_drawn_timed_and_packaged() {
    let folder = Folder::new();
    let model = traced(&folder);
    let small = folder.0.join("small.rewire").display().to_string();
    let packaged = run(&["package", "--json", "--model", &model, "--tables", "int8", "--out", &small]);
    assert_eq!(packaged.code, Some(0), "{}", packaged.stderr);
    assert_eq!((&packaged.json()[0]["tables"], &packaged.json()[0]["parameters"]), (&1.into(), &424.into()));
    let plan = Package::read(small.as_ref()).unwrap().plan().unwrap();
    assert!(plan.parameters().any(|parameter| (parameter.name, parameter.dtype) == ("table", DType::Rows8)));
    for model in [&model, &small] {
        let described = run(&["describe", model, "--json"]).json().remove(0);
        assert_eq!((&described["model"], &described["example"]), (&Value::Null, &Value::Null));
        assert_eq!(described["outputs"][0]["shape"], serde_json::json!([null, 3]), "{described}");
        let text = run(&["graph", model]);
        assert!(text.stdout.contains("table") && text.stdout.contains("-> y f32[rows, 3]"), "{}", text.stdout);
        let counts = run(&["graph", model, "--json"]).json().remove(0);
        assert_eq!((&counts["kernels"], &counts["parameters"]), (&1.into(), &424.into()), "{counts}");
        assert!(run(&["graph", model, "--wgsl", "0"]).stdout.contains("@compute"));
        assert_eq!(run(&["graph", model, "--target", "baseline", "--json"]).json()[0]["step"], 0);
        run(&["graph", model, "--stage", "traced"]).failed_with(&["is a package without a graph"]);
        let sizes = ["--kernel", "cpu", "--rows", "16"];
        let timed = run(&[&["bench", model, "--json", "--seconds", "0"], &sizes[..]].concat());
        assert_eq!(
            (timed.code, &timed.json()[0]["error"]),
            (Some(0), &Value::Null),
            "{}{}",
            timed.stdout,
            timed.stderr
        );
        let trace = run(&[&["profile", model], &sizes[..]].concat());
        assert!(trace.code == Some(0) && trace.stdout.contains("addmm"), "{}{}", trace.stdout, trace.stderr);
        let parts = run(&[&["profile", model, "--parts"], &sizes[..]].concat());
        parts.failed_with(&["has no graph"]);
        run(&["rank", "--model", model]).failed_with(&["has no configuration"]);
    }
}

#[test]
fn steps_are_mapped_to_the_kernels_of_rules_with_what_moves() {
    let rule = ["graph", "--target", "baseline", "--kernel-for", "stu*=cpu", "--kernel-for", "attention=wgpu"];
    let steps = run(&[&rule[..], &["--json"]].concat()).json();
    let is_of_stu = |step: &Value| step["path"].as_str().unwrap().contains("_stu_module");
    let on_cpu = |step: &Value| step["kernel_for"] == "stu*=cpu";
    assert!(steps.iter().any(&on_cpu) && steps.iter().any(|step| step["kernel_for"] == "attention=wgpu"));
    for (before, step) in steps.iter().zip(&steps[1..]) {
        assert_eq!(on_cpu(step), is_of_stu(step) && step["name"] != "attention", "{step}");
        // Each side reads at least one result of the other one.
        assert!(on_cpu(before) == on_cpu(step) || step.get("moved").is_some(), "{step}");
    }
    let text = run(&rule).stdout;
    assert!(text.contains("  to the CPU: %") && text.contains("  to the target: %"), "{text}");
    assert!(text.contains("on the CPU, by stu*=cpu"), "{text}");
    run(&["graph", "--target", "baseline", "--kernel-for", "stu_layer.0=cpu"])
        .failed_with(&["`stu_layer.0`", "`stu_layers.0`"]);
    run(&["graph", "--kernel-for", "stu*"]).refused_with(&["PATTERN=KERNEL"]);
}
