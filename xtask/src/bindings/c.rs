//! Tests the C library in the form that apps ship.

use crate::capi;
use crate::shell::{root, run_captured, succeeds};
use crate::vulkan::{SoftwareDriver, has_loader, with_driver};
use std::path::Path;
use std::process::Command;

/// Maximum size of the shared library with all features, in bytes. The next constant is for the library that only supports packages.
/// Both contain the operators of imported models and decoders, since any package may need them.
const MOST: u64 = 13_000_000;
const MOST_WITH_PACKAGES: u64 = 6_250_000;

pub(super) fn missing() -> Option<String> {
    (!succeeds("cc", &["--version"])).then(|| "`apt-get install gcc` installs a compiler".to_owned())
}

/// Builds both libraries and runs C programs that rank, on the CPU and on a Vulkan device that the program opens.
pub(super) fn test() -> Result<(), String> {
    for (packages, most) in [(false, MOST), (true, MOST_WITH_PACKAGES)] {
        let folder = root().join(if packages { "target/c-packages" } else { "target/c" });
        capi::run(&folder, packages)?;
        check_size(&folder.join("lib/librewire_c.so"), most)?;
        expect(&folder, "rank.c", "4 candidates of 2 requests")?;
        expect(&folder, "arrow.c", "2 rows")?;
        if has_loader() && Path::new("/usr/include/vulkan/vulkan.h").exists() {
            expect(&folder, "vulkan.c", "ranked on ")?;
        }
    }
    Ok(())
}

/// Checks the size of a library. The limits only apply to x86-64 Linux.
fn check_size(library: &Path, most: u64) -> Result<(), String> {
    let size = std::fs::metadata(library).map_err(|error| format!("{}: {error}", library.display()))?.len();
    eprintln!("{}: {size} bytes", library.display());
    let is_less = size <= most || !cfg!(all(target_os = "linux", target_arch = "x86_64"));
    if is_less { Ok(()) } else { Err(format!("{} has {size} bytes: expected {most} at most", library.display())) }
}

/// Builds a C program with a library, runs it with a stored package, and checks its output.
fn expect(folder: &Path, source: &str, begins: &str) -> Result<(), String> {
    let program = folder.join(source).with_extension("");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder.join("include"));
    compiler.arg(root().join("crates/capi/tests/c").join(source)).arg("-o").arg(&program).arg("-L");
    compiler.arg(folder.join("lib")).args(["-lrewire_c", "-lpthread", "-ldl", "-lm"]);
    compiler.args((source == "vulkan.c").then_some("-l:libvulkan.so.1"));
    run_captured(compiler)?;
    let mut command = Command::new(&program);
    command.arg(root().join("crates/cli/tests/packages/format-1.rewire")).env("LD_LIBRARY_PATH", folder.join("lib"));
    let text = run_captured(with_driver(command, SoftwareDriver::Lavapipe.manifest().as_deref()))?;
    if text.contains(begins) { Ok(()) } else { Err(format!("{source} printed\n{text}")) }
}
