//! Trainings of several ranks.

use super::pipelines::golden;
use super::{eight, number, steps};
use crate::program::{DEMO, Folder, Run, run};
#[cfg(not(feature = "mpi"))]
use crate::program::{command, finish};
use rewire::delta::apply;
use rewire::weights::Weights;
use rewire_tzrec::read_dynamic;
use serde_json::{Value, json};
use std::path::Path;

/// Trains the demo's model without dropout, which draws other numbers for other batches.
fn train(folder: &Folder, name: &str, (batch_size, count): (usize, usize), more: &[&str]) -> Run {
    let config = json!({
        "batch_size": batch_size, "steps": count, "shuffle_seed": 7, "ema": { "decay": 0.9 },
        "grad_clipping": { "clipping_type": "norm", "max_gradient": 0.5 },
        "dense_optimizer": { "adam_optimizer": { "lr": 0.01 } },
        "sparse_optimizer": { "rowwise_adagrad_optimizer": { "lr": 0.01 } },
    });
    let (data, config) = (eight(folder), folder.write("train.json", config.to_string()));
    let out = folder.0.join(name).display().to_string();
    let model = model_without_dropout(folder);
    let args = ["train", "--model", &model, "--data", &data, "--config", &config, "--out", &out, "--json"];
    run(&[&args[..], &["--kernel", "cpu"], more].concat())
}

fn model_without_dropout(folder: &Folder) -> String {
    let text = std::fs::read_to_string(Path::new(DEMO).join("model/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let mut parts = vec![&mut config];
    while let Some(part) = parts.pop() {
        for (key, value) in part.as_object_mut().into_iter().flatten() {
            if key.ends_with("dropout_ratio") {
                *value = json!(0.0);
            }
            parts.push(value);
        }
    }
    std::fs::create_dir_all(folder.0.join("model")).unwrap();
    folder.write("model/config.json", config.to_string());
    folder.0.join("model").display().to_string()
}

#[test]
fn ranks_train_as_one_with_their_batches_together() {
    let folder = Folder::new();
    let alone = steps(&train(&folder, "alone", (4, 5), &[]));
    let together = steps(&train(&folder, "together", (2, 5), &["--ranks", "2"]));
    assert_eq!(together.len(), 5);
    for (own, expected) in together.iter().zip(&alone) {
        let off = number(&own["loss"]) - number(&expected["loss"]);
        assert!(off.abs() < 1e-6, "{own}, not {expected}");
        assert_eq!(own["lr"], expected["lr"]);
    }
}

#[test]
fn growing_tables_that_ranks_divide_are_exported_with_their_ids() {
    let (folder, golden) = (Folder::new(), golden("deepfm_taobao"));
    let text = std::fs::read_to_string(golden.join("pipeline.config")).unwrap();
    let text = text.replace("table_wise", "row_wise").replace("num_buckets: 100", "dynamicemb { max_capacity: 60 }");
    let [out, exported] = ["out", "exported"].map(|name| folder.0.join(name));
    let [data, out, exported] = [&golden.join("data.parquet"), &out, &exported].map(|path| path.display().to_string());
    let train = |steps: &str, more: &[&str]| {
        let pipeline = folder.write("pipeline.config", text.replace("num_steps: 12", &format!("num_steps: {steps}")));
        let args = ["train", "--pipeline", &pipeline, "--data", &data, "--out", &out, "--delta-every", "1"];
        let trained = run(&[&args[..], &["--kernel", "cpu", "--ranks", "3"], more].concat());
        assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    };
    train("2", &[]);
    let old = folder.0.join("old");
    std::fs::create_dir(&old).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(&out).join(name), old.join(name)).unwrap();
    }
    train("4", &["--resume", "--export-dcp", &exported]);
    let deltas = ["00000003", "00000004"].map(|name| Path::new(&out).join(format!("deltas/{name}.safetensors")));
    apply(&old, &deltas, &old).unwrap();
    let [with_deltas, trained] = [&old, Path::new(&out)].map(|model| std::fs::read(model.join("model.safetensors")));
    assert!(with_deltas.unwrap() == trained.unwrap());

    let model = Weights::read(&Path::new(&out).join("model.safetensors")).unwrap();
    let tables = read_dynamic(Path::new(&exported)).unwrap();
    assert_eq!(tables.len(), 2);
    for table in tables {
        let module = table.module.strip_prefix("model.").unwrap();
        let part = |part: &str| model.get(&format!("{module}.embedding_bags.{}.{part}", table.table)).unwrap().unwrap();
        assert_eq!((table.keys.len(), Some(&table.keys)), (60, part("ids").values().as_ref()));
        assert_eq!(table.values, part("weight").to_f32()[..table.values.len()]);
        assert_eq!(table.states.len(), table.values.len());
        assert!(table.states.iter().any(|state| *state > 0.0));
    }
}

#[test]
fn a_training_from_a_checkpoint_has_the_optimizer_states_of_its_ids() {
    let (folder, golden) = (Folder::new(), golden("deepfm_taobao"));
    let text = std::fs::read_to_string(golden.join("pipeline.config")).unwrap();
    // Every step reads all rows, half of them on each rank.
    let text = text.replace("num_buckets: 100", "dynamicemb { max_capacity: 200 }").replace("size: 16", "size: 96");
    let data = golden.join("data.parquet").display().to_string();
    let exported = |name: &str| folder.0.join(format!("{name}-dcp"));
    let train = |name: &str, steps: usize, more: &[&str]| {
        let pipeline = folder.write("pipeline.config", text.replace("num_steps: 12", &format!("num_steps: {steps}")));
        let [out, dcp] = [folder.0.join(name), exported(name)].map(|path| path.display().to_string());
        let args = ["train", "--pipeline", &pipeline, "--data", &data, "--out", &out, "--export-dcp", &dcp];
        run(&[&args[..], &["--kernel", "cpu", "--ranks", "2"], more].concat())
    };
    let half = exported("half").display().to_string();
    for (name, steps, more) in [("whole", 4, &[][..]), ("half", 2, &[]), ("rest", 2, &["--checkpoint", &half])] {
        let trained = train(name, steps, more);
        assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    }
    let [whole, rest] = ["whole", "rest"].map(|name| read_dynamic(&exported(name)).unwrap());
    assert_eq!(whole.len(), 2);
    for (own, expected) in rest.iter().zip(&whole) {
        assert_eq!((&own.keys, &own.values, &own.states), (&expected.keys, &expected.values, &expected.states));
        assert!(own.keys.len() > 10 && own.states.iter().any(|state| *state > 0.0));
    }
    // States of another optimizer do not fit.
    let table = &whole[0];
    let states = format!("{}_opt_values.rank_0.world_size_1", table.table);
    let states = exported("half").join("model.ckpt-1/dynamicemb").join(&table.module).join(states);
    let count = read_dynamic(&exported("half")).unwrap()[0].keys.len();
    std::fs::write(states, vec![0; 4 * count]).unwrap();
    train("other", 2, &["--checkpoint", &half]).failed_with(&["optimizer states for each of"]);
}

#[test]
fn another_number_of_ranks_resumes_a_training() {
    let folder = Folder::new();
    assert_eq!(steps(&train(&folder, "parts", (1, 3), &["--ranks", "2"])).len(), 3);
    let rest = train(&folder, "parts", (1, 5), &["--ranks", "1", "--resume"]);
    assert!(rest.stderr.matches("resuming after step 3").count() == 1, "{}", rest.stderr);
    let numbers: Vec<Value> = steps(&rest).into_iter().map(|mut step| step["step"].take()).collect();
    assert_eq!(numbers, [json!(4), json!(5)]);
    let files = ["checkpoint.safetensors", "config.json", "ema.safetensors", "model.safetensors", "training.lock"];
    let mut names: Vec<String> = std::fs::read_dir(folder.0.join("parts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, files);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn processes_of_mpi_need_a_program_with_mpi() {
    let folder = Folder::new();
    let out = folder.0.join("out").display().to_string();
    let mut command = command(&["train", "--out", &out]);
    finish(command.env("OMPI_COMM_WORLD_SIZE", "2")).refused_with(&["one of 2", "--features mpi"]);
    assert!(!folder.0.join("out").exists());
}
