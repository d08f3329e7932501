//! The rewire program: commands, and the readers of the files that it takes.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod caches;
mod demo;
mod devices;
mod error;
mod graph;
mod log;
mod output;
mod profile;
mod rank;
mod tune;
mod verify;

use args::{Args, Command};
use clap::Parser;
use output::Output;
use std::process::ExitCode;
use std::time::Instant;

pub use rank::{InputError, Requests, Titles, open};

/// Runs the program on the arguments of the process.
pub fn main() -> ExitCode {
    let begun = Instant::now();
    let args = Args::parse();
    log::to_stderr();
    let mut output = Output::stdout();
    let result = match &args.command {
        Command::Devices => devices::run(&args.common, &mut output),
        Command::Rank(options) => rank::run(options, &args.common, begun, &mut output),
        Command::Verify(options) => verify::run(options, &args.common, &mut output),
        Command::Bench(options) => bench::run(options, &args.common, &mut output),
        Command::Tune(options) => tune::run(options, &args.common, &mut output),
        Command::Profile(options) => profile::run(options, &args.common, &mut output),
        Command::Graph(options) => graph::run(options, &args.common, &mut output),
    };
    match result.and_then(|()| Ok(output.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report();
            ExitCode::FAILURE
        }
    }
}
