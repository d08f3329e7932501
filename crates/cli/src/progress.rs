use crate::requests;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

/// A progress bar on stderr for large inputs; nothing if stderr is not a terminal.
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    pub fn new() -> Self {
        Self { bar: ProgressBar::hidden(), start: Instant::now() }
    }

    /// Shows how much was read, and a message, unless the program is quiet.
    pub fn update(&mut self, read: requests::Progress, message: impl Display) {
        let is_shown = tracing::enabled!(tracing::Level::INFO);
        if is_shown && self.bar.is_hidden() && self.start.elapsed() > PATIENCE && read.done < read.all {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent}% {msg}, {eta} left") {
                self.bar.set_style(style);
            }
        }
        self.bar.set_length(read.all);
        self.bar.set_message(message.to_string());
        self.bar.set_position(read.done);
    }

    /// Prints while the bar is hidden.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
