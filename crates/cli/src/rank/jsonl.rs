use super::input::{InputError, LARGEST, Progress, Requests};
use rewire::rank::Batch;
use std::io::{BufRead, Read};

/// Requests of JSON Lines. Blank lines are skipped.
pub struct Lines<R> {
    file: String,
    reader: R,
    line: u64,
    buffer: Vec<u8>,
    done: u64,
    length: Option<u64>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(file: String, reader: R, length: Option<u64>) -> Self {
        Self { file, reader, line: 0, buffer: Vec::new(), done: 0, length }
    }

    /// Reads a line into the buffer; false at the end.
    fn read_line(&mut self) -> Result<bool, InputError> {
        self.buffer.clear();
        self.line += 1;
        let read = (&mut self.reader).take(LARGEST).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| InputError::Read { file: self.file.clone(), source })?;
        if read as u64 == LARGEST {
            let (file, line) = (self.file.clone(), self.line);
            return Err(InputError::LongLine { file, line, limit: LARGEST });
        }
        self.done += read as u64;
        if self.line == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
        }
        Ok(read > 0)
    }
}

impl<R: BufRead + Send> Requests for Lines<R> {
    fn read(&mut self, batch: &mut Batch, entries: usize) -> Result<bool, InputError> {
        let end = batch.len() + batch.entries() + entries;
        while batch.len() + batch.entries() < end {
            if !self.read_line()? {
                return Ok(false);
            }
            if self.buffer.trim_ascii().is_empty() {
                continue;
            }
            let line = |source| InputError::Line { file: self.file.clone(), line: self.line, source: Box::new(source) };
            batch.push_json(&self.buffer).map_err(line)?;
        }
        Ok(true)
    }

    fn progress(&self) -> Option<Progress> {
        self.length.map(|length| Progress { done: self.done, all: length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::rank::{Column, Schema};

    fn read(text: &[u8]) -> (usize, Result<bool, String>) {
        let schema = Schema { candidates: vec![Column::ids("item", 10)], ..Schema::default() };
        let (mut lines, mut batch) = (Lines::new("file".into(), text, None), Batch::new(schema));
        let end = lines.read(&mut batch, 1000).map_err(|error| rewire::describe(&error));
        (batch.len(), end)
    }

    const LINE: &str = r#"{"user":"u","history":{},"candidates":{"item":[1]}}"#;

    #[test]
    fn lines_are_counted() {
        assert_eq!(read(format!("\u{feff}{LINE}\r\n\n  \n{LINE}").as_bytes()), (2, Ok(false)));
        let (users, error) = read(format!("{LINE}\n\n  \n{}", LINE.replace('1', "10")).as_bytes());
        let expected = "file:4: user `u`: `candidates.item[0]` is 10, but the table `item` has 10 rows";
        assert_eq!((users, error), (1, Err(expected.to_owned())));
    }

    #[test]
    fn faults_name_the_line() {
        let (users, error) = read(format!("{LINE}\nnot json\n").as_bytes());
        let error = error.unwrap_err();
        assert!(users == 1 && error.starts_with("file:2: expected ident"), "{error}");
    }

    #[test]
    fn an_empty_text_has_no_requests() {
        assert_eq!(read(b""), (0, Ok(false)));
        assert_eq!(read(b"\n\n"), (0, Ok(false)));
    }

    #[test]
    fn a_batch_is_filled_no_further_than_it_is_asked_for() {
        let schema = Schema { candidates: vec![Column::ids("item", 10)], ..Schema::default() };
        let text = format!("{LINE}\n").repeat(5);
        let mut lines = Lines::new("file".into(), text.as_bytes(), None);
        let sizes = [(); 3].map(|()| {
            let mut batch = Batch::new(schema.clone());
            let more = lines.read(&mut batch, 3).unwrap();
            (batch.len(), more)
        });
        assert_eq!(sizes, [(2, true), (2, true), (1, false)]);
    }
}
