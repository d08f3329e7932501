//! The ranking of the demo against the reference's scores, and options that must not change a score.

use crate::program::{Folder, Run, finish, jsonl, lines, rank, run, user, users};
use serde_json::{Value, json};
use std::collections::HashMap;

const TOLERANCE: f64 = 2e-4;

/// A user without files.
#[cfg(target_os = "linux")]
const NOBODY: u32 = 65534;

fn check_demo(kernel: &str) {
    let ranked = run(&["rank", "--json", "--top", "100000", "--kernel", kernel]);
    assert_eq!(ranked.code, Some(0), "{}", ranked.stderr);
    let output = ranked.json();
    let (users, expected) = (users(), lines("expected.jsonl"));
    assert_eq!(output.len(), users.len() + 1);
    for ((line, user), expected) in output.iter().zip(&users).zip(&expected) {
        assert_eq!(line["user"], user["user"]);
        let reference = logits_by_item(user, expected);
        let candidates = line["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), reference.len());
        for candidate in candidates {
            for (task, value) in candidate["logits"].as_object().unwrap() {
                let expected = reference[&candidate["item"].as_i64().unwrap()][task].as_f64().unwrap();
                assert!((value.as_f64().unwrap() - expected).abs() < TOLERANCE, "{} {task}", line["user"]);
            }
        }
        let order = candidates.iter().map(|c| (-c["score"].as_f64().unwrap(), c["item"].as_i64().unwrap()));
        assert!(order.is_sorted_by(|a, b| a <= b));
    }
    let summary = &output.last().unwrap()["summary"];
    let [first, all] = ["first_scores_seconds", "seconds"].map(|name| summary[name].as_f64().unwrap());
    assert!(0.0 < first && first <= all, "{summary}");
    assert_eq!(
        (&summary["users"], &summary["candidates"], &summary["kernel"]),
        (&json!(256), &json!(4158), &json!(kernel))
    );
    for (task, auc) in [("is_click", "0.710"), ("is_like", "0.759")] {
        assert_eq!(format!("{:.3}", summary["auc"][task].as_f64().unwrap()), auc);
    }
}

#[test]
fn the_readme_shows_what_the_program_prints() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, from) = readme.split_once("```text\n").unwrap();
    let (shown, _) = from.split_once("```").unwrap();
    let ranked = run(&["rank", "--kernel", "cpu"]);
    // Times differ from run to run, and dots are for other users.
    let is_same = |line: &&str| !line.contains(" ranked in ") && *line != "...";
    for line in shown.lines().filter(is_same) {
        assert!(ranked.stdout.lines().any(|printed| printed == line), "the README shows `{line}`: {}", ranked.stdout);
    }
}

/// The reference's logits by item; the demo has no item twice for a user.
fn logits_by_item(user: &Value, expected: &Value) -> HashMap<i64, HashMap<String, Value>> {
    let items = user["candidates"]["item_id"].as_array().unwrap();
    let logits = |at: usize| {
        let tasks = ["is_click", "is_like"];
        tasks.map(|task| (task.to_owned(), expected[task][at].clone())).into_iter().collect()
    };
    items.iter().enumerate().map(|(at, item)| (item.as_i64().unwrap(), logits(at))).collect()
}

#[test]
fn the_demo_agrees_with_the_reference_on_the_cpu() {
    check_demo("cpu");
}

#[test]
fn the_demo_agrees_with_the_reference_on_an_adapter() {
    if rewire::Gpu::open(None).is_err() {
        return eprintln!("skipped: there is no adapter");
    }
    check_demo("wgpu");
}

fn scores(run: &Run) -> Vec<Value> {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let mut lines = run.json();
    assert!(lines.pop().unwrap()["summary"].is_object());
    lines
}

#[test]
fn odd_users_are_ranked() {
    let odd = [user("none", 0, 4), user("one", 1, 1), user("nothing to rank", 5, 0), user("plain", 30, 7)];
    let together = scores(&rank(&jsonl(&odd), &[]));
    assert_eq!(
        together.iter().map(|line| line["candidates"].as_array().unwrap().len()).collect::<Vec<_>>(),
        [4, 1, 0, 7]
    );
    for (user, line) in odd.iter().zip(&together) {
        assert_eq!(scores(&rank(&jsonl(std::slice::from_ref(user)), &[])), std::slice::from_ref(line));
    }
    assert_eq!(scores(&rank(&jsonl(&[user("a", 0, 0)]), &[]))[0]["candidates"], json!([]));
}

#[test]
fn top_limits_what_is_printed() {
    let run = rank(&jsonl(&[user("u", 3, 7)]), &["--top", "2"]);
    assert_eq!(scores(&run)[0]["candidates"].as_array().unwrap().len(), 2);
    assert_eq!(run.json()[1]["summary"]["candidates"], 7);
    assert_eq!(scores(&rank(&jsonl(&[user("u", 3, 7)]), &["--top", "0"]))[0]["candidates"], json!([]));
}

#[test]
fn long_histories_keep_their_newest_events() {
    let long = user("u", 400, 3);
    let mut newest = long.clone();
    for list in newest["history"].as_object_mut().unwrap().values_mut() {
        list.as_array_mut().unwrap().drain(..400 - 157);
    }
    let run = rank(&jsonl(&[long]), &[]);
    assert_eq!(scores(&run), scores(&rank(&jsonl(&[newest]), &[])));
    assert!(run.stderr.contains("1 history did not fit"), "{}", run.stderr);
    let summary = &run.json()[1]["summary"];
    assert_eq!((&summary["truncated_histories"], &summary["dropped_events"]), (&json!(1), &json!(243)));
}

#[test]
fn candidates_beyond_a_sequence_have_the_scores_of_fewer() {
    let many = user("u", 100, 200);
    let run = rank(&jsonl(std::slice::from_ref(&many)), &["--top", "200"]);
    assert_eq!(run.json()[1]["summary"]["split_users"], 0);
    let together = scores(&run);
    for start in (0..200).step_by(50) {
        let mut part = many.clone();
        for list in part["candidates"].as_object_mut().unwrap().values_mut() {
            *list = json!(list.as_array().unwrap()[start..start + 50]);
        }
        for candidate in scores(&rank(&jsonl(&[part]), &["--top", "50"]))[0]["candidates"].as_array().unwrap() {
            assert!(together[0]["candidates"].as_array().unwrap().contains(candidate), "{candidate}");
        }
    }
}

#[test]
fn histories_out_of_order_are_sorted_and_reported() {
    let sorted = user("u", 20, 3);
    let mut shuffled = sorted.clone();
    for list in shuffled["history"].as_object_mut().unwrap().values_mut() {
        list.as_array_mut().unwrap().reverse();
    }
    let run = rank(&jsonl(&[shuffled]), &[]);
    assert_eq!(scores(&run), scores(&rank(&jsonl(&[sorted]), &[])));
    assert!(run.stderr.contains("1 history was not in order of time and was sorted"), "{}", run.stderr);
    assert_eq!(run.json()[1]["summary"]["sorted_histories"], 1);
}

#[test]
fn the_table_has_titles_and_an_end() {
    let run = run(&["rank", "--kernel", "cpu", "--top", "1"]);
    assert_eq!(run.code, Some(0));
    assert!(run.stdout.contains("Romance film 1159"));
    assert!(run.stdout.contains("256 users, 4158 candidates ranked in"));
    assert!(run.stdout.contains("on cpu, the first scores after "));
    assert!(run.stdout.contains("AUC is_click  0.7096"));
}

#[test]
fn titles_are_found_next_to_the_data() {
    let folder = Folder::new();
    folder.write("items.csv", "item_id,title\n0,\"Zero, the film\"\n");
    let data = folder.write("users.jsonl", jsonl(&[user("u", 2, 1)]));
    let ranked = run(&["rank", "--kernel", "cpu", "--data", &data]);
    assert!(ranked.stdout.contains("Zero, the film"), "{}", ranked.stdout);
    folder.write("items.csv", "no,header\n");
    let ranked = run(&["rank", "--kernel", "cpu", "--data", &data]);
    assert_eq!(ranked.code, Some(0));
    assert!(ranked.stderr.contains("warning: ") && ranked.stderr.contains("title"), "{}", ranked.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let mut child = crate::program::command(&["rank", "--kernel", "cpu", "--json", "--top", "1000"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &b""[..]));
}

#[test]
fn nothing_of_a_driver_is_needed_on_the_cpu() {
    let run = finish(
        crate::program::command(&["rank", "--kernel", "cpu", "--top", "1"]).env("VK_DRIVER_FILES", "/nonexistent"),
    );
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
#[cfg(target_os = "linux")]
fn threads_that_the_system_refuses_are_an_error_or_missed_by_nobody() {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let folder = Folder::new();
    let data = folder.write("users.jsonl", jsonl(&[user("a", 40, 30), user("b", 3, 200)]));
    // A limit holds for users other than the first, who may be kept from the folder of the build.
    let program = folder.0.join("rewire");
    std::fs::copy(env!("CARGO_BIN_EXE_rewire"), &program).unwrap();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let ranked = |script: &str| {
        let mut command = std::process::Command::new("bash");
        command.arg("-c").arg(script).arg(&program).args(["rank", "--kernel", "cpu", "--json", "--data", &data]);
        if is_root {
            command.uid(NOBODY);
        }
        finish(command.env("REWIRE_THREADS", "4").env("XDG_CACHE_HOME", &folder.0))
    };
    let whole = ranked("exec \"$0\" \"$@\"");
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let scores = |run: &Run| run.json().into_iter().filter(|line| line["user"] != json!(null)).collect::<Vec<_>>();
    for limit in [1, 2, 3, 4, 5, 7] {
        let run = ranked(&format!("ulimit -u {limit}; exec \"$0\" \"$@\""));
        match run.code {
            Some(0) => assert_eq!(scores(&run), scores(&whole), "{limit}: {}", run.stderr),
            _ => run.failed_with(&["cannot start a thread"]),
        }
        assert!(run.code == Some(0) || limit < 7, "{}", run.stderr);
        assert!(run.code != Some(0) || limit > 1, "one thread neither reads nor computes");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_ceiling_on_memory_ends_a_run_with_an_error() {
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_rewire");
    // The program itself takes about 100.
    for megabytes in [128, 144, 160] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -c 0; ulimit -v $((1024 * $0)); exec \"$@\"", &megabytes.to_string()]);
        let run = finish(command.args([program, "rank", "--kernel", "cpu"]).env("XDG_CACHE_HOME", &folder.0));
        assert!(matches!(run.code, Some(0 | 1)), "{megabytes} MB: {:?} {}", run.code, run.stderr);
        assert!(run.code == Some(0) || run.stderr.contains("memory"), "{megabytes} MB: {}", run.stderr);
    }
}

#[test]
fn a_number_of_threads_is_sensible_or_an_error() {
    let ranked = |threads: &str| {
        let data = jsonl(&[user("a", 3, 2)]);
        let folder = Folder::new();
        let file = folder.write("users.jsonl", data);
        finish(crate::program::command(&["rank", "--kernel", "cpu", "--data", &file]).env("REWIRE_THREADS", threads))
    };
    for threads in ["0", "20000", "many", "-1"] {
        ranked(threads).refused_with(&["`REWIRE_THREADS`: expected a number of threads from 1 to 1024", threads]);
    }
    for threads in ["", "1", "1024"] {
        let run = ranked(threads);
        assert_eq!(run.code, Some(0), "{threads}: {}", run.stderr);
    }
}

/// Adds a tensor of 8 MB that no model reads.
#[cfg(target_os = "linux")]
fn widen(weights: &mut Vec<u8>) {
    const MORE: usize = 8 << 20;
    let length = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    let (mut header, data) =
        (serde_json::from_slice::<Value>(&weights[8..8 + length]).unwrap(), weights[8 + length..].to_vec());
    let end = data.len() + MORE;
    header["unread"] = json!({ "dtype": "U8", "shape": [MORE], "data_offsets": [data.len(), end] });
    let header = header.to_string();
    let padded = header.len().next_multiple_of(8);
    *weights = [&(padded as u64).to_le_bytes(), format!("{header:padded$}").as_bytes(), &data, &vec![0; MORE]].concat();
}

#[test]
#[cfg(target_os = "linux")]
fn the_files_of_a_model_are_mapped_or_not_as_told() {
    use std::io::{BufRead, BufReader};
    let folder = Folder::new();
    let model = folder.model(|_| {}, widen);
    for (mapping, is_mapped) in [(None, true), (Some("large"), true), (Some("never"), false)] {
        let args = ["rank", "--verbose", "--kernel", "cpu", "--allow-unread", "--model", &model, "--data", "-"];
        let mut child = crate::program::command(&args)
            .args(mapping.into_iter().flat_map(|mapping| ["--mapping", mapping]))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The program waits for its first user once it has its parameters.
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("reading parameters")), "{mapping:?}");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(maps.contains(&format!("{model}/model.safetensors")), is_mapped, "{mapping:?}");
    }
    let wrong = run(&["rank", "--mapping", "always"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("large, never"), "{}", wrong.stderr);
}
