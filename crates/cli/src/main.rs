//! The rewire program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rewire_cli::main()
}
