use std::path::{Path, PathBuf};
use std::process::Command;

/// A Vulkan driver that runs on the CPU.
#[derive(Clone, Copy)]
pub(crate) enum SoftwareDriver {
    Lavapipe,
    SwiftShader,
}

impl SoftwareDriver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lavapipe => "lavapipe",
            Self::SwiftShader => "SwiftShader",
        }
    }

    /// The driver's manifest for the Vulkan loader; `None` if it is not installed.
    pub(crate) fn manifest(self) -> Option<PathBuf> {
        let (folders, prefix): (&[&str], _) = match self {
            Self::Lavapipe => {
                (&["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"], "lvp_icd")
            }
            Self::SwiftShader => (&["/usr/lib/chromium", "/usr/lib64/chromium-browser"], "vk_swiftshader_icd"),
        };
        folders.iter().find_map(|folder| file_with_prefix(Path::new(folder), prefix, ".json"))
    }
}

/// True if the Vulkan loader is in the default search path.
pub(crate) fn has_loader() -> bool {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib"].map(PathBuf::from);
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    folders.iter().chain([&PathBuf::from(multiarch)]).any(|folder| folder.join("libvulkan.so.1").exists())
}

/// Restricts a command to one Vulkan driver; `None` for no restriction.
pub(crate) fn with_driver(mut command: Command, driver: Option<&Path>) -> Command {
    if let Some(driver) = driver {
        command.env("VK_DRIVER_FILES", driver).env("VK_ICD_FILENAMES", driver);
    }
    command
}

/// The validation layer that Chromium's package includes.
pub(crate) fn validation_layer() -> Option<PathBuf> {
    let folder = SoftwareDriver::SwiftShader.manifest()?.parent()?.to_owned();
    file_with_prefix(&folder, "libVkLayer_khronos_validation", ".so")
}

pub(crate) fn file_with_prefix(folder: &Path, prefix: &str, suffix: &str) -> Option<PathBuf> {
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix) && name.ends_with(suffix)
    };
    std::fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path()).find(fits)
}
