//! Messages and log events of libraries, on stderr.

use rewire::events::{Level, Metadata, listen};
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
    let is_wanted = move |event: &Metadata<'_>| {
        let is_own = event.target().starts_with("rewire");
        *event.level() <= if is_own || verbose > 1 { lowest } else { Level::ERROR }
    };
    listen(is_wanted, move |level, text| {
        let time = if verbose > 0 { format!("{:9.4} s  ", begun.elapsed().as_secs_f64()) } else { String::new() };
        match level {
            Level::INFO | Level::DEBUG | Level::TRACE => say(format_args!("{time}{text}")),
            _ => say(format_args!("{}: {time}{text}", level.as_str().to_lowercase())),
        }
    });
}
