use super::input::{InputError, LARGEST, Requests};
use rewire::rank::{Place, Request, Schema};
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

impl<R: BufRead> Requests for Lines<R> {
    fn next(&mut self, schema: &Schema) -> Option<Result<Request, InputError>> {
        loop {
            match self.read_line() {
                Ok(true) if self.buffer.trim_ascii().is_empty() => {}
                Ok(true) => break,
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let request = schema.request_from_json(&self.buffer, Place::Line(self.line));
        Some(request.map_err(|source| InputError::Line { file: self.file.clone(), line: self.line, source }))
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.length.map(|length| (self.done, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::rank::Column;

    fn read(text: &[u8]) -> Vec<Result<Request, String>> {
        let schema = Schema { candidates: vec![Column::ids("item", 10)], ..Schema::default() };
        let mut lines = Lines::new("file".into(), text, None);
        std::iter::from_fn(|| lines.next(&schema)).map(|result| result.map_err(|e| rewire::describe(&e))).collect()
    }

    const LINE: &str = r#"{"user":"u","history":{},"candidates":{"item":[1]}}"#;

    #[test]
    fn lines_are_counted() {
        let requests = read(format!("\u{feff}{LINE}\r\n\n  \n{LINE}").as_bytes());
        let places: Vec<_> = requests.into_iter().map(|request| request.unwrap().place).collect();
        assert_eq!(places, [Place::Line(1), Place::Line(4)]);
    }

    #[test]
    fn faults_name_the_line() {
        let requests = read(format!("{LINE}\nnot json\n").as_bytes());
        let error = requests[1].as_ref().unwrap_err();
        assert!(error.starts_with("file:2: expected ident"), "{error}");
    }

    #[test]
    fn an_empty_text_has_no_requests() {
        assert!(read(b"").is_empty());
        assert!(read(b"\n\n").is_empty());
    }
}
