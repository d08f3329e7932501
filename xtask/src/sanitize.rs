//! Tests the CPU kernels under a sanitizer, which requires a nightly toolchain.

use crate::shell::{root, run as run_command, succeeds};
use std::process::Command;

/// The unit tests of the CPU kernels, and the golden cases on the CPU.
const TESTS: &str = "-p rewire-cpu-units -p rewire-tests --lib --test golden -- kernels:: the_cpu_meets";

/// A sanitizer for memory errors or data races.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sanitizer {
    Address,
    Thread,
}

impl Sanitizer {
    /// Parses `[address|thread]`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        match arguments {
            [] | ["address"] => Ok(Self::Address),
            ["thread"] => Ok(Self::Thread),
            other => Err(format!("there is no sanitizer `{}`: expected address or thread", other.join(" "))),
        }
    }

    /// Compiler flags. The standard library is not sanitized; for the thread sanitizer this must be allowed explicitly.
    fn flags(self) -> &'static str {
        match self {
            Self::Address => "-Zsanitizer=address",
            Self::Thread => "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        }
    }
}

/// Runs the tests on the nightly toolchain.
pub(crate) fn run(sanitizer: Sanitizer) -> Result<(), String> {
    if !succeeds("rustup", &["run", "nightly", "cargo", "--version"]) {
        return Err("sanitizers need a nightly toolchain: `rustup toolchain install nightly` installs one".to_owned());
    }
    // With an explicit target, the flags do not apply to build scripts and procedural macros.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "test", "--target", &triple, "--target-dir", "target/sanitize"])
        .args(TESTS.split(' '))
        .env("RUSTFLAGS", sanitizer.flags())
        .env_remove("CARGO")
        .current_dir(root());
    run_command(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        assert_eq!(Sanitizer::parse(&[]), Ok(Sanitizer::Address));
        assert_eq!(Sanitizer::parse(&["thread"]), Ok(Sanitizer::Thread));
        assert!(Sanitizer::parse(&["memory"]).unwrap_err().contains("there is no sanitizer `memory`"));
    }
}
