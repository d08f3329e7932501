//! One target of the fuzzer, `REWIRE_FUZZ_TARGET`, whose first inputs go to the folder `REWIRE_FUZZ_CORPUS`.
#![no_main]
#![allow(missing_docs, clippy::expect_used)]

use libfuzzer_sys::fuzz_target;
use rewire_tests::fuzz::{Target, target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

/// The target of this process, with its first inputs written.
fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        // A panic that a reader turns into an error is none; others end the process below.
        std::panic::set_hook(Box::new(|info| {
            if std::env::var_os("REWIRE_FUZZ_VERBOSE").is_some() {
                eprintln!("{info}");
            }
        }));
        let name = std::env::var("REWIRE_FUZZ_TARGET").expect("REWIRE_FUZZ_TARGET names a target");
        let target = target(&name).expect("REWIRE_FUZZ_TARGET names a target");
        if let Ok(folder) = std::env::var("REWIRE_FUZZ_CORPUS") {
            for (number, bytes) in (target.seeds)().into_iter().enumerate() {
                std::fs::write(Path::new(&folder).join(format!("seed-{number}")), bytes).expect("a folder to write to");
            }
        }
        target
    })
}

fuzz_target!(init: drop(chosen()), |data: &[u8]| {
    if let Err(reason) = catch_unwind(AssertUnwindSafe(|| (chosen().run)(data))) {
        let text = reason.downcast_ref::<String>().map(String::as_str);
        eprintln!("{}", text.or(reason.downcast_ref::<&str>().copied()).unwrap_or("a panic"));
        std::process::abort();
    }
});
