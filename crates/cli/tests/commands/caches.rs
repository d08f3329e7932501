//! Damaged or read-only caches: the messages, and that results do not change.

use crate::program::{Folder, Run, command, finish};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small workload on an adapter.
fn work(verb: &str, caches: &Path) -> Command {
    let sizes = ["addmm", "--m", "40", "--k", "24", "--n", "20", "--kernel", "wgpu", "--seconds", "0", "--json"];
    let mut command = command(&[&[verb], &sizes[..]].concat());
    command.env("XDG_CACHE_HOME", caches);
    command
}

/// The same where no file can grow, as on a full disk.
fn without_space(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]).arg(command.get_program());
    limited.args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}

/// True where this machine has an adapter that times kernels.
fn tunes(run: &Run) -> bool {
    !["no GPU adapter", "cannot time kernels"].iter().any(|reason| run.stderr.contains(reason))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("lock")).collect()
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left_there() {
    let caches = Folder::new();
    let bench = finish(&mut without_space(&work("bench", &caches.0)));
    if !tunes(&bench) {
        return;
    }
    assert_eq!(bench.code, Some(0), "{}", bench.stderr);
    assert!(bench.stderr.contains("the compiled kernels are not kept: File too large"), "{}", bench.stderr);
    let tune = finish(&mut without_space(&work("tune", &caches.0)));
    tune.failed_with(&["the tunings cannot be stored: File too large", "free space there"]);
    for folder in ["rewire/pipelines", "rewire/tunings"] {
        assert_eq!(files(&caches.0.join(folder)), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_folder_that_takes_no_files_is_said() {
    let nowhere = Path::new("/proc");
    let bench = finish(&mut work("bench", nowhere));
    if !tunes(&bench) {
        return;
    }
    assert_eq!(bench.code, Some(0), "{}", bench.stderr);
    assert!(bench.stderr.contains("the compiled kernels are not kept"), "{}", bench.stderr);
    finish(&mut work("tune", nowhere)).failed_with(&["/proc/rewire/tunings", "the tunings cannot be stored"]);
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn damaged_files_are_said_and_made_anew() {
        let caches = Folder::new();
        if !tunes(&finish(&mut work("tune", &caches.0))) {
            return;
        }
        let file = |folder: &str| {
            let is_of_work = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(folder);
            files(&caches.0.join("rewire").join(folder)).into_iter().find(is_of_work).unwrap()
        };
        for (verb, folder) in [("bench", "pipelines"), ("tune", "tunings")] {
            let kept = std::fs::read(file(folder)).unwrap();
            let damage = &kept[..kept.len() / 2];
            std::fs::write(file(folder), damage).unwrap();
            let again = finish(&mut work(verb, &caches.0));
            assert_eq!(again.code, Some(0), "{}", again.stderr);
            assert!(again.stderr.contains("are not used"), "{folder}: {}", again.stderr);
            assert_ne!(std::fs::read(file(folder)).unwrap(), damage);
        }
    }
}
