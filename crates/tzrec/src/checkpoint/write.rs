//! Writes checkpoints like the reference, readable by its trainer and by `torch.distributed.checkpoint`.

use super::dynamic::write_dynamic;
use super::encode::{Encoder, Name};
use super::tensor::elements;
use super::{CheckpointError, DynamicTable, StoredTensor};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The file with all shards: the first file of process 0.
const SHARDS: &str = "__0_0.distcp";

/// The content of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Saved<'a> {
    /// The model's tensors by their full names, which start with `model.`.
    pub model: BTreeMap<String, StoredTensor>,
    /// The state of the optimizers; empty before the first step.
    pub optimizer: Vec<OptimizerState>,
    /// The sharding of tables, as in [`Checkpoint::plan`](super::Checkpoint::plan).
    pub plan: Option<&'a Value>,
    /// Tables of `dynamicemb`.
    pub dynamic: Vec<DynamicTable>,
}

/// A tensor of an optimizer's state.
#[derive(Clone, Debug)]
pub struct OptimizerState {
    /// The full name of the parameter, as in the model.
    pub parameter: String,
    /// The key of the state: `step`, `exp_avg` and `exp_avg_sq` (Adam), `sum` (Adagrad), or for tables that are updated in the backward
    /// pass `<table>.momentum1`, and `<table>.exp_avg_sq` with Adam.
    pub key: String,
    /// The state. `step` is an f32 scalar.
    pub tensor: StoredTensor,
}

/// Writes `dir/model.ckpt-<step>` with the folders `model` and `optimizer` and the file `plan`, and returns its path. The folder
/// is created atomically under its name once it is complete; one of an earlier training is replaced.
///
/// ```
/// use rewire_tzrec::{Checkpoint, ElementType, OptimizerState, Saved, StoredTensor, write_checkpoint};
///
/// # let folder = tempfile::tempdir()?;
/// # let dir = folder.path();
/// let scalar = |value: f32| StoredTensor { element: ElementType::F32, shape: vec![], bytes: value.to_le_bytes().to_vec() };
/// let state = OptimizerState { parameter: "model.bias".into(), key: "step".into(), tensor: scalar(12.0) };
/// let saved = Saved { model: [("model.bias".into(), scalar(0.5))].into(), optimizer: vec![state], ..Saved::default() };
/// let written = write_checkpoint(dir, 12, &saved)?;
///
/// assert_eq!(written, dir.join("model.ckpt-12"));
/// assert_eq!(Checkpoint::open(dir)?.read("model.bias")?, scalar(0.5));
/// assert_eq!(Checkpoint::open_optimizer(dir)?.unwrap().names(), ["state.model.bias.step"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`CheckpointError::Write`] names the file that cannot be written, [`CheckpointError::Tensor`] a tensor whose bytes do not match
/// its shape, or a duplicate state.
pub fn write_checkpoint(dir: &Path, step: u64, saved: &Saved) -> Result<PathBuf, CheckpointError> {
    std::fs::create_dir_all(dir).map_err(CheckpointError::write(dir))?;
    let name = format!("model.ckpt-{step}");
    let unfinished =
        tempfile::Builder::new().prefix(".rewire-").tempdir_in(dir).map_err(CheckpointError::write(dir))?;
    // The outer folder is only accessible to its owner, the one that is moved out of it is not restricted.
    let folder = unfinished.path().join(&name);
    let model: Vec<Entry> = saved.model.iter().map(|(name, tensor)| Entry::of_model(name, tensor)).collect();
    let optimizer: Vec<Entry> = saved.optimizer.iter().map(Entry::of_optimizer).collect();
    write_part(&folder.join("model"), &model)?;
    write_part(&folder.join("optimizer"), &optimizer)?;
    write_dynamic(&folder, &saved.dynamic)?;
    if let Some(plan) = saved.plan {
        let path = folder.join("plan");
        std::fs::write(&path, plan.to_string()).map_err(CheckpointError::write(&path))?;
    }
    let written = dir.join(&name);
    if written.exists() {
        let replaced = unfinished.path().join("replaced");
        std::fs::rename(&written, replaced).map_err(CheckpointError::write(&written))?;
    }
    std::fs::rename(&folder, &written).map_err(CheckpointError::write(&written))?;
    Ok(written)
}

/// A tensor, and its path in the nested dict that the reference saves.
struct Entry<'a> {
    name: String,
    path: Vec<&'a str>,
    tensor: &'a StoredTensor,
}

impl<'a> Entry<'a> {
    fn of_model(name: &'a str, tensor: &'a StoredTensor) -> Self {
        Self { name: name.to_owned(), path: vec![name], tensor }
    }

    fn of_optimizer(OptimizerState { parameter, key, tensor }: &'a OptimizerState) -> Self {
        Self { name: format!("state.{parameter}.{key}"), path: vec!["state", parameter, key], tensor }
    }
}

/// The location of a tensor's shard in the file, in bytes.
struct Place {
    start: u64,
    length: u64,
}

/// Writes the shards of tensors, and the metadata with their locations.
fn write_part(folder: &Path, entries: &[Entry]) -> Result<(), CheckpointError> {
    std::fs::create_dir_all(folder).map_err(CheckpointError::write(folder))?;
    let path = folder.join(SHARDS);
    let mut file = BufWriter::new(File::create(&path).map_err(CheckpointError::write(&path))?);
    let (mut places, mut start) = (vec![], 0);
    let mut names = HashSet::new();
    for Entry { name, tensor, .. } in entries {
        if elements(&tensor.shape).and_then(|count| count.checked_mul(tensor.element.bytes()))
            != Some(tensor.bytes.len())
        {
            let (bytes, element, shape) = (tensor.bytes.len(), tensor.element, &tensor.shape);
            return Err(CheckpointError::tensor(
                name,
                format!("it has {bytes} bytes: expected those of {element:?} {shape:?}"),
            ));
        }
        if !names.insert(name) {
            return Err(CheckpointError::tensor(name, "it is given twice"));
        }
        let zip = shard(tensor).map_err(|source| CheckpointError::write(&path)(source.into()))?;
        file.write_all(&zip).map_err(CheckpointError::write(&path))?;
        let length = zip.len() as u64;
        places.push(Place { start, length });
        start += length;
    }
    let file = file.into_inner().map_err(|error| CheckpointError::write(&path)(error.into_error()))?;
    file.sync_all().map_err(CheckpointError::write(&path))?;
    let path = folder.join(".metadata");
    std::fs::write(&path, metadata(entries, &places)).map_err(CheckpointError::write(&path))
}

/// The zip that `torch.save` writes for a contiguous tensor.
fn shard(tensor: &StoredTensor) -> Result<Vec<u8>, zip::result::ZipError> {
    let storage = Name::of(tensor.element.storage());
    let mut pickle = Encoder::new(2);
    pickle.call(Name("torch._utils", "_rebuild_tensor_v2"), |pickle| {
        pickle.tuple(|pickle| {
            pickle.string("storage");
            pickle.global(storage);
            pickle.string("0");
            pickle.string("cpu");
            pickle.int((tensor.bytes.len() / tensor.element.bytes()) as u64);
        });
        pickle.persistent();
        pickle.int(0);
        pickle.extents(&tensor.shape);
        pickle.extents(&strides(&tensor.shape));
        pickle.bool(false);
        pickle.call(Name("collections", "OrderedDict"), |_| {});
    });
    let mut zip = ZipWriter::new(Cursor::new(Vec::with_capacity(tensor.bytes.len() + 2048)));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .large_file(u32::try_from(tensor.bytes.len()).is_err())
        .with_alignment(64);
    let contents: [(&str, &[u8]); 7] = [
        ("data.pkl", &pickle.finish()),
        (".format_version", b"1"),
        (".storage_alignment", b"64"),
        ("byteorder", b"little"),
        ("data/0", &tensor.bytes),
        ("version", b"3\n"),
        (".data/serialization_id", &[b'0'; 40]),
    ];
    for (name, content) in contents {
        zip.start_file(format!("archive/{name}"), options)?;
        zip.write_all(content)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// The strides of a contiguous tensor, in elements.
fn strides(shape: &[usize]) -> Vec<usize> {
    let stride = |axis: usize| shape[axis + 1..].iter().map(|extent| (*extent).max(1)).product();
    (0..shape.len()).map(stride).collect()
}

const DCP: &str = "torch.distributed.checkpoint.metadata";

/// The pickle of the metadata.
fn metadata(entries: &[Entry], places: &[Place]) -> Vec<u8> {
    let mut pickle = Encoder::new(4);
    pickle.instance(Name(DCP, "Metadata"), |pickle| {
        pickle.string("state_dict_metadata");
        pickle.dict(|pickle| entries.iter().for_each(|entry| describe(pickle, entry)));
        pickle.string("planner_data");
        pickle.dict(|pickle| {
            for Entry { name, path, .. } in entries {
                pickle.string(name);
                pickle.tuple(|pickle| path.iter().for_each(|key| pickle.string(key)));
            }
        });
        pickle.string("storage_data");
        pickle.dict(|pickle| entries.iter().zip(places).for_each(|(entry, place)| locate(pickle, entry, place)));
        pickle.string("storage_meta");
        pickle.instance(Name(DCP, "StorageMeta"), |pickle| {
            for key in ["checkpoint_id", "save_id", "load_id"] {
                pickle.string(key);
                pickle.none();
            }
            pickle.string("modules");
            pickle.list(|_| {});
        });
        pickle.string("version");
        pickle.string("1.0.0");
    });
    pickle.finish()
}

/// The name of a tensor and its type, shape and one chunk.
fn describe(pickle: &mut Encoder, Entry { name, tensor, .. }: &Entry) {
    pickle.string(name);
    pickle.instance(Name(DCP, "TensorStorageMetadata"), |pickle| {
        pickle.string("properties");
        pickle.instance_of(Name(DCP, "TensorProperties"), |pickle| {
            pickle.tuple(|pickle| {
                pickle.global(Name::of(tensor.element.dtype()));
                pickle.call(Name("torch.serialization", "_get_layout"), |pickle| pickle.string("torch.strided"));
                pickle.bool(false);
                pickle.call(Name(DCP, "_MEM_FORMAT_ENCODING"), |pickle| pickle.int(0));
                pickle.bool(false);
            });
        });
        pickle.string("size");
        size(pickle, &tensor.shape);
        pickle.string("chunks");
        pickle.list(|pickle| {
            pickle.instance(Name(DCP, "ChunkStorageMetadata"), |pickle| {
                pickle.string("offsets");
                size(pickle, &vec![0; tensor.shape.len()]);
                pickle.string("sizes");
                size(pickle, &tensor.shape);
            });
        });
    });
}

/// The index of a tensor's only chunk, and the location of its shard.
fn locate(pickle: &mut Encoder, Entry { name, tensor, .. }: &Entry, place: &Place) {
    pickle.instance(Name(DCP, "MetadataIndex"), |pickle| {
        pickle.string("fqn");
        pickle.string(name);
        pickle.string("index");
        pickle.int(0);
        pickle.string("offset");
        size(pickle, &vec![0; tensor.shape.len()]);
    });
    pickle.instance(Name("torch.distributed.checkpoint.filesystem", "_StorageInfo"), |pickle| {
        pickle.string("relative_path");
        pickle.string(SHARDS);
        pickle.string("offset");
        pickle.int(place.start);
        pickle.string("length");
        pickle.int(place.length);
    });
}

fn size(pickle: &mut Encoder, extents: &[usize]) {
    pickle.call(Name("torch", "Size"), |pickle| pickle.extents(extents));
}
