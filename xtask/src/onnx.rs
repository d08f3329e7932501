//! Replays the cases of the ONNX standard, which are part of the `onnx` wheel.

use crate::shell::{cargo, root, run as run_command};
use crate::vulkan::{SoftwareDriver, with_driver};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cases in a folder of the wheel.
struct Cases {
    folder: &'static str,
    count: usize,
    /// Minimum number of cases that must pass. All others must be unsupported; none may be wrong.
    right: usize,
}

/// The node cases, and the model cases that include data.
const ALL: [Cases; 5] = [
    Cases { folder: "node", count: 1765, right: 1653 },
    Cases { folder: "pytorch-converted", count: 82, right: 82 },
    Cases { folder: "pytorch-operator", count: 35, right: 35 },
    Cases { folder: "simple", count: 23, right: 15 },
    Cases { folder: LIGHT, count: 9, right: 9 },
];

/// Folder of image models whose weights are constants.
const LIGHT: &str = "light";

/// The shape of an image.
const IMAGE: [u64; 4] = [1, 3, 224, 224];

const WHEEL: &str = "onnx==1.22.0";

/// Fetches the cases and replays them all.
pub(crate) fn run(kernel: &str) -> Result<(), String> {
    let folder = root().join("target/onnx");
    let data = folder.join("onnx/backend/test/data");
    if !data.is_dir() {
        let mut pip = Command::new("pip");
        pip.args(["install", WHEEL, "--no-deps", "--target"]).arg(&folder);
        run_command(pip)?;
    }
    let light = light(&data, &folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    run_command(cargo(&["build", "--release", "-p", "rewire-cli"]))?;
    let replayed = ALL.iter().map(|cases| {
        let path = if cases.folder == LIGHT { light.clone() } else { data.join(cases.folder) };
        replay(cases, &path, kernel)
    });
    let failed: Vec<String> = replayed.filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn replay(cases: &Cases, path: &Path, kernel: &str) -> Result<(), String> {
    let mut command = Command::new(root().join("target/release/rewire"));
    command.args(["verify", "--json", "--kernel", kernel]).arg(path);
    let driver = std::env::var_os("VK_DRIVER_FILES").is_none().then(|| SoftwareDriver::Lavapipe.manifest()).flatten();
    let output = with_driver(command, driver.as_deref()).output().map_err(|error| error.to_string())?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        let known = ["ok", "unsupported", "FAIL", "error"];
        let status = known.into_iter().find(|status| line.contains(&format!("\"status\":\"{status}\"")));
        *counts.entry(status.unwrap_or("unreadable")).or_insert(0) += 1;
    }
    println!("{}: {counts:?}", cases.folder);
    let count = |status: &str| counts.get(status).copied().unwrap_or(0);
    let all: usize = counts.values().sum();
    match (all == cases.count, count("ok") >= cases.right, count("ok") + count("unsupported") == all) {
        (true, true, true) => Ok(()),
        (false, ..) => Err(format!("{}: {all} cases instead of {}", cases.folder, cases.count)),
        (_, false, _) => Err(format!("{}: {} cases are right, expected {}", cases.folder, count("ok"), cases.right)),
        _ => Err(format!("{}: a case is wrong", cases.folder)),
    }
}

/// Arranges the image models as cases. The input is the one that the official runner generates for the stored outputs.
fn light(data: &Path, folder: &Path) -> std::io::Result<PathBuf> {
    let (from, to) = (data.join(LIGHT), folder.join(LIGHT));
    let image = image();
    for entry in std::fs::read_dir(from)? {
        let model = entry?.path();
        let (Some("onnx"), Some(name)) = (model.extension().and_then(OsStr::to_str), model.file_stem()) else {
            continue;
        };
        let case = to.join(name);
        let set = case.join("test_data_set_0");
        std::fs::create_dir_all(&set)?;
        std::fs::copy(&model, case.join("model.onnx"))?;
        let output = model.with_file_name(format!("{}_output_0.pb", name.display()));
        std::fs::copy(output, set.join("output_0.pb"))?;
        std::fs::write(set.join("input_0.pb"), &image)?;
    }
    Ok(to)
}

/// An image as a `TensorProto` message: floats from 0 to 1 in equal steps.
fn image() -> Vec<u8> {
    let count: u64 = IMAGE.iter().product();
    let mut message = vec![];
    for extent in IMAGE {
        message.push(1 << 3);
        varint(&mut message, extent);
    }
    // `data_type` is FLOAT.
    message.extend([2 << 3, 1, 9 << 3 | 2]);
    varint(&mut message, 4 * count);
    message.extend((0..count).flat_map(|n| ((n as f64 / count as f64) as f32).to_le_bytes()));
    message
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 1 << 7 {
        message.push(value as u8 | 1 << 7);
        value >>= 7;
    }
    message.push(value as u8);
}
