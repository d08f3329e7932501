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

/// Prefix of file names.
const PREFIX: &str = "pipelines-";

/// Files in a folder; those of the most recently added plans are kept.
const FILES: usize = 1024;

/// A folder of compiled kernels, with a file for each plan, device and driver, which speeds up the start of later
/// processes.
///
/// [`crate::ModelOptions::pipelines`] enables it on backends that export compiled pipelines: Vulkan. A file that is
/// damaged or of another device is ignored. If a file cannot be written, a warning is logged. The driver trusts the
/// content: only the user should be able to write to the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineStore {
    folder: PathBuf,
}

/// Compiled kernels, from the file and added since.
#[derive(Debug)]
pub(super) struct Stored {
    cache: wgpu::PipelineCache,
    file: Mutex<StoredFile>,
    /// True if kernels were compiled that the file may lack.
    grown: AtomicBool,
}

#[derive(Debug)]
struct StoredFile {
    path: PathBuf,
    /// The device and the shaders.
    identity: String,
    /// The device's capabilities.
    target: Target,
    /// Checksum of the data in the file.
    known: Option<u128>,
}

impl PipelineStore {
    /// A store in a folder, which is created when the first kernel is stored.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The target of the most recent device.
    pub(in crate::model) fn target(&self) -> Option<Target> {
        serde_json::from_str(&std::fs::read_to_string(self.folder.join(TARGET)).ok()?).ok()
    }

    /// The compiled kernels for a device and a plan, identified by its shaders; `None` if the backend does not export
    /// them.
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
        // SAFETY: the checksum shows that the data came from `get_data` of the same device, and the folder belongs to
        // the user.
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

    /// Records that a kernel was compiled, for the next [`Stored::keep`].
    pub fn grow(&self) {
        self.grown.store(true, Ordering::Relaxed);
    }

    /// True if there are kernels to store.
    pub fn has_grown(&self) -> bool {
        self.grown.load(Ordering::Relaxed)
    }

    /// Writes the file if kernels were added. Waits for a thread that is writing it.
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

/// The checksum and the data of a file; `None` if it does not exist.
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

/// The dependencies of compiled kernels besides the shaders.
fn device(gpu: &Gpu) -> String {
    let wgpu::AdapterInfo { name, vendor, device, backend, driver, driver_info, .. } = gpu.info();
    format!("{name}\n{vendor}\n{device}\n{backend}\n{driver}\n{driver_info}")
}
