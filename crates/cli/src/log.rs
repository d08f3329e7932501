//! Messages for people and log events of the libraries, on stderr.

use std::fmt::{Debug, Display, Write as _};
use std::io::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints a line on stderr, without control characters that files may have put into it. There is nobody to tell where that
/// fails.
pub fn say(text: impl Display) {
    let is_safe = |c: &char| !c.is_control() || ['\n', '\t'].contains(c);
    let text: String = text.to_string().chars().map(|c| if is_safe(&c) { c } else { '\u{fffd}' }).collect();
    let _ = writeln!(io::stderr().lock(), "{text}");
}

struct Stderr;

struct Message(String);

/// Prints messages from `info` up, one a line. Other crates are heard from `warn` up.
pub fn to_stderr() {
    // Fails only if a subscriber is set already, and then that one prints.
    let _ = tracing::subscriber::set_global_default(Stderr);
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let own = metadata.target().starts_with("rewire");
        *metadata.level() <= if own { Level::INFO } else { Level::ERROR }
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let level = event.metadata().level();
        match *level {
            Level::INFO => say(message.0),
            _ => say(format_args!("{}: {}", level.as_str().to_lowercase(), message.0)),
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
