//! Running the program.
#![allow(dead_code, clippy::unwrap_used)]

use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo");

pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// The lines of stdout as JSON.
    pub fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Checks that the run failed with one line that has all of `parts`, and that nothing looks whole.
    pub fn failed_with(&self, parts: &[&str]) {
        self.ended_with(1, parts);
    }

    /// [`Run::failed_with`] where the arguments are wrong.
    pub fn refused_with(&self, parts: &[&str]) {
        self.ended_with(2, parts);
    }

    fn ended_with(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{}", self.stderr);
        for part in parts {
            assert!(errors[0].contains(part), "expected `{part}` in: {}", self.stderr);
        }
        assert!(
            !self.stdout.contains("summary") && !self.stderr.contains("panicked"),
            "{}{}",
            self.stdout,
            self.stderr
        );
    }
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rewire"));
    command.args(args);
    // Rates that were measured on this computer stay as they are.
    command.env("XDG_CACHE_HOME", std::env::temp_dir().join("rewire-test-caches"));
    command
}

pub fn run(args: &[&str]) -> Run {
    finish(&mut command(args))
}

pub fn finish(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Ranks `data` from stdin on the CPU.
pub fn rank(data: &[u8], args: &[&str]) -> Run {
    let mut child = command(&["rank", "--kernel", "cpu", "--json", "--data", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may stop reading at an error.
    let _ = child.stdin.take().unwrap().write_all(data);
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A new empty folder, removed when it goes out of scope.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rewire-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// Names of the files in it, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A copy of the demo's model with another configuration and other weights.
    pub fn model(&self, config: impl FnOnce(&mut Value), weights: impl FnOnce(&mut Vec<u8>)) -> String {
        let folder = Path::new(DEMO).join("model");
        let mut changed = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        config(&mut changed);
        self.write("config.json", changed.to_string());
        let mut bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
        weights(&mut bytes);
        self.write("model.safetensors", bytes);
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover folder in the temporary folder does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The demo's users.
pub fn users() -> Vec<Value> {
    lines("interactions.jsonl")
}

/// The lines of a file of the demo.
pub fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(Path::new(DEMO).join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A user of the demo's model.
pub fn user(name: &str, events: i64, candidates: i64) -> Value {
    let list = |n: i64, of: fn(i64) -> i64| (0..n).map(of).collect::<Vec<_>>();
    json!({
        "user": name, "age_bucket": 3, "country": 5,
        "history": {
            "item_id": list(events, |i| i * 37 % 1500), "genre": list(events, |i| i % 16), "action": list(events, |i| i % 4),
            "watchtime": list(events, |i| i * 61 % 2000), "timestamp": list(events, |i| 1_738_000_000 + i * 613),
        },
        "candidates": {
            "item_id": list(candidates, |i| i * 101 % 1500), "genre": list(candidates, |i| i * 3 % 16),
            "timestamp": list(candidates, |_| 1_738_407_300),
        },
    })
}

pub fn jsonl(users: &[Value]) -> Vec<u8> {
    users.iter().flat_map(|user| format!("{user}\n").into_bytes()).collect()
}
