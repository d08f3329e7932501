//! Checkpoints: folders of distributed checkpoints, and safetensors files.

mod dcp;
mod dynamic;
mod encode;
mod error;
mod pickle;
mod tensor;
mod write;
mod written;

pub use dynamic::{DynamicTable, read_dynamic};
pub use error::CheckpointError;
pub use tensor::{ElementType, StoredTensor};
pub use write::{OptimizerState, Saved, Shard, ShardWriter, Unfinished, Written, write_checkpoint};

use dcp::Dcp;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Maximum size of a `plan` in bytes.
const MOST_PLAN: u64 = 64 << 20;

/// A checkpoint. Tensors are read by name, one at a time.
///
/// Nothing in a file is executed: pickles are parsed as data, and only allowed globals are accepted. All tensors together use at most
/// as much memory as the files.
#[derive(Debug)]
pub struct Checkpoint {
    source: Source,
    plan: Option<Value>,
}

#[derive(Debug)]
enum Source {
    Dcp(Dcp),
    File { path: PathBuf, bytes: Vec<u8> },
}

impl Checkpoint {
    /// Opens the model of a checkpoint. `path` is a folder `model.ckpt-N`, a folder that contains such folders (the largest N is used), the
    /// folder of a distributed checkpoint, or a `.safetensors` file.
    ///
    /// # Errors
    /// [`CheckpointError`] names the file and its expected content.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        if path.is_file() {
            return Self::of_file(path);
        }
        let folder = latest(path)?;
        Ok(Self { source: Source::Dcp(Dcp::open(&part(&folder, "model"))?), plan: plan(&folder)? })
    }

    /// The number of the last step before a checkpoint was written, from 0: `N` of its folder `model.ckpt-N`. `None` if `path` has
    /// no such folder.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn last_step(path: &Path) -> Result<Option<u64>, CheckpointError> {
        if path.is_file() {
            return Ok(None);
        }
        let folder = latest(path)?;
        Ok(folder.file_name().and_then(|name| number(name.to_str()?)))
    }

    /// Opens the optimizer state stored next to a model; `None` if there is none.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_optimizer(path: &Path) -> Result<Option<Self>, CheckpointError> {
        if path.is_file() {
            return Ok(None);
        }
        let folder = latest(path)?.join("optimizer");
        match folder.join(".metadata").is_file() {
            true => Ok(Some(Self { source: Source::Dcp(Dcp::open(&folder)?), plan: None })),
            false => Ok(None),
        }
    }

    fn of_file(path: &Path) -> Result<Self, CheckpointError> {
        let bytes = std::fs::read(path).map_err(CheckpointError::read(path))?;
        let parsed = SafeTensors::deserialize(&bytes).map(drop).map_err(CheckpointError::metadata);
        parsed.map_err(CheckpointError::file(path))?;
        Ok(Self { source: Source::File { path: path.to_owned(), bytes }, plan: None })
    }

    /// The sharding plan of tables, `{module path: {table: {sharding_type, compute_kernel, ranks}}}`; `None` if the checkpoint has none.
    pub fn plan(&self) -> Option<&Value> {
        self.plan.as_ref()
    }

    /// All names in ascending order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = match &self.source {
            Source::Dcp(dcp) => dcp.names().map(str::to_owned).collect(),
            Source::File { bytes, .. } => {
                let file = SafeTensors::deserialize(bytes);
                file.map(|file| file.names().into_iter().map(str::to_owned).collect()).unwrap_or_default()
            }
        };
        names.sort_unstable();
        names
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// The tensor does not exist, or its shards are truncated or inconsistent with the metadata.
    pub fn read(&self, name: &str) -> Result<StoredTensor, CheckpointError> {
        match &self.source {
            Source::Dcp(dcp) => dcp.read(name),
            Source::File { path, bytes } => of_safetensors(bytes, name).map_err(CheckpointError::file(path)),
        }
    }
}

fn of_safetensors(bytes: &[u8], name: &str) -> Result<StoredTensor, CheckpointError> {
    let file = SafeTensors::deserialize(bytes).map_err(CheckpointError::metadata)?;
    let view = file.tensor(name).map_err(|_| CheckpointError::Missing { name: name.to_owned() })?;
    let element = match view.dtype() {
        Dtype::F32 => ElementType::F32,
        Dtype::F16 => ElementType::F16,
        Dtype::BF16 => ElementType::BF16,
        Dtype::F64 => ElementType::F64,
        Dtype::I64 => ElementType::I64,
        Dtype::I32 => ElementType::I32,
        other => {
            return Err(CheckpointError::tensor(
                name,
                format!("it is {other}: expected F32, F16, BF16, F64, I64 or I32"),
            ));
        }
    };
    Ok(StoredTensor { element, shape: view.shape().to_vec(), bytes: view.data().to_vec() })
}

/// The folder `model.ckpt-N`: the path itself, or the one with the largest N that it contains.
fn latest(path: &Path) -> Result<PathBuf, CheckpointError> {
    let holds = |folder: &Path| part(folder, "model").join(".metadata").is_file();
    if holds(path) {
        return Ok(path.to_owned());
    }
    let entries = std::fs::read_dir(path).map_err(CheckpointError::read(path))?;
    let numbered = entries.flatten().filter_map(|entry| {
        Some((number(entry.file_name().to_str()?)?, entry.path())).filter(|(_, folder)| holds(folder))
    });
    let latest = numbered.max().map(|(_, folder)| folder);
    latest.ok_or_else(|| CheckpointError::NotCheckpoint { path: path.to_owned() })
}

/// `N` of `model.ckpt-N`.
fn number(name: &str) -> Option<u64> {
    name.strip_prefix("model.ckpt-")?.parse().ok()
}

/// The subfolder `part` of a checkpoint, or the folder itself if it is a distributed checkpoint.
fn part(folder: &Path, part: &str) -> PathBuf {
    let inner = folder.join(part);
    if inner.is_dir() { inner } else { folder.to_owned() }
}

fn plan(folder: &Path) -> Result<Option<Value>, CheckpointError> {
    let path = folder.join("plan");
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = limited(&path, MOST_PLAN)?;
    serde_json::from_slice(&bytes).map(Some).map_err(CheckpointError::metadata).map_err(CheckpointError::file(&path))
}

/// Reads a file of at most `most` bytes.
fn limited(path: &Path, most: u64) -> Result<Vec<u8>, CheckpointError> {
    let bytes = std::fs::metadata(path).map_err(CheckpointError::read(path))?.len();
    if bytes > most {
        let reason = format!("it has {bytes} bytes: expected at most {most}");
        return Err(CheckpointError::file(path)(CheckpointError::metadata(reason)));
    }
    std::fs::read(path).map_err(CheckpointError::read(path))
}
