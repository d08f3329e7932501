//! Training of pipelines against runs of TorchEasyRec.

use super::resumed::kill_and_resume;
use super::{distance, number, read_lines, steps, tensors};
use crate::program::{Folder, Run, run};
use rewire::HostTensor;
use rewire::graph::DType;
use rewire::rank::RankOptions;
use rewire::train::PipelineTask;
use rewire::weights::Weights;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec").join(name)
}

/// An imported model of a golden, with changes to its `config.json`.
fn model(name: &str, change: impl FnOnce(&mut Value)) -> Folder {
    let folder = Folder::new();
    let [source, checkpoint] =
        ["pipeline.config", "model.safetensors"].map(|file| golden(name).join(file).display().to_string());
    let imported = run(&["import", &source, "--checkpoint", &checkpoint, "--out", &folder.0.display().to_string()]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let config = folder.0.join("config.json");
    let mut changed: Value = serde_json::from_str(&std::fs::read_to_string(&config).unwrap()).unwrap();
    if let Ok(plan) = std::fs::read_to_string(golden(name).join("train/plan.json")) {
        changed["plan"] = serde_json::from_str(&plan).unwrap();
    }
    change(&mut changed);
    folder.write("config.json", changed.to_string());
    folder
}

/// Trains a model on the data of a golden.
fn train(name: &str, model: &Folder, out: &Folder, more: &[&str]) -> Run {
    let [data, negatives] =
        ["data.parquet", "negatives.parquet"].map(|file| golden(name).join(file).display().to_string());
    let (model, out) = (model.0.display().to_string(), out.0.display().to_string());
    let mut args = vec!["train", "--model", &model, "--data", &data, "--out", &out, "--json"];
    if Path::new(&negatives).exists() {
        args.extend(["--negatives", &negatives]);
    }
    args.extend(more);
    run(&args)
}

/// Losses of steps are within 1e-5 of the reference's.
fn check_losses(name: &str, trained: &[Value]) {
    for (own, expected) in trained.iter().zip(&read_lines(&golden(name).join("train/losses.jsonl"))) {
        assert_eq!(own["step"].as_u64(), expected["step"].as_u64().map(|step| step + 1));
        let close = |a: &Value, b: &Value| {
            assert!((number(a) - number(b)).abs() < 1e-5, "{name}: {own} {expected}");
        };
        close(&own["loss"], &expected["total"]);
        let losses = expected["losses"].as_object().unwrap();
        assert_eq!(own["losses"].as_object().unwrap().len(), losses.len(), "{own}");
        losses.iter().for_each(|(loss, value)| close(&own["losses"][loss], value));
    }
}

/// Parameters are within 2 % of the way that they went in the reference's run.
fn went_alike(name: &str, out: &Folder) {
    let all = |file: &Path| -> HashMap<String, Vec<f64>> {
        let named = tensors(file).into_iter();
        named.map(|(name, values)| (name.strip_prefix("model.").unwrap_or(&name).to_owned(), values)).collect()
    };
    let before = all(&golden(name).join("model.safetensors"));
    let after = all(&out.0.join("model.safetensors"));
    let expected = all(&golden(name).join("train/final.safetensors"));
    assert_eq!(after.len(), expected.len(), "{name}");
    for (tensor, expected) in &expected {
        let way = distance(&before[tensor], expected);
        let off = distance(&after[tensor], expected);
        assert!(off <= 0.02 * way, "{name}: {tensor}: {off:e} of a way of {way:e}");
    }
}

fn replays(name: &str, kernel: &str) {
    let (model, out) = (model(name, |_| ()), Folder::new());
    let trained = steps(&train(name, &model, &out, &["--kernel", kernel]));
    assert_eq!(trained.len(), 12);
    check_losses(name, &trained);
    went_alike(name, &out);
}

#[test]
fn tables_and_dense_parameters_go_the_way_of_the_reference() {
    replays("deepfm_taobao", "cpu");
    replays("mmoe_taobao", "cpu");
}

#[test]
fn the_dense_optimizer_trains_the_tables_that_the_plan_says() {
    replays("deepfm_small_tables", "cpu");
}

#[test]
fn rankers_of_lists_go_the_way_of_the_reference() {
    replays("dlrm_hstu_train", "cpu");
}

#[test]
fn matching_with_sampled_negatives_goes_the_way_of_the_reference() {
    replays("hstu_match_cosine", "cpu");
}

#[test]
fn a_trained_pipeline_is_evaluated_and_goes_back_as_a_checkpoint() {
    let name = "deepfm_small_tables";
    let (model, out) = (model(name, |_| ()), Folder::new());
    let data = golden(name).join("data.parquet").display().to_string();
    let dcp = out.0.join("dcp").display().to_string();
    let trained = train(name, &model, &out, &["--kernel", "cpu", "--eval", &data, "--export-dcp", &dcp]);
    assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    let summary = trained.json().pop().unwrap();
    let again = run(&["eval", "--model", &out.0.display().to_string(), "--data", &data, "--kernel", "cpu", "--json"]);
    assert_eq!(summary["summary"]["metrics"], again.json()[0]["metrics"], "{}", again.stderr);
    assert!(number(&summary["summary"]["metrics"]["auc"]) > 0.5, "{summary}");

    let source = golden(name).join("pipeline.config").display().to_string();
    let back = Folder::new();
    let imported = run(&["import", &source, "--checkpoint", &dcp, "--out", &back.0.display().to_string()]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let [a, b] = [&out, &back].map(|folder| tensors(&folder.0.join("model.safetensors")));
    assert_eq!(a, b);
    assert!(back.0.join("config.json").exists() && out.0.join("dcp/model.ckpt-11/plan").exists());
    // The dense optimizer has the small tables, the sparse one the others.
    let metadata = std::fs::read(out.0.join("dcp/model.ckpt-11/optimizer/.metadata")).unwrap();
    let metadata = String::from_utf8_lossy(&metadata);
    for state in ["pid_emb.weight.exp_avg_sq", "cate_emb.weight.cate_emb.momentum1", "output_mlp.bias.step"] {
        assert!(metadata.contains(state), "{state}");
    }
    assert!(!metadata.contains("pid_emb.weight.pid_emb.momentum1"));
}

#[test]
fn a_package_keeps_the_booster_through_a_training_and_an_export() {
    let (name, folder) = ("rocket_launching_criteo", Folder::new());
    let of = |file: &str| golden(name).join(file).display().to_string();
    let to = |file: &str| folder.0.join(file).display().to_string();
    let import = |checkpoint: &str, model: &str| {
        let imported = run(&["import", &of("pipeline.config"), "--checkpoint", checkpoint, "--out", model]);
        assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    };
    let [package, out, dcp, back] = ["model.rewire", "out", "dcp", "back"].map(to);
    import(&of("model.safetensors"), &package);
    let trained = ["train", "--kernel", "cpu", "--model", &package, "--data", &of("data.parquet"), "--out", &out];
    let trained = run(&[&trained[..], &["--export-dcp", &dcp]].concat());
    assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    import(&dcp, &back);
    let files = [golden(name).join("model.safetensors"), folder.0.join("out/model.safetensors")];
    let [before, after] = files.map(|file| tensors(&file));
    assert_eq!(after, tensors(&folder.0.join("back/model.safetensors")));
    let own = |(name, values): (String, Vec<f64>)| (name.strip_prefix("model.").unwrap_or(&name).to_owned(), values);
    let before: HashMap<String, Vec<f64>> = before.into_iter().map(own).collect();
    assert_eq!(before.len(), after.len());
    let boosted: Vec<_> = after.iter().filter(|(name, _)| name.starts_with("booster_")).collect();
    assert!(boosted.len() > 2 && boosted.iter().all(|(name, values)| before[name] != *values), "{boosted:?}");
}

#[test]
fn a_gpu_trains_a_pipeline_as_the_reference() {
    if std::env::var_os("REWIRE_TEST_ALL").is_some() {
        for name in ["deepfm_taobao", "deepfm_small_tables", "mmoe_taobao", "dlrm_hstu_train", "hstu_match_cosine"] {
            replays(name, "wgpu");
        }
        return;
    }
    // A software adapter needs seconds per step.
    let name = "deepfm_taobao";
    let (model, out) =
        (model(name, |config| config["pipeline"]["train_config"]["num_steps"] = json!(2)), Folder::new());
    let trained = steps(&train(name, &model, &out, &["--kernel", "wgpu"]));
    assert_eq!(trained.len(), 2);
    check_losses(name, &trained);
}

/// The arguments that train a pipeline from scratch, with batch norms, Dice and dropout, for this many steps.
fn norms(out: &Folder, num_steps: usize) -> Vec<String> {
    let text = std::fs::read_to_string(golden("deepfm_taobao").join("pipeline.config")).unwrap();
    let changed = text
        .replace("num_steps: 12", &format!("num_steps: {num_steps} gradient_accumulation_steps: 2"))
        .replace("batch_size: 16", "batch_size: 40")
        .replace("        deep {", "        deep { use_bn: true dropout_ratio: 0.25 activation: \"Dice\"");
    assert_eq!(changed.matches("Dice").count() + changed.matches("batch_size: 40").count(), 2);
    let config = out.write("pipeline.config", changed);
    let (data, folder) = (golden("deepfm_taobao").join("data.parquet"), out.0.display().to_string());
    let args = ["train", "--pipeline", &config, "--data", &data.display().to_string(), "--out", &folder, "--json"];
    [&args[..], &["--kernel", "cpu", "--seed", "5"]].concat().into_iter().map(str::to_owned).collect()
}

fn train_norms(out: &Folder, num_steps: usize, more: &[&str]) -> Vec<Value> {
    let args = norms(out, num_steps);
    steps(&run(&[args.iter().map(String::as_str).collect(), more.to_vec()].concat()))
}

#[test]
fn a_pipeline_that_is_killed_at_any_time_goes_on_with_the_same_bits() {
    let [whole, killed] = [Folder::new(), Folder::new()];
    let all = train_norms(&whole, 40, &[]);
    let args = norms(&killed, 40);
    kill_and_resume(&args.iter().map(String::as_str).collect::<Vec<_>>(), &killed.0);
    let rest = train_norms(&killed, 40, &["--resume"]);
    assert!(all.ends_with(&rest));
    let [a, b] = [&whole, &killed].map(|out| std::fs::read(out.0.join("model.safetensors")).unwrap());
    assert_eq!(a, b);
}

#[test]
fn a_pipeline_that_was_stopped_goes_on_with_the_same_bits() {
    let [whole, parted] = [Folder::new(), Folder::new()];
    let all = train_norms(&whole, 6, &[]);
    let mut parts = train_norms(&parted, 3, &[]);
    parts.extend(train_norms(&parted, 6, &["--resume"]));
    assert_eq!(parts, all);
    let [a, b] = [&whole, &parted].map(|out| std::fs::read(out.0.join("model.safetensors")).unwrap());
    assert_eq!(a, b);
    let learned = Weights::parse(a).unwrap();
    // An epoch of 192 rows has 5 batches.
    let norm = |name: &str| learned.get(&format!("deep_mlp.mlp.0.perceptron.1.{name}")).unwrap().unwrap();
    assert_eq!(norm("num_batches_tracked").to_i64(), [6]);
    assert!(norm("running_mean").to_f64().iter().all(|mean| *mean != 0.0));
    let data = golden("deepfm_taobao").join("data.parquet").display().to_string();
    let scores = whole.0.join("scores.csv").display().to_string();
    let predicted = run(&["predict", "--model", &whole.0.display().to_string(), "--data", &data, "--out", &scores]);
    assert_eq!(predicted.code, Some(0), "{}", predicted.stderr);
}

#[test]
fn what_a_pipeline_lacks_is_named() {
    let name = "hstu_match_cosine";
    let (imported, out) = (model(name, |_| ()), Folder::new());
    let [model_path, out_path] = [&imported, &out].map(|folder| folder.0.display().to_string());
    let data = golden(name).join("data.parquet").display().to_string();
    let args = ["train", "--model", &model_path, "--out", &out_path];
    run(&args).refused_with(&["--data"]);
    run(&[&args[..], &["--data", &data]].concat()).refused_with(&["--negatives", "cand_seq__video_id"]);
    let negatives = golden(name).join("negatives.parquet").display().to_string();
    let few = ["--data", &data, "--negatives", &negatives];
    let small = model(name, |config| {
        config["pipeline"]["data_config"]["batch_size"] = json!(8);
        config["pipeline"]["train_config"]["num_steps"] = json!(24);
    });
    let small = small.0.display().to_string();
    run(&[&["train", "--model", &small, "--out", &out_path], &few[..]].concat()).failed_with(&["negatives"]);
    // Inputs of the evaluation and export after training are checked before the first step.
    let folder = model("deepfm_taobao", |_| ());
    let deepfm = folder.0.display().to_string();
    let known = golden("deepfm_taobao").join("data.parquet").display().to_string();
    let args = ["train", "--model", &deepfm, "--data", &known, "--out", &out_path];
    let [other, empty] = [("other.csv", "a,b\n1,2\n"), ("empty.jsonl", "")].map(|(name, text)| out.write(name, text));
    for (option, file, reason) in [
        ("--eval", &other, "other.csv: the column"),
        ("--eval", &empty, "it holds no rows"),
        ("--export-dcp", &other, "other.csv"),
    ] {
        run(&[&args[..], &[option, file]].concat()).failed_with(&[reason]);
        assert!(!out.0.join("model.safetensors").exists(), "{option} {file}");
    }
    let unknown = model("deepfm_taobao", |config| {
        config["pipeline"]["train_config"]["dense_optimizer"]["adam_optimizer"]["beta1"] = json!(1.5);
    });
    let unknown = unknown.0.display().to_string();
    let data = golden("deepfm_taobao").join("data.parquet").display().to_string();
    run(&["train", "--model", &unknown, "--data", &data, "--out", &out_path])
        .failed_with(&["dense_optimizer.adam_optimizer.beta1"]);
}

#[test]
fn a_training_from_nothing_has_the_tensors_of_the_reference() {
    let shape = |tensor: HostTensor| (tensor.dtype(), tensor.shape().to_vec());
    for folder in std::fs::read_dir(golden("")).unwrap() {
        let folder = folder.unwrap().path();
        let pipeline = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config")).unwrap();
        let task = PipelineTask::new(pipeline.json(), None, RankOptions::default()).unwrap();
        let mut own = task.initial(0).unwrap();
        let expected = Weights::read(&folder.join("model.safetensors")).unwrap();
        for name in expected.names() {
            let (tensor, key) = (expected.get(name).unwrap().unwrap(), name.strip_prefix("model.").unwrap_or(name));
            let drawn = own.remove(key).unwrap_or_else(|| panic!("{folder:?} lacks {key}"));
            if tensor.dtype() == DType::I64 && !key.ends_with("num_batches_tracked") {
                assert_eq!(drawn.to_i64(), tensor.to_i64(), "{folder:?}: {key}");
            }
            assert_eq!(shape(drawn), shape(tensor), "{folder:?}: {key}");
        }
        assert!(own.is_empty(), "{folder:?} has {:?}", own.keys());
    }
}
