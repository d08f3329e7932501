//! No command overwrites its input files, or writes a file twice.

use crate::program::{DEMO, Folder, finish, jsonl, run, user};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// A folder with a model, users, records and a golden case.
fn folder() -> Folder {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join("model")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(DEMO).join("model").join(name), folder.0.join("model").join(name)).unwrap();
    }
    let users = jsonl(&[user("u", 3, 2)]);
    for name in ["users.jsonl", "out.jsonl.partial", "out.jsonl.journal", "checkpoint.safetensors", "config.json"] {
        folder.write(name, &users);
    }
    folder.write("records.jsonl", "");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/fusion_elementwise");
    let case = std::fs::read_dir(golden).unwrap().next().unwrap().unwrap().path();
    std::fs::create_dir(folder.0.join("cases")).unwrap();
    std::fs::copy(case, folder.0.join("cases/case.safetensors")).unwrap();
    folder
}

/// The content of all files below a folder, by path.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(contents(&path)),
            false => drop(all.insert(path.display().to_string(), std::fs::read(&path).unwrap())),
        }
    }
    all
}

#[test]
fn outputs_that_are_inputs_are_refused_before_anything_is_opened() {
    let folder = folder();
    let made = run(&["package", "--out", &at(&folder, "kept.rewire"), "--tables-file", "tables.safetensors"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.0.join("users.jsonl"), folder.0.join("link.jsonl")).unwrap();
    std::fs::hard_link(folder.0.join("users.jsonl"), folder.0.join("hard.jsonl.partial")).unwrap();
    let before = contents(&folder.0);
    for args in [
        "predict --data @users.jsonl --out @users.jsonl",
        "predict --data @out.jsonl.partial --out @out.jsonl",
        "predict --data @out.jsonl.journal --out @out.jsonl",
        "predict --data @users.jsonl --out @out.jsonl --rejects @out.jsonl",
        "predict --data @users.jsonl --out @out.jsonl --rejects @out.jsonl.partial",
        "predict --data @users.jsonl --out @out.jsonl --rejects @out.jsonl.journal.new",
        "predict --data @users.jsonl --out @x.jsonl --rejects @users.jsonl",
        "predict --data @users.jsonl --out @hard.jsonl",
        "predict --data @users.jsonl --items @out.jsonl.partial --out @out.jsonl",
        "predict --model @kept.rewire --data @users.jsonl --out @out.jsonl --rejects @tables.safetensors",
        #[cfg(unix)]
        "predict --data @users.jsonl --out @link.jsonl",
        "package --model @model --out @model/model.safetensors",
        "package --model @model --out @model/config.json",
        "package --model @model --out @tables.safetensors --tables-file tables.safetensors",
        "package --model @kept.rewire --out @kept.rewire",
        "package --model @kept.rewire --out @tables.safetensors",
        "package --model @model --out @users.jsonl --for @users.jsonl",
        "package --model @model --out @users.jsonl --for cpu --tune @users.jsonl",
        "train --model @model --data @users.jsonl --out @model",
        "train --model @model --data @checkpoint.safetensors --out @",
        "train --model @model --data @users.jsonl --config @config.json --out @",
        "train --data @users.jsonl --eval @config.json --out @",
        "verify @cases --save @cases",
        "verify @cases/case.safetensors --save @",
        "bench @model --svg @model/config.json",
        "bench addmm --compare @records.jsonl --markdown @records.jsonl",
        "bench --records @records.jsonl --svg @records.jsonl",
        "bench addmm --svg @page --markdown @page",
        "profile @kept.rewire --output @kept.rewire",
    ] {
        let args: Vec<String> = args.split(' ').map(|arg| arg.replace('@', &at(&folder, ""))).collect();
        let run = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        run.refused_with(&["is used twice, as ", " and as ", "take another path"]);
        assert!(contents(&folder.0) == before, "{args:?} changed a file");
    }
}

fn at(folder: &Folder, name: &str) -> String {
    format!("{}/{name}", folder.0.display())
}

#[test]
#[cfg(unix)]
fn standard_input_is_compared_and_devices_may_be_used_twice() {
    let folder = folder();
    let data = at(&folder, "users.jsonl");
    let before = contents(&folder.0);
    let mut command = crate::program::command(&["predict", "--kernel", "cpu", "--data", "-", "--out", &data]);
    finish(command.stdin(File::open(&data).unwrap())).refused_with(&["users.jsonl is used twice"]);
    assert!(contents(&folder.0) == before);
    let twice = ["bench", "--records", &at(&folder, "records.jsonl"), "--svg", "/dev/null", "--markdown", "/dev/null"];
    assert!(!run(&twice).stderr.contains("twice"));
}
