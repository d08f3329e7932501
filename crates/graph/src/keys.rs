//! Locates an error in a JSON string.

use std::fmt::Write;

/// The path of keys to a value of the wrong type in a JSON string, `layers[1].heads`; `None` at the root, and if the
/// string is not valid JSON.
///
/// The path is found from the line and column of the error, so parsing does not have to track it.
///
/// ```
/// use rewire_graph::keys_to;
/// let text = r#"{"layers": [{"heads": 2}, {"heads": "two"}]}"#;
/// type Layers = std::collections::HashMap<String, Vec<std::collections::HashMap<String, u32>>>;
/// let error = serde_json::from_str::<Layers>(text).unwrap_err();
/// assert_eq!(keys_to(text, &error).as_deref(), Some("layers[1].heads"));
/// ```
pub fn keys_to(text: &str, error: &serde_json::Error) -> Option<String> {
    let before = error.line().checked_sub(1).filter(|_| error.is_data())?;
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let keys = written(&levels(text.get(..start + error.column()).unwrap_or(text)));
    (!keys.is_empty()).then_some(keys)
}

/// The objects and lists around a position in the string, outermost first.
enum Level<'a> {
    /// An object, and the key at this position.
    Object(Option<&'a str>),
    /// A list, and the index of the element at this position.
    List(Option<usize>),
}

/// The levels at the end of a string that is valid JSON up to there.
fn levels(mut rest: &str) -> Vec<Level<'_>> {
    let mut levels = vec![];
    while let Some(next) = rest.chars().next() {
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
        if let Some(Level::List(element @ None)) = levels.last_mut()
            && next != ']'
            && !next.is_ascii_whitespace()
        {
            *element = Some(0);
        }
        match (next, levels.last_mut()) {
            ('{', _) => levels.push(Level::Object(None)),
            ('[', _) => levels.push(Level::List(None)),
            ('}' | ']', _) => drop(levels.pop()),
            (',', Some(Level::Object(key))) => *key = None,
            (',', Some(Level::List(Some(element)))) => *element += 1,
            ('"', level) => {
                let (string, after) = rest.split_at_checked(length(rest)).unwrap_or((rest, ""));
                rest = after.strip_prefix('"').unwrap_or_default();
                if let Some(Level::Object(key @ None)) = level {
                    *key = Some(string);
                }
            }
            _ => {}
        }
    }
    levels
}

/// The number of bytes of a string before its closing quote.
fn length(rest: &str) -> usize {
    let mut is_escaped = false;
    let is_end = |byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    };
    rest.bytes().position(is_end).unwrap_or(rest.len())
}

fn written(levels: &[Level<'_>]) -> String {
    let mut keys = String::new();
    for level in levels {
        // Writing to a string does not fail.
        let _ = match level {
            Level::Object(Some(key)) if keys.is_empty() => write!(keys, "{key}"),
            Level::Object(Some(key)) => write!(keys, ".{key}"),
            Level::List(Some(element)) => write!(keys, "[{element}]"),
            Level::Object(None) | Level::List(None) => Ok(()),
        };
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "they are read alone")]
    struct Model {
        layers: Vec<Layer>,
        #[serde(default)]
        names: BTreeMap<String, Vec<u8>>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "they are read alone")]
    struct Layer {
        heads: u32,
        #[serde(default)]
        kind: Kind,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code, reason = "they are read alone")]
    enum Kind {
        #[default]
        Plain,
        Scaled {
            by: f32,
        },
    }

    fn keys(text: &str) -> Option<String> {
        let error = serde_json::from_str::<Model>(text).err().expect("the text is wrong");
        keys_to(text, &error)
    }

    #[test]
    fn keys_lead_to_what_is_wrong() {
        for (text, expected) in [
            (r#"{"layers": 3}"#, "layers"),
            (r#"{"layers": {}}"#, "layers"),
            (r#"{"layers": [ 3]}"#, "layers[0]"),
            (r#"{"layers": [{"heads": 1}, []]}"#, "layers[1]"),
            ("{\n  \"layers\": [\n    {\"heads\": 1},\n    {\"heads\": [2]}\n]}", "layers[1].heads"),
            (r#"{"layers": [{"heads": 1}, {"heads": -2, "kind": "plain"}]}"#, "layers[1].heads"),
            (r#"{"layers": [{"kind": "plain"}], "names": {}}"#, "layers[0]"),
            (r#"{"layers": [{"kind": "none", "heads": 1}]}"#, "layers[0].kind"),
            (r#"{"layers": [{"kind": {"scaled": {"by": "ä"}}, "heads": 1}]}"#, "layers[0].kind.scaled.by"),
            (r#"{"layers": [{"kind": "scaled", "heads": 1}]}"#, "layers[0].kind"),
            (r#"{"layers": [{"heads": 1, "width": 2}]}"#, "layers[0].width"),
            (r#"{"names": {"ö, [\"{\\": [1], "b": [1, 2, 300]}}"#, "names.b[2]"),
            (r#"{"names": {"ö, \"{\\": [256]}}"#, r#"names.ö, \"{\\[0]"#),
            (r#"{"names": {}, "names": {}}"#, "names"),
        ] {
            assert_eq!(keys(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn none_lead_to_the_root_and_to_what_is_no_json() {
        for text in ["3", "{}", r#"{"layers": [{"heads": 1}"#, r#"{"layers": [}"#, r#"{"layers": []} 1"#, ""] {
            assert_eq!(keys(text), None, "{text}");
        }
    }
}
