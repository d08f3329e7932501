use crate::hash::{hash, hash_all};
use crate::store::{prune, replace};
use crate::{Gpu, GpuError};
use rewire_graph_rewrite::device::Target;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The file of the latest device.
const TARGET: &str = "target.json";

/// How the names of files begin.
const PREFIX: &str = "pipelines-";

/// Files of a folder, those of the plans that were new last.
const FILES: usize = 1024;

/// A folder of compiled kernels, in a file for each plan, device and driver, so that the next process starts sooner.
///
/// Sessions with [`crate::ModelOptions::pipelines`] use it where the backend can hand out what it compiled: Vulkan. A
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
    file: Mutex<StoredFile>,
    /// Kernels that the file may lack were compiled.
    grown: AtomicBool,
}

#[derive(Debug)]
struct StoredFile {
    path: PathBuf,
    /// The device and the shaders.
    identity: String,
    /// What the device offers.
    target: Target,
    /// Checksum of the data that the file has.
    known: Option<u128>,
}

impl PipelineStore {
    /// A store in a folder, which is made when the first kernel is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// What the device offered that kernels were compiled for last.
    pub(in crate::model) fn target(&self) -> Option<Target> {
        serde_json::from_str(&std::fs::read_to_string(self.folder.join(TARGET)).ok()?).ok()
    }

    /// What was compiled for a device and a plan, which its shaders stand for; `None` where the backend hands out nothing.
    pub(super) async fn open(&self, gpu: &Gpu, shaders: impl Iterator<Item = &str>) -> Option<Stored> {
        if !gpu.device().features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let identity = shaders.fold(device(gpu), |all, shader| format!("{all}\n{:032x}", hash(shader.as_bytes())));
        let path = self.folder.join(format!("{PREFIX}{:032x}.bin", hash(identity.as_bytes())));
        let stored = read(&path, &identity).unwrap_or_else(|reason| {
            tracing::warn!("{}: the compiled kernels are not used: {reason}", path.display());
            None
        });
        let (known, data) = stored.unzip();
        // SAFETY: the checksum says that the data came from `get_data` of the same device, and the folder is the user's.
        let create = || unsafe {
            gpu.device().create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: Some("rewire"),
                data: data.as_deref(),
                fallback: true,
            })
        };
        match gpu.checked("reading compiled kernels", create).await {
            Ok(cache) => {
                let file = Mutex::new(StoredFile { path, identity, target: gpu.target().clone(), known });
                Some(Stored { cache, file, grown: AtomicBool::new(false) })
            }
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

    /// Notes that something was compiled, for the next [`Stored::keep`].
    pub fn grow(&self) {
        self.grown.store(true, Ordering::Relaxed);
    }

    /// True if there is something to keep.
    pub fn has_grown(&self) -> bool {
        self.grown.load(Ordering::Relaxed)
    }

    /// Writes the file if something came since. Waits for a thread that does so already.
    pub fn keep(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if self.grown.swap(false, Ordering::Relaxed)
            && let Some(data) = self.cache.get_data()
        {
            file.keep(&data);
        }
    }
}

impl StoredFile {
    fn keep(&mut self, data: &[u8]) {
        let sum = checksum(&self.identity, data);
        if self.known == Some(sum) {
            return;
        }
        let content = [&sum.to_le_bytes()[..], data].concat();
        let kept = replace(&self.path, &content).and_then(|()| match (self.known, self.path.parent()) {
            (None, Some(folder)) => {
                replace(&folder.join(TARGET), &serde_json::to_vec(&self.target)?)?;
                prune(folder, PREFIX, FILES)
            }
            _ => Ok(()),
        });
        match kept {
            Ok(()) => tracing::debug!("{}: {} bytes of compiled kernels", self.path.display(), content.len()),
            Err(reason) => tracing::warn!("{}: the compiled kernels are not kept: {reason}", self.path.display()),
        }
        self.known = Some(sum);
    }
}

/// The checksum and the data of a file; `None` if there is no file.
fn read(path: &Path, identity: &str) -> Result<Option<(u128, Vec<u8>)>, String> {
    let content = match std::fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    match content.split_first_chunk() {
        Some((&sum, data)) if u128::from_le_bytes(sum) == checksum(identity, data) => {
            Ok(Some((u128::from_le_bytes(sum), data.to_vec())))
        }
        _ => Err("the file is damaged, or of another device or plan".to_owned()),
    }
}

fn checksum(identity: &str, data: &[u8]) -> u128 {
    hash_all(&[identity.as_bytes(), data])
}

/// What compiled kernels depend on beside the shaders.
fn device(gpu: &Gpu) -> String {
    let wgpu::AdapterInfo { name, vendor, device, backend, driver, driver_info, .. } = gpu.info();
    format!("{name}\n{vendor}\n{device}\n{backend}\n{driver}\n{driver_info}")
}
