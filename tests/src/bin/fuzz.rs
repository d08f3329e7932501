//! Runs one target of the fuzzer, `REWIRE_FUZZ_TARGET`; its initial inputs are written to the folder `REWIRE_FUZZ_CORPUS`.
#![no_main]
#![allow(missing_docs, clippy::expect_used)]

use libfuzzer_sys::fuzz_target;
use rewire_tests::fuzz::{Target, target};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, abort};
use std::sync::OnceLock;

/// The target of this process, with its initial inputs written.
fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("REWIRE_FUZZ_TARGET").expect("REWIRE_FUZZ_TARGET names a target");
        let target = target(&name).expect("REWIRE_FUZZ_TARGET names a target");
        let seeds = (target.seeds)();
        // A reader may set a `panic::set_hook` at its first use.
        seeds.iter().take(1).for_each(|seed| (target.run)(seed));
        watch_panics();
        if let Ok(folder) = std::env::var("REWIRE_FUZZ_CORPUS") {
            for (number, bytes) in seeds.into_iter().enumerate() {
                std::fs::write(Path::new(&folder).join(format!("seed-{number}")), bytes).expect("a folder to write to");
            }
        }
        target
    })
}

/// Readers convert panics of third-party libraries to errors; a panic in the workspace's own code ends the process, caught or
/// not.
fn watch_panics() {
    let verbose = std::env::var_os("REWIRE_FUZZ_VERBOSE").is_some();
    std::panic::set_hook(Box::new(move |info| {
        let own = info.location().is_some_and(|place| place.file().starts_with("crates/"));
        if own || verbose {
            eprintln!("{info}");
        }
        if own {
            abort();
        }
    }));
}

/// Restarts the process with the length of the target's inputs, which libFuzzer only accepts as an argument.
fn with_length(target: &Target) {
    const LENGTH: &str = "-max_len=";
    let arguments = || std::env::args().skip(1);
    if !arguments().any(|argument| argument.starts_with(LENGTH)) {
        let program = std::env::current_exe().expect("the program has a path");
        let length = format!("{LENGTH}{}", target.longest);
        panic!("{program:?}: {}", Command::new(&program).args(arguments()).arg(length).exec());
    }
}

fuzz_target!(init: with_length(chosen()), |data: &[u8]| {
    if let Err(reason) = catch_unwind(AssertUnwindSafe(|| (chosen().run)(data))) {
        let text = reason.downcast_ref::<String>().map(String::as_str);
        eprintln!("{}", text.or(reason.downcast_ref::<&str>().copied()).unwrap_or("a panic"));
        abort();
    }
});
