//! Tunings of kernels: measured, kept, forced. Times are looked at for being there, never for their size.

use crate::program::{Folder, Run, command, finish, run};
use serde_json::Value;
use std::collections::BTreeSet;

/// Runs with a separate cache folder.
fn run_in(caches: &Folder, args: &[&str]) -> Run {
    finish(command(args).env("XDG_CACHE_HOME", &caches.0))
}

/// True where this machine has an adapter that times kernels.
fn tunes(run: &Run) -> bool {
    let lacks = ["no GPU adapter", "cannot time kernels"].iter().any(|reason| run.stderr.contains(reason));
    assert!(lacks || run.code == Some(0), "{}", run.stderr);
    !lacks
}

const WORK: [&str; 9] = ["addmm", "--m", "40", "--k", "24", "--n", "20", "--kernel", "wgpu"];

#[test]
fn what_is_tuned_is_kept() {
    let caches = Folder::new();
    let tune = run_in(&caches, &[&["tune", "--json", "--seconds", "0"], &WORK[..]].concat());
    if !tunes(&tune) {
        return;
    }
    let records = tune.json();
    assert_eq!(records.len(), 1, "{}", tune.stdout);
    let record = &records[0];
    assert_eq!((&record["op"], &record["name"], &record["step"]), (&"addmm".into(), &"addmm".into(), &0.into()));
    assert!(record["candidates"].as_u64().is_some_and(|count| count > 3), "{record}");
    for field in ["before", "after", "sizes", "adapter", "dtype"] {
        assert!(record[field].is_string(), "{field}: {record}");
    }
    assert!(record["before_ms"].as_f64() >= record["after_ms"].as_f64(), "{record}");
    let files = std::fs::read_dir(caches.0.join("rewire/tunings")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect();
    let text = std::fs::read(&files[0]).unwrap();
    let kept: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((files.len(), kept["kernels"].as_object().unwrap().len()), (1, 1));

    let table = run_in(&caches, &[&["tune", "--seconds", "0"], &WORK[..]].concat());
    assert!(table.stdout.contains("before ms") && table.stdout.contains("sum"), "{}", table.stdout);
    let bench = run_in(&caches, &[&["bench", "--json", "--seconds", "0"], &WORK[..]].concat());
    assert_eq!(bench.code, Some(0), "{}{}", bench.stdout, bench.stderr);
    assert_eq!(bench.json()[0]["tuned"], 1, "{}{}", bench.stdout, bench.stderr);
    let untuned = [&["bench", "--json", "--seconds", "0", "--tuning", "default"], &WORK[..]].concat();
    assert_eq!(run_in(&caches, &untuned).json()[0]["tuned"], 0);
}

#[test]
fn tunings_that_cannot_be_kept_are_an_error() {
    let caches = Folder::new();
    caches.write("rewire", "a file where a folder should be");
    let tune = run_in(&caches, &[&["tune", "--seconds", "0"], &WORK[..]].concat());
    if tune.stderr.contains("no GPU adapter") {
        return;
    }
    tune.failed_with(&["rewire/tunings/tunings-", "the tunings cannot be stored", "make the folder writable"]);
}

#[test]
fn the_cpu_has_no_tunings() {
    run(&["tune", "addmm", "--kernel", "cpu"]).refused_with(&["tune measures kernels on adapters"]);
    assert_eq!(run(&["tune", "--kernel", "cpu"]).code, Some(2));
}

#[test]
fn a_tuning_is_forced() {
    let bench = |tuning: &str| run(&[&["bench", "--json", "--seconds", "0", "--tuning", tuning], &WORK[..]].concat());
    let wrong = bench("height=3");
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("`height=3` is not part of a tuning"), "{}", wrong.stderr);
    let wrong = bench("product:rows=5");
    assert!(wrong.code == Some(2) && wrong.stderr.contains("missing field `columns`"), "{}", wrong.stderr);
    let fits = bench("product:rows=16,columns=16,depth=8,rows_per_thread=1,parts=1");
    if !tunes(&fits) {
        return;
    }
    let record = bench("product:rows=5,columns=16,depth=8,rows_per_thread=1,parts=1").json().remove(0);
    assert!(record["error"].as_str().is_some_and(|error| error.contains("rows is 5")), "{record}");
}

#[test]
fn a_case_is_replayed_with_every_variant() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/layer_norm");
    let case = std::fs::read_dir(golden).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let case = case.display().to_string();
    let cpu = run(&["verify", "--variants", "--json", "--kernel", "cpu", &case]);
    let lines = cpu.json();
    let of_instructions: BTreeSet<&str> = lines.iter().filter_map(|line| line["variant"].as_str()).collect();
    assert_eq!((cpu.code, of_instructions.len()), (Some(0), lines.len()), "{}", cpu.stderr);
    assert!(of_instructions.len() > 1 && of_instructions.contains("baseline"), "{of_instructions:?}");
    assert!(lines.iter().all(|line| line["status"] == "ok"), "{}", cpu.stdout);
    let verified = run(&["verify", "--variants", "--json", "--kernel", "wgpu", &case]);
    if tunes(&verified) {
        let lines = verified.json();
        assert!(lines.len() > 2 && lines.iter().all(|line| line["status"] == "ok"), "{}", verified.stdout);
        assert!(lines[1]["variant"].as_str().is_some_and(|variant| variant.contains("threads=")), "{}", lines[1]);
    }
    assert_eq!(run(&["verify", "--variants", "--tuning", "reduction:threads=32", &case]).code, Some(2));
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn ranks_stay_while_kernels_are_measured() {
        let caches = Folder::new();
        let rank = |refine| run_in(&caches, &["rank", "--json", "--top", "3", "--kernel", "wgpu", "--refine", refine]);
        let expected = rank("never");
        if !tunes(&expected) {
            return;
        }
        let users = |run: Run| run.json().into_iter().filter(|line| line.get("summary").is_none()).collect::<Vec<_>>();
        let expected = users(expected);
        assert!(expected.len() > 1);
        assert_eq!(users(rank("always")), expected);
    }
}
