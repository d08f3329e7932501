//! Builds small libraries for apps.

use crate::shell::{cargo, root, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of a build.
#[derive(Clone, Copy, Default)]
pub(crate) struct Carried<'a> {
    /// The compilation target; `None` for this system.
    pub target: Option<&'a str>,
    /// Whether the library only ranks with packages, and contains no kernels but theirs.
    pub packages: bool,
}

impl Carried<'_> {
    /// Builds a library as one crate type. Link-time optimization requires that crate types are built one at a time.
    pub(crate) fn build(self, package: &str, kind: &str) -> Result<(), String> {
        let flags = format!("build.rustflags={:?}", flags());
        let flags = ["--config", &flags];
        let library = ["rustc", "--profile", "small", "-p", package, "--lib", "--crate-type", kind];
        let features: &[_] = match self.packages {
            true => &["--no-default-features", "--features", "gpu,quiet"],
            false => &["--features", "quiet"],
        };
        let mut command = cargo(&[&library[..], &flags, features].concat());
        if let Some(target) = self.target {
            command.args(["--target", target]);
        }
        if kind == "cdylib" {
            command.arg("--").args(self.linking().iter().map(|option| format!("-Clink-arg=-Wl,{option}")));
        }
        run(command)
    }

    /// Options for lld, if it is the linker: identical functions are merged, and relocations are packed to about a bit each if this system
    /// supports that. In any case a library requires a glibc that is at least as new as the build system's.
    fn linking(self) -> &'static [&'static str] {
        match self.target {
            Some(target) if target.contains("-linux-android") => &["--icf=all", "-O2"],
            None if links_with_lld() && reads_relr() => &["--icf=all", "-O2", "-z,pack-relative-relocs"],
            None if links_with_lld() => &["--icf=all", "-O2"],
            _ => &[],
        }
    }
}

/// Compiler flags. Frame pointers in all functions make unwind tables smaller.
fn flags() -> Vec<String> {
    ["-Cforce-frame-pointers=yes".to_owned()].into_iter().chain(remapped()).collect()
}

/// Flags that remove the build machine's folders from source paths in panics. Paths of the standard library become the same whether or
/// not its sources are installed.
pub(crate) fn remapped() -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let registries = home.and_then(|home| std::fs::read_dir(home.join("registry/src")).ok());
    let folders = registries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path().to_str()?.to_owned()));
    let folders = folders.chain([root().display().to_string()]);
    let shortened = folders.map(|folder| format!("--remap-path-prefix={folder}="));
    shortened.chain(standard_library()).collect()
}

/// Maps the installed sources of the standard library to the paths in its precompiled part, which contain the compiler's commit.
fn standard_library() -> Option<String> {
    let (sysroot, version) = (said("rustc", &["--print", "sysroot"])?, said("rustc", &["-vV"])?);
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "))?;
    Some(format!("--remap-path-prefix={}/lib/rustlib/src/rust=/rustc/{commit}", sysroot.trim()))
}

/// True if Rust includes lld and uses it by default.
fn links_with_lld() -> bool {
    let is_it = cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"));
    let libraries = said("rustc", &["--print", "target-libdir"]);
    is_it && libraries.is_some_and(|path| Path::new(path.trim()).with_file_name("bin/gcc-ld/ld.lld").exists())
}

/// True if the system supports packed relocations: glibc 2.36 and later.
fn reads_relr() -> bool {
    let glibc = said("getconf", &["GNU_LIBC_VERSION"]);
    let version = glibc.as_deref().and_then(|text| text.trim().strip_prefix("glibc 2.")?.parse::<u32>().ok());
    version.is_some_and(|minor| minor >= 36)
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()
}
