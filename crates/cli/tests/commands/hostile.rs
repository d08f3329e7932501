//! Invalid input: one clear error, exit code 1, or 2 for invalid arguments, and no output that looks complete.

use crate::program::{Folder, Run, jsonl, rank, run, user};
use serde_json::{Value, json};

fn after_a_good_user(line: &[u8]) -> Run {
    rank(&[&jsonl(&[user("good", 3, 2)]), line].concat(), &[])
}

fn changed(change: impl FnOnce(&mut Value)) -> Run {
    let mut user = user("bad", 3, 2);
    change(&mut user);
    after_a_good_user(&jsonl(&[user]))
}

#[test]
fn lines_that_are_no_requests() {
    after_a_good_user(b"not json\n").failed_with(&["stdin:2: expected ident"]);
    after_a_good_user(b"{\"user\":\"u\"").failed_with(&["stdin:2: EOF"]);
    after_a_good_user(b"[1,2,3]\n").failed_with(&["stdin:2: ", "expected a JSON object"]);
    after_a_good_user(b"\xff\xfe{}\n").failed_with(&["stdin:2: "]);
    after_a_good_user("[".repeat(5_000_000).as_bytes()).failed_with(&["stdin:2: "]);
    after_a_good_user(format!("{{\"x\":{}", "[".repeat(5_000_000)).as_bytes()).failed_with(&["stdin:2: "]);
    rank(b"", &[]).failed_with(&["stdin holds no users"]);
    rank(b"\n \n", &[]).failed_with(&["stdin holds no users"]);
}

#[test]
fn values_of_other_types() {
    changed(|user| user["age_bucket"] = json!("old")).failed_with(&["stdin:2: ", "an integer for `age_bucket`"]);
    changed(|user| user["age_bucket"] = json!(1.5)).failed_with(&["an integer for `age_bucket`"]);
    changed(|user| user["history"] = json!([])).failed_with(&["an object of lists for `history`"]);
    changed(|user| user["history"]["genre"][1] = json!(null)).failed_with(&["an integer for `history.genre`"]);
    changed(|user| user["history"]["genre"][1] = json!(u64::MAX)).failed_with(&["an integer for `history.genre`"]);
    changed(|user| user["labels"] = json!({})).failed_with(&["a list of integers for `labels`"]);
    let huge = String::from_utf8(jsonl(&[user("bad", 0, 1)])).unwrap().replace("1738407300", "1e999");
    after_a_good_user(huge.as_bytes()).failed_with(&["stdin:2: number out of range"]);
}

#[test]
fn keys_that_are_missing_or_there_twice() {
    for key in ["user", "history", "candidates"] {
        changed(|user| drop(user.as_object_mut().unwrap().remove(key))).failed_with(&["stdin:2: ", key, "missing"]);
    }
    changed(|user| drop(user.as_object_mut().unwrap().remove("country")))
        .failed_with(&["stdin:2: user `bad`: `country` is missing"]);
    changed(|user| drop(user["history"].as_object_mut().unwrap().remove("watchtime")))
        .failed_with(&["stdin:2: user `bad`: `history.watchtime` is missing"]);
    let twice = String::from_utf8(jsonl(&[user("bad", 1, 1)])).unwrap().replacen("\"genre\"", "\"item_id\"", 1);
    after_a_good_user(twice.as_bytes()).failed_with(&["stdin:2: the key `history.item_id` is there twice"]);
}

#[test]
fn ids_out_of_range_and_ragged_lists() {
    changed(|user| user["candidates"]["item_id"][1] = json!(1500))
        .failed_with(&["stdin:2: user `bad`: `candidates.item_id[1]` is 1500, but the table `item_id` has 1500 rows"]);
    changed(|user| user["history"]["genre"][0] = json!(-1))
        .failed_with(&["stdin:2: user `bad`: `history.genre[0]` is -1, but the table `genre` has 16 rows"]);
    changed(|user| user["country"] = json!(99)).failed_with(&["`country` is 99"]);
    changed(|user| user["history"]["action"] = json!([1]))
        .failed_with(&["stdin:2: user `bad`: `history.action` has length 1, but `history.item_id` has length 3"]);
    changed(|user| user["labels"] = json!([1, 0, 3])).failed_with(&["`labels` has length 3"]);
}

#[test]
fn an_error_after_output_says_so() {
    let folder = Folder::new();
    let mut users: Vec<Value> = (0..400).map(|n| user(&format!("u{n}"), 100, 5)).collect();
    users[390]["country"] = json!(99);
    let data = folder.write("users.jsonl", jsonl(&users));
    let table = run(&["rank", "--kernel", "cpu", "--data", &data]);
    table.failed_with(&["users.jsonl:391: user `u390`: "]);
    assert!(table.stdout.lines().last().unwrap().starts_with("INCOMPLETE"), "{}", table.stdout);
    run(&["rank", "--kernel", "cpu", "--json", "--data", &data]).failed_with(&["users.jsonl:391: user `u390`: "]);
}

#[test]
fn files_that_cannot_be_read() {
    run(&["rank", "--kernel", "cpu", "--data", "/nonexistent/x"])
        .failed_with(&["cannot read /nonexistent/x: No such file"]);
    run(&["rank", "--kernel", "cpu", "--data", "/"]).failed_with(&["cannot read /"]);
    let folder = Folder::new();
    let damaged = folder.write("x.parquet", b"PAR1 and nothing of it");
    run(&["rank", "--kernel", "cpu", "--data", &damaged]).failed_with(&["x.parquet"]);
}

fn with_model(config: impl FnOnce(&mut Value), weights: impl FnOnce(&mut Vec<u8>)) -> Run {
    let folder = Folder::new();
    let model = folder.model(config, weights);
    run(&["rank", "--kernel", "cpu", "--json", "--model", &model])
}

#[test]
fn weights_that_are_not_good() {
    let folder = Folder::new();
    let empty = folder.0.display().to_string();
    run(&["rank", "--kernel", "cpu", "--model", &empty]).failed_with(&["config.json: No such file"]);
    let model = folder.model(|_| {}, |_| {});
    std::fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    run(&["rank", "--kernel", "cpu", "--model", &model]).failed_with(&["model.safetensors: No such file"]);
    for length in [0, 4, 8, 100, 5_000, 100_000, 647_615] {
        let run = with_model(|_| {}, |bytes| bytes.truncate(length));
        run.failed_with(&["model.safetensors is not a valid weights file", "expected a complete safetensors file"]);
    }
    with_model(|_| {}, |bytes| bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes())).failed_with(&["model.safetensors"]);
    with_model(|_| {}, |bytes| bytes.push(0)).failed_with(&["model.safetensors"]);
}

/// Replaces text of the header by text of the same length.
fn header(from: &'static str, to: &'static str) -> impl FnOnce(&mut Vec<u8>) {
    assert_eq!(from.len(), to.len());
    move |bytes| {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
}

#[test]
fn tensors_that_do_not_fit() {
    with_model(|_| {}, header("embedding.genre.weight", "embedding.other.weight"))
        .failed_with(&["parameter `embedding.genre.weight` is missing"]);
    with_model(|_| {}, header("\"dtype\":\"F32\"", "\"dtype\":\"I32\""))
        .failed_with(&["parameter `", "expected f32, got i32"]);
    with_model(|config| config["features"]["genre"]["num_embeddings"] = json!(17), |_| {}).failed_with(&[
        "`embedding.genre.weight`",
        "[17, 16]",
        "[16, 16]",
    ]);
    with_model(
        |_| {},
        |bytes| {
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        },
    )
    .failed_with(&["NaN"]);
    let thresholds =
        "/hstu/input_preprocessor/contextual_preprocessor/action_encoder/simple_action_encoder/action_weights";
    with_model(|config| *config.pointer_mut(thresholds).unwrap() = json!([1, 16]), |_| {})
        .failed_with(&["_combined_action_weights", "by the configuration"]);
}

#[test]
fn configurations_that_are_not_good() {
    with_model(|config| config["extra"] = json!(1), |_| {}).failed_with(&["config.json", "unknown field `extra`"]);
    with_model(|config| config["hstu"]["stu"]["heads"] = json!(1), |_| {}).failed_with(&["unknown field `heads`"]);
    with_model(|config| config["max_seq_len"] = json!(-1), |_| {}).failed_with(&["config.json"]);
    with_model(|config| config["max_seq_len"] = json!(2), |_| {}).failed_with(&["`max_seq_len` is 2"]);
    with_model(|config| config["model"] = json!("other"), |_| {}).failed_with(&["model", "other"]);
    with_model(|config| config["feature_groups"]["uih"] = json!(["nobody"]), |_| {}).failed_with(&["nobody"]);
    let folder = Folder::new();
    folder.model(|_| {}, |_| {});
    let text = std::fs::read_to_string(folder.0.join("config.json")).unwrap();
    folder.write("config.json", text.replacen("\"genre\":{", "\"item_id\":{", 1));
    run(&["rank", "--kernel", "cpu", "--model", &folder.0.display().to_string()])
        .failed_with(&["config.json", "`features.item_id`: `item_id` is there twice"]);
    for text in ["", "{", "[]", "\u{1}"] {
        folder.write("config.json", text);
        run(&["rank", "--kernel", "cpu", "--model", &folder.0.display().to_string()]).failed_with(&["config.json"]);
    }
}

#[test]
fn numbers_that_no_kernel_computes_with() {
    let increments = "/hstu/positional_encoder/time_bucket_increments";
    with_model(|config| *config.pointer_mut(increments).unwrap() = json!(1e-46), |_| {})
        .failed_with(&["`hstu.positional_encoder.time_bucket_increments` must be at least", "got 0.0000"]);
}

#[test]
fn weights_of_another_model() {
    let folder = Folder::new();
    let model = folder.model(|config| config["hstu"]["attn_num_layers"] = json!(1), |_| {});
    let rank = ["rank", "--kernel", "cpu", "--json", "--model", &model];
    run(&rank).failed_with(&["does not use 7 of the", "_stu_layers.1.", "allow_unread"]);
    let allowed = run(&[&rank[..], &["--allow-unread"]].concat());
    assert_eq!(allowed.code, Some(0), "{}", allowed.stderr);
    let bench = ["bench", &model, "--kernel", "cpu", "--seconds", "0", "--batch", "1"];
    run(&bench).failed_with(&["does not use 7 of the"]);
    let allowed = run(&[&bench[..], &["--allow-unread"]].concat());
    assert_eq!(allowed.code, Some(0), "{}", allowed.stderr);
    let without = |config: &mut Value| drop(config["hstu"].as_object_mut().unwrap().remove("positional_encoder"));
    with_model(without, |_| {}).failed_with(&["does not use 2 of the", "_positional_encoder."]);
}

#[test]
fn choices_that_the_cpu_does_not_have() {
    for command in [&["rank"][..], &["bench", "addmm"], &["profile", "addmm"], &["verify", "."], &["tune", "addmm"]] {
        run(&[command, &["--kernel", "cpu", "--adapter", "nonsense"]].concat())
            .refused_with(&["--kernel cpu uses no adapter"]);
    }
    run(&["rank", "--adapter", "nonsense"]).failed_with(&["no GPU adapter matches `nonsense`"]);
    for command in [&["rank"][..], &["bench", "addmm"], &["verify", "."]] {
        run(&[command, &["--kernel", "cpu", "--tuning", "reduction:threads=32"]].concat())
            .refused_with(&["--kernel cpu has no tunings"]);
    }
}

#[test]
fn arguments_that_contradict_each_other_exit_with_2() {
    for args in [
        &["graph", "--json", "--format", "dot"][..],
        &["graph", "--json", "--explain"],
        &["graph", "--json", "--wgsl", "3"],
        &["predict", "--out", "x.csv", "--data", "-", "--resume"],
        &["train", "--out", "x", "--resume", "--fresh"],
        &["package", "--check", "--model", "x", "--tables-file", "y"],
        &["rank", "--kernel", "cpu", "--matrices", "wgsl"],
        &["devices", "--kernel", "cpu", "--adapter", "x"],
        &["rank", "--kernel", "cpu", "--devices", "all"],
        &["tune", "addmm", "--kernel", "cpu"],
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stderr.starts_with("error: ") && run.stdout.is_empty(), "{}", run.stderr);
    }
    // An argument wins over a variable.
    let mut rank = crate::program::command(&["rank", "--kernel", "cpu", "--json", "--top", "1"]);
    let run = crate::program::finish(
        rank.env("REWIRE_ADAPTER", "x").env("REWIRE_TUNING", "reduction:threads=32").env("REWIRE_MATRICES", "wgsl"),
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

#[test]
fn a_request_of_a_description_is_ranked() {
    let described = run(&["describe", "--json"]).json().remove(0);
    assert_eq!((&described["model"], &described["max_seq_len"]), (&json!("dlrm_hstu"), &json!(160)));
    assert_eq!(described["features"]["contextual"][1]["table"]["rows"], 16, "{described}");
    assert_eq!(described["tasks"][0], json!({ "name": "is_click", "bitmask": 1 }));
    let text = run(&["describe"]).stdout;
    let example = text.lines().last().unwrap();
    assert!(text.contains("item_id") && text.contains("ids 0 to 1499") && text.contains("output tensors"), "{text}");
    assert_eq!(serde_json::from_str::<Value>(example).unwrap(), described["example"]);
    assert_eq!(rank(format!("{example}\n").as_bytes(), &[]).code, Some(0));
    let missing = rank(b"{\"user\":\"u\",\"history\":{}}\n", &[]);
    missing.failed_with(&[
        "`country`",
        "`history.item_id`",
        "`candidates.genre`",
        &format!("are missing; example: {example}"),
    ]);
}

#[test]
fn usage_errors_exit_with_2() {
    for args in [&["rank", "--top", "x"][..], &["rank", "--kernel", "gpu"], &["nothing"], &[], &["verify"]] {
        assert_eq!(run(args).code, Some(2), "{args:?}");
    }
}

#[test]
fn names_of_nothing_exit_with_2() {
    for command in ["bench", "profile", "tune"] {
        for name in ["nonsense", "/nonexistent/model"] {
            run(&[command, name]).refused_with(&[&format!("`{name}`"), "demo", "stu-layer"]);
        }
    }
    run(&["bench", "addmm", "nonsense", "--kernel", "cpu"]).refused_with(&["`nonsense`", "a model folder"]);
    for option in ["--without", "--only"] {
        run(&["graph", option, "nonsense"]).refused_with(&["`nonsense`", "fuse"]);
    }
}
