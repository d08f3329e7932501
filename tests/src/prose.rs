//! Checks of prose: words of the field in pages, comments and texts of programs, and links between pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Private words, and what to write in their place.
const WORDS: [(&str, &str); 34] = [
    ("anew", "again"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("of a user's own", "user-defined"),
    ("is told", "is passed, reports"),
    ("are told", "are passed, report"),
    ("tells", "reports, determines"),
    ("told", "passed, reported"),
    ("says", "has, defines, reports"),
    ("said", "defined, reported"),
    ("knows", "has, detects"),
    ("stands for", "represents"),
    ("stand for", "represent"),
    ("truth value", "bool"),
    ("truth values", "bools"),
    ("singles", "f32"),
    ("single precision", "f32"),
    ("half precision", "f16"),
    ("good for nothing", "may only be"),
    ("whoever", "name the caller"),
    ("who comes back", "returning users"),
    ("to be had", "available"),
    ("thereof", "of it"),
    ("where that goes without saying", "name the condition"),
    ("hook", "device function"),
    ("hooks", "device functions"),
    ("refusal", "error"),
    ("crosses the border", "crosses the interface"),
    ("aborted ask", "aborted request"),
    ("one's own", "your own, the app's"),
    ("of now", "current"),
    ("for people", "readable"),
    ("back to back", "concatenated"),
    ("take part", "participate"),
];

/// Folders and files of a repository that are built, fetched or not written by its authors.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "__pycache__", "runs"];

/// All files below a folder with one of the endings.
///
/// # Errors
/// A folder that cannot be read.
pub fn files(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![];
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if path.is_dir() && !SKIPPED.contains(&name) {
            found.extend(files(&path, endings)?);
        } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The lines of a page outside of code blocks, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(page.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The readable texts of a line of code: its comment, and string literals of several words. Lines of block comments begin with an asterisk.
fn texts(line: &str) -> String {
    let start = line.trim_start();
    if start.starts_with("/*") || start.starts_with("* ") {
        return start.to_owned();
    }
    let (code, comment) = line.split_once("//").unwrap_or((line, ""));
    let literals = code.split('"').skip(1).step_by(2).filter(|literal| literal.contains(' '));
    literals.chain([comment]).collect::<Vec<_>>().join(" ")
}

/// Places of private words in a file, with what to write in their place.
pub fn private_words(path: &Path, text: &str) -> Vec<String> {
    let lines: Vec<(usize, String)> = match path.extension().and_then(|ending| ending.to_str()) {
        Some("md") => prose(text).map(|(number, line)| (number, line.to_owned())).collect(),
        // Lines of a docstring have no mark.
        Some("py" | "pyi") => (1..).zip(text.lines().map(str::to_owned)).collect(),
        _ => (1..).zip(text.lines().map(texts)).collect(),
    };
    let mut found = vec![];
    for (number, line) in lines {
        let line = line.to_lowercase().replace(|c: char| !c.is_alphanumeric() && !"'_".contains(c), " ");
        for (word, better) in WORDS.iter().filter(|(word, _)| format!(" {line} ").contains(&format!(" {word} "))) {
            found.push(format!("{}:{number}: `{word}`, better: {better}", path.display()));
        }
    }
    found
}

/// The most letters of a line of prose in a page, outside of inline code and the commas between; tables and pictures may be longer.
const LONGEST: usize = 160;

/// Lines of prose that are too long.
pub fn long_lines(path: &Path, text: &str) -> Vec<String> {
    let is_free = |line: &str| ["|", "<img", "!["].iter().any(|start| line.starts_with(start));
    let letters = |line: &str| line.split('`').step_by(2).filter(|part| *part != ", ").map(str::len).sum::<usize>();
    let lines = prose(text).filter(|(_, line)| letters(line) > LONGEST && !is_free(line.trim_start()));
    lines.map(|(number, _)| format!("{}:{number}: longer than {LONGEST} letters", path.display())).collect()
}

/// The anchors of a page: its headings in lower case, with hyphens in place of spaces and without other signs; a number distinguishes
/// equal ones.
fn anchors(page: &str) -> Vec<String> {
    let mut counts = BTreeMap::new();
    let headings = prose(page).filter(|(_, line)| line.starts_with('#'));
    let anchor = |(_, line): (usize, &str)| {
        let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let anchor: String = text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let count = counts.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
        if *count == 0 { anchor } else { format!("{anchor}-{count}") }
    };
    headings.map(anchor).collect()
}

/// The targets of links and pictures in a line, outside of inline code.
fn targets(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("");
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let pictures = text.split("src=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    links.chain(pictures).map(|(target, _)| target.to_owned()).collect()
}

/// Links of a page whose file or heading does not exist. Links to other sites are not followed.
///
/// # Errors
/// A linked page that cannot be read.
pub fn broken_links(path: &Path, text: &str) -> Result<Vec<String>, String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut broken = vec![];
    for (number, line) in prose(text) {
        for target in
            targets(line).into_iter().filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let is_own = file.is_empty();
            let linked = if is_own { path.to_owned() } else { folder.join(file) };
            let is_there = is_own || linked.exists();
            let is_page = linked.extension().is_some_and(|ending| ending == "md");
            let has_anchor = match is_there && is_page && !anchor.is_empty() {
                true if is_own => anchors(text).iter().any(|one| one == anchor),
                true => {
                    let page = fs::read_to_string(&linked).map_err(|error| format!("{}: {error}", linked.display()))?;
                    anchors(&page).iter().any(|one| one == anchor)
                }
                false => true,
            };
            if !is_there || !has_anchor {
                broken.push(format!("{}:{number}: `{target}` does not exist", path.display()));
            }
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_prose_and_not_in_code() {
        let page = "It goes on.\n```rust\n// goes on\n```\nA *hook*, `hooks_of`.\n";
        let found = private_words("a.md".as_ref(), page);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("a.md:1: `goes on`") && found[1].starts_with("a.md:5: `hook`"), "{found:?}");
        let code = "let hook = 1; // what stands for it\nprintln!(\"the run goes on\"); let b = \"anew\";\n";
        assert_eq!(private_words("a.rs".as_ref(), code).len(), 2);
        assert_eq!(private_words("a.ts".as_ref(), "/**\n * It goes on.\n */\n  /** Ends anew. */\n").len(), 2);
        assert_eq!(
            private_words("a.pyi".as_ref(), "def f():\n    \"\"\"Runs.\n\n    It goes on.\n    \"\"\"\n").len(),
            1
        );
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other.md");
        fs::write(&other, "# One `two`: three\n## Again\n## Again\n```\n# no heading\n```\n").unwrap();
        let page = "[a](other.md#one-two-three) [b](other.md#again-1) [c](#here) `[d](none.md)` [e](https://e.org/none)\n# Here\n";
        assert_eq!(broken_links(&folder.path().join("page.md"), page).unwrap(), Vec::<String>::new());
        let page = "[a](other.md#no-heading)\n[b](none.md), <img src=\"none.svg\">\n";
        assert_eq!(broken_links(&folder.path().join("page.md"), page).unwrap().len(), 3);
    }
}
