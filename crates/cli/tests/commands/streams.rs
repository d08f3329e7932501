//! Output that cannot be written is an error; messages that cannot be are none.

use crate::program::{Folder, Run, finish, jsonl, user};
use std::process::Command;

/// Runs the program with redirections of the shell.
fn shell(args: &str, redirections: &str) -> Run {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$0\" {args} {redirections}"), env!("CARGO_BIN_EXE_rewire")]);
    finish(command.env("XDG_CACHE_HOME", std::env::temp_dir().join("rewire-test-caches")))
}

const COMMANDS: [&str; 5] =
    ["--help", "--version", "bench --help", "graph --stage traced --json", "rank --kernel cpu --top 1"];

#[test]
fn a_full_disk_is_an_error() {
    for command in COMMANDS {
        shell(command, ">/dev/full").failed_with(&["cannot write standard output: No space left"]);
    }
}

#[test]
fn a_closed_standard_output_is_an_error() {
    for command in COMMANDS {
        shell(command, ">&-").failed_with(&["cannot write standard output: it is closed"]);
    }
    assert_eq!(shell("--version", ">/dev/null").code, Some(0));
    assert_eq!(shell("--version", "1<>/dev/null").code, Some(0));
}

#[test]
fn what_needs_no_output_runs_without() {
    let folder = Folder::new();
    let file = folder.0.join("trace.json").display().to_string();
    let run = shell(&format!("profile addmm --m 4 --kernel cpu --output {file}"), ">&-");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(std::fs::metadata(file).unwrap().len() > 0);
}

#[test]
fn messages_that_nobody_can_read_are_no_error() {
    for redirection in ["2>/dev/full", "2>&-"] {
        let run = shell("rank --json --top 1 --data -", &format!("{redirection} </dev/null"));
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
        let run = shell("rank --json --top 1", redirection);
        assert_eq!((run.code, run.json().len()), (Some(0), 257));
    }
    assert_eq!(shell("rank --top x", "2>/dev/full").code, Some(2));
}

#[test]
fn control_characters_of_files_do_not_reach_the_terminal() {
    let folder = Folder::new();
    let mut user = user("\u{1b}[31mred", 1, 1);
    user["country"] = 99.into();
    let data = folder.write("users.jsonl", jsonl(&[user]));
    shell(&format!("rank --kernel cpu --data {data}"), "").failed_with(&["users.jsonl:1: user `\u{fffd}[31mred`: "]);
}

#[test]
fn files_without_end_are_refused() {
    shell("rank --kernel cpu --data /dev/zero", "").failed_with(&["/dev/zero:1: the line is longer than 268435456"]);
    shell("bench --records /dev/zero --markdown /dev/null", "").failed_with(&["/dev/zero: the file has 268435456"]);
    shell("verify --kernel cpu /dev/zero", "").failed_with(&["1 of 1 cases failed"]);
}

#[test]
fn nothing_to_read_is_an_error() {
    shell("rank --kernel cpu --data -", "<&-").failed_with(&["stdin holds no users"]);
}
