//! Several devices share the work: rows, order and scores are those of one.

use crate::program::{Folder, Run, command, finish, jsonl, run, user};
use serde_json::Value;
use std::path::Path;

/// This machine's driver twice, as two adapters of one kind; none if the driver is not a file.
fn driver_twice(folder: &Folder) -> Option<String> {
    let chosen = std::env::var("VK_DRIVER_FILES").unwrap_or("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json".to_owned());
    let mut driver: Value = serde_json::from_slice(&std::fs::read(&chosen).ok()?).ok()?;
    let library = driver["ICD"]["library_path"].as_str()?.to_owned();
    if library.contains('/') {
        driver["ICD"]["library_path"] = Path::new(&chosen).parent()?.join(library).display().to_string().into();
    }
    Some(["a.json", "b.json"].map(|name| folder.write(name, driver.to_string())).join(":"))
}

/// Runs the program where there are two adapters; none where they are not two.
fn with_two(folder: &Folder, args: &[&str]) -> Option<Run> {
    let drivers = driver_twice(folder)?;
    let there = |args: &[&str]| finish(command(args).env("VK_DRIVER_FILES", &drivers));
    let listed = there(&["devices", "--json", "--kernel", "wgpu"]);
    if listed.stdout.lines().count() != 2 {
        eprintln!("skipped: there are no two adapters: {}{}", listed.stdout, listed.stderr);
        return None;
    }
    Some(there(args))
}

fn users(folder: &Folder) -> String {
    let sizes = [(3, 2), (0, 4), (25, 7), (9, 0), (60, 3), (50, 11), (13, 30), (1, 1)];
    let users = sizes.iter().cycle().take(100).enumerate();
    let users: Vec<Value> =
        users.map(|(n, &(events, candidates))| user(&format!("u{n}"), events, candidates)).collect();
    folder.write("users.jsonl", jsonl(&users))
}

#[test]
#[cfg(target_os = "linux")]
fn rankings_of_two_adapters_are_those_of_one() {
    let folder = Folder::new();
    let data = users(&folder);
    let rank = |with: &[&str]| with_two(&folder, &[&["rank", "--json", "--data", &data], with].concat());
    let Some(one) = rank(&["--kernel", "wgpu", "--adapter", "#1"]) else { return };
    let two = rank(&["--devices", "0,1"]).unwrap();
    assert_eq!((one.code, two.code), (Some(0), Some(0)), "{}{}", one.stderr, two.stderr);
    let of_users = |run: &Run| run.stdout.lines().filter(|line| line.contains("\"user\"")).map(str::to_owned).collect();
    let (one, two): (Vec<String>, Vec<String>) = (of_users(&one), of_users(&two));
    assert_eq!((one.len(), one), (100, two));
}

#[test]
fn devices_that_cannot_be_meant_are_refused() {
    run(&["rank", "--devices", "0", "--kernel", "cpu"]).refused_with(&["--devices", "--adapter"]);
    run(&["rank", "--devices", "all", "--adapter", "x"]).refused_with(&["--devices", "--adapter"]);
    run(&["rank", "--devices", "977"]).failed_with(&["no GPU adapter", "`#977`"]);
    for devices in ["0,0", "", "one", "0,", "-1"] {
        let refused = run(&["rank", "--devices", devices]);
        assert_eq!(refused.code, Some(2), "{devices}: {}", refused.stderr);
    }
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn predictions_of_two_adapters_are_those_of_one() {
        let folder = Folder::new();
        let data = users(&folder);
        let predict = |out: &str, with: &[&str]| {
            let out = folder.0.join(out).display().to_string();
            let args = [
                &["predict", "--json", "--data", &data, "--batch", "300", "--columns", "country", "--out", &out],
                with,
            ];
            (with_two(&folder, &args.concat()), out)
        };
        let (one, by_one) = predict("one.jsonl", &["--kernel", "wgpu", "--adapter", "#0"]);
        let Some(one) = one else { return };
        assert_eq!(one.code, Some(0), "{}", one.stderr);
        for (name, devices) in [("all.jsonl", "all"), ("both.jsonl", "1,0")] {
            let (two, by_two) = predict(name, &["--kernel", "wgpu", "--devices", devices]);
            let two = two.unwrap();
            assert_eq!(two.code, Some(0), "{}", two.stderr);
            assert_eq!(two.json()[0]["adapter"], one.json()[0]["adapter"]);
            assert!(std::fs::read(&by_one).unwrap() == std::fs::read(by_two).unwrap(), "{devices}");
        }
    }
}
