//! Tests the mobile library: Kotlin on this machine's JVM, Swift, and checks for Android and iOS.

use super::readme;
use crate::features::has_target;
use crate::mobile::write_sources;
use crate::shell::{cargo, rewire, root, run, run_captured, succeeds, tests};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Kotlin compiler, which JetBrains publishes in the npm registry.
const KOTLIN: &str = "kotlin-compiler@2.4.20";

/// Path of JNA, the library for native calls from the JVM, on Debian.
const JNA: &str = "/usr/share/java/jna.jar";

/// The mobile targets.
const PHONES: [&str; 2] = ["aarch64-linux-android", "aarch64-apple-ios"];

/// Symbols that a Swift app needs.
const SWIFT: [&str; 13] = [
    "open class Ranker:",
    "public static func load(path: String, options: Options? = nil)throws  -> Ranker",
    "public static func fromBytes(bytes: Data, options: Options? = nil)throws  -> Ranker",
    "open func rank(requests: [Request], token: CancellationToken? = nil)throws  -> Ranking",
    "open func rankJson(lines: String, token: CancellationToken? = nil)throws  -> Ranking",
    "open class Decoder:",
    "public protocol TokenListener:",
    "open class CancellationToken:",
    "public struct Request:",
    "public struct Ranking:",
    "enum RewireError: Swift.Error",
    "case Model(",
    "case Cancelled",
];

pub(super) fn missing_of_kotlin() -> Option<String> {
    let missing = if !succeeds("java", &["-version"]) {
        "default-jre-headless"
    } else if !Path::new(JNA).exists() {
        "libjna-java"
    } else if !succeeds("npm", &["--version"]) {
        "npm"
    } else {
        return None;
    };
    Some(format!("`apt-get install {missing}` installs what runs it"))
}

/// Runs Kotlin tests that call every function of the library, and the program and the fragments of the page.
pub(super) fn test_kotlin() -> Result<(), String> {
    let folder = built()?;
    let kotlin = kotlin()?;
    let classes = format!("{JNA}:{}", kotlin.join("lib/kotlinx-coroutines-core-jvm.jar").display());
    let compile = |program: &Path, name: &str| {
        let mut command = Command::new(kotlin.join("bin/kotlinc"));
        command.arg(program).arg(folder.join("kotlin/rewire/rewire.kt"));
        command.args(["-classpath", &classes, "-include-runtime"]).arg("-d").arg(folder.join(name));
        run(command)
    };
    let java = |name: &str, class: &str| {
        let mut command = Command::new("java");
        command.arg(format!("-Djna.library.path={}", libraries().display())).arg("-Duser.language=en");
        command.arg("-classpath").arg(format!("{}:{classes}", folder.join(name).display())).arg(class);
        command.current_dir(&folder);
        command
    };
    compile(&root().join("crates/mobile/tests/Rank.kt"), "test.jar")?;
    expect(run_captured(with_users(java("test.jar", "RankKt")))?)?;
    compile(&readme::write_program("docs/mobile.md", "kotlin program", &folder.join("Readme.kt"))?, "readme.jar")?;
    readme::check(&folder, || java("readme.jar", "ReadmeKt"))?;
    compile(&write_fragments("kotlin", "Fragments.kt", &folder.join("Fragments.kt"))?, "fragments.jar")?;
    check_fragments(&folder, java("fragments.jar", "FragmentsKt"))
}

/// Inserts the page's code fragments of a language into a test program.
fn write_fragments(language: &str, name: &str, file: &Path) -> Result<PathBuf, String> {
    let mut program = read(&root().join("crates/mobile/tests").join(name))?;
    for fragment in ["rank", "generate"] {
        let text = readme::block("docs/mobile.md", &format!("{language} {fragment}"))?;
        program = program.replace(&format!("// {fragment}\n"), &text);
    }
    write(file, &program)?;
    Ok(file.to_owned())
}

/// Runs the fragments of the page and compares the items that they print with the page.
fn check_fragments(folder: &Path, mut command: Command) -> Result<(), String> {
    let mut package = rewire(&["package", "--model"]);
    package.arg(root().join("tests/decoders/qwen3")).arg("--out").arg(folder.join("decoder.rewire"));
    run(package)?;
    command.arg(root().join("crates/cli/tests/packages/format-1.rewire"));
    let (text, items) = (run_captured(command)?, readme::block("docs/mobile.md", "text generated")?);
    if text.contains(&items) { Ok(()) } else { Err(format!("expected\n{items}got\n{text}")) }
}

/// Checks that the Swift bindings declare the symbols that an app needs.
pub(super) fn test_swift() -> Result<(), String> {
    let text = read(&built()?.join("swift/Rewire.swift"))?;
    let absent: Vec<&str> = SWIFT.into_iter().filter(|declared| !text.contains(declared)).collect();
    if absent.is_empty() { Ok(()) } else { Err(format!("Rewire.swift has no `{}`", absent.join("`, `"))) }
}

pub(super) fn missing_of_swiftc() -> Option<String> {
    let has_swift = succeeds("swiftc", &["--version"]);
    (!has_swift).then(|| {
        "Swift's compiler, `swiftc`: swift.org has it, and Debian unstable in the package `swiftlang`".to_owned()
    })
}

/// Runs Swift tests that call every function of the library, and the program and the fragments of the page.
pub(super) fn test_swiftc() -> Result<(), String> {
    let folder = built()?;
    let compile = |program: &Path, name: &str| {
        let mut command = Command::new("swiftc");
        command.args(["-swift-version", "5", "-o"]).arg(folder.join(name));
        command.arg(program).arg(folder.join("swift/Rewire.swift")).arg("-I").arg(folder.join("swift"));
        command.arg("-L").arg(libraries()).arg("-lrewire_mobile");
        run(command)
    };
    let program = |name: &str| {
        let mut command = Command::new(folder.join(name));
        command.env("LD_LIBRARY_PATH", libraries()).current_dir(&folder);
        command
    };
    // Swift only allows top-level statements in `main.swift`.
    let main = folder.join("main.swift");
    write(&main, &read(&root().join("crates/mobile/tests/rank.swift"))?)?;
    compile(&main, "test")?;
    expect(run_captured(with_users(program("test")))?)?;
    compile(&readme::write_program("docs/mobile.md", "swift program", &main)?, "readme")?;
    readme::check(&folder, || program("readme"))?;
    compile(&write_fragments("swift", "fragments.swift", &main)?, "fragments")?;
    check_fragments(&folder, program("fragments"))
}

pub(super) fn missing_of_phones() -> Option<String> {
    let missing: Vec<&str> = PHONES.into_iter().filter(|target| !has_target(target)).collect();
    (!missing.is_empty()).then(|| format!("`rustup target add {}` installs what it takes", missing.join(" ")))
}

/// Checks the library for mobile targets. It is not built, because that would require their linkers.
pub(super) fn test_phones() -> Result<(), String> {
    PHONES.into_iter().try_for_each(|target| {
        run(cargo(&["check", "-p", "rewire-mobile", "-p", "rewire-capi", "--lib", "--target", target]))
    })
}

/// The folder of the built libraries.
fn libraries() -> PathBuf {
    root().join("target/debug/deps")
}

/// Builds the library, runs its Rust tests, and writes the bindings to a folder.
fn built() -> Result<PathBuf, String> {
    run(cargo(&tests(&["mobile"])))?;
    let folder = root().join("target/mobile");
    write_sources(&libraries().join("librewire_mobile.a"), &folder)?;
    Ok(folder)
}

/// The folder of the Kotlin compiler and its libraries, which are fetched once.
fn kotlin() -> Result<PathBuf, String> {
    let folder = root().join("target/kotlin");
    let compiler = folder.join("node_modules/kotlin-compiler");
    if !compiler.exists() {
        let mut command = Command::new("npm");
        command.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(KOTLIN);
        run(command)?;
    }
    Ok(compiler)
}

/// Adds the arguments of the tests: a stored package, its users, and the folder of a decoder.
fn with_users(mut command: Command) -> Command {
    let packages = root().join("crates/cli/tests/packages");
    command.arg(packages.join("format-1.rewire")).arg(packages.join("users.jsonl"));
    command.arg(root().join("tests/decoders/qwen3"));
    command
}

fn expect(text: String) -> Result<(), String> {
    if text.contains("4 candidates of 2 requests") { Ok(()) } else { Err(format!("it printed\n{text}")) }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
