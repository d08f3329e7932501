//! What the tests of a language name: the text of a test, of the functions that it calls, and of the programs that it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Words before the name of a function, in any language.
const KEYWORDS: [&str; 5] = ["fn", "def", "fun", "func", "function"];

/// A function of a test program.
#[derive(Debug)]
struct Function {
    /// The name of its file.
    file: String,
    text: String,
}

/// The sources of the tests of a language.
#[derive(Debug, Default)]
pub struct Sources {
    /// Functions by name.
    functions: BTreeMap<String, Vec<Function>>,
    /// The texts of files by file name.
    files: BTreeMap<String, String>,
}

impl Sources {
    /// Adds a file, or all files of a folder. Files that are not text are ignored.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn add(&mut self, path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if path.is_dir() {
            return std::fs::read_dir(path)
                .map_err(failed)?
                .try_for_each(|entry| self.add(&entry.map_err(failed)?.path()));
        }
        if let Ok(text) = std::fs::read_to_string(path) {
            self.insert(&path.file_name().unwrap_or_default().to_string_lossy(), text);
        }
        Ok(())
    }

    fn insert(&mut self, file: &str, text: String) {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(name) = defined(line) else { continue };
            let ends = |line: &&str| !line.trim().is_empty() && indent(line) <= indent(lines[number]);
            let body = lines[number + 1..].iter().take_while(|line| !ends(line) || line.trim().starts_with(')'));
            let decorators = lines[..number].iter().rev().take_while(|line| line.trim_start().starts_with('@')).count();
            let text = lines[number - decorators..=number].iter().chain(body).copied().collect::<Vec<_>>().join("\n");
            self.functions.entry(name.to_owned()).or_default().push(Function { file: file.to_owned(), text });
        }
        self.files.entry(file.to_owned()).or_default().push_str(&text);
    }

    /// The text of a test with all that it reaches. `None` if there is no such test.
    pub fn reached(&self, test: &str) -> Option<String> {
        let mut open: Vec<&Function> = self.functions.get(test)?.iter().collect();
        let (mut known, mut found) = (BTreeSet::new(), String::new());
        while let Some(function) = open.pop() {
            if !known.insert((function.file.as_str(), function.text.as_str())) {
                continue;
            }
            found.push_str(&function.text);
            let programs = function.text.split(|c: char| !c.is_alphanumeric() && !"_-.".contains(c));
            found.extend(programs.filter_map(|name| self.files.get(name)).map(String::as_str));
            let named: Vec<&str> = words(&function.text).collect();
            let before = std::iter::once("").chain(named.iter().copied());
            open.extend(named.iter().zip(before).flat_map(|(name, before)| self.called(name, before, &function.file)));
        }
        Some(found)
    }

    /// The functions that a name means in a file: its own, those of the module before the name, or the only ones.
    fn called(&self, name: &str, before: &str, file: &str) -> impl Iterator<Item = &Function> {
        let all = self.functions.get(name).map_or(&[][..], Vec::as_slice);
        let module = format!("{before}.rs");
        all.iter().filter(move |one| one.file == file || one.file == module || all.len() == 1)
    }
}

/// The words of a text: names and numbers.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name of the function that a line defines: the word after a keyword, in C the word before the arguments, and a member of the page.
fn defined(line: &str) -> Option<&str> {
    let after =
        |keyword: &&str| line.split_once(&format!("{keyword} ")).filter(|(before, _)| is_before_keyword(before));
    if let Some((_, rest)) = KEYWORDS.iter().find_map(after) {
        return words(rest).next();
    }
    if let Some((name, _)) = line.trim_start().strip_prefix("window.").and_then(|rest| rest.split_once(" = (")) {
        return Some(name);
    }
    let (head, _) = line.strip_prefix("static ")?.split_once('(')?;
    words(head).last().filter(|_| !head.contains('='))
}

/// Visibilities and modifiers, such as `export async`.
fn is_before_keyword(text: &str) -> bool {
    text.is_empty() || text.ends_with(' ') && text.chars().all(|c| c.is_ascii_lowercase() || " ()".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_reaches_what_its_functions_and_programs_name() {
        let mut sources = Sources::default();
        let rust = "#[test]\nfn outer() {\n    inner(\n        1,\n    );\n}\n\nfn inner<T>(t: T) {\n    run(\"a.c\");\n}\n\nfn other() {\n    third();\n}\n";
        sources.insert("a.rs", rust.to_owned());
        sources.insert("b.rs", "fn inner() {\n    third();\n}\n".to_owned());
        sources.insert("a.c", "static int called(void) {\n    return first();\n}\n".to_owned());
        let reached = sources.reached("outer").unwrap();
        assert!(words(&reached).any(|word| word == "first") && !reached.contains("third"), "{reached}");
        assert!(sources.reached("none").is_none());
        sources.insert("a.py", "@parametrize({\"dtype\": 1})\ndef test(options):\n    pass\n".to_owned());
        assert!(sources.reached("test").unwrap().contains("dtype"));
    }

    #[test]
    fn functions_of_every_language_are_found() {
        let lines = [
            ("pub(crate) fn a(b: c) {", "a"),
            ("    def a(self):", "a"),
            ("fun a() {", "a"),
            ("export async function a(b) {", "a"),
            ("static void a(int b) {", "a"),
            ("  window.a = (b) =>", "a"),
            ("fn a<T>(t: T) {", "a"),
        ];
        for (line, name) in lines {
            assert_eq!(defined(line), Some(name), "{line}");
        }
        for line in ["    a(b);", "if (a) {", "static A: B = b(c);", "// What a fn is (b)"] {
            assert_eq!(defined(line), None, "{line}");
        }
    }
}
