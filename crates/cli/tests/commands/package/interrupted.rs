//! Interruptions of writing a package over another one.

use super::*;
use crate::program::{Folder, finish};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Files that may have 100 KiB at most.
const FULL: &str = "trap '' XFSZ; ulimit -f 200;";
/// The same, but the signal for exceeding the limit kills the process.
const KILLED: &str = "ulimit -c 0; ulimit -f 200;";
/// The option that puts the tables into a separate file.
const APART: &str = "--tables-file tables.safetensors";

fn packaging(before: &str, file: &Path, options: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{before} exec \"$0\" package --dtype f16 --out \"$1\" {options}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_rewire")]).arg(file);
    command
}

fn old(folder: &Folder) -> (PathBuf, Vec<u8>) {
    let file = folder.0.join("model.rewire");
    package(&file, &[]);
    let bytes = std::fs::read(&file).unwrap();
    (file, bytes)
}

#[test]
fn a_full_disk_leaves_the_old_package() {
    for options in ["", APART] {
        let folder = Folder::new();
        let (file, bytes) = old(&folder);
        finish(&mut packaging(FULL, &file, options)).failed_with(&["cannot write", "File too large"]);
        let status = packaging(KILLED, &file, options).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGXFSZ), "{status}");
        assert!(std::fs::read(&file).unwrap() == bytes);
        let other = folder.0.join("other.rewire");
        finish(&mut packaging(FULL, &other, options)).failed_with(&["cannot write", "File too large"]);
        assert!(!other.exists());
    }
}

/// The tables of the demo's model in f32 are larger than the package without them.
#[test]
fn a_full_disk_leaves_no_tables() {
    let folder = Folder::new();
    let model = folder.model(|_| {}, |_| {});
    let file = folder.0.join("x.rewire");
    let options = format!("--tables f32 --model {model} {APART}");
    let mut full = packaging("trap '' XFSZ; ulimit -f 100;", &file, &options);
    finish(&mut full).failed_with(&["cannot write", "tables.safetensors", "File too large"]);
    assert_eq!(folder.names(), ["config.json", "model.safetensors"]);
}

#[test]
fn a_kill_leaves_the_old_package_or_the_new() {
    for options in ["", APART] {
        let folder = Folder::new();
        let (file, old) = old(&folder);
        let whole = folder.0.join("whole.rewire");
        assert_eq!(finish(&mut packaging("", &whole, options)).code, Some(0));
        let new = std::fs::read(&whole).unwrap();
        let tables = std::fs::read(folder.0.join("tables.safetensors")).ok();
        for round in 0..12 {
            std::fs::write(&file, &old).unwrap();
            drop(std::fs::remove_file(folder.0.join("tables.safetensors")));
            let mut child = packaging("", &file, options).stdout(Stdio::null()).spawn().unwrap();
            sleep(Duration::from_millis(20 + 25 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            let found = std::fs::read(&file).unwrap();
            assert!(found == old || found == new, "round {round}: {} bytes", found.len());
            let left = std::fs::read(folder.0.join("tables.safetensors")).ok();
            assert!(left.is_none() || left == tables, "round {round}");
            assert!(found == old || left == tables, "round {round}: a package without its tables");
        }
    }
}
