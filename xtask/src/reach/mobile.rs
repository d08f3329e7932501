//! The library of phones: Kotlin on this machine's JVM, Swift, and checks for the systems of phones.

use super::readme;
use crate::mobile::write_sources;
use crate::rooms::has_target;
use crate::shell::{cargo, root, run, run_captured, succeeds, tests};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kotlin's compiler in the registry of JavaScript, where JetBrains puts it.
const KOTLIN: &str = "kotlin-compiler@2.4.20";

/// Where Debian has the library by which the JVM calls others.
const JNA: &str = "/usr/share/java/jna.jar";

/// The systems of phones.
const PHONES: [&str; 2] = ["aarch64-linux-android", "aarch64-apple-ios"];

/// What an app in Swift finds.
const SWIFT: [&str; 11] = [
    "open class Ranker:",
    "public static func load(path: String, options: Options? = nil)throws  -> Ranker",
    "public static func fromBytes(bytes: Data, options: Options? = nil)throws  -> Ranker",
    "open func rank(requests: [Request], token: CancellationToken? = nil)throws  -> Ranking",
    "open func rankJson(lines: String, token: CancellationToken? = nil)throws  -> Ranking",
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
    } else if !succeeds("kotlinc", &["-version"]) && !succeeds("npm", &["--version"]) {
        return Some("Kotlin's compiler: `kotlinc`, or `apt-get install npm`, by which it is fetched".to_owned());
    } else {
        return None;
    };
    Some(format!("`apt-get install {missing}` installs what runs it"))
}

/// Kotlin calls every function of the library, and so does the program of the page.
pub(super) fn test_kotlin() -> Result<(), String> {
    let folder = built()?;
    let kotlinc = kotlinc()?;
    let compile = |program: &Path, name: &str| {
        let mut command = Command::new(&kotlinc);
        command.arg(program).arg(folder.join("kotlin/rewire/rewire.kt")).args(["-classpath", JNA, "-include-runtime"]);
        command.arg("-d").arg(folder.join(name));
        run(command)
    };
    let java = |name: &str, class: &str| {
        let mut command = Command::new("java");
        command.arg(format!("-Djna.library.path={}", libraries().display())).arg("-Duser.language=en");
        command.arg("-classpath").arg(format!("{}:{JNA}", folder.join(name).display())).arg(class);
        command.current_dir(&folder);
        command
    };
    compile(&root().join("crates/mobile/tests/Rank.kt"), "test.jar")?;
    expect(run_captured(with_users(java("test.jar", "RankKt")))?)?;
    compile(&readme::write_program("docs/mobile.md", "kotlin program", &folder.join("Readme.kt"))?, "readme.jar")?;
    readme::check(&folder, || java("readme.jar", "ReadmeKt"))
}

/// The Swift that is written has what an app calls.
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

/// Swift calls every function of the library, and so does the program of the page.
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
    // The file of the statements of a program is `main.swift`.
    let main = folder.join("main.swift");
    write(&main, &read(&root().join("crates/mobile/tests/rank.swift"))?)?;
    compile(&main, "test")?;
    expect(run_captured(with_users(program("test")))?)?;
    compile(&readme::write_program("docs/mobile.md", "swift program", &main)?, "readme")?;
    readme::check(&folder, || program("readme"))
}

pub(super) fn missing_of_phones() -> Option<String> {
    let missing: Vec<&str> = PHONES.into_iter().filter(|target| !has_target(target)).collect();
    (!missing.is_empty()).then(|| format!("`rustup target add {}` installs what it takes", missing.join(" ")))
}

/// The compiler takes the libraries for phones; building them takes their linkers.
pub(super) fn test_phones() -> Result<(), String> {
    PHONES.into_iter().try_for_each(|target| {
        run(cargo(&["check", "-p", "rewire-mobile", "-p", "rewire-capi", "--lib", "--target", target]))
    })
}

/// Where the libraries of this build are.
fn libraries() -> PathBuf {
    root().join("target/debug/deps")
}

/// Builds the library, tests what is called from Rust, and writes the sources that call it into a folder.
fn built() -> Result<PathBuf, String> {
    run(cargo(&tests(&["mobile"])))?;
    let folder = root().join("target/mobile");
    write_sources(&libraries().join("librewire_mobile.a"), &folder)?;
    Ok(folder)
}

/// Kotlin's compiler: this machine's, or one from the registry.
fn kotlinc() -> Result<PathBuf, String> {
    if succeeds("kotlinc", &["-version"]) {
        return Ok("kotlinc".into());
    }
    let folder = root().join("target/kotlin");
    let compiler = folder.join("node_modules/kotlin-compiler/bin/kotlinc");
    if !compiler.exists() {
        let mut command = Command::new("npm");
        command.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(KOTLIN);
        run(command)?;
    }
    Ok(compiler)
}

/// With a package that is kept, and its users.
fn with_users(mut command: Command) -> Command {
    let packages = root().join("crates/cli/tests/packages");
    command.arg(packages.join("format-1.rewire")).arg(packages.join("users.jsonl"));
    command
}

fn expect(text: String) -> Result<(), String> {
    if text.contains("4 candidates of 2 requests") { Ok(()) } else { Err(format!("it said\n{text}")) }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
