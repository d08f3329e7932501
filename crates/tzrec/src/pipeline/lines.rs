//! Line numbers of the fields of a configuration.

use std::collections::HashMap;

/// Maximum nesting of messages.
pub(super) const DEPTH: usize = 64;

/// Line and column of a byte offset. The column counts characters; both start at 1.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or(before);
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// A message with its line, and the lines of its fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    line: usize,
    /// For each field the occurrences in the text.
    fields: HashMap<String, Vec<Lines>>,
}

impl Lines {
    /// Scans a text. After a syntax error, it contains the fields before the error.
    ///
    /// # Errors
    /// Byte offset of the first message that is nested deeper than [`DEPTH`].
    pub fn scan(text: &str) -> Result<Self, usize> {
        let mut scanner = Scanner { tokens: tokens(text)?.into_iter().peekable() };
        let mut root = Self { line: 1, ..Self::default() };
        scanner.message(&mut root);
        Ok(root)
    }

    /// The line of the field at a JSON pointer. If it does not exist, the line of the innermost message that would contain it.
    pub fn line(&self, pointer: &str) -> usize {
        let mut node = self;
        let mut segments = pointer.split('/').skip(1).peekable();
        while let Some(name) = segments.next() {
            let Some(occurrences) = node.fields.get(name) else { break };
            let index = segments.next_if(|segment| segment.parse::<usize>().is_ok());
            let index = index.and_then(|index| index.parse().ok()).unwrap_or(0);
            let Some(found) = occurrences.get(index) else { break };
            node = found;
        }
        node.line
    }
}

enum Token<'a> {
    /// A name, a number or a string.
    Word(&'a str),
    Mark(u8),
}

/// The tokens of a text with their lines. Comments are skipped.
fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, usize> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at, mut line, mut depth) = (vec![], 0, 1, 0_usize);
    let end_of = |start: usize, inside: &dyn Fn(u8) -> bool| {
        bytes.iter().skip(start).position(|byte| !inside(*byte)).map_or(bytes.len(), |length| start + length)
    };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'\n' => line += 1,
            b'#' => at = end_of(at, &|byte| byte != b'\n'),
            quote @ (b'"' | b'\'') => {
                while let Some(&byte) = bytes.get(at).filter(|byte| **byte != b'\n') {
                    at += if byte == b'\\' { 2 } else { 1 };
                    if byte == quote {
                        break;
                    }
                }
                tokens.push((line, Token::Word("")));
            }
            _ if word(byte) => {
                at = end_of(at, &word);
                tokens.push((line, Token::Word(text.get(start..at).unwrap_or_default())));
            }
            _ if byte.is_ascii_whitespace() => {}
            _ => {
                match byte {
                    b'{' | b'<' => depth += 1,
                    b'}' | b'>' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth > DEPTH {
                    return Err(start);
                }
                tokens.push((line, Token::Mark(byte)));
            }
        }
    }
    Ok(tokens)
}

struct Scanner<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<(usize, Token<'a>)>>,
}

impl Scanner<'_> {
    fn take(&mut self, marks: &[u8]) -> bool {
        self.tokens.next_if(|(_, token)| matches!(token, Token::Mark(mark) if marks.contains(mark))).is_some()
    }

    /// Parses the fields of a message up to its end, which is not consumed.
    fn message(&mut self, message: &mut Lines) {
        while let Some((line, Token::Word(name))) = self.tokens.next_if(|(_, token)| matches!(token, Token::Word(_))) {
            self.take(b":");
            let occurrences = message.fields.entry(name.to_owned()).or_default();
            if self.take(b"[") {
                while let Some(&(line, ref token)) = self.tokens.peek() {
                    match token {
                        Token::Mark(b']') => break,
                        Token::Mark(b',') => drop(self.tokens.next()),
                        _ => occurrences.push(self.value(line)),
                    }
                }
                self.take(b"]");
            } else {
                occurrences.push(self.value(line));
            }
            self.take(b",;");
        }
    }

    /// Parses a message or a scalar, which is one word or several adjacent strings. Consumes at least one token.
    fn value(&mut self, line: usize) -> Lines {
        let mut value = Lines { line, ..Lines::default() };
        if self.take(b"{<") {
            self.message(&mut value);
            self.take(b"}>");
        } else {
            self.tokens.next();
            while self.tokens.next_if(|(_, token)| matches!(token, Token::Word(""))).is_some() {}
        }
        value
    }
}
