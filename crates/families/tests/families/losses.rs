//! Losses of TorchEasyRec's pipelines in evaluation mode, batch by batch, by the interpreter. Losses without a golden are compared with
//! loops.

use crate::replay::{Tensors, folder, tensors};
use crate::table;
use rewire_families::{LOSS, TOTAL, TracedLosses, trace_losses};
use rewire_features::{Column, Data, NegativeRow, Offsets};
use rewire_graph::{HostTensor, Mode, interpret};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;

/// Number of replayed batches per pipeline; `crates/cli/tests/import.rs` evaluates all of them with kernels.
const BATCHES: usize = 1;

fn replay(name: &str) -> Result<(), Box<dyn Error>> {
    let folder = folder(name);
    let pipeline = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config"))?;
    let traced = trace_losses(pipeline.json(), Mode::Eval)?;
    let weights = tensors(&folder.join("model.safetensors"))?;
    let data = table::read(&folder.join("data.parquet"))?;
    let negatives = match traced.negatives.is_empty() {
        true => None,
        false => Some(table::read(&folder.join("negatives.parquet"))?),
    };
    // Python writes NaN for losses that are not computed in evaluation.
    let text = std::fs::read_to_string(folder.join("expected_eval.json"))?.replace("NaN", "null");
    let expected: Value = serde_json::from_str(&text)?;
    let size = pipeline.json().pointer("/data_config/batch_size").and_then(Value::as_u64).unwrap_or(1024) as usize;
    let column = |name: &str| data.get(name);
    let negative = |name: &str| negatives.as_ref()?.get(name);
    for (batch, expected) in expected["batch_losses"].as_array().into_iter().flatten().enumerate().take(BATCHES) {
        let row = negatives.is_some().then_some(NegativeRow { column: &negative, row: batch });
        let inputs = traced.encode(column, batch * size..(batch + 1) * size, row)?;
        let outputs = interpret(&traced.graph, &inputs.into_iter().collect(), &weights)?;
        let loss = |name: &str| outputs.get(name).and_then(|loss| loss.to_f64().first().copied()).unwrap_or(f64::NAN);
        let expected = expected.as_object().ok_or("no map")?;
        if !traced.losses.iter().eq(expected.keys()) {
            return Err(format!("expected {:?}, got {:?}", expected.keys(), traced.losses).into());
        }
        let mut total = 0.0;
        for (name, expected) in expected {
            let (expected, actual) = (expected.as_f64().unwrap_or(f64::NAN), loss(&format!("{LOSS}{name}")));
            total += actual;
            // NaN never compares as near.
            let is_near = (actual - expected).abs() <= 1e-5;
            if !is_near {
                return Err(format!("batch {batch}, {name}: expected {expected}, got {actual}").into());
            }
        }
        assert!((loss(TOTAL) - total).abs() < 1e-5);
    }
    Ok(())
}

#[test]
fn batches_have_the_losses_of_the_reference() {
    let folders = std::fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let folders: Vec<String> = folders.collect();
    assert!(folders.len() >= 29);
    let failed = |name: &String| replay(name).err().map(|error| format!("{name}: {error}"));
    let wrong: Vec<String> = folders.iter().filter_map(failed).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A pipeline with its table and weights; tests change its configuration.
struct Case {
    config: Value,
    data: HashMap<String, Column<'static>>,
    weights: Tensors,
    /// The values of column `w`, the sample weights.
    samples: Column<'static>,
}

impl Case {
    fn new(name: &str) -> Self {
        let folder = folder(name);
        Self {
            config: rewire_tzrec::Pipeline::read(&folder.join("pipeline.config")).unwrap().json().clone(),
            data: table::read(&folder.join("data.parquet")).unwrap(),
            weights: tensors(&folder.join("model.safetensors")).unwrap(),
            samples: Column::new(Data::F32((0..64).map(|row| [0.5, 2.0, 0.0, 1.25, 3.0][row % 5]).collect())),
        }
    }

    fn column(&self, name: &str) -> Option<&Column<'static>> {
        if name == "w" { Some(&self.samples) } else { self.data.get(name) }
    }

    /// Runs the first `rows` rows.
    fn run(&self, mode: Mode, rows: usize, negatives: Option<NegativeRow<'_, '_>>) -> (TracedLosses, Tensors) {
        let traced = trace_losses(&self.config, mode).unwrap();
        let inputs = traced.encode(|name| self.column(name), 0..rows, negatives).unwrap();
        let outputs = interpret(&traced.graph, &inputs.into_iter().collect(), &self.weights).unwrap();
        (traced, outputs.into_iter().collect())
    }

    fn temperature(&self) -> f64 {
        let found =
            self.config["model_config"].as_object().unwrap().values().find_map(|model| model["temperature"].as_f64());
        found.unwrap_or(1.0)
    }

    fn numbers(&self, column: &str, rows: usize) -> Vec<f64> {
        let label = rewire_features::LabelColumn { name: column, delimiter: None };
        let read = label.floats(self.column(column).unwrap(), 0..rows, "a number", |_| true).unwrap();
        read.values.into_iter().map(f64::from).collect()
    }
}

fn assert_losses(outputs: &Tensors, expected: &[(&str, f64)]) {
    let mut total = 0.0;
    for (name, expected) in expected {
        let actual = outputs[&format!("{LOSS}{name}")].to_f64()[0];
        assert!(
            (actual - expected).abs() <= 2e-5 * expected.abs().max(1.0),
            "{name}: expected {expected}, got {actual}"
        );
        total += expected;
    }
    let names: Vec<&String> = outputs.keys().filter(|name| name.starts_with(LOSS)).collect();
    assert_eq!(names.len(), expected.len(), "{names:?}");
    assert!((outputs[TOTAL].to_f64()[0] - total).abs() <= 2e-5 * total.abs().max(1.0));
}

fn cross_entropy(x: f64, y: f64) -> f64 {
    x.max(0.0) - x * y + (-x.abs()).exp().ln_1p()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// Expected similarities are from a numpy program, the other losses from the golden.
#[test]
fn the_light_branch_imitates_the_booster() {
    let mut case = Case::new("rocket_launching_criteo");
    let (traced, outputs) = case.run(Mode::Train, 32, None);
    let names = ["binary_cross_entropy_booster", "binary_cross_entropy_light", "similarity_0", "similarity_1"];
    assert!(traced.losses.iter().take(4).eq(&names) && traced.losses.last().unwrap() == "hint_l2_loss");
    let both = [0.972_560_539, 2.673_756_119];
    let hint = 11.629_433_36;
    let of = |similarities: [f64; 2], hint| {
        let values = both.into_iter().chain(similarities);
        names.into_iter().zip(values).chain([("hint_l2_loss", hint)]).collect::<Vec<_>>()
    };
    assert_losses(&outputs, &of([-0.021_217_425_6, -0.039_479_802_2], hint));
    case.config["model_config"]["rocket_launching"]["feature_distillation_function"] = json!("EUCLID");
    assert_losses(&case.run(Mode::Train, 32, None).1, &of([26.777_017_66, 34.185_555_6], hint));
    // With the label as the weight, only the losses of positives count.
    case.config["data_config"]["sample_weight_fields"] = json!(["label"]);
    let (_, outputs) = case.run(Mode::Train, 32, None);
    let similarities = [0, 1].map(|n| outputs[&format!("{LOSS}similarity_{n}")].to_f64()[0]);
    assert!((similarities[0] - 25.515_709_38).abs() < 1e-3 && (similarities[1] - 32.011_381_93).abs() < 1e-3);
    let labels = case.numbers("label", 32);
    let logits = outputs["logits_light"].to_f64();
    let own = logits.iter().zip(&labels).filter(|(_, y)| **y > 0.0).map(|(x, y)| cross_entropy(*x, *y));
    let light = outputs["loss.binary_cross_entropy_light"].to_f64()[0];
    assert!((light - mean(own)).abs() < 1e-5);
}

/// Expected imitation losses are from a numpy program, the other loss from the golden.
#[test]
fn augmented_vectors_imitate_the_other_tower() {
    let mut case = Case::new("dat_taobao");
    let losses = [("softmax_cross_entropy", 3.043_126_69), ("amm_loss_u", 15.959_121_6), ("amm_loss_i", 16.953_972_3)];
    let (traced, outputs) = case.run(Mode::Train, 16, None);
    assert!(traced.losses.iter().eq(&losses.map(|(name, _)| name)));
    assert_losses(&outputs, &losses);
    case.config["model_config"]["dat"]["amm_u_weight"] = json!(0.25);
    assert_losses(&case.run(Mode::Train, 16, None).1, &[losses[0], ("amm_loss_u", 15.959_121_6 / 2.0), losses[2]]);
}

#[test]
fn variational_dropout_is_regularised() {
    for mode in [Mode::Eval, Mode::Train] {
        let mut case = Case::new("wide_and_deep_taobao");
        case.config["model_config"]["variational_dropout"] = json!({ "regularization_lambda": 0.5 });
        let traced = trace_losses(&case.config, mode).unwrap();
        let parameters = traced.graph.parameters();
        let mut expected = vec![];
        for parameter in parameters.iter().filter(|known| known.name.ends_with("feature_p")) {
            let p: Vec<f32> = (0..parameter.shape[0]).map(|at| at as f32 * 0.7 - 1.5).collect();
            case.weights.insert(parameter.name.clone(), HostTensor::vector(&p));
            let group = parameter.name.split('.').nth(1).unwrap();
            let stays: f64 = p.iter().map(|p| 1.0 / (1.0 + f64::from(*p).exp())).sum();
            expected.push((format!("{group}_feature_p_loss"), 0.5 / 24.0 * stays));
        }
        assert_eq!(expected.len(), 2);
        let inputs = traced.encode(|name| case.column(name), 0..24, None).unwrap();
        let mut inputs: HashMap<String, HostTensor> = inputs.into_iter().collect();
        inputs.insert("seed".to_owned(), HostTensor::i64([], &[7]).unwrap());
        let outputs = interpret(&traced.graph, &inputs, &case.weights).unwrap();
        for (name, expected) in expected {
            let actual = outputs[&format!("{LOSS}{name}")].to_f64()[0];
            assert!((actual - expected).abs() < 1e-6, "{name}: {actual} {expected}");
        }
    }
}

#[test]
fn tasks_weigh_rows_by_samples_and_spaces() {
    let mut case = Case::new("mmoe_taobao");
    let rows = 40;
    let towers = case.config["model_config"]["mmoe"]["task_towers"].as_array_mut().unwrap();
    towers[0]["weight"] = json!(0.25);
    towers[0]["losses"] = json!([{ "binary_cross_entropy": { "label_smoothing": 0.2 } }]);
    towers[1]["task_space_indicator_label"] = json!("clk");
    towers[1]["in_task_space_weight"] = json!(3.0);
    towers[1]["out_task_space_weight"] = json!(0.5);
    towers[1]["sample_weight_name"] = json!("w");
    let (traced, outputs) = case.run(Mode::Train, rows, None);
    assert!(["clk", "buy", "w"].iter().all(|name| traced.columns.iter().any(|column| column == name)));
    let [clicks, buys, samples] = ["clk", "buy", "w"].map(|name| case.numbers(name, rows));
    let [ctr, cvr] = ["logits_ctr", "logits_cvr"].map(|name| outputs[name].to_f64());
    let first = mean(ctr.iter().zip(&clicks).map(|(x, y)| cross_entropy(*x, 0.8 * y + 0.1))) * 0.25;
    let weight = |row: usize| samples[row] * if clicks[row] > 0.0 { 3.0 } else { 0.5 };
    let total: f64 = (0..rows).map(weight).sum();
    let second = (0..rows).map(|row| cross_entropy(cvr[row], buys[row]) * weight(row)).sum::<f64>() / total;
    assert_losses(&outputs, &[("binary_cross_entropy_ctr", first), ("binary_cross_entropy_cvr", second)]);
}

#[test]
fn rows_have_the_tower_of_their_domain() {
    let mut case = Case::new("pepnet_taobao");
    let model = &mut case.config["model_config"]["pepnet"];
    model["domain_input_name"] = json!("clk");
    model["task_domain_num"] = json!(2);
    // The towers of the second domain have separate weights: twice those of the first.
    let towers: Vec<(String, HostTensor)> = case.weights.clone().into_iter().collect();
    for (name, tensor) in towers.iter().filter(|(name, _)| name.starts_with("_task_tower.")) {
        let (task, rest) = name["_task_tower.".len()..].split_once('.').unwrap();
        let task: usize = task.parse().unwrap();
        let doubled: Vec<f64> = tensor.to_f64().iter().map(|x| 2.0 * x).collect();
        let doubled = HostTensor::from_f64(tensor.dtype(), tensor.shape().to_vec(), &doubled).unwrap();
        case.weights.insert(format!("_task_tower.{}.{rest}", 2 * task + 1), doubled);
        case.weights.insert(format!("_task_tower.{}.{rest}", 2 * task), tensor.clone());
    }
    let (_, outputs) = case.run(Mode::Eval, 24, None);
    let (domains, buys) = (case.numbers("clk", 24), case.numbers("buy", 24));
    let chosen = |row: usize| outputs[&format!("logits_cvr_{}", domains[row])].to_f64()[row];
    let selected = outputs["logits_cvr"].to_f64();
    assert!(domains.contains(&1.0) && (0..24).all(|row| selected[row] == chosen(row)));
    let expected = mean((0..24).map(|row| cross_entropy(chosen(row), buys[row])));
    let actual = outputs["loss.binary_cross_entropy_cvr"].to_f64()[0];
    assert!((actual - expected).abs() < 1e-5, "{actual} {expected}");
    case.config["model_config"]["pepnet"]["task_domain_num"] = json!(1);
    let error = trace_losses(&case.config, Mode::Eval).unwrap();
    let error = error.encode(|name| case.column(name), 0..24, None).unwrap_err().to_string();
    assert!(error.contains("`clk`") && error.contains("from 0 to 0"), "{error}");
}

/// A row of negatives of `dssm_taobao` with `count` items.
fn sampled_items(columns: &[String], count: usize) -> HashMap<String, Column<'static>> {
    let ids: Vec<i64> = (0..count as i64).map(|item| (item + 1) % 3).collect();
    // `brand` is a list column, so its items are lists.
    let items = |name: &str| match name {
        "brand" => list((0..=count as i32).collect(), Column::new(Data::I64(ids.clone().into()))),
        _ => Column::new(Data::I64(ids.clone().into())),
    };
    columns.iter().map(|name| (name.clone(), list(vec![0, count as i32], items(name)))).collect()
}

fn list(ends: Vec<i32>, items: Column<'static>) -> Column<'static> {
    Column::new(Data::List { offsets: Offsets::I32(ends.into()), items: Box::new(items) })
}

/// The inner products of users and items, divided by the temperature.
fn similarities(temperature: f64, outputs: &Tensors) -> Vec<Vec<f64>> {
    let (users, items) = (&outputs["user_tower_emb"], &outputs["item_tower_emb"]);
    let (width, users, items) = (users.shape()[1], users.to_f64(), items.to_f64());
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / temperature;
    users.chunks(width).map(|user| items.chunks(width).map(|item| dot(user, item)).collect()).collect()
}

/// Items are the batch's, then the sampled ones. Every user is compared with its own item and all sampled ones.
#[test]
fn sampled_items_are_negatives() {
    let mut case = Case::new("dssm_taobao");
    case.config["model_config"]["dssm"]["in_batch_negative"] = json!(false);
    case.config["data_config"]["sample_weight_fields"] = json!(["w"]);
    let traced = trace_losses(&case.config, Mode::Eval).unwrap();
    let (rows, count) = (16, 5);
    let sampled = sampled_items(&traced.negatives, count);
    let negative = |name: &str| sampled.get(name);
    let error = traced.encode(|name| case.column(name), 0..16, None).unwrap_err().to_string();
    assert!(error.contains("expected a table of negatives"), "{error}");
    let (traced, outputs) = case.run(Mode::Eval, rows, Some(NegativeRow { column: &negative, row: 0 }));
    assert!(traced.negatives.contains(&"brand".to_owned()) && !traced.negatives.contains(&"user_id".to_owned()));
    let similarities = similarities(case.temperature(), &outputs);
    assert_eq!((similarities.len(), similarities[0].len()), (rows, rows + count));
    let weights = case.numbers("w", rows);
    let loss = |row: usize| {
        let others: f64 = similarities[row][rows..].iter().map(|similarity| similarity.exp()).sum();
        (similarities[row][row].exp() + others).ln() - similarities[row][row]
    };
    let total: f64 = (0..rows).map(|row| loss(row) * weights[row]).sum();
    assert_losses(&outputs, &[("softmax_cross_entropy", total / weights.iter().sum::<f64>())]);
    let columns = outputs["similarity"].to_f64();
    assert!((columns[count + 1 + 3] - similarities[1][rows + 2]).abs() < 1e-5);
}

/// Each of the last sampled items is a negative of one row only.
#[test]
fn hard_negatives_count_for_their_rows_alone() {
    let mut case = Case::new("dssm_taobao");
    case.config["model_config"]["dssm"]["in_batch_negative"] = json!(false);
    case.config["data_config"]["hard_negative_sampler_v2"] = json!({ "num_hard_sample": 3 });
    let traced = trace_losses(&case.config, Mode::Eval).unwrap();
    assert_eq!(traced.negatives.last().map(String::as_str), Some("hard_neg_indices"));
    let (rows, count) = (8usize, 6usize);
    let mut sampled = sampled_items(&traced.negatives, count);
    let mut with = |pairs: &[[i64; 2]]| {
        let ends = (0..=pairs.len() as i32).map(|pair| 2 * pair).collect();
        let pairs_of = list(ends, Column::new(Data::I64(pairs.concat().into())));
        sampled.insert("hard_neg_indices".to_owned(), list(vec![0, pairs.len() as i32], pairs_of));
        sampled.clone()
    };
    for hard in [&[[5, 1], [0, 0], [5, 0]][..], &[], &[[7, 2]; 1], &[[0, 0], [1, 0], [2, 0], [3, 0], [4, 0], [5, 0]]] {
        let sampled = with(hard);
        let negative = |name: &str| sampled.get(name);
        let (_, outputs) = case.run(Mode::Eval, rows, Some(NegativeRow { column: &negative, row: 0 }));
        let similarities = similarities(case.temperature(), &outputs);
        let shared = rows + count - hard.len();
        let loss = |row: usize| {
            let own = (0..hard.len()).filter(|at| hard[*at][0] == row as i64).map(|at| shared + at);
            let others: f64 = (rows..shared).chain(own).map(|item| similarities[row][item].exp()).sum();
            (similarities[row][row].exp() + others).ln() - similarities[row][row]
        };
        assert_losses(&outputs, &[("softmax_cross_entropy", mean((0..rows).map(loss)))]);
        assert_eq!(outputs["similarity"].shape(), [rows, 1 + count - hard.len() + 3]);
    }
    for (hard, part) in [
        (&[[8, 0]][..], "expected rows below 8"),
        (&[[0, 3]], "slots below num_hard_sample, 3, got [0, 3]"),
        (&[[0, -1]], "an index of at least 0"),
        (&[[1, 1], [2, 0], [1, 1]], "each pair once, got [1, 1] twice"),
        (&[[0, 0], [1, 0], [2, 0], [3, 0], [4, 0], [5, 0], [6, 0]], "at most 6 pairs"),
    ] {
        let sampled = with(hard);
        let negative = |name: &str| sampled.get(name);
        let row = NegativeRow { column: &negative, row: 0 };
        let error = traced.encode(|name| case.column(name), 0..rows, Some(row)).unwrap_err().to_string();
        assert!(error.contains("`hard_neg_indices`") && error.contains(part), "{error}");
    }
}

/// In rows with several positive items, a hard negative belongs to one of them.
#[test]
fn hard_negatives_of_lists_belong_to_positives() {
    let (name, rows) = ("hstu_match_cosine", 6usize);
    let mut case = Case::new(name);
    case.config["data_config"]["hard_negative_sampler"] = json!({ "num_hard_sample": 2 });
    let mut sampled = table::read(&folder(name).join("negatives.parquet")).unwrap();
    let pairs: [[i64; 2]; 4] = [[7, 1], [0, 0], [7, 0], [3, 1]];
    let ends = (0..=pairs.len() as i32).map(|pair| 2 * pair).collect();
    let of_pairs = list(ends, Column::new(Data::I64(pairs.concat().into())));
    sampled.insert("hard_neg_indices".to_owned(), list(vec![0, pairs.len() as i32], of_pairs));
    let negative = |name: &str| sampled.get(name);
    let (traced, outputs) = case.run(Mode::Eval, rows, Some(NegativeRow { column: &negative, row: 0 }));
    let lengths = traced.features.steps("cand_seq__video_id", |name| case.column(name), 0..rows).unwrap();
    let owner: Vec<usize> = lengths.iter().enumerate().flat_map(|(row, &n)| vec![row; n as usize]).collect();
    assert!(owner.len() > 7 && owner[7] != 7, "{lengths:?}");
    let similarities = similarities(case.temperature(), &outputs);
    let shared = similarities[0].len() - pairs.len();
    let loss = |at: usize| {
        let of = &similarities[owner[at]];
        let own = (0..pairs.len()).filter(|n| pairs[*n][0] == at as i64).map(|n| shared + n);
        let others: f64 = (owner.len()..shared).chain(own).map(|item| of[item].exp()).sum();
        (of[at].exp() + others).ln() - of[at]
    };
    assert_losses(&outputs, &[("softmax_cross_entropy", mean((0..owner.len()).map(loss)))]);
}

#[test]
fn what_is_no_loss_is_an_error() {
    let wrong = |name: &str, change: &dyn Fn(&mut Value), part: &str| {
        let mut case = Case::new(name);
        change(&mut case.config);
        let error = trace_losses(&case.config, Mode::Train).unwrap_err().to_string();
        assert!(error.contains(part), "expected `{part}` in: {error}");
    };
    wrong(
        "mmoe_taobao",
        &|config| {
            let tower = &mut config["model_config"]["mmoe"]["task_towers"][1];
            tower["losses"] = json!([{ "binary_focal_loss": { "alpha": 1.0 } }]);
        },
        "/model_config/mmoe/task_towers/1/losses/0/binary_focal_loss/alpha: must be above 0 and below 1",
    );
    wrong(
        "dbmtl_seq_jrc",
        &|config| {
            config["model_config"]["dbmtl"]["task_towers"][0]["num_class"] = json!(3);
        },
        "losses/0/jrc_loss: needs `num_class: 2`",
    );
    wrong("dssm_taobao", &|config| config["model_config"]["dssm"]["temperature"] = json!(0.0), "/temperature");
    let hard =
        |sampler: Value| move |config: &mut Value| config["data_config"]["hard_negative_sampler"] = sampler.clone();
    wrong("dssm_taobao", &hard(json!({})), "/data_config/hard_negative_sampler/num_hard_sample: must be at least 1");
    let key = "use_pareto_loss_weight";
    wrong("mmoe_taobao", &|config| config["model_config"][key] = json!(true), "/model_config/use_pareto_loss_weight");
    wrong(
        "dssm_taobao",
        &|config| config["model_config"]["losses"] = json!([{ "l2_loss": {} }]),
        "softmax_cross_entropy",
    );
    wrong("dlrm_criteo", &|config| config["data_config"]["label_fields"] = json!([]), "/data_config/label_fields");
}
