//! Setup, tests and builds: `cargo xtask`.
#![forbid(unsafe_code)]

mod bindings;
mod capi;
mod distributed;
mod drivers;
mod emulate;
mod families;
mod features;
mod fuzz;
mod mobile;
mod onnx;
#[cfg(test)]
mod packages;
mod programs;
mod release;
mod sanitize;
mod setup;
mod shell;
mod small;
mod supply;
mod test;
mod venv;
mod vulkan;
mod web;

use small::Carried;
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  setup   installs missing requirements of the tests: rustfmt, clippy, the Vulkan loader and the software
          drivers lavapipe (Mesa) and SwiftShader (Chromium)
  lint [all]
          setup, then checks of texts, lints and the library for browsers; `all` adds documentation, the book, more feature sets, advisories and the versions of changed
          interfaces, and installs cargo-deny, cargo-audit and cargo-semver-checks
  test [slow]
          setup, then formatting and all tests but the slow ones, on the CPU and on the software drivers; `slow` runs those alone, on one driver;
          VK_DRIVER_FILES or VK_ICD_FILENAMES, if set, select the driver instead; if `drivers` has fetched the newest
          lavapipe, the kernels with cooperative matrices run on it as well
  drivers setup, then the tests of kernels on the newest lavapipe, which has cooperative matrices, more of them on
          SwiftShader, and some under the Vulkan validation layer; fetches Debian's unstable tree into target/ once (600 MB), as root
  families [tested|NAME ...]
          builds the program, and compiles all kernels of the demo, the standard workloads and the golden cases for GPUs that are not
          present, with Mesa's drivers: those of Debian unstable as above, and Intel's, which is fetched and built once; writes the rows of the named GPUs,
          or of all, into docs/gpus.md; `tested` compiles some workloads for four of the GPUs and fails if a kernel spills, and compiles HLSL with
          vkd3d-compiler, as `test` does once the drivers are fetched
  fuzz [--seconds N] [TARGET ...]
          feeds random bytes to readers of files, stored plans and random graphs, N seconds (60) per target, with libFuzzer
          on the stable toolchain; needs a C++ compiler
  sanitize [address|thread]
          the tests of the CPU kernels under a sanitizer of a nightly toolchain
  emulate [neon|wasm]
          the tests of the CPU kernels on emulated processors: ARM with QEMU, WebAssembly with Node.js;
          reports missing requirements and installs nothing
  capi [--packages] FOLDER
          builds the C library into a folder, with its header and a pkg-config file; `--packages` omits
          the loading of folders and the emission of kernels
  mobile [--packages] FOLDER [TARGET]
          builds the library for Kotlin and Swift, for this machine or for a Rust target, into a folder, with its
          bindings
  web [build | --port N]
          builds the page of web/ with its library into target/page, and serves it at port 8080 or N
  bindings [browser|c|python|clusters|ranks|datafusion|kotlin|swift|swiftc|phones ...]
          tests the library in its environments: in headless Chromium, from C with the small libraries, from Python, by Spark and Ray, in SQL, from Kotlin on the JVM, from Swift
          (the bindings, and with a compiler a program), and checks for Android and iOS; reports the parts that are
          skipped for lack of a toolchain; Python packages and the Kotlin compiler come from registries
  onnx [cpu|wgpu]
          fetches the wheel of onnx 1.22.0 with pip, replays its 1,765 node cases and its 149 model cases with data, and fails where one is wrong or
          fewer are right than before
  distributed
          builds the program with MPI, and checks trainings of 2 and 4 processes: losses, bits, divided tables, a resume with another number
          of ranks, and a rank that is killed or hangs; needs Open MPI and libclang
  release checks that every published crate compiles from its own archive
  versions [--baseline-rev REVISION]
          compares the public interfaces of the published crates with those of a revision, the newest tag `v*` if left out, with
          cargo-semver-checks, which it installs
  dist FOLDER [program|c|wheel|npm ...]
          builds the files of a release into a folder: the program, the C library, the wheel and the package for npm, with SHA-256 sums, a bill of
          materials (CycloneDX) and the licences of all libraries; equal sources and compilers give equal bytes
  dist --check FOLDER
          checks the sums and lists of such a folder, and runs the program of the README in Rust, Python, C, C++ and JavaScript with its files, as
          far as python3, a C compiler, node and chromium are there
  reference
          writes docs/reference.md and docs/kernels.md, and the figures of docs/measurements.json into the pages
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["setup"] => setup::run(),
        ["drivers"] => drivers::run(),
        ["families", "tested"] => families::check(),
        ["families", names @ ..] => families::run(names),
        ["test"] => setup::run().and_then(|()| test::run()),
        ["test", "slow"] => setup::run().and_then(|()| test::slow()),
        ["lint"] => setup::run().and_then(|()| test::lint()),
        ["lint", "all"] => setup::run()
            .and_then(|()| test::lint())
            .and_then(|()| test::documentation())
            .and_then(|()| supply::check_all())
            .and_then(|()| features::lint_more()),
        ["fuzz", rest @ ..] => fuzz::Options::parse(rest).and_then(|options| fuzz::run(&options)),
        ["sanitize", rest @ ..] => sanitize::Sanitizer::parse(rest).and_then(sanitize::run),
        ["capi", "--packages", folder] => capi::run(folder.as_ref(), true),
        ["capi", folder] => capi::run(folder.as_ref(), false),
        ["mobile", "--packages", folder, target @ ..] if target.len() < 2 => {
            mobile::run(folder.as_ref(), Carried { target: target.first().copied(), packages: true })
        }
        ["mobile", folder, target @ ..] if target.len() < 2 => {
            mobile::run(folder.as_ref(), Carried { target: target.first().copied(), packages: false })
        }
        ["emulate", rest @ ..] => emulate::Processor::parse(rest).and_then(emulate::run),
        ["web", rest @ ..] => web::Options::parse(rest).and_then(|options| web::run(&options)),
        ["bindings", rest @ ..] => bindings::Options::parse(rest).and_then(|options| bindings::run(&options)),
        ["release"] => release::check(),
        ["versions"] => supply::versions(),
        ["versions", "--baseline-rev", revision] => supply::versions_since(revision),
        ["dist", rest @ ..] => release::Options::parse(rest).and_then(|options| release::run(&options)),
        ["distributed"] => distributed::run(),
        ["onnx"] => onnx::run("cpu"),
        ["onnx", kernel @ ("cpu" | "wgpu")] => onnx::run(kernel),
        ["reference"] => test::write_reference(),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("unknown command `{}`\n\n{HELP}", other.join(" "))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
