//! Runs the fuzzer: libFuzzer on the stable toolchain, one process per target.

use crate::shell::{cargo, root, run as run_command};
use std::path::PathBuf;
use std::process::Command;

/// The targets of `tests/src/fuzz`.
const TARGETS: [&str; 13] = [
    "configuration",
    "safetensors",
    "json_lines",
    "parquet",
    "csv",
    "pipeline",
    "checkpoint",
    "golden",
    "exported",
    "onnx",
    "plans",
    "packages",
    "graphs",
];

/// Compiler flags for libFuzzer's branch coverage.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=4 --cfg fuzzing";

/// The targets to fuzz, and for how long.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    seconds: u32,
    targets: Vec<&'static str>,
}

impl Options {
    /// Parses `[--seconds N] [TARGET]`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self { seconds: 60, targets: vec![] };
        let mut arguments = arguments.iter();
        while let Some(&argument) = arguments.next() {
            if argument == "--seconds" {
                let text = arguments.next().ok_or("--seconds takes a number of seconds for each target")?;
                options.seconds = text.parse().map_err(|_| format!("--seconds takes a whole number, got `{text}`"))?;
                continue;
            }
            let target = TARGETS.into_iter().find(|target| *target == argument);
            options.targets.push(
                target.ok_or_else(|| format!("there is no target `{argument}`: expected {}", TARGETS.join(", ")))?,
            );
        }
        if options.targets.is_empty() {
            options.targets = TARGETS.to_vec();
        }
        Ok(options)
    }
}

/// Builds the fuzzer and runs the targets. Each runs for the full time, even if another one fails.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let program = build()?;
    let mut failed = vec![];
    for target in &options.targets {
        if run_command(command(&program, target, options.seconds)?).is_err() {
            failed.push(*target);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        _ => Err(format!(
            "{} failed: the inputs are in target/fuzz/found/TARGET; what is mended is kept in tests/fuzz/found/TARGET",
            failed.join(", ")
        )),
    }
}

fn build() -> Result<PathBuf, String> {
    // With an explicit target, the flags do not apply to build scripts and procedural macros.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["build", "--profile", "fuzz", "-p", "rewire-tests", "--features", "fuzz", "--bin", "fuzz"];
    let mut command = cargo(&arguments);
    command.args(["--target", &triple, "--target-dir", "target/fuzz"]).env("RUSTFLAGS", COVERAGE);
    run_command(command)?;
    Ok(root().join("target/fuzz").join(triple).join("fuzz/fuzz"))
}

fn command(program: &PathBuf, target: &str, seconds: u32) -> Result<Command, String> {
    let folder = |kind: &str| {
        let folder = root().join("target/fuzz").join(kind).join(target);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok::<_, String>(folder)
    };
    let (corpus, found) = (folder("corpus")?, folder("found")?);
    let mut command = Command::new(program);
    command
        .arg(&corpus)
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args(["-timeout=20", "-rss_limit_mb=4096", "-malloc_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"])
        .env("REWIRE_FUZZ_TARGET", target)
        .env("REWIRE_FUZZ_CORPUS", &corpus)
        .current_dir(root());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let options = Options::parse(&["--seconds", "5", "csv"]).unwrap();
        assert_eq!(options, Options { seconds: 5, targets: vec!["csv"] });
        assert_eq!(Options::parse(&[]).unwrap().targets, TARGETS);
        assert!(Options::parse(&["cvs"]).unwrap_err().contains("there is no target `cvs`"));
        assert!(Options::parse(&["--seconds", "x"]).is_err());
    }
}
