//! Help, completions, manual pages, and what is printed to stderr.

use crate::program::{Folder, run};
use std::process::Command;

#[test]
fn messages_are_fewer_or_more() {
    // Software adapters are not hardware: the program reports that it runs on the CPU.
    let rank = |more: &[&str]| {
        let run = run(&[&["rank", "--top", "1"], more].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stderr
    };
    let loud = rank(&[]);
    assert_eq!(rank(&["-q"]), "", "instead of {loud}");
    assert!(rank(&["-v"]).contains(" s  checking the plan: "));
    run(&["devices", "-q", "-v"]).refused_with(&["cannot be used with"]);
}

#[test]
fn the_version_is_that_of_the_package() {
    let run = run(&["--version"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), concat!("rewire ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
#[cfg(target_os = "linux")]
fn help_has_colours_on_terminals_only() {
    assert!(!run(&["--help"]).stdout.contains('\u{1b}'));
    let help = concat!(env!("CARGO_BIN_EXE_rewire"), " --help");
    let on_terminal = |variable: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", help, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm").env(variable, "1");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(on_terminal("UNRELATED").contains("\u{1b}[1m"));
    assert!(!on_terminal("NO_COLOR").contains('\u{1b}'));
}

#[test]
fn a_mistyped_name_is_suggested() {
    run(&["describ"]).refused_with(&["unrecognized subcommand 'describ'"]);
    let run = run(&["rank", "--topp", "3"]);
    assert!(run.code == Some(2) && run.stderr.contains("'--top'"), "{}", run.stderr);
}

#[test]
fn shells_get_completions_and_commands_manual_pages() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&["completions", shell]);
        assert!(script.code == Some(0) && script.stdout.contains("parameter-bytes"), "{shell}: {}", script.stderr);
    }
    let folder = Folder::new();
    let pages = folder.0.join("man");
    assert_eq!(run(&["man", "--out", &pages.display().to_string()]).code, Some(0));
    let help = run(&["--help"]).stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    // A name follows two blanks, the rest of a description more.
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").collect();
    assert!(names.len() > 20 && names.contains(&"serve"), "{names:?}");
    for name in names {
        let page = std::fs::read_to_string(pages.join(format!("rewire-{name}.1"))).unwrap();
        assert!(page.contains("Examples:"), "{name}");
    }
}
