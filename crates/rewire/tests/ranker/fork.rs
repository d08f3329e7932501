//! Processes that fork, as those of Python's `multiprocessing` do.
#![cfg(unix)]

use super::{config, load, on_cpu, plain, requests, weights};
use rewire::rank::{RankOptions, Ranked, Ranker};
use rewire::weights::Weights;
use rewire::{Gpu, Kernel, describe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

/// Timeout of a child.
const LONG: Duration = Duration::from_secs(120);

/// Runs an ignored test of this file in a process that has no other threads.
fn alone(name: &str) {
    let test = format!("fork::{name}");
    let args = ["--exact", &test, "--ignored", "--test-threads=1", "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// True if `work` is in a forked child.
fn in_a_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: this process has no thread but this one and sleeping helpers, and the child ends without destructors of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: nothing of this process is used any more.
        unsafe { libc::_exit(i32::from(!matches!(done, Ok(true)))) };
    }
    let (mut status, begun) = (-1, Instant::now());
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > LONG {
            // SAFETY: the child was not waited for, so that its number is its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    status == 0
}

fn ranked(options: &RankOptions) -> Vec<Ranked> {
    let ranker = load(&config(&plain()), options);
    ranker.rank(&requests(&ranker)).unwrap()
}

#[test]
fn a_forked_child_loads_and_ranks() {
    alone("loads_and_ranks");
}

#[test]
#[ignore = "forks: run by the test above in a process of its own"]
fn loads_and_ranks() {
    let ranker = load(&config(&plain()), &on_cpu());
    let requests = requests(&ranker);
    let expected = ranker.rank(&requests).unwrap();
    let child = || {
        let own = ranked(&on_cpu()) == expected;
        own && ranker.rank(&requests).unwrap() == expected && in_a_child(|| ranked(&on_cpu()) == expected)
    };
    assert!(in_a_child(child));
    assert_eq!(ranker.rank(&requests).unwrap(), expected);
}

#[test]
fn a_device_in_a_forked_child_is_an_error() {
    alone("a_device_is_an_error");
}

#[test]
#[ignore = "forks: run by the test above in a process of its own"]
fn a_device_is_an_error() {
    let Ok(gpu) = Gpu::open(None) else { return };
    let on_device = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..RankOptions::default() };
    let config = config(&plain());
    let ranker = load(&config, &on_device);
    let requests = requests(&ranker);
    let expected = ranker.rank(&requests).unwrap();
    let child = || {
        let errors = [
            describe(&ranker.rank(&requests).unwrap_err()),
            describe(&gpu.wait().unwrap_err()),
            describe(&ranker.model().warm_up().unwrap_err()),
            describe(&Ranker::new(&config, &Weights::parse(weights(&config)).unwrap(), &on_device).unwrap_err()),
        ];
        let are_told = errors.iter().all(|error| error.contains("opened before this process was forked"));
        // Freeing here waits for no thread of the driver.
        drop((ranker, gpu));
        are_told && ranked(&on_cpu()).len() == expected.len()
    };
    assert!(in_a_child(child));
}
