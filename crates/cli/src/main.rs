//! The rewire program.
#![deny(unsafe_code)]

mod display;
mod stdout;

use std::process::ExitCode;

fn main() -> ExitCode {
    display::skip_where_there_is_none();
    rewire_cli::main(stdout::is_open())
}
