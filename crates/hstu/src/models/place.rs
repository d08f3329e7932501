//! Where in a JSON text an error is.

/// A value that the text is inside of.
enum Within {
    Object {
        key: String,
        /// The next string is a key.
        at_key: bool,
    },
    Array(usize),
}

/// The keys that lead to a place of a JSON text, `hstu.stu.num_heads`; lines and columns count from 1.
pub(super) fn keys(text: &str, line: usize, column: usize) -> String {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let end = before.saturating_add(column).min(text.len());
    let mut within: Vec<Within> = vec![];
    let mut bytes = text.bytes().enumerate().take(end);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'{' => within.push(Within::Object { key: String::new(), at_key: true }),
            b'[' => within.push(Within::Array(0)),
            b'}' | b']' => drop(within.pop()),
            b':' => {
                if let Some(Within::Object { at_key, .. }) = within.last_mut() {
                    *at_key = false;
                }
            }
            b',' => match within.last_mut() {
                Some(Within::Object { key, at_key }) => {
                    key.clear();
                    *at_key = true;
                }
                Some(Within::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let mut escaped = false;
                let close = bytes.find(|&(_, byte)| {
                    let closes = byte == b'"' && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    closes
                });
                if let (Some(Within::Object { key, at_key: true }), Some((close, _))) = (within.last_mut(), close) {
                    text.get(at + 1..close).unwrap_or_default().clone_into(key);
                }
            }
            _ => {}
        }
    }
    let names = within.into_iter().map(|value| match value {
        Within::Object { key, .. } => key,
        Within::Array(index) => index.to_string(),
    });
    names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(".")
}
