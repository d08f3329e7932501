//! The rewire program: commands, readers of their input files, and `train` for other programs.
#![cfg_attr(not(feature = "train"), allow(dead_code, unused_imports))]
#![forbid(unsafe_code)]

mod apply;
mod args;
mod bench;
mod caches;
mod compare;
mod compile;
mod continued;
mod demo;
mod describe;
mod devices;
mod error;
mod eval;
mod generate;
mod graph;
mod import;
mod log;
mod man;
mod output;
mod package;
mod paths;
mod plan;
mod predict;
mod profile;
mod progress;
#[cfg(feature = "train")]
mod quality;
mod rank;
mod requests;
mod retrieve;
mod run;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "train")]
mod sid;
mod spread;
mod stages;
mod sweep;
mod table;
mod tables;
#[cfg(feature = "train")]
mod train;
mod tune;
mod verify;
#[cfg(not(feature = "train"))]
mod without_train;

#[cfg(not(feature = "train"))]
use without_train::{quality, sid, train};

use args::{Args, Command};
use error::{CliError, USAGE};
use output::Output;
use rewire::{ThreadPool, ThreadPoolOptions};
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Instant;

pub use args::{Common, Train, Watching};
pub use rank::Titles;
pub use requests::{InputError, Requests, open};
pub use stages::MEMORY_IS_SHORT;
#[cfg(feature = "train")]
pub use train::{Best, Group, Listener, Rates, StepLine, Summary, TrainingError, train};

/// Runs the program on the arguments of the process. The caller reports whether standard output was open at the start.
pub fn main(stdout_is_open: bool) -> ExitCode {
    let begun = Instant::now();
    let mut output = Output::stdout(stdout_is_open);
    let (result, code) = match Args::parse_from_process(std::env::args_os()) {
        Ok(args) => {
            log::to_stderr(args.common.quiet, args.common.verbose, begun);
            (on_threads(|| run(&args, begun, &mut output)), ExitCode::SUCCESS)
        }
        Err(message) => usage(&message, &mut output),
    };
    match result.and_then(|()| Ok(output.flush()?)) {
        Ok(()) => code,
        Err(error) => {
            error.report();
            error.code()
        }
    }
}

/// Runs `work` with the threads of the program, which may change their CPU affinity because the process belongs to the
/// program.
fn on_threads(work: impl FnOnce() -> Result<(), CliError>) -> Result<(), CliError> {
    let pool = ThreadPool::new(ThreadPoolOptions { affinity: true, ..ThreadPoolOptions::from_env()? })?;
    pool.install(work)
}

/// Prints requested help to standard output, and errors of arguments to stderr.
fn usage(message: &clap::Error, output: &mut Output) -> (Result<(), CliError>, ExitCode) {
    if message.use_stderr() {
        match io::stderr().is_terminal() {
            // With colours, if the terminal supports them.
            true => drop(message.print()),
            false => log::say(message.render().to_string().trim_end()),
        }
        return (Ok(()), ExitCode::from(USAGE));
    }
    match io::stdout().is_terminal() {
        true => (message.print().map_err(CliError::from), ExitCode::SUCCESS),
        false => (output.text(message.render()).map_err(CliError::from), ExitCode::SUCCESS),
    }
}

fn run(args: &Args, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    paths::check(&args.command)?;
    match &args.command {
        Command::Devices(options) => devices::run(options, &args.common, output),
        Command::Rank(options) => rank::run(options, &args.common, begun, output),
        Command::Predict(options) => predict::run(options, &args.common, begun, output),
        Command::Retrieve(options) => retrieve::run(options, &args.common, begun, output),
        Command::Generate(options) => generate::run(options, &args.common, output),
        Command::Sid(options) => sid::run(options, &args.common, begun, output),
        Command::Train(options) => train::run(options, &args.common, output),
        Command::Eval(options) => eval::run(options, &args.common, begun, output),
        Command::Import(options) => import::run(options, &args.common, output),
        Command::Run(options) => run::run(options, &args.common, output),
        Command::Package(options) => package::run(options, &args.common, output),
        Command::Apply(options) => apply::run(options, &args.common, output),
        Command::Verify(options) => verify::run(options, &args.common, output),
        Command::Compare(options) => compare::run(options, &args.common, output),
        Command::Bench(options) => bench::run(options, &args.common, output),
        Command::Tune(options) => tune::run(options, &args.common, output),
        Command::Compile(options) => compile::run(options, &args.common, output),
        Command::Profile(options) => profile::run(options, &args.common, output),
        Command::Graph(options) => graph::run(options, &args.common, output),
        #[cfg(feature = "serve")]
        Command::Serve(options) => serve::run(options, &args.common, output),
        Command::Describe(options) => describe::run(options, &args.common, output),
        Command::Completions(options) => man::completions(options.shell, output),
        Command::Man(options) => man::pages(&options.out),
    }
}
