//! Intel's driver. Debian has no package of its shim, so the shim is built from Mesa's source of the same version.

use crate::setup::Apt;
use crate::shell::{root, run, run_captured};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Debian suite whose programs run on a stable system.
const SUITE: &str = "bookworm-backports";
const MIRROR: &str = "http://deb.debian.org/debian";
const PACKAGES: [&str; 3] = ["mesa-vulkan-drivers", "libdrm2", "libdrm-intel1"];
const NEEDED: [&str; 8] =
    ["libdrm-dev", "libexpat1-dev", "zlib1g-dev", "libzstd-dev", "bison", "flex", "python3-venv", "curl"];
const OFF: [&str; 16] = [
    "-Dplatforms=",
    "-Dvulkan-drivers=",
    "-Dgallium-drivers=",
    "-Dopengl=false",
    "-Dglx=disabled",
    "-Degl=disabled",
    "-Dgbm=disabled",
    "-Dgles1=disabled",
    "-Dgles2=disabled",
    "-Dllvm=disabled",
    "-Dtools=drm-shim,intel",
    "-Dbuild-tests=false",
    "-Dvalgrind=disabled",
    "-Dlibunwind=disabled",
    "-Dshader-cache=disabled",
    "-Dzstd=disabled",
];

/// The driver, and the shim that emulates the kernel driver.
pub(super) struct IntelDriver {
    pub libraries: PathBuf,
    pub shim: PathBuf,
}

impl IntelDriver {
    /// Returns the driver in `target/`, which is fetched and built once.
    pub fn get() -> Result<Self, String> {
        let folder = root().join("target/intel");
        let (done, libraries) =
            (folder.join("shim.so"), folder.join(format!("root/usr/lib/{}-linux-gnu", std::env::consts::ARCH)));
        if !done.exists() {
            let apt = Apt::find()
                .ok_or("Intel's driver is fetched by apt, which needs Debian or Ubuntu, and root or sudo")?;
            apt.install(&NEEDED)?;
            std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let version = fetch(&folder)?;
            build(&folder, &version, &done)?;
        }
        Ok(Self { libraries, shim: done })
    }
}

/// Fetches and unpacks the driver's packages. Returns the version of Mesa.
fn fetch(folder: &Path) -> Result<String, String> {
    let script = format!(
        "mkdir -p apt/lists/partial apt/cache && echo 'deb {MIRROR} {SUITE} main' > apt/sources.list && \
         options=\"-o Dir::State::lists=$PWD/apt/lists -o Dir::Etc::sourcelist=$PWD/apt/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::Cache=$PWD/apt/cache\" && \
         apt-get $options update && apt-get $options download {} && for package in *.deb; do dpkg-deb -x \"$package\" root; done",
        PACKAGES.join(" ")
    );
    run(shell(folder, &script))?;
    let version = run_captured(shell(folder, "ls mesa-vulkan-drivers_*.deb | sed 's/.*drivers_//; s/-.*//'"))?;
    Ok(version.trim().to_owned())
}

/// Builds only the shim, without LLVM.
fn build(folder: &Path, version: &str, done: &Path) -> Result<(), String> {
    let script = format!(
        "curl -fsSO {MIRROR}/pool/main/m/mesa/mesa_{version}.orig.tar.xz && tar xf mesa_{version}.orig.tar.xz && \
         python3 -m venv tools && tools/bin/pip -q install meson==1.12.1 mako==1.4.3 pyyaml==6.0.4 packaging==26.4 ninja==1.13.2 && \
         export PATH=\"$PWD/tools/bin:$PATH\" && cd mesa-{version} && meson setup build {} && \
         ninja -C build src/intel/tools/libintel_noop_drm_shim.so && cp build/src/intel/tools/libintel_noop_drm_shim.so {}",
        OFF.join(" "),
        done.display()
    );
    run(shell(folder, &script))
}

fn shell(folder: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]).current_dir(folder);
    command
}
