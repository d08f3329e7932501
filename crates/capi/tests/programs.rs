//! The header is that of the source, and programs in C and C++ rank with it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_header_is_that_of_the_source() {
    let mut builder = cbindgen::Builder::new().with_config(cbindgen::Config::from_file(here("cbindgen.toml")).unwrap());
    for name in ["border", "options", "ranker", "batch", "ranking", "cancellation", "arrow", "vulkan", "metal"] {
        builder = builder.with_src(here("src").join(name).with_extension("rs"));
    }
    let mut text = vec![];
    builder.generate().unwrap().write(&mut text);
    let (header, text) = (here("include/rewire.h"), String::from_utf8(text).unwrap());
    if std::env::var_os("REWIRE_WRITE_REFERENCE").is_some() {
        std::fs::write(&header, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&header).unwrap();
    assert!(kept == text, "rewire.h is not that of the source: REWIRE_WRITE_REFERENCE=1 writes it");
}

/// Where the libraries of this build are.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    assert!(folder.join("librewire_c.so").exists(), "no librewire_c.so in {}", folder.display());
    folder.to_owned()
}

/// Builds a program under the address sanitizer.
fn build(compiler: &str, flags: &[&str], source: &Path, library: &[&str], program: &Path) {
    let mut command = Command::new(compiler);
    command.args(flags).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-fsanitize=address", "-I"]);
    command.arg(here("include")).arg(source).arg("-o").arg(program).arg("-L").arg(libraries()).args(library);
    let built = command.args(["-lpthread", "-ldl", "-lm"]).output().unwrap();
    assert!(built.status.success(), "{command:?}: {}", String::from_utf8_lossy(&built.stderr));
}

/// Builds a program and runs it with a package that is kept, in an environment.
fn run_in(environment: &[(&str, &str)], compiler: &str, flags: &[&str], source: &str, library: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("rank");
    build(compiler, flags, &here(source), library, &program);
    let mut command = Command::new(&program);
    command.arg(here("../cli/tests/packages/format-1.rewire")).env("LD_LIBRARY_PATH", libraries());
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{source}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// Without GPUs: what their drivers leave behind is not ours to find.
fn run(compiler: &str, flags: &[&str], source: &str, library: &[&str]) -> String {
    run_in(&[("VK_DRIVER_FILES", "/nowhere")], compiler, flags, source, library)
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_ranks_with_the_shared_library() {
    let text = run("cc", &["-std=c11"], "tests/c/rank.c", &["-lrewire_c"]);
    assert_eq!(text, "4 candidates of 2 requests\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_cpp_ranks_with_the_static_library() {
    let text = run("c++", &["-std=c++17"], "tests/c/rank.cpp", &["-l:librewire_c.a"]);
    assert!(text.starts_with("3 of 3 threads, 2 items, cannot read /nowhere"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_hands_tables_over() {
    let text = run("cc", &["-std=c11"], "tests/c/arrow.c", &["-lrewire_c"]);
    assert_eq!(text, "2 rows\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_ranks_on_its_own_vulkan_device() {
    if rewire::Gpu::open(None).is_err() || !Path::new("/usr/include/vulkan/vulkan.h").exists() {
        return eprintln!("skipped: there is no adapter, or no header of Vulkan");
    }
    // What drivers leave behind is not ours to find.
    let without_leaks = [("ASAN_OPTIONS", "detect_leaks=0")];
    let libraries = ["-lrewire_c", "-l:libvulkan.so.1"];
    let text = run_in(&without_leaks, "cc", &["-std=c11"], "tests/c/vulkan.c", &libraries);
    assert!(text.starts_with("ranked on "), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_example_of_the_readme_is_a_program() {
    let readme = std::fs::read_to_string(here("../../README.md")).unwrap();
    let (_, from) = readme.split_once("```c\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("rank.c"), folder.path().join("rank"));
    std::fs::write(&source, from.split_once("```").unwrap().0).unwrap();
    build("cc", &["-std=c11"], &source, &["-lrewire_c"], &program);
    let output = Command::new(&program).current_dir(&folder).env("LD_LIBRARY_PATH", libraries()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("model.rewire"), "{text}");
}
