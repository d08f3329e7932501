use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write};

/// Standard output, buffered.
pub struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    pub fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout()) }
    }

    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
