//! Tests the CPU kernels for other processors, in emulators.

use crate::shell::{cargo, root, run as run_command, succeeds};
use std::path::Path;
use std::process::Command;

/// An emulated processor.
#[derive(Debug)]
pub(crate) struct Processor {
    name: &'static str,
    target: &'static str,
    /// Required programs, and the Debian packages that contain them.
    programs: &'static [(&'static str, &'static str)],
    /// The command that runs a test program; `ROOT` is replaced by the path of the repository.
    runner: &'static str,
    linker: Option<&'static str>,
    tests: &'static str,
}

const PROCESSORS: [Processor; 2] = [
    Processor {
        name: "neon",
        target: "aarch64-unknown-linux-gnu",
        programs: &[
            ("qemu-aarch64", "qemu-user"),
            ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        ],
        runner: "qemu-aarch64 -L /usr/aarch64-linux-gnu",
        linker: Some("aarch64-linux-gnu-gcc"),
        tests: "-p rewire-cpu-units -p rewire-runtime -p rewire-verify --lib --test instructions -- kernels:: instructions",
    },
    Processor {
        name: "wasm",
        target: "wasm32-wasip1",
        programs: &[("node", "nodejs")],
        runner: "node --no-warnings ROOT/xtask/src/wasi.mjs",
        linker: None,
        tests: "-p rewire-runtime -p rewire-verify --no-default-features --features cpu --test instructions",
    },
];

impl Processor {
    /// Parses `[neon|wasm]`; all by default.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Vec<Self>, String> {
        let [name] = arguments else { return Ok(PROCESSORS.into()) };
        let found = PROCESSORS.into_iter().find(|processor| processor.name == *name);
        found.map(|processor| vec![processor]).ok_or(format!("there is no processor `{name}`: expected neon or wasm"))
    }

    /// The missing requirements, and how to install them.
    fn missing(&self) -> Vec<String> {
        let library = Command::new("rustc").args(["--print", "target-libdir", "--target", self.target]).output();
        let has_library =
            library.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir());
        let library = (!has_library).then(|| format!("rustup target add {}", self.target));
        let programs = self.programs.iter().filter(|(program, _)| !succeeds(program, &["--version"]));
        library.into_iter().chain(programs.map(|(_, packages)| format!("apt-get install {packages}"))).collect()
    }

    fn test(&self) -> Result<(), String> {
        let missing = self.missing();
        if !missing.is_empty() {
            return Err(format!("tests of {} take what these install:\n  {}", self.name, missing.join("\n  ")));
        }
        let prefix = format!("CARGO_TARGET_{}", self.target.to_uppercase().replace('-', "_"));
        let runner = self.runner.replace("ROOT", &root().to_string_lossy());
        let mut command = cargo(&["test", "--target", self.target]);
        command.args(self.tests.split(' ')).env(format!("{prefix}_RUNNER"), runner);
        command.envs(self.linker.map(|linker| (format!("{prefix}_LINKER"), linker)));
        run_command(command)
    }
}

/// Builds and runs the tests.
pub(crate) fn run(processors: Vec<Processor>) -> Result<(), String> {
    processors.iter().try_for_each(Processor::test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_found_by_name() {
        let names = |arguments: &[&str]| Ok(Processor::parse(arguments)?.iter().map(|found| found.name).collect());
        assert_eq!(names(&[]), Ok::<Vec<&str>, String>(vec!["neon", "wasm"]));
        assert_eq!(names(&["wasm"]), Ok(vec!["wasm"]));
        assert!(names(&["sparc"]).unwrap_err().contains("there is no processor `sparc`"));
    }
}
