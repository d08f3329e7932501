//! Predictions: the scores of `rank` as rows, from and into files of every format.

use crate::program::{Folder, Run, run, user};
use crate::tables::{Row, read, write};
use serde_json::{Value, json};
use std::path::Path;

const FORMATS: [&str; 3] = ["jsonl", "csv", "parquet"];

/// Users of various lengths: without history, without candidates, more than fits.
fn users() -> Vec<Value> {
    let sizes = [(3, 2), (0, 4), (25, 7), (9, 0), (200, 3), (50, 11), (13, 300), (1, 1)];
    let noted = |(number, &(events, candidates)): (usize, &(i64, i64))| {
        let mut user = user(&format!("u{number}"), events, candidates);
        user["note"] = json!(format!("n;\"{number}\", ä"));
        user["country"] = json!(number);
        user
    };
    sizes.iter().enumerate().map(noted).collect()
}

fn predict(data: &str, out: &Path, more: &[&str]) -> Run {
    let out = out.display().to_string();
    run(&[&["predict", "--kernel", "cpu", "--json", "--data", data, "--out", &out], more].concat())
}

/// The output of `rank`, in the order of the requests.
fn ranked(data: &str) -> Vec<Row> {
    let run = run(&["rank", "--kernel", "cpu", "--json", "--top", "100000", "--data", data]);
    let mut rows = vec![];
    for line in run.json().iter().filter(|line| line["user"].is_string()) {
        for candidate in line["candidates"].as_array().unwrap() {
            let logits = ["is_click", "is_like"].map(|task| candidate["logits"][task].as_f64().unwrap() as f32);
            rows.push(Row {
                user: line["user"].as_str().unwrap().to_owned(),
                item: candidate["item"].as_i64().unwrap(),
                score: candidate["score"].as_f64().unwrap().to_bits(),
                logits: logits.map(f32::to_bits).to_vec(),
                carried: vec![],
            });
        }
    }
    rows
}

fn sorted(rows: &[Row]) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.iter().map(|row| Row { carried: vec![], ..row.clone() }).collect();
    rows.sort();
    rows
}

#[test]
fn every_format_carries_the_same_rows() {
    let (folder, users) = (Folder::new(), users());
    let items = users.iter().flat_map(|user| user["candidates"]["item_id"].as_array().unwrap());
    let items: Vec<i64> = items.map(|item| item.as_i64().unwrap()).collect();
    let mut expected: Option<Vec<Row>> = None;
    for from in FORMATS {
        let data = write(&folder.0.join(format!("in.{from}")), &users, 3);
        for to in FORMATS {
            let out = folder.0.join(format!("out-{from}.{to}"));
            let run = predict(&data, &out, &["--columns", "note,country,candidates.timestamp", "--save-every", "100"]);
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            let summary = &run.json()[0];
            assert_eq!([&summary["rows"], &summary["users"], &summary["rejected"]], [328, 8, 0], "{summary}");
            let (names, rows) = read(&out);
            let all =
                ["user", "item", "score", "logit_is_click", "logit_is_like", "note", "country", "candidates.timestamp"];
            assert_eq!(names, all);
            assert_eq!(rows.iter().map(|row| row.item).collect::<Vec<_>>(), items);
            assert_eq!(rows[2].carried, ["n;\"1\", ä", "1", "1738407300"], "{from} {to}");
            assert_eq!(*expected.get_or_insert(rows.clone()), rows, "{from} {to}");
        }
    }
    let data = folder.0.join("in.jsonl").display().to_string();
    assert_eq!(sorted(&ranked(&data)), sorted(&expected.unwrap()));
    assert_eq!(folder.names().len(), 12, "{:?}", folder.names());
}

#[test]
fn batches_change_no_bit() {
    let (folder, users) = (Folder::new(), users());
    let data = write(&folder.0.join("in.jsonl"), &users, 1);
    let of = |batch: &str| {
        let out = folder.0.join(format!("{batch}.csv"));
        assert_eq!(predict(&data, &out, &["--batch", batch]).code, Some(0));
        std::fs::read(out).unwrap()
    };
    let whole = of("100000");
    assert!(["1", "7", "64", "500"].iter().all(|batch| of(batch) == whole));
}

#[test]
fn where_tables_lie_changes_no_bit() {
    let folder = Folder::new();
    let data = write(&folder.0.join("in.jsonl"), &users(), 1);
    let rows = |name: &str, more: &[&str]| {
        let out = folder.0.join(name);
        assert_eq!(predict(&data, &out, more).code, Some(0), "{more:?}");
        std::fs::read(out).unwrap()
    };
    for of in [&[][..], &["--embeddings", "items"]] {
        let expected = rows("auto.jsonl", of);
        for place in [&["--tables-on", "host"][..], &["--tables-on", "device"], &["--parameter-bytes", "1"]] {
            assert!(rows("placed.jsonl", &[of, place].concat()) == expected, "{of:?} {place:?}");
        }
    }
}

#[test]
fn a_bad_row_ends_the_run_or_is_put_aside() {
    let (folder, mut users) = (Folder::new(), users());
    users[1]["country"] = json!(99);
    users[5]["candidates"]["genre"][3] = json!(-1);
    let faults = ["user `u1`: `country` is 99", "user `u5`: `candidates.genre[3]` is -1"];
    for from in FORMATS {
        let data = write(&folder.0.join(format!("in.{from}")), &users, 3);
        let (out, aside) = (folder.0.join("out.jsonl"), folder.0.join("aside.jsonl"));
        let place = if from == "jsonl" { "in.jsonl:2: ".to_owned() } else { format!("in.{from}, row 2: ") };
        predict(&data, &out, &[]).failed_with(&[&place, faults[0]]);
        assert!(!out.exists() && !folder.names().iter().any(|name| name.contains("out")), "{:?}", folder.names());
        let run = predict(&data, &out, &["--rejects", &aside.display().to_string(), "--batch", "40"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!([&run.json()[0]["users"], &run.json()[0]["rejected"]], [6, 2]);
        let lines: Vec<Value> =
            std::fs::read_to_string(&aside).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().map(|line| line["row"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 6]);
        for (line, fault) in lines.iter().zip(faults) {
            assert!(line["reason"].as_str().unwrap().contains(fault), "{line}");
            assert_eq!(line["text"].is_string(), from != "parquet");
        }
        let expected: Vec<&str> = ["u0", "u2", "u4", "u6", "u7"].to_vec();
        let mut found: Vec<String> = read(&out).1.into_iter().map(|row| row.user).collect();
        found.dedup();
        assert_eq!(found, expected);
        std::fs::remove_file(out).unwrap();
    }
}

#[test]
fn columns_that_cannot_be_carried_are_named() {
    let (folder, mut users) = (Folder::new(), users());
    users[2]["note"] = json!(7);
    users[2]["tags"] = json!([1, 2]);
    for user in &mut users {
        user.as_object_mut().unwrap().entry("tags").or_insert(json!(null));
    }
    let data = write(&folder.0.join("in.jsonl"), &users, 1);
    let out = |name: &str| folder.0.join(name);
    let fails = |name: &str, columns: &str, parts: &[&str]| {
        predict(&data, &out(name), &["--columns", columns]).failed_with(parts);
    };
    for (columns, column) in [("score", "score"), ("note,note", "note")] {
        let twice = format!("--columns: `{column}` is a column of the output already");
        predict(&data, &out("a.csv"), &["--columns", columns]).refused_with(&[&twice]);
    }
    fails("a.csv", "price", &["in.jsonl: the column `price` is missing up to line 1"]);
    fails("a.csv", "tags", &["in.jsonl, row 3: `tags` has 2 values: expected one, or one for each of 7 candidates"]);
    fails("a.csv", "history", &["in.jsonl:1: `history`: invalid type: map"]);
    fails("a.parquet", "age_bucket,history.genre", &["`history.genre` has 3 values"]);
    // An untyped file accepts any values; strings accept numbers.
    for name in ["a.jsonl", "a.parquet"] {
        assert_eq!(predict(&data, &out(name), &["--columns", "note"]).code, Some(0));
        assert_eq!(read(&out(name)).1[6].carried, ["7"]);
    }
    users[0]["note"] = json!(1);
    let data = write(&folder.0.join("in.jsonl"), &users, 1);
    predict(&data, &out("b.parquet"), &["--columns", "note"])
        .failed_with(&["in.jsonl, row 2: `note` is `n;\"1\", ä`: expected an integer, as in earlier rows"]);
    let parquet = write(&folder.0.join("in.parquet"), &self::users(), 3);
    predict(&parquet, &out("c.csv"), &["--columns", "price"]).failed_with(&["the column `price` is missing"]);
}

#[test]
fn files_that_make_no_sense_are_refused() {
    let folder = Folder::new();
    let data = write(&folder.0.join("in.csv"), &users(), 3);
    let out = |name: &str| folder.0.join(name);
    predict(&data, &out("x.txt"), &[]).refused_with(&["x.txt: expected a name that ends in .jsonl, .csv or .parquet"]);
    predict(&data, &folder.0, &[]).failed_with(&["is not a regular file"]);
    predict(&data, &out("none/x.csv"), &[]).failed_with(&["cannot write", "No such file"]);
    predict(&folder.write("empty.jsonl", ""), &out("x.csv"), &[]).failed_with(&["empty.jsonl holds no users"]);
    predict(&folder.write("empty.csv", ""), &out("x.csv"), &[]).failed_with(&["empty.csv holds no users"]);
    predict(&folder.write("cut.parquet", "PAR1 and no more"), &out("x.csv"), &[]).failed_with(&["cut.parquet"]);
    let ragged = folder.write("ragged.csv", "user,age_bucket\na,1,2\n");
    predict(&ragged, &out("x.csv"), &[])
        .failed_with(&["ragged.csv: `country`, `history.item_id`, ", " are missing; example: {"]);
    assert_eq!(run(&["predict", "--out", "x.csv", "--list-separator", "7"]).code, Some(2));
    assert_eq!(folder.names(), ["cut.parquet", "empty.csv", "empty.jsonl", "in.csv", "ragged.csv"]);
}

#[test]
fn users_without_candidates_make_a_table_without_rows() {
    let folder = Folder::new();
    for from in FORMATS {
        let mut nobody = user("u", 3, 0);
        nobody["note"] = json!("n");
        let data = write(&folder.0.join(format!("in.{from}")), &[nobody], 1);
        for to in FORMATS {
            let out = folder.0.join(format!("{from}.{to}"));
            assert_eq!(predict(&data, &out, &[]).code, Some(0));
            let (names, rows) = read(&out);
            assert!(rows.is_empty() && (to == "jsonl" || names.len() == 5), "{names:?}");
        }
    }
}

#[test]
fn separators_of_lists_are_a_choice() {
    let folder = Folder::new();
    let data = write(&folder.0.join("in.csv"), &users(), 1);
    let text = std::fs::read_to_string(&data).unwrap();
    let other = folder.write("other.csv", text.replace("n;", "n:").replace(';', "|"));
    assert_eq!(predict(&data, &folder.0.join("a.csv"), &[]).code, Some(0));
    assert_eq!(predict(&other, &folder.0.join("b.csv"), &["--list-separator", "|"]).code, Some(0));
    let bytes = |name: &str| std::fs::read(folder.0.join(name)).unwrap();
    assert_eq!(bytes("a.csv"), bytes("b.csv"));
    predict(&other, &folder.0.join("c.csv"), &[]).failed_with(&["other.csv, row 1: `history.item_id` is 0|37|74"]);
}

#[test]
fn misspelt_columns_end_the_run_and_keep_the_output() {
    let (folder, users) = (Folder::new(), users());
    for from in FORMATS {
        let data = write(&folder.0.join(format!("in.{from}")), &users, 3);
        let (out, rejects) = (folder.0.join("out.csv"), folder.0.join("rejects.jsonl"));
        std::fs::write(&out, "good").unwrap();
        let aside = rejects.display().to_string();
        predict(&data, &out, &["--columns", "contry", "--rejects", &aside])
            .failed_with(&["the column `contry` (is it `country`?) is missing"]);
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "good");
        assert!(
            !rejects.exists() && !folder.names().iter().any(|name| name.ends_with(".partial")),
            "{:?}",
            folder.names()
        );
    }
}

#[test]
fn a_run_that_rejects_every_row_fails_and_keeps_the_output() {
    let (folder, mut users) = (Folder::new(), users());
    users.iter_mut().for_each(|user| user["country"] = json!(99));
    for from in FORMATS {
        let data = write(&folder.0.join(format!("in.{from}")), &users, 3);
        let (out, rejects) = (folder.0.join("out.csv"), folder.0.join(format!("rejects-{from}.jsonl")));
        std::fs::write(&out, "good").unwrap();
        for more in [&[][..], &["--resume"]] {
            let aside = rejects.display().to_string();
            predict(&data, &out, &[&["--rejects", &aside, "--batch", "40"], more].concat()).failed_with(&[
                "all 8 rows were rejected, the first because",
                "`country` is 99",
                "out.csv is unchanged",
            ]);
            assert_eq!(std::fs::read_to_string(&out).unwrap(), "good");
            assert_eq!(std::fs::read_to_string(&rejects).unwrap().lines().count(), users.len());
        }
    }
    assert!(!folder.names().iter().any(|name| name.contains("out.csv.")), "{:?}", folder.names());
}
