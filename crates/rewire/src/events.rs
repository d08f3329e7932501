//! Log events of the library, for programs without their own `tracing` subscriber.

use std::fmt::{Debug, Write as _};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
pub use tracing::{Level, Metadata};

/// Passes every event that `is_wanted` accepts to `hear` as one line: the message, then its fields. Stays installed until the program ends.
/// Returns false if another subscriber is already installed.
///
/// ```no_run
/// use rewire::events::{Level, listen};
/// listen(|event| *event.level() <= Level::WARN, |level, text| eprintln!("{level}: {text}"));
/// ```
pub fn listen(
    is_wanted: impl Fn(&Metadata<'_>) -> bool + Send + Sync + 'static,
    hear: impl Fn(Level, String) + Send + Sync + 'static,
) -> bool {
    tracing::subscriber::set_global_default(Listener { is_wanted, hear }).is_ok()
}

struct Listener<W, H> {
    is_wanted: W,
    hear: H,
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Spans are ignored.
impl<W, H> Subscriber for Listener<W, H>
where
    W: Fn(&Metadata<'_>) -> bool + Send + Sync + 'static,
    H: Fn(Level, String) + Send + Sync + 'static,
{
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.is_wanted)(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        (self.hear)(*event.metadata().level(), message.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
