use crate::store::{hash, replace};
use crate::{Gpu, GpuError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A folder of compiled kernels, in a file for each device and driver, so that the next process starts sooner.
///
/// Sessions with [`crate::SessionOptions::pipelines`] use it where the backend can hand out what it compiled: Vulkan. A
/// file that is damaged or of another device is taken for empty, and one that cannot be written is left, with a warning.
/// The driver trusts what it reads there: the folder should be writable for the user alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineStore {
    folder: PathBuf,
}

/// What a driver compiled, as it was read and with all that came since.
#[derive(Debug)]
pub(super) struct Stored {
    cache: wgpu::PipelineCache,
    path: PathBuf,
    device: String,
    /// Hash of the content that the file has.
    known: Option<u64>,
}

impl PipelineStore {
    /// A store in a folder, which is made when the first kernel is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The file of a device; `None` where its backend hands out nothing.
    pub fn file(&self, gpu: &Gpu) -> Option<PathBuf> {
        let able = gpu.device().features().contains(wgpu::Features::PIPELINE_CACHE);
        able.then(|| self.folder.join(format!("pipelines-{:016x}.bin", hash(device(gpu).as_bytes()))))
    }

    /// What was compiled for a device; `None` where its backend hands out nothing.
    pub(super) async fn open(&self, gpu: &Gpu) -> Option<Stored> {
        let (path, device) = (self.file(gpu)?, device(gpu));
        let data = read(&path, &device).unwrap_or_else(|reason| {
            tracing::warn!("{}: the compiled kernels are not used: {reason}", path.display());
            None
        });
        // SAFETY: the checksum says that the data came from `get_data` of the same device, and the folder is the user's.
        let create = || unsafe {
            gpu.device().create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: None,
                data: data.as_deref(),
                fallback: true,
            })
        };
        match gpu.checked("reading compiled kernels", create).await {
            Ok(cache) => Some(Stored { cache, path, device, known: data.as_deref().map(hash) }),
            Err(reason @ GpuError::Lost { .. }) => {
                tracing::warn!("{reason}");
                None
            }
            Err(reason) => {
                tracing::warn!("{}: the compiled kernels are not used: {reason}", path.display());
                None
            }
        }
    }
}

impl Stored {
    pub fn cache(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// Writes the file if something came since.
    pub fn keep(&mut self) {
        let Some(data) = self.cache.get_data() else { return };
        let now = Some(hash(&data));
        if self.known == now {
            return;
        }
        let content = [&checksum(&self.device, &data).to_le_bytes()[..], &data].concat();
        match replace(&self.path, &content) {
            Ok(()) => tracing::debug!("{}: {} bytes of compiled kernels", self.path.display(), content.len()),
            Err(reason) => tracing::warn!("{}: the compiled kernels are not kept: {reason}", self.path.display()),
        }
        self.known = now;
    }
}

/// The data of a file, after its checksum; `None` if there is no file.
fn read(path: &Path, device: &str) -> Result<Option<Vec<u8>>, String> {
    let content = match std::fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    match content.split_first_chunk() {
        Some((&sum, data)) if u64::from_le_bytes(sum) == checksum(device, data) => Ok(Some(data.to_vec())),
        _ => Err("the file is damaged, or of another device".to_owned()),
    }
}

fn checksum(device: &str, data: &[u8]) -> u64 {
    hash(&[device.as_bytes(), data].concat())
}

/// What compiled kernels depend on beside the shaders.
fn device(gpu: &Gpu) -> String {
    let wgpu::AdapterInfo { name, vendor, device, backend, driver, driver_info, .. } = gpu.info();
    let version = env!("CARGO_PKG_VERSION");
    format!("{name}\n{vendor}\n{device}\n{backend}\n{driver}\n{driver_info}\n{version}")
}
