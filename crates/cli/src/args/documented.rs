//! The program parses every command that the pages show.
#![allow(clippy::unwrap_used)]

use super::Args;
use clap::CommandFactory;
use std::ffi::OsString;
use std::path::Path;

/// The pages with their names.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = entries.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let pages = pages.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]);
    pages.map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The words of a command; quotes join words, and a comment or a redirection ends the command.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in command.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            None if letter == ' ' => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    let end = words.iter().position(|word| word == "#" || word.starts_with('>')).unwrap_or(words.len());
    words.truncate(end);
    words
}

/// The arguments of a command of the program; `None` for commands of other programs, and for commands with omissions.
fn arguments(command: &str) -> Option<Vec<String>> {
    let words = words(command);
    let is_whole = !command.contains("...") && !command.contains(['[', '|']);
    let at = words.iter().position(|word| word == "rewire" || word.ends_with("/rewire"));
    let at = at.or_else(|| words.starts_with(&["cargo", "run", "--release", "--"].map(str::to_owned)).then_some(3))?;
    // Assignments to variables, or a launcher of several processes, may precede it.
    let is_started =
        at == 3 && words[3] == "--" || words[0] == "mpirun" || words[..at].iter().all(|word| word.contains('='));
    (is_whole && is_started).then(|| words[at + 1..].to_vec())
}

/// The commands in the shell blocks of a page.
fn commands(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let joined = blocks.map(|(block, _)| block.replace("\\\n", " ")).collect::<Vec<_>>();
    let lines = joined.iter().flat_map(|block| block.lines());
    lines.flat_map(|line| line.split(" && ")).flat_map(|line| line.split(" | ")).filter_map(arguments).collect()
}

#[test]
fn commands_in_pages_parse() {
    let (mut count, mut faults) = (0, vec![]);
    for (name, page) in pages() {
        for arguments in commands(&page) {
            count += 1;
            let all = ["rewire".to_owned()].into_iter().chain(arguments.clone()).map(OsString::from);
            if let Err(error) = Args::parse_from_process(all) {
                faults.push(format!("{name}: rewire {}: {error}", arguments.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 60, "{count} commands");
}

#[test]
fn commands_in_sentences_exist() {
    let command = Args::command();
    let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let is_known = |word: &str| known.contains(&word) || !word.starts_with(|letter: char| letter.is_ascii_lowercase());
    for (name, page) in pages() {
        let prose: String = page.split("```").step_by(2).collect();
        for code in prose.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("rewire ")) {
            let word = code.split_whitespace().next().unwrap_or("");
            assert!(is_known(word), "{name}: there is no command `rewire {word}`");
        }
    }
}
