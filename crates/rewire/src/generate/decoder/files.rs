use crate::generate::GenerateError;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// A line of a file of prompts.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Prompt {
    /// An integer or a string.
    pub id: Value,
    /// The tokens.
    pub tokens: Vec<u32>,
}

/// The contents of a file of items.
#[derive(Deserialize)]
struct Items {
    items: Vec<Vec<u32>>,
}

fn read(path: &Path) -> Result<String, GenerateError> {
    std::fs::read_to_string(path).map_err(|source| GenerateError::Read { path: path.to_owned(), source })
}

/// The prompts of a JSON Lines file.
///
/// # Errors
/// [`GenerateError`] names the invalid file and line.
pub fn read_prompts(path: &Path) -> Result<Vec<Prompt>, GenerateError> {
    let text = read(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompt = |(place, line): (usize, &str)| {
        let bad = |error: serde_json::Error| format!("line {}: {error}", place + 1);
        serde_json::from_str(line).map_err(|error| GenerateError::File { path: path.to_owned(), reason: bad(error) })
    };
    lines.map(prompt).collect()
}

/// The valid items of a file, `{"items": [[token]]}`.
///
/// # Errors
/// [`GenerateError`] names the invalid file.
pub fn read_items(path: &Path) -> Result<Vec<Vec<u32>>, GenerateError> {
    let items = serde_json::from_str(&read(path)?);
    let Items { items } =
        items.map_err(|error| GenerateError::File { path: path.to_owned(), reason: error.to_string() })?;
    Ok(items)
}
