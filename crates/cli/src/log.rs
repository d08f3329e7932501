//! Messages and log events of libraries, on stderr.

use rewire::events::{Level, listen};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::Instant;

/// Prints a line to stderr, without control characters that may come from files. Failures are ignored.
pub fn say(text: impl Display) {
    let is_safe = |c: &char| !c.is_control() || ['\n', '\t'].contains(c);
    let text: String = text.to_string().chars().map(|c| if is_safe(&c) { c } else { '\u{fffd}' }).collect();
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints messages from level `info` on, or from `warn` on if `quiet`; with `verbose` from `debug` on and with the time since the start. Other
/// crates are printed from level `error` on, or all with `verbose` above 1.
pub fn to_stderr(quiet: bool, verbose: u8, begun: Instant) {
    let lowest = match verbose {
        0 if quiet => Level::WARN,
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let printer = Printer { lowest, verbose, begun };
    listen(move |event| printer.prints(*event.level(), event.target()), move |level, text| printer.print(level, text));
    // Fails if the process has a logger, which then keeps its messages.
    if log::set_logger(Box::leak(Box::new(printer))).is_ok() {
        log::set_max_level(if verbose > 1 { log::LevelFilter::Trace } else { log::LevelFilter::Error });
    }
}

/// What is printed, and how.
#[derive(Clone, Copy)]
struct Printer {
    lowest: Level,
    verbose: u8,
    begun: Instant,
}

impl Printer {
    /// True for the events of a crate that are printed.
    fn prints(self, level: Level, target: &str) -> bool {
        let is_own = target.starts_with("rewire");
        level <= if is_own || self.verbose > 1 { self.lowest } else { Level::ERROR }
    }

    fn print(self, level: Level, text: impl Display) {
        let time =
            if self.verbose > 0 { format!("{:9.4} s  ", self.begun.elapsed().as_secs_f64()) } else { String::new() };
        match level {
            Level::INFO | Level::DEBUG | Level::TRACE => say(format_args!("{time}{text}")),
            _ => say(format_args!("{}: {time}{text}", level.as_str().to_lowercase())),
        }
    }
}

/// Messages of crates that log by `log`, as wgpu does.
impl log::Log for Printer {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.prints(level_of(metadata.level()), metadata.target())
    }

    fn log(&self, record: &log::Record<'_>) {
        if log::Log::enabled(self, record.metadata()) {
            self.print(level_of(record.level()), record.args());
        }
    }

    fn flush(&self) {}
}

fn level_of(level: log::Level) -> Level {
    match level {
        log::Level::Error => Level::ERROR,
        log::Level::Warn => Level::WARN,
        log::Level::Info => Level::INFO,
        log::Level::Debug => Level::DEBUG,
        log::Level::Trace => Level::TRACE,
    }
}
