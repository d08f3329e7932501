//! The rewire program.
#![deny(unsafe_code)]

mod reserve;
mod stdout;

use reserve::Reserving;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Reserving = Reserving::new();

fn main() -> ExitCode {
    ALLOCATOR.keep();
    rewire_cli::main(stdout::is_open())
}
