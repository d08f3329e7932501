use super::{Bucket, KernelTunings};
use crate::store::{hash, replace};
use crate::{Gpu, RunError};
use rewire_graph_rewrite::emit::{Target, Tuning};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A folder of tunings that were measured, in a file for each device and driver.
///
/// A session with [`crate::SessionOptions::tunings`] takes them from there, and keeps there what it measures. A file that is
/// damaged, of another device or of another version is taken for empty; one that cannot be written is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningStore {
    folder: PathBuf,
}

/// By [`super::identity`] of kernels.
pub(crate) type Tunings = BTreeMap<String, KernelTunings>;

#[derive(Serialize, Deserialize)]
struct File {
    device: Device,
    kernels: Tunings,
}

/// What tunings depend on beside kernels and sizes.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Device {
    name: String,
    backend: String,
    driver: String,
    target: Target,
    version: String,
}

impl Device {
    fn new(gpu: &Gpu) -> Self {
        let info = gpu.info();
        Self {
            name: info.name.clone(),
            backend: info.backend.to_string(),
            driver: format!("{} {}", info.driver, info.driver_info),
            target: gpu.target().clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl TuningStore {
    /// A store in a folder, which is made when the first tuning is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The file of a device.
    pub fn file(&self, gpu: &Gpu) -> PathBuf {
        self.file_of(&Device::new(gpu))
    }

    /// What is known of a device.
    pub(crate) fn load(&self, gpu: &Gpu) -> Tunings {
        let device = Device::new(gpu);
        let path = self.file_of(&device);
        read(&path, &device).unwrap_or_else(|reason| {
            tracing::warn!("{}: the tunings are not used: {reason}", path.display());
            Tunings::new()
        })
    }

    /// Adds tunings of kernels, beside what other programs have kept meanwhile. The file is written even if there are none.
    pub(crate) fn keep(&self, gpu: &Gpu, found: Vec<(String, Bucket, Tuning)>) -> Result<(), RunError> {
        let mut kernels = self.load(gpu);
        for (kernel, bucket, tuning) in found {
            kernels.entry(kernel).or_default().insert(bucket, tuning);
        }
        let device = Device::new(gpu);
        let path = self.file_of(&device);
        let text = serde_json::to_vec_pretty(&File { device, kernels });
        let kept = text.map_err(Into::into).and_then(|text| replace(&path, &text));
        kept.map_err(|error| RunError::NotKept { path, reason: error.to_string() })
    }

    fn file_of(&self, device: &Device) -> PathBuf {
        let text = serde_json::to_vec(device).unwrap_or_default();
        self.folder.join(format!("tunings-{:016x}.json", hash(&text)))
    }
}

fn read(path: &Path, device: &Device) -> Result<Tunings, String> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Tunings::new()),
        Err(error) => return Err(error.to_string()),
    };
    let file: File = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if file.device != *device {
        return Err(format!("they are of {} ({})", file.device.name, file.device.driver));
    }
    Ok(file.kernels)
}
