//! The node cases of the ONNX standard, from the wheel of its package.

use crate::shell::{cargo, root, run as run_command};
use crate::vulkan::{SoftwareDriver, with_driver};
use std::collections::BTreeMap;
use std::process::Command;

/// Cases of the wheel.
const CASES: usize = 1765;

/// Cases that are right, on every kernel.
const RIGHT: usize = 1_637;

const WHEEL: &str = "onnx==1.22.0";

/// Fetches the cases and replays them all.
pub(crate) fn run(kernel: &str) -> Result<(), String> {
    let folder = root().join("target/onnx");
    let cases = folder.join("onnx/backend/test/data/node");
    if !cases.is_dir() {
        let mut pip = Command::new("pip");
        pip.args(["install", WHEEL, "--no-deps", "--target"]).arg(&folder);
        run_command(pip)?;
    }
    run_command(cargo(&["build", "--release", "-p", "rewire-cli"]))?;
    let mut command = Command::new(root().join("target/release/rewire"));
    command.args(["verify", "--json", "--kernel", kernel]).arg(&cases);
    let driver = std::env::var_os("VK_DRIVER_FILES").is_none().then(|| SoftwareDriver::Lavapipe.manifest()).flatten();
    let output = with_driver(command, driver.as_deref()).output().map_err(|error| error.to_string())?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        let known = ["ok", "unsupported", "FAIL", "error"];
        let status = known.into_iter().find(|status| line.contains(&format!("\"status\":\"{status}\"")));
        *counts.entry(status.unwrap_or("unreadable")).or_insert(0) += 1;
    }
    println!("{counts:?}");
    let count = |status: &str| counts.get(status).copied().unwrap_or(0);
    let all: usize = counts.values().sum();
    match (all == CASES, count("ok") >= RIGHT, count("ok") + count("unsupported") == all) {
        (true, true, true) => Ok(()),
        (false, ..) => Err(format!("{all} cases instead of {CASES}")),
        (_, false, _) => Err(format!("{} cases are right, expected {RIGHT}", count("ok"))),
        _ => Err("a case is wrong".to_owned()),
    }
}
