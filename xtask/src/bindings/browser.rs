//! Tests the page in headless Chromium, on WebGPU by SwiftShader and on the CPU.

use super::readme;
use crate::shell::{rewire, root, run, run_captured, succeeds};
use crate::web::{self, Server};
use std::path::Path;
use std::process::Command;
use std::thread;

/// Exported models that the page runs: a decoder, an encoder and a convolutional network.
const EXPORTED: [&str; 3] = ["tests/pt2/hf_qwen3", "tests/browser/hf_bert", "tests/browser/resnet_small"];

/// Required programs, and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 2] = [("chromium", "chromium"), ("node", "nodejs")];

pub(super) fn missing() -> Option<String> {
    let program = PROGRAMS.iter().find(|(program, _)| !succeeds(program, &["--version"]));
    program.map(|(_, package)| format!("`apt-get install {package}` installs what runs it")).or_else(web::missing)
}

pub(super) fn test() -> Result<(), String> {
    let folder = web::build()?;
    readme::write_program("README.md", "js", &folder.join("readme.js"))?;
    write_example(&folder.join("predict.js"))?;
    write_programs(&folder.join("programs.js"))?;
    check_types(&folder)?;
    bundle(&folder)?;
    std::fs::copy(folder.join("demo.rewire"), folder.join("model.rewire"))
        .map_err(|error| format!("the package: {error}"))?;
    import(&folder.join("imported.rewire"))?;
    package(&root().join("tests/pt2/linear_relu/model.pt2"), &folder.join("model.pt2.rewire"))?;
    package(&root().join("tests/decoders/qwen3"), &folder.join("decoder.rewire"))?;
    for model in EXPORTED.map(Path::new) {
        let name = model.file_name().unwrap_or_default();
        package(&root().join(model).join("model.pt2"), &folder.join(name).with_extension("rewire"))?;
    }
    copy_axe(&folder)?;
    let server = Server::open(folder, 0)?;
    let address = format!("http://localhost:{}/", server.port());
    thread::spawn(move || server.run());
    node("browser.mjs", &address)?;
    match succeeds("firefox-esr", &["--version"]) {
        true => node("browser_firefox.mjs", &address),
        false => {
            eprintln!("\nxtask: Firefox is not tested: `apt-get install firefox-esr` installs it");
            Ok(())
        }
    }
}

/// Runs a test script of the page.
fn node(tests: &str, address: &str) -> Result<(), String> {
    let mut command = Command::new("node");
    command.arg("--no-warnings").arg(Path::new("xtask/src/bindings").join(tests)).arg(address).current_dir(root());
    run(command)
}

/// Copies axe-core, which finds accessibility problems, next to the page.
fn copy_axe(folder: &Path) -> Result<(), String> {
    let mut command = Command::new("npm");
    command.args(["root", "--global"]);
    let library = run_captured(command).map(|modules| Path::new(modules.trim()).join("axe-core/axe.min.js"));
    let Some(library) = library.ok().filter(|library| library.is_file()) else {
        eprintln!("\nxtask: barriers are not looked for: `npm install --global axe-core` installs what finds them");
        return Ok(());
    };
    std::fs::copy(library, folder.join("axe.js")).map(drop).map_err(|error| format!("axe-core: {error}"))
}

/// Checks the type declarations of the library with a program that uses all of them.
fn check_types(folder: &Path) -> Result<(), String> {
    if !succeeds("tsc", &["--version"]) {
        eprintln!("\nxtask: types are not checked: `npm install --global typescript` installs what does");
        return Ok(());
    }
    let program = folder.join("types.ts");
    std::fs::copy(root().join("xtask/src/bindings/types.ts"), &program)
        .map_err(|error| format!("the program: {error}"))?;
    let mut command = Command::new("tsc");
    command.args(["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]);
    command.arg(program);
    run(command)
}

/// Bundles the program of the README and its worker.
fn bundle(folder: &Path) -> Result<(), String> {
    if !succeeds("esbuild", &["--version"]) {
        eprintln!("\nxtask: no bundle is tested: `npm install --global esbuild` installs what makes it");
        return Ok(());
    }
    let mut command = Command::new("esbuild");
    command.args(["readme.js", "--bundle", "--minify", "--format=esm", "--target=es2022", "--outfile=bundled.js"]);
    command.current_dir(folder);
    run(command)
}

/// Writes a package of an imported pipeline with several types of columns.
fn import(package: &Path) -> Result<(), String> {
    let folder = root().join("tests/columns");
    let mut command = rewire(&["import"]);
    command.arg(folder.join("pipeline.config")).arg("--checkpoint").arg(folder.join("model.safetensors"));
    command.arg("--out").arg(package);
    run(command)
}

/// Writes a package of a model that PyTorch exported.
fn package(model: &Path, package: &Path) -> Result<(), String> {
    let mut command = rewire(&["package", "--model"]);
    command.arg(model).arg("--out").arg(package);
    run(command)
}

/// Writes the programs of the page, except the prediction example, as a module that exports their results. They rank the README's
/// request, run an exported model and generate items.
fn write_programs(file: &Path) -> Result<(), String> {
    let page = std::fs::read_to_string(root().join("docs/browser.md")).map_err(|error| format!("the page: {error}"))?;
    let blocks = page.split("```js\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let programs: String = blocks.filter(|block| !block.contains("Predictor.load")).collect();
    let readme = readme::block("README.md", "js")?;
    let request = readme.lines().filter(|line| {
        line.starts_with("const history") || line.starts_with("history.") || line.starts_with("const candidates")
    });
    let request: Vec<&str> = request.collect();
    let module = format!(
        "{}\nconst request = {{ user: \"u1\", age_bucket: 3, country: 7, history, candidates }};\n{}\n\
         export {{ ranked, scores, y, found }};\n",
        request.join("\n"),
        programs.replace("own.rewire", "model.pt2.rewire")
    );
    std::fs::write(file, module).map_err(|error| format!("{}: {error}", file.display()))
}

/// Writes the prediction example of the page as a module that exports its output.
fn write_example(file: &Path) -> Result<(), String> {
    let page = std::fs::read_to_string(root().join("docs/browser.md")).map_err(|error| format!("the page: {error}"))?;
    let example = page.split_once("## Predict").and_then(|(_, page)| page.split_once("```js\n"));
    let example = example.and_then(|(_, page)| page.split_once("```")).ok_or("docs/browser.md has no example")?.0;
    let module = example.replace("console.log(counts, columns.probs)", "export { predictor, counts, columns }");
    std::fs::write(file, module).map_err(|error| format!("{}: {error}", file.display()))
}
