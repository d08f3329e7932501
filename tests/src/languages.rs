//! The page of what each language can do, from `docs/languages.json`.

use crate::reached::{self, Sources};
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;

/// What every language can do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// The languages, in the order of cells.
    pub languages: Vec<Language>,
    rows: Vec<Row>,
}

/// A language of the library.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Language {
    name: String,
    /// Folders with its tests.
    tests: Vec<String>,
    /// Files and folders that declare its interface.
    interface: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    group: String,
    what: String,
    cells: Vec<Cell>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Cell {
    /// A call, and the test that makes it.
    Tested {
        call: String,
        test: String,
    },
    Missing {
        reason: String,
    },
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads `docs/languages.json`.
///
/// # Errors
/// A file that cannot be read or parsed.
pub fn read() -> Result<Capabilities, String> {
    let text = std::fs::read_to_string(root().join("docs/languages.json")).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("docs/languages.json: {error}"))
}

/// The texts of a file, or of all files of a folder.
fn texts(path: &Path, found: &mut String) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(failed)? {
            texts(&entry.map_err(failed)?.path(), found)?;
        }
    } else if let Ok(text) = std::fs::read_to_string(path) {
        found.push_str(&text);
    }
    Ok(())
}

fn all(paths: &[String]) -> Result<String, String> {
    let mut found = String::new();
    paths.iter().try_for_each(|path| texts(&root().join(path), &mut found))?;
    Ok(found)
}

/// The words of a call, as interfaces declare them: `Model.fromBytes` is `Model` and `fromBytes`, or `from_bytes` in Rust.
fn words(call: &str) -> impl Iterator<Item = [String; 2]> {
    reached::words(call).map(|word| {
        let snake = word.chars().fold(String::new(), |mut snake, c| {
            snake.push_str(if c.is_uppercase() && !snake.is_empty() { "_" } else { "" });
            snake.push(c.to_ascii_lowercase());
            snake
        });
        [word.to_owned(), snake]
    })
}

/// True if a test reaches a call: all words of a command, else the last one, the method. Types may have other names in a test.
fn is_made(call: &str, reached: &str) -> bool {
    let is_named = |forms: &[String; 2]| reached::words(reached).any(|word| forms.iter().any(|form| form == word));
    let mut words: Vec<_> = words(call).collect();
    let command = call.strip_prefix("rewire ").map(|rest| reached::words(rest).count());
    words.drain(..words.len() - command.unwrap_or(1).min(words.len()));
    words.iter().all(is_named)
}

impl Capabilities {
    /// Cells whose call does not exist or is not made by their test, and rows without a cell for every language.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn faults(&self) -> Result<Vec<String>, String> {
        let mut faults = vec![];
        for row in self.rows.iter().filter(|row| row.cells.len() != self.languages.len()) {
            faults.push(format!("`{}` has {} cells", row.what, row.cells.len()));
        }
        for (number, Language { name, tests, interface }) in self.languages.iter().enumerate() {
            let interface = all(interface)?;
            let mut sources = Sources::default();
            tests.iter().try_for_each(|path| sources.add(&root().join(path)))?;
            let is_declared = |call: &str| words(call).all(|forms| forms.iter().any(|word| interface.contains(word)));
            for row in &self.rows {
                let Some(Cell::Tested { call, test }) = row.cells.get(number) else { continue };
                match sources.reached(test) {
                    None => faults.push(format!("{name}, `{}`: there is no test `{test}`", row.what)),
                    Some(reached) if !is_made(call, &reached) => {
                        faults.push(format!("{name}, `{}`: the test `{test}` does not call `{call}`", row.what));
                    }
                    Some(_) => {}
                }
                if !is_declared(call) {
                    faults.push(format!("{name}, `{}`: there is no `{call}`", row.what));
                }
            }
        }
        Ok(faults)
    }

    /// `docs/languages.md`.
    pub fn page(&self) -> String {
        let mut page = "# Calls by language\n\n<!-- Written by `cargo xtask reference` from `docs/languages.json`. -->\n\n\
            A test in its language makes every call; `docs/languages.json` names it. A number refers to the reason why a call is missing, below.\n"
            .to_owned();
        let mut reasons: Vec<&str> = vec![];
        let mut group = "";
        for row in &self.rows {
            if row.group != group {
                group = &row.group;
                let names: Vec<&str> = self.languages.iter().map(|language| language.name.as_str()).collect();
                let rule = "| --- ".repeat(names.len() + 1);
                let _ = write!(page, "\n## {group}\n\n| | {} |\n{rule}|\n", names.join(" | "));
            }
            let _ = write!(page, "| {} |", row.what);
            for cell in &row.cells {
                let _ = match cell {
                    Cell::Tested { call, .. } => write!(page, " `{call}` |"),
                    Cell::Missing { reason } => {
                        let known = reasons.iter().position(|known| known == reason);
                        let number = known.unwrap_or_else(|| {
                            reasons.push(reason);
                            reasons.len() - 1
                        });
                        write!(page, " ({}) |", number + 1)
                    }
                };
            }
            page.push('\n');
        }
        page.push_str("\n## Missing calls\n\n");
        for (number, reason) in reasons.iter().enumerate() {
            let _ = writeln!(page, "{}. {reason}", number + 1);
        }
        page
    }
}
