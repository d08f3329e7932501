use crate::features;
use crate::shell::{cargo, run as run_command, succeeds};
use crate::vulkan::{SoftwareDriver, has_loader};
use std::path::Path;
use std::process::Command;

/// Installs missing requirements of the tests.
pub(crate) fn run() -> Result<(), String> {
    components()?;
    web();
    if cfg!(target_os = "linux") { drivers() } else { Ok(()) }
}

fn components() -> Result<(), String> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(command, _)| !cargo(&[command, "--version"]).output().is_ok_and(|output| output.status.success()))
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !succeeds("rustup", &["--version"]) {
        return Err(format!("install {} from where Rust was installed", missing.join(" and ")));
    }
    let mut command = Command::new("rustup");
    command.args(["component", "add"]).args(missing);
    run_command(command)
}

/// Installs the standard library for the web, if rustup is available.
fn web() {
    if !features::has_web()
        && succeeds("rustup", &["--version"])
        && !succeeds("rustup", &["target", "add", features::WEB])
    {
        eprintln!("xtask: the standard library of {} cannot be fetched", features::WEB);
    }
}

fn drivers() -> Result<(), String> {
    let mut packages = vec![];
    if !has_loader() {
        packages.push("libvulkan1");
    }
    if SoftwareDriver::Lavapipe.manifest().is_none() {
        packages.push("mesa-vulkan-drivers");
    }
    let optional = optional();
    if packages.is_empty() && optional.is_empty() {
        return Ok(());
    }
    let Some(apt) = Apt::find() else {
        return if packages.is_empty() { Ok(()) } else { Err(by_hand()) };
    };
    apt.run(&["update"])?;
    if !packages.is_empty() {
        apt.install(&packages)?;
    }
    for (package, otherwise) in optional {
        if apt.install(&[package]).is_err() {
            eprintln!("xtask: no {package}: {otherwise}");
        }
    }
    Ok(())
}

/// Missing packages that tests do not require, and the consequences.
fn optional() -> Vec<(&'static str, &'static str)> {
    let mut packages = vec![];
    if is_debian() && SoftwareDriver::SwiftShader.manifest().is_none() {
        packages.push(("chromium", "the tests run on lavapipe alone"));
    }
    if !Path::new("/usr/include/vulkan/vulkan.h").exists() {
        packages.push(("libvulkan-dev", "no program in C opens a device of its own"));
    }
    packages
}

/// True on Debian, but not on derived distributions, which do not package the driver that comes with Chromium.
fn is_debian() -> bool {
    std::fs::read_to_string("/etc/os-release").is_ok_and(|text| text.lines().any(|line| line == "ID=debian"))
}

fn by_hand() -> String {
    "the tests need the Vulkan loader and Mesa's lavapipe; install them as root:\n\
     \x20 Debian, Ubuntu  apt-get install libvulkan1 mesa-vulkan-drivers\n\
     \x20 Fedora          dnf install vulkan-loader mesa-vulkan-drivers\n\
     \x20 Arch            pacman -S vulkan-icd-loader vulkan-swrast\n\
     \x20 Alpine          apk add vulkan-loader mesa-vulkan-swrast"
        .to_owned()
}

/// Debian's package manager with the required privileges.
pub(crate) struct Apt {
    sudo: bool,
}

impl Apt {
    pub(crate) fn find() -> Option<Self> {
        if !succeeds("apt-get", &["--version"]) {
            return None;
        }
        let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
        (root || succeeds("sudo", &["-n", "true"])).then_some(Self { sudo: !root })
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<(), String> {
        self.as_root("env", &[&["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"], arguments].concat())
    }

    /// Runs a program as root.
    pub(crate) fn as_root(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(if self.sudo { "sudo" } else { program });
        if self.sudo {
            command.args(["-n", program]);
        }
        command.args(arguments);
        run_command(command)
    }

    pub(crate) fn install(&self, packages: &[&str]) -> Result<(), String> {
        self.run(&[&["install", "-y", "--no-install-recommends"], packages].concat())
    }
}
