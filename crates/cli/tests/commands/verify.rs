//! Replaying golden cases.

use crate::program::{DEMO, Folder, run};
use rewire::graph::HostTensor;
use rewire::weights::{Weights, serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// `input + mat1 mat2` with this result.
fn addmm(op: &str, out: &[f32]) -> Vec<u8> {
    let tensor = |shape: &[usize], values: &[f32]| HostTensor::f32(shape.to_vec(), values).unwrap();
    let tensors = BTreeMap::from([
        ("in.input".to_owned(), tensor(&[2], &[1.0, -1.0])),
        ("in.mat1".to_owned(), tensor(&[3, 1], &[1.0, 2.0, 3.0])),
        ("in.mat2".to_owned(), tensor(&[1, 2], &[10.0, 20.0])),
        ("out.out".to_owned(), tensor(&[out.len() / 2, 2], out)),
        ("grad_out.out".to_owned(), tensor(&[3, 2], &[0.0; 6])),
    ]);
    let metadata = [("op", op), ("attrs", "{}"), ("dtype", "f32"), ("source", "a test")];
    serialize(&tensors, &metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into()).unwrap()
}

const RIGHT: [f32; 6] = [11.0, 19.0, 21.0, 39.0, 31.0, 59.0];

fn verify(folder: &Folder, args: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let path = folder.0.display().to_string();
    let run = run(&[&["verify", &path, "--json", "--kernel", "cpu"], args].concat());
    (run.code, run.json(), run.stderr)
}

#[test]
fn every_case_has_a_line_and_a_status() {
    let folder = Folder::new();
    let mut wrong = RIGHT;
    wrong[3] += 0.1;
    folder.write("a_right.safetensors", addmm("addmm", &RIGHT));
    folder.write("b_wrong.safetensors", addmm("addmm", &wrong));
    folder.write("c_shape.safetensors", addmm("addmm", &RIGHT[..4]));
    folder.write("d_unknown.safetensors", addmm("no_such_op", &RIGHT));
    folder.write("e_damaged.safetensors", &addmm("addmm", &RIGHT)[..200]);
    folder.write("f_hostile.safetensors", addmm("../../x", &RIGHT));
    folder.write("g_right.safetensors", addmm("addmm", &RIGHT));
    folder.write("other.txt", "no case");
    let (code, lines, stderr) = verify(&folder, &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("error: 5 of 7 cases failed"), "{stderr}");
    let reasons: Vec<&str> = stderr.lines().filter(|line| line.starts_with("not ok: ")).collect();
    assert_eq!(reasons.len(), 5, "{stderr}");
    assert!(reasons[0].starts_with("not ok: addmm/b_wrong: FAIL: the error ") && reasons[0].ends_with("is above 2e-5"));
    assert!(reasons[2].starts_with("not ok: no_such_op/d_unknown: unsupported: ") && reasons[2].contains("no_such_op"));
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["ok", "FAIL", "FAIL", "unsupported", "error", "error", "ok"]);
    let first = &lines[0];
    assert_eq!((&first["op"], &first["case"]), (&"addmm".into(), &"a_right".into()));
    assert_eq!((&first["kernel"], &first["adapter"]), (&"cpu".into(), &"cpu".into()));
    assert_eq!((&first["gpu_steps"], &first["cpu_steps"], &first["tolerance"]), (&0.into(), &1.into(), &2e-5.into()));
    assert!(first["max_rel_err"].as_f64().unwrap() < 1e-6);
    assert!(lines[1]["max_rel_err"].as_f64().unwrap() > 1e-3);
    assert!(lines[2]["message"].as_str().unwrap().contains("shape [3, 2]"), "{}", lines[2]);
    assert!(lines[3]["message"].as_str().unwrap().contains("no_such_op"));
    assert!(lines.iter().all(|line| line.get("max_rel_err").is_some()));
}

#[test]
fn results_are_saved_with_the_names_of_the_case() {
    let (folder, saved) = (Folder::new(), Folder::new());
    folder.write("right.safetensors", addmm("addmm", &RIGHT));
    let to = saved.0.display().to_string();
    let (code, ..) = verify(&folder, &["--save", &to]);
    assert_eq!(code, Some(0));
    let weights = Weights::read(&saved.0.join("addmm/right.safetensors")).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["out.out"]);
    assert_eq!(weights.get("out.out").unwrap().unwrap().to_f32(), RIGHT);
    assert_eq!(weights.metadata()["source"], "a test");
    let file = saved.write("file", "");
    let (code, lines, _) = verify(&folder, &["--save", &file]);
    assert_eq!((code, &lines[0]["status"]), (Some(1), &"error".into()));
}

#[test]
fn people_get_a_table() {
    let folder = Folder::new();
    folder.write("right.safetensors", addmm("addmm", &RIGHT));
    let run = run(&["verify", &folder.0.display().to_string(), "--kernel", "cpu"]);
    assert!(run.stdout.starts_with("ok          addmm/right"), "{}", run.stdout);
    assert!(run.stdout.ends_with("all 1 case is ok\n"), "{}", run.stdout);
}

#[test]
fn paths_without_cases_are_errors() {
    let folder = Folder::new();
    let missing = run(&["verify", "/nonexistent/x", "--kernel", "cpu"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stdout.contains("cannot read /nonexistent/x"), "{}", missing.stdout);
    run(&["verify", &folder.0.display().to_string()]).failed_with(&["found no .safetensors files"]);
    let case = folder.write("x.safetensors", b"nothing");
    assert!(Path::new(&case).exists());
    let run = run(&["verify", &case, "--kernel", "cpu"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.starts_with("error       /x"), "{}", run.stdout);
}

#[test]
fn a_wrong_gradient_is_found_and_right_ones_are_saved() {
    let tensor = |shape: &[usize], values: &[f32]| HostTensor::f32(shape, values).unwrap();
    let case = |gradient: &[f32]| {
        let tensors = BTreeMap::from([
            ("in.input".to_owned(), tensor(&[2], &[1.0, -1.0])),
            ("in.mat1".to_owned(), tensor(&[3, 1], &[1.0, 2.0, 3.0])),
            ("in.mat2".to_owned(), tensor(&[1, 2], &[10.0, 20.0])),
            ("out.out".to_owned(), tensor(&[3, 2], &RIGHT)),
            ("grad_out.out".to_owned(), tensor(&[3, 2], &[1.0, 2.0, 0.0, -1.0, 4.0, 3.0])),
            ("grad.input".to_owned(), tensor(&[2], &[5.0, 4.0])),
            ("grad.mat1".to_owned(), tensor(&[3, 1], gradient)),
        ]);
        let metadata = [("op", "addmm"), ("attrs", "{}"), ("dtype", "f32"), ("source", "a test")];
        serialize(&tensors, &metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into()).unwrap()
    };
    let (folder, saved) = (Folder::new(), Folder::new());
    folder.write("a_right.safetensors", case(&[50.0, -20.0, 100.0]));
    folder.write("b_wrong.safetensors", case(&[50.0, -20.0, 100.1]));
    assert_eq!(verify(&folder, &[]).0, Some(0));
    let (code, lines, stderr) = verify(&folder, &["--backward", "--save", &saved.0.display().to_string()]);
    assert_eq!((code, &lines[0]["status"], &lines[1]["status"]), (Some(1), &"ok".into(), &"FAIL".into()), "{stderr}");
    let written = Weights::read(&saved.0.join("addmm/a_right.safetensors")).unwrap();
    assert_eq!(written.get("grad.mat1").unwrap().unwrap().to_f64(), [50.0, -20.0, 100.0]);
    assert_eq!(written.get("grad.input").unwrap().unwrap().to_f64(), [5.0, 4.0]);
}

/// The object that a comparison with the demo's model prints.
fn compared(args: &[&str]) -> Value {
    let all = ["verify", "--json", "--kernel", "cpu", "--against", &format!("{DEMO}/model")];
    let run = run(&[&all[..], args].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.json().remove(0)
}

#[test]
fn a_model_does_not_differ_from_itself() {
    let told = compared(&[]);
    assert_eq!((&told["users"], &told["candidates"], &told["reordered"]), (&256.into(), &4158.into(), &0.into()));
    for task in ["is_click", "is_like"] {
        let task = &told["tasks"][task];
        assert_eq!((&task["largest_change"], &task["mean_change"]), (&0.0.into(), &0.0.into()));
        assert!(task["auc"].as_f64() > Some(0.7) && task["auc"] == task["auc_against"], "{told}");
    }
}

#[test]
fn smaller_tables_differ_a_little() {
    let folder = Folder::new();
    let file = folder.0.join("model.rewire").display().to_string();
    assert_eq!(run(&["package", "--out", &file, "--tables", "int8"]).code, Some(0));
    let told = compared(&["--model", &file]);
    let task = &told["tasks"]["is_like"];
    let [largest, mean] = ["largest_change", "mean_change"].map(|key| task[key].as_f64().unwrap());
    assert!(0.0 < mean && mean < largest && largest < 5e-2, "{told}");
    assert!(0 < told["reordered"].as_u64().unwrap() && told["reordered"].as_u64() < Some(40), "{told}");
    let change = task["auc"].as_f64().unwrap() - task["auc_against"].as_f64().unwrap();
    assert!(change != 0.0 && change.abs() < 1e-3, "{told}");
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packages/users.jsonl");
    let told = compared(&["--model", &file, "--data", data]);
    assert_eq!((&told["users"], &told["tasks"]["is_click"]["auc"]), (&5.into(), &Value::Null));
}

#[test]
fn models_that_cannot_be_compared_are_errors() {
    let folder = Folder::new();
    std::fs::copy(format!("{DEMO}/model/model.safetensors"), folder.0.join("model.safetensors")).unwrap();
    let text = std::fs::read_to_string(format!("{DEMO}/model/config.json")).unwrap();
    let against = |change: &dyn Fn(&mut Value)| {
        let mut config: Value = serde_json::from_str(&text).unwrap();
        change(&mut config);
        folder.write("config.json", config.to_string());
        run(&["compare", "--kernel", "cpu", "--against", &folder.0.display().to_string()])
    };
    let tasks = |config: &mut Value| config["fusion_mtl_tower"]["task_configs"][1]["task_bitmask"] = 4.into();
    against(&tasks).failed_with(&["different tasks", "(\"is_like\", 2)", "(\"is_like\", 4)"]);
    let usage = |args: &[&str]| assert_eq!(run(&[&["verify"], args].concat()).code, Some(2), "{args:?}");
    usage(&["--model", "x"]);
    usage(&["--data", "x"]);
    usage(&["--against", "x", "--backward"]);
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn gradients_of_golden_cases_are_those_of_the_reference() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
        let run = run(&["verify", golden, "--backward", "--json", "--kernel", "cpu"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let lines = run.json();
        let compared = lines.iter().filter(|line| line["tolerance"] == 1e-4 || line["tolerance"] == 5e-3);
        assert!(lines.len() >= 274 && compared.count() > 200);
    }
}
