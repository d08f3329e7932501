use crate::setup;
use crate::shell::{cargo, root, run as run_command, run_captured, tests};
use crate::vulkan::{SoftwareDriver, file_with_prefix, validation_layer, with_driver};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The message that naga 30 causes for every array in workgroup memory: <https://github.com/gfx-rs/wgpu/issues/7696>.
const KNOWN_MESSAGE: &str = "0xb210f7c2";

/// Tests on a newer driver, on SwiftShader and with the Vulkan validation layer, and runs a complete training.
pub(crate) fn run() -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Err("the software drivers are made for Linux".into());
    }
    setup::run()?;
    on_newer_lavapipe()?;
    trains_on_lavapipe()?;
    on_swiftshader()?;
    under_validation()?;
    eprintln!("\nall kernels pass on the newer lavapipe and SwiftShader, and the validation layer reports nothing");
    Ok(())
}

/// Mesa's newest lavapipe, which supports cooperative matrices. It is from Debian unstable, and the C library of a stable system cannot
/// load it. Programs therefore run with the loader and the libraries of the Debian unstable tree.
pub(crate) struct NewerLavapipe {
    folder: PathBuf,
    loader: PathBuf,
    pub(crate) libraries: PathBuf,
    driver: PathBuf,
}

impl NewerLavapipe {
    /// The driver in a Debian tree.
    pub(crate) fn of(tree: &Path) -> Result<Self, String> {
        let libraries = tree.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        let loader = file_with_prefix(&libraries, "ld-linux-", "")
            .ok_or_else(|| format!("{} has no dynamic loader: remove the folder and try again", libraries.display()))?;
        let driver = manifest("lvp_icd.json", "ICD", &libraries.join("libvulkan_lvp.so"), "")?;
        Ok(Self { folder: tree.to_owned(), loader, libraries, driver })
    }

    /// The driver, if its tree has been fetched before.
    pub(crate) fn found() -> Result<Option<Self>, String> {
        let tree = tree();
        if tree.exists() { Self::of(&tree).map(Some) } else { Ok(None) }
    }

    /// The start of a command line that runs a program with the libraries of the tree.
    fn runner(&self) -> String {
        format!("{} --library-path {}", self.loader.display(), self.libraries.display())
    }

    /// The command line of a program of the tree.
    pub(crate) fn tool(&self, name: &str) -> Result<String, String> {
        let program = self.folder.join("usr/bin").join(name);
        match program.exists() {
            true => Ok(format!("{} {}", self.runner(), program.display())),
            false => Err(format!("{} is not there: remove {} and try again", program.display(), self.folder.display())),
        }
    }

    /// Runs a program with the libraries of the tree. `before` is an optional preloaded library.
    pub(crate) fn program(&self, program: &Path, before: Option<&Path>) -> Command {
        let mut command = Command::new(&self.loader);
        command.arg("--library-path").arg(&self.libraries);
        if let Some(before) = before {
            command.arg("--preload").arg(before);
        }
        command.arg(program);
        command
    }

    /// The same program, restricted to this driver.
    pub(crate) fn run(&self, program: &Command) -> Command {
        let mut command = self.program(Path::new(program.get_program()), None);
        command.args(program.get_args());
        program.get_current_dir().map(|folder| command.current_dir(folder));
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        with_driver(command, Some(&self.driver))
    }
}

fn on_newer_lavapipe() -> Result<(), String> {
    let tree = debian_unstable()?;
    let lavapipe = NewerLavapipe::of(&tree)?;
    let (runner, validator) = (lavapipe.runner(), lavapipe.tool("spirv-val")?);
    let name = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase());
    let mut command = cargo(&tests(&["emission", "golden", "devices", "engine", "growth"]));
    command.args(["--", "--include-ignored"]).env(&name, &runner).env("REWIRE_TEST_ALL", "1");
    command.env("REWIRE_TEST_SPIRV_VAL", validator);
    run_command(with_driver(command, Some(&lavapipe.driver)))?;
    // By default this driver uses operations on matrix elements. This run only uses cooperative matrices, as other drivers do.
    let mut plainer = cargo(&tests(&["golden"]));
    plainer.env(&name, &runner).env("REWIRE_TEST_ALL", "1").env("REWIRE_TEST_MATRICES", "wgsl");
    run_command(with_driver(plainer, Some(&lavapipe.driver)))?;
    let mut varying = for_all_subgroups();
    varying.env(&name, &runner);
    run_command(with_driver(varying, Some(&lavapipe.driver)))
}

/// All golden cases with kernels that are correct for subgroups of 4 to 64 invocations. Drivers run their own size.
fn for_all_subgroups() -> Command {
    let mut command = cargo(&tests(&["golden"]));
    command.args(["--", "the_gpu"]).env("REWIRE_TEST_ALL", "1").env("REWIRE_TEST_SUBGROUPS", "4-64");
    command
}

/// Runs a complete training. The tests start it as a separate program, which only finds the system's drivers.
fn trains_on_lavapipe() -> Result<(), String> {
    let driver = SoftwareDriver::Lavapipe.manifest().ok_or("lavapipe is not installed")?;
    let mut command = cargo(&tests(&["commands"]));
    command.args(["--", "a_gpu_trains"]).env("REWIRE_TEST_ALL", "1").env("GALLIVM_PERF", "nopt");
    run_command(with_driver(command, Some(&driver)))
}

fn on_swiftshader() -> Result<(), String> {
    let driver =
        SoftwareDriver::SwiftShader.manifest().ok_or("Chromium's package with SwiftShader is not installed")?;
    let mut command = cargo(&tests(&["engine"]));
    command.args(["--", "equivalence::", "floats::", "variants::", "portability::"]);
    run_command(with_driver(command, Some(&driver)))?;
    let mut golden = cargo(&tests(&["golden"]));
    golden.env("REWIRE_TEST_ALL", "1");
    run_command(with_driver(golden, Some(&driver)))?;
    run_command(with_driver(for_all_subgroups(), Some(&driver)))
}

/// The folder of the Debian unstable tree.
fn tree() -> PathBuf {
    root().join("target/debian-unstable")
}

/// Fetches Debian unstable with Mesa's drivers, once.
pub(crate) fn debian_unstable() -> Result<PathBuf, String> {
    let folder = tree();
    if folder.exists() {
        return Ok(folder);
    }
    let apt = setup::Apt::find().ok_or(
        "the newer lavapipe is fetched by debootstrap, which needs Debian or Ubuntu, and root or sudo without a password",
    )?;
    apt.run(&["update"])?;
    apt.install(&["debootstrap"])?;
    let partial = folder.with_extension("partial");
    let path = partial.to_string_lossy();
    apt.as_root("rm", &["-rf", &path])?;
    apt.as_root(
        "debootstrap",
        &["--variant=minbase", "--include=mesa-vulkan-drivers,mesa-drm-shim,spirv-tools,vkd3d-compiler", "sid", &path],
    )?;
    std::fs::rename(&partial, &folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Runs golden cases and sessions on lavapipe, with the validation layer between wgpu and the driver.
fn under_validation() -> Result<(), String> {
    let layer = validation_layer().ok_or("Chromium's package has no libVkLayer_khronos_validation.so")?;
    let driver = SoftwareDriver::Lavapipe.manifest().ok_or("lavapipe is not installed")?;
    let name = "VK_LAYER_KHRONOS_validation";
    let more = format!(
        r#""name": "{name}", "type": "GLOBAL", "implementation_version": "1", "description": "Khronos validation", "#
    );
    let layer = manifest("validation_layer.json", "layer", &layer, &more)?;
    let mut command = cargo(&tests(&["golden", "devices"]));
    command
        .env("REWIRE_TEST_ALL", "1")
        .env("VK_LAYER_PATH", layer.parent().unwrap_or(Path::new("/")))
        .env("VK_INSTANCE_LAYERS", name)
        .env("VK_LAYER_REPORT_FLAGS", "error,warn,perf")
        .env("VK_LAYER_MESSAGE_ID_FILTER", KNOWN_MESSAGE)
        .env("VK_LOADER_DEBUG", "layer");
    let output = run_captured(with_driver(command, Some(&driver)))?;
    if !output.contains(&format!("Insert instance layer \"{name}\"")) {
        return Err("the validation layer was not loaded".into());
    }
    let found: Vec<&str> = output.lines().filter(|line| line.starts_with("Validation ")).collect();
    if found.is_empty() { Ok(()) } else { Err(format!("the validation layer reports\n{}", found.join("\n"))) }
}

/// Writes the manifest of a driver or layer for the Vulkan loader.
pub(crate) fn manifest(name: &str, kind: &str, library: &Path, more: &str) -> Result<PathBuf, String> {
    let path = root().join("target/vulkan").join(name);
    let library = library.display();
    let text = format!(
        r#"{{"file_format_version": "1.0.1", "{kind}": {{{more}"library_path": "{library}", "api_version": "1.4.0"}}}}"#
    );
    let written = std::fs::create_dir_all(root().join("target/vulkan")).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
