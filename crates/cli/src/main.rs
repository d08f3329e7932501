//! The rewire program.
#![deny(unsafe_code)]

mod reserve;
mod stdout;

use reserve::Reserving;
use rewire_cli::MEMORY_IS_SHORT;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Reserving = Reserving::new(&MEMORY_IS_SHORT);

fn main() -> ExitCode {
    ALLOCATOR.keep();
    rewire_cli::main(stdout::is_open())
}
