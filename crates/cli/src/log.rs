//! Messages for people and log events of the libraries, on stderr.

use std::fmt::{Debug, Display, Write as _};
use std::io::{self, Write as _};
use std::time::Instant;
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

struct Stderr {
    /// When the program began, where messages at `debug` are wanted too, with the time.
    verbose_since: Option<Instant>,
}

struct Message(String);

/// Prints messages from `info` up, one a line, or from `debug` up with the time since the program began. Other crates are heard at `error`.
pub fn to_stderr(verbose_since: Option<Instant>) {
    // Fails only if a subscriber is set already, and then that one prints.
    let _ = tracing::subscriber::set_global_default(Stderr { verbose_since });
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
        let lowest = if self.verbose_since.is_some() { Level::DEBUG } else { Level::INFO };
        *metadata.level() <= if own { lowest } else { Level::ERROR }
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let level = event.metadata().level();
        if let Some(begun) = self.verbose_since {
            message.0.insert_str(0, &format!("{:9.4} s  ", begun.elapsed().as_secs_f64()));
        }
        match *level {
            Level::INFO | Level::DEBUG => say(message.0),
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
