//! The page in headless Chromium, on WebGPU by SwiftShader and on the CPU.

use super::readme;
use crate::shell::{root, run, succeeds};
use crate::web::{self, Server};
use std::process::Command;
use std::thread;

/// Programs that it takes, and what installs them on Debian.
const PROGRAMS: [(&str, &str); 2] = [("chromium", "chromium"), ("node", "nodejs")];

pub(super) fn missing() -> Option<String> {
    let program = PROGRAMS.iter().find(|(program, _)| !succeeds(program, &["--version"]));
    program.map(|(_, package)| format!("`apt-get install {package}` installs what runs it")).or_else(web::missing)
}

pub(super) fn test() -> Result<(), String> {
    let folder = web::build()?;
    readme::write_program("js", &folder.join("readme.js"))?;
    std::fs::copy(folder.join("demo.rewire"), folder.join("model.rewire"))
        .map_err(|error| format!("the package: {error}"))?;
    let server = Server::open(folder, 0)?;
    let address = format!("http://localhost:{}/", server.port());
    thread::spawn(move || server.run());
    let mut command = Command::new("node");
    command.args(["--no-warnings", "xtask/src/reach/browser.mjs", &address]).current_dir(root());
    run(command)
}
