//! Deltas of trainings.

use super::resumed::kill_and_resume;
use super::*;
use rewire::delta::{Delta, ModelVersion};
use std::path::PathBuf;

/// The deltas of a training, without files that it was writing when it was killed.
fn deltas(folder: &Folder, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.0.join(name).join("deltas")).unwrap();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    all.sort();
    all
}

fn version(folder: &Folder, name: &str) -> ModelVersion {
    ModelVersion::of(&Weights::read(&folder.0.join(name).join("model.safetensors")).unwrap()).unwrap()
}

fn contents(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn a_model_with_the_deltas_of_a_training_is_the_trained_one() {
    let folder = Folder::new();
    train(&folder, "out", json!({ "steps": 3 }), &["--delta-every", "2"]);
    // A delta of the second step, and one before the checkpoint of the third.
    assert_eq!((deltas(&folder, "out").len(), version(&folder, "out").number()), (2, 2));
    let old = folder.0.join("old");
    std::fs::create_dir(&old).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(folder.0.join("out").join(name), old.join(name)).unwrap();
    }
    train(&folder, "out", json!({ "steps": 8 }), &["--delta-every", "2", "--resume"]);
    let all = deltas(&folder, "out");
    let read: Vec<Delta> = all.iter().map(|path| Delta::read(path).unwrap()).collect();
    assert!(read.windows(2).all(|pair| pair[0].version() == pair[1].before()));
    assert_eq!(read.iter().map(Delta::steps).collect::<Vec<_>>(), [2, 3, 4, 6, 8]);
    assert_eq!(read[4].version(), version(&folder, "out"));
    let paths: Vec<String> = all[2..].iter().map(|path| path.display().to_string()).collect();
    let [old, new] = ["old", "new"].map(|name| folder.0.join(name).display().to_string());
    let mut args = vec!["apply", &old, "--out", &new];
    args.extend(paths.iter().map(String::as_str));
    let run = run(&args);
    assert!(run.stdout.contains("3 deltas, up to delta 5"), "{} {}", run.stdout, run.stderr);
    assert_eq!(model(&folder, "new"), model(&folder, "out"));
    // Another training removes the deltas of this one.
    train(&folder, "out", json!({ "steps": 1 }), &["--delta-every", "1"]);
    assert_eq!((deltas(&folder, "out").len(), version(&folder, "out").number()), (1, 1));
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn a_killed_training_writes_the_same_deltas() {
        let folder = Folder::new();
        train(&folder, "whole", json!({ "steps": 8 }), &["--delta-every", "2", "--save-every", "1"]);
        let (data, out) = (eight(&folder), folder.0.join("killed").display().to_string());
        let config = folder.write("train.json", config(&json!({ "steps": 8 })));
        let args =
            ["train", "--data", &data, "--config", &config, "--out", &out, "--kernel", "cpu", "--delta-every", "2"];
        kill_and_resume(&args, Path::new(&out));
        run(&[&args[..], &["--save-every", "1", "--resume"]].concat());
        assert_eq!(contents(&deltas(&folder, "killed")), contents(&deltas(&folder, "whole")));
        assert_eq!(model(&folder, "killed"), model(&folder, "whole"));
    }
}
