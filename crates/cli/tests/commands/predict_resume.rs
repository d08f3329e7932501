//! Predictions are complete or absent, however a run ends, and the next one continues without a duplicate or missing row.

use crate::program::{DEMO, Folder, Run, finish, user};
use crate::tables::{read, write};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Runs after commands of the shell.
fn command(before: &str, data: &str, out: &Path, more: &[&str]) -> Command {
    let script = format!("{before} exec \"$0\" predict --kernel cpu --json \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_rewire"), "--data", data, "--out"]).arg(out).args(more);
    command.env("XDG_CACHE_HOME", std::env::temp_dir().join("rewire-test-caches"));
    command
}

fn predict(data: &str, out: &Path, more: &[&str]) -> Run {
    finish(&mut command("", data, out, more))
}

/// A number that is another in every run of the tests.
fn random(below: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::from(now.subsec_nanos()).wrapping_mul(0x9e37_79b9_7f4a_7c15) % below
}

/// Users, some of them bad.
fn users(count: usize) -> Vec<Value> {
    let one = |number: usize| {
        let mut user = user(&format!("u{number}"), (number * 37 % 90) as i64, (number * 13 % 29) as i64);
        user["note"] = json!(format!("n{number}"));
        if number % 17 == 3 {
            user["country"] = json!(99);
        }
        user
    };
    (0..count).map(one).collect()
}

fn beside(out: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}.{ending}", out.display()))
}

/// Starts runs and kills them, until one ends before.
fn kill_until_done(data: &str, out: &Path, more: &[&str], kills: u32) -> Run {
    for _ in 0..kills {
        let mut child = command("", data, out, more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let journal = beside(out, "journal");
        let time = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
        let (before, begun) = (time(&journal), Instant::now());
        // At any time during start-up, or once there is a checkpoint to resume from.
        let patience = Duration::from_secs(if random(4) == 0 { 0 } else { 20 });
        while time(&journal) == before && begun.elapsed() < patience && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(random(30)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if status.code() == Some(0) {
            break;
        }
        assert!(status.code().is_none() && !out.exists());
    }
    predict(data, out, more)
}

/// Files are limited to this many blocks of 512 bytes; exceeding the limit is an error.
fn full(blocks: u32) -> String {
    format!("trap '' XFSZ; ulimit -f {blocks};")
}

/// Keeps the output of a run when the disk is full.
fn stopped(folder: &Folder, data: &str, out: &Path) {
    let run = finish(&mut command(&full(24), data, out, &["--save-every", "50", "--batch", "500"]));
    run.failed_with(&["out.csv: File too large"]);
    assert_eq!(folder.names(), ["in.jsonl", "out.csv.journal", "out.csv.partial"]);
}

fn good_users(count: usize) -> Vec<Value> {
    users(count * 2).into_iter().filter(|user| user["country"] != 99).take(count).collect()
}

#[test]
fn a_full_disk_leaves_no_result_and_the_next_run_goes_on() {
    let folder = Folder::new();
    let (data, out) = (write(&folder.0.join("in.jsonl"), &good_users(40), 1), folder.0.join("out.csv"));
    finish(&mut command(&full(0), &data, &out, &[])).failed_with(&["out.csv: File too large"]);
    assert_eq!(folder.names(), ["in.jsonl"]);
    stopped(&folder, &data, &out);
    let run = predict(&data, &out, &["--resume"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let summary = &run.json()[0];
    let resumed = summary["resumed_rows"].as_u64().unwrap();
    assert!(resumed >= 50 && resumed < summary["rows"].as_u64().unwrap(), "{summary}");
    let again = folder.0.join("again.csv");
    assert_eq!(predict(&data, &again, &[]).code, Some(0));
    assert!(std::fs::read(out).unwrap() == std::fs::read(again).unwrap());
    assert_eq!(folder.names(), ["again.csv", "in.jsonl", "out.csv"]);
}

#[test]
fn what_was_changed_since_is_not_gone_on_from() {
    let folder = Folder::new();
    let (data, out) = (write(&folder.0.join("in.jsonl"), &good_users(40), 1), folder.0.join("out.csv"));
    stopped(&folder, &data, &out);
    let refused = |more: &[&str], parts: &[&str]| {
        predict(&data, &out, &[&["--resume"], more].concat()).failed_with(parts);
        assert!(!out.exists());
    };
    refused(&["--columns", "note"], &["out.csv.journal belongs to a run with the options `"]);
    refused(&["--model", &format!("{DEMO}/model")], &["belongs to a run with the model `the model in the program`"]);
    let other = predict(&data, &folder.0.join("other.csv"), &["--resume"]);
    assert_eq!(other.code, Some(0));
    std::fs::remove_file(folder.0.join("other.csv")).unwrap();
    finish(command("", "-", &out, &["--resume"]).stdin(Stdio::null()))
        .refused_with(&["--resume needs --data in a file"]);
    let [partial, journal] = ["partial", "journal"].map(|ending| beside(&out, ending));
    let lock = File::open(&partial).unwrap();
    lock.lock().unwrap();
    refused(&[], &["out.csv is being written by another run"]);
    drop(lock);
    for (file, fault) in
        [(&partial, "differs from what the previous run wrote"), (&journal, "out.csv.journal is damaged")]
    {
        let whole = std::fs::read(file).unwrap();
        for at in [0, 40, 200] {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(file, changed).unwrap();
            refused(&[], &[fault]);
        }
        std::fs::write(file, &whole[..200]).unwrap();
        refused(&[], &[fault]);
        std::fs::write(file, whole).unwrap();
    }
    let mut users = good_users(40);
    users[39]["country"] = json!(7);
    write(Path::new(&data), &users, 1);
    refused(&[], &["belongs to a run with the data `"]);
    assert_eq!(predict(&data, &out, &[]).code, Some(0), "without --resume it begins again");
    assert_eq!(folder.names(), ["in.jsonl", "out.csv"]);
}

/// The most memory that a run took, in KiB.
fn peak(command: &mut Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    most
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn memory_does_not_grow_with_the_file() {
        let folder = Folder::new();
        let text = "x".repeat(1 << 16);
        let most = |count: usize, to: &str| {
            let mut users: Vec<Value> = (0..count).map(|number| user(&format!("u{number}"), 1, 1)).collect();
            users.iter_mut().for_each(|user| user["note"] = json!(text));
            let data = write(&folder.0.join("in.csv"), &users, 1);
            let options = ["--columns", "note", "--batch", "20", "--save-every", "50"];
            peak(&mut command("", &data, &folder.0.join(to), &options))
        };
        for to in ["out.jsonl", "out.parquet"] {
            let (few, many) = (most(100, to), most(1000, to));
            assert!(many < few + (16 << 10), "{to}: {few} KiB for 6 MiB, {many} KiB for 62 MiB");
        }
    }

    #[test]
    fn a_run_that_is_killed_goes_on_without_a_row_twice_or_missing() {
        let (folder, users) = (Folder::new(), users(160));
        for (from, to) in [("jsonl", "parquet"), ("parquet", "csv"), ("csv", "jsonl")] {
            let data = write(&folder.0.join(format!("in.{from}")), &users, 50);
            let place = |name: &str| folder.0.join(format!("{name}.{to}"));
            let aside = |name: &str| folder.0.join(format!("{name}-{from}.jsonl")).display().to_string();
            let [once, often] = ["once", "often"].map(aside);
            let options =
                ["--columns", "note,country", "--save-every", "60", "--batch", "700", "--resume", "--rejects"];
            let whole = predict(&data, &place("once"), &[&options[..], &[&once]].concat());
            assert_eq!(whole.code, Some(0), "{}", whole.stderr);
            let done = kill_until_done(&data, &place("often"), &[&options[..], &[&often]].concat(), 5);
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            for count in ["rows", "users", "rejected"] {
                assert_eq!(done.json()[0][count], whole.json()[0][count], "{}", done.stdout);
            }
            assert!(read(&place("once")) == read(&place("often")), "{from} {to}");
            if to != "parquet" {
                assert!(std::fs::read(place("once")).unwrap() == std::fs::read(place("often")).unwrap(), "{from} {to}");
            }
            assert!(std::fs::read(once).unwrap() == std::fs::read(often).unwrap());
        }
        assert!(!folder.names().iter().any(|name| name.contains(".partial") || name.contains(".journal")));
    }
}
