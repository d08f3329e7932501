use super::device::{Device, DeviceTunings, Tunings};
use super::{Bucket, identity};
use crate::hash::hash;
use crate::store::{prune, update_file};
use crate::{Gpu, RunError};
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Plan;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Prefix of file names.
const PREFIX: &str = "tunings-";

/// Files in a folder; the most recently changed ones are kept.
const FILES: usize = 64;

/// A folder of measured tunings, with a file for each device, driver and version of the kernels.
///
/// A session with [`crate::ModelOptions::tunings`] loads its tunings from there and adds those that it measures, like
/// other processes. A file that is damaged or of another device is ignored; a file that cannot be written is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningStore {
    folder: PathBuf,
}

impl TuningStore {
    /// A store in a folder, which is created when the first tuning is stored.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The file of a device.
    pub fn file(&self, gpu: &Gpu) -> PathBuf {
        self.file_of(&Device::new(gpu))
    }

    /// The stored tunings for a device and the kernels of a loaded [`Model::plan`](crate::Model::plan); `None` if there
    /// are none.
    pub fn of(&self, gpu: &Gpu, plan: &Plan) -> Option<DeviceTunings> {
        let own: HashSet<String> = plan.steps.iter().filter_map(|step| identity(&step.computation)).collect();
        let mut kernels = self.load(gpu);
        kernels.retain(|kernel, _| own.contains(kernel));
        (!kernels.is_empty()).then(|| DeviceTunings { device: Device::new(gpu), kernels })
    }

    /// The stored tunings for a device.
    pub(crate) fn load(&self, gpu: &Gpu) -> Tunings {
        let device = Device::new(gpu);
        let path = self.file_of(&device);
        parse(std::fs::read(&path), &path, &device)
    }

    /// Adds tunings of kernels to those that other programs have stored. Writes the file even if there are none.
    pub(crate) fn keep(&self, gpu: &Gpu, found: Vec<(String, Bucket, Tuning)>) -> Result<(), RunError> {
        self.keep_of(Device::new(gpu), found)
    }

    fn keep_of(&self, device: Device, found: Vec<(String, Bucket, Tuning)>) -> Result<(), RunError> {
        let path = self.file_of(&device);
        let kept = update_file(&path, |old| {
            let mut kernels = parse(old, &path, &device);
            for (kernel, bucket, tuning) in found {
                kernels.entry(kernel).or_default().insert(bucket, tuning);
            }
            Ok(serde_json::to_vec_pretty(&DeviceTunings { device, kernels })?)
        });
        let kept = kept.and_then(|()| prune(&self.folder, PREFIX, FILES));
        kept.map_err(|error| RunError::NotKept { path, reason: error.to_string() })
    }

    fn file_of(&self, device: &Device) -> PathBuf {
        let text = serde_json::to_vec(device).unwrap_or_default();
        self.folder.join(format!("{PREFIX}{:032x}.json", hash(&text)))
    }
}

/// The tunings in a file; warns if it has no usable ones.
fn parse(content: std::io::Result<Vec<u8>>, path: &Path, device: &Device) -> Tunings {
    tunings(content, device).unwrap_or_else(|reason| {
        tracing::warn!("{}: the tunings are not used: {reason}", path.display());
        Tunings::new()
    })
}

fn tunings(content: std::io::Result<Vec<u8>>, device: &Device) -> Result<Tunings, String> {
    let bytes = match content {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Tunings::new()),
        Err(error) => return Err(error.to_string()),
    };
    let text = str::from_utf8(&bytes).map_err(|error| error.to_string())?;
    let file: DeviceTunings = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if file.device != *device {
        return Err(format!("they are of {} ({})", file.device.name, file.device.driver));
    }
    Ok(file.kernels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph_rewrite::device::{ReductionTile, Target, Tile};

    fn device(emitter: &str) -> Device {
        let text = |text: &str| text.to_owned();
        let (name, backend, driver) = (text("a"), text("vulkan"), text("1"));
        Device { name, backend, driver, target: Target::BASELINE, emitter: text(emitter) }
    }

    #[test]
    fn programs_that_tune_at_once_keep_all() {
        let folder = std::env::temp_dir().join(format!("rewire-tune-at-once-{}", std::process::id()));
        let store = TuningStore::at(&folder);
        let tuning = |threads| Tuning::from(Tile::Reduction(ReductionTile { threads }));
        std::thread::scope(|scope| {
            for program in 0..4u32 {
                let store = &store;
                scope.spawn(move || {
                    for kernel in 0..10u32 {
                        let found = vec![(format!("{program} {kernel}"), Bucket::new(&[], |_| None), tuning(kernel))];
                        store.keep_of(device("one"), found).unwrap();
                    }
                });
            }
        });
        let path = store.file_of(&device("one"));
        let kept = tunings(std::fs::read(&path), &device("one")).unwrap();
        let other = store.file_of(&device("two"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(kept.len(), 40);
        assert_eq!(kept["3 7"].get(&Bucket::new(&[], |_| None)), Some(tuning(7)));
        assert_ne!(path, other, "the kernels of another source are tuned again");
    }
}
