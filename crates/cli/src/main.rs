//! The rewire program.
#![deny(unsafe_code)]

mod stdout;

use std::process::ExitCode;

fn main() -> ExitCode {
    rewire_cli::main(stdout::is_open())
}
