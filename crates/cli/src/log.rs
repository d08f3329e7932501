//! Messages for people and log events of the libraries, on stderr.

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

/// Prints messages from level `info` on, one per line, or from `debug` on with the time since the start. Other crates are printed from
/// level `error` on.
pub fn to_stderr(verbose_since: Option<Instant>) {
    let lowest = if verbose_since.is_some() { Level::DEBUG } else { Level::INFO };
    let is_wanted = move |event: &Metadata<'_>| {
        let own = event.target().starts_with("rewire");
        *event.level() <= if own { lowest } else { Level::ERROR }
    };
    listen(is_wanted, move |level, text| {
        let time = verbose_since.map(|begun| format!("{:9.4} s  ", begun.elapsed().as_secs_f64())).unwrap_or_default();
        match level {
            Level::INFO | Level::DEBUG => say(format_args!("{time}{text}")),
            _ => say(format_args!("{}: {time}{text}", level.as_str().to_lowercase())),
        }
    });
}
