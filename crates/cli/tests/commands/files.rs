//! Files that commands write are whole or absent, whatever ends the command while it writes.

use crate::program::{Folder, Run, finish};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Writes a profile to `file` after these commands of the shell. Nothing is kept in a cache, which would be a file, too.
fn profile(before: &str, file: &Path) -> Command {
    let script = format!("{before} exec \"$0\" profile addmm --m 4 --kernel cpu --output \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_rewire")]).arg(file);
    command.env("XDG_CACHE_HOME", "/dev/null");
    command
}

fn written(file: &Path) -> String {
    let run: Run = finish(&mut profile("", file));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    std::fs::read_to_string(file).unwrap()
}

/// Bytes of a block of the shell.
const BLOCK: usize = 512;
/// Files are limited to one block; the signal for exceeding it kills the process.
const KILLED: &str = "ulimit -c 0; ulimit -f 1;";
/// The same, but exceeding the limit is an error.
const FULL: &str = "trap '' XFSZ; ulimit -f 1;";

#[test]
fn a_disk_that_fills_while_a_result_is_written_is_an_error() {
    let folder = Folder::new();
    let file = folder.0.join("trace.json");
    finish(&mut profile(FULL, &file)).failed_with(&["trace.json: File too large"]);
    assert!(folder.names().is_empty(), "{:?}", folder.names());
    let whole = written(&file);
    assert!(whole.len() > BLOCK, "it would fit: {} bytes", whole.len());
    finish(&mut profile(FULL, &file)).failed_with(&["trace.json: File too large"]);
    assert_eq!(folder.names(), ["trace.json"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole);
    finish(&mut profile("", Path::new("/dev/full"))).failed_with(&["/dev/full: No space left"]);
}

#[test]
fn what_a_kill_leaves_of_a_result_is_not_taken_for_it_and_goes() {
    let folder = Folder::new();
    let file = folder.0.join("trace.json");
    for kept in [false, true] {
        let before = kept.then(|| written(&file));
        // What it prints would exceed the limit where the tests print to a file.
        let status = profile(KILLED, &file).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGXFSZ), "{status}");
        assert_eq!(std::fs::read_to_string(&file).ok(), before);
    }
    let partial: Vec<String> = folder.names().into_iter().filter(|name| name.ends_with(".tmp")).collect();
    assert_eq!(partial.len(), 2, "{partial:?}");
    for name in partial {
        let file = File::options().write(true).open(folder.0.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    }
    written(&file);
    assert_eq!(folder.names(), ["trace.json"]);
}
