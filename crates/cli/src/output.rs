use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, Write};

/// Standard output, buffered.
pub struct Output {
    out: BufWriter<Box<dyn Write + Send>>,
    is_open: bool,
}

impl Output {
    /// If it is not open, all writes fail: the standard library would silently discard them.
    pub fn stdout(is_open: bool) -> Self {
        Self { out: BufWriter::new(Box::new(io::stdout())), is_open }
    }

    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        self.text(text)?;
        self.out.write_all(b"\n")
    }

    /// Writes text without a line break.
    pub fn text(&mut self, text: impl Display) -> io::Result<()> {
        write!(self.open()?, "{text}")
    }

    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(self.open()?, value)?;
        self.out.write_all(b"\n")
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn open(&mut self) -> io::Result<&mut impl Write> {
        if self.is_open { Ok(&mut self.out) } else { Err(io::Error::other("it is closed")) }
    }
}
