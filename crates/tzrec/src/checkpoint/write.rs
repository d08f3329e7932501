//! Writes checkpoints in TorchEasyRec's format, which its trainer and `torch.distributed.checkpoint` can read.

use super::dynamic::write_dynamic;
use super::encode::{Encoder, Name};
use super::tensor::elements;
use super::written::{Chunk, metadata};
use super::{CheckpointError, DynamicTable, StoredTensor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The content of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Saved<'a> {
    /// The model's tensors by full name, which starts with `model.`.
    pub model: BTreeMap<String, StoredTensor>,
    /// The state of the optimizers; empty before the first step.
    pub optimizer: Vec<OptimizerState>,
    /// The sharding plan of tables, as in [`Checkpoint::plan`](super::Checkpoint::plan).
    pub plan: Option<&'a Value>,
    /// Tables of `dynamicemb`.
    pub dynamic: Vec<DynamicTable>,
}

/// A tensor of an optimizer's state.
#[derive(Clone, Debug)]
pub struct OptimizerState {
    /// The full name of the parameter, as in the model.
    pub parameter: String,
    /// The key of the state: `step`, `exp_avg` and `exp_avg_sq` (Adam), or `sum` (Adagrad). Tables that are updated in the backward pass
    /// have `<table>.momentum1`, and with Adam also `<table>.exp_avg_sq`.
    pub key: String,
    /// The state. `step` is an f32 scalar.
    pub tensor: StoredTensor,
}

/// Writes `dir/model.ckpt-<step>` with the folders `model` and `optimizer` and the file `plan`, and returns its path. The folder appears
/// atomically once it is complete, and replaces an existing one of the same name.
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
/// [`CheckpointError::Write`] names the file that cannot be written. [`CheckpointError::Tensor`] names a tensor whose bytes do not match
/// its shape, or a duplicate state.
pub fn write_checkpoint(dir: &Path, step: u64, saved: &Saved) -> Result<PathBuf, CheckpointError> {
    let unfinished = Unfinished::new(dir, step)?;
    let mut writer = ShardWriter::new(unfinished.folder(), 0)?;
    for (name, tensor) in &saved.model {
        writer.model(name, &Shard::whole(tensor))?;
    }
    for OptimizerState { parameter, key, tensor } in &saved.optimizer {
        writer.optimizer(parameter, key, &Shard::whole(tensor))?;
    }
    unfinished.dynamic(&saved.dynamic)?;
    let written = writer.finish()?;
    unfinished.finish(&[written], saved.plan)
}

/// A checkpoint that several processes write, each with a [`ShardWriter`]. One process creates and finishes it.
#[derive(Debug)]
pub struct Unfinished {
    folder: TempDir,
    dir: PathBuf,
    name: String,
}

impl Unfinished {
    /// Starts writing `dir/model.ckpt-<step>`.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] if the folder cannot be created.
    pub fn new(dir: &Path, step: u64) -> Result<Self, CheckpointError> {
        std::fs::create_dir_all(dir).map_err(CheckpointError::write(dir))?;
        let folder =
            tempfile::Builder::new().prefix(".rewire-").tempdir_in(dir).map_err(CheckpointError::write(dir))?;
        let unfinished = Self { folder, dir: dir.to_owned(), name: format!("model.ckpt-{step}") };
        // Only the owner can access the temporary outer folder. The inner folder, which is moved out of it, has default permissions.
        let folder = unfinished.folder();
        for part in PARTS {
            let part = folder.join(part);
            std::fs::create_dir_all(&part).map_err(CheckpointError::write(&part))?;
        }
        Ok(unfinished)
    }

    /// The folder that the writers of all processes use.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Writes tables of `dynamicemb`.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] names the file or folder that cannot be written.
    pub fn dynamic(&self, tables: &[DynamicTable]) -> Result<(), CheckpointError> {
        write_dynamic(&self.folder(), tables)
    }

    /// Writes the metadata of all shards and moves the checkpoint to its final path, which is returned. `written` has one entry per process.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] names the file that cannot be written, [`CheckpointError::Tensor`] a tensor that was written twice.
    pub fn finish(self, written: &[Written], plan: Option<&Value>) -> Result<PathBuf, CheckpointError> {
        let folder = self.folder();
        for (at, part) in PARTS.into_iter().enumerate() {
            let chunks: Vec<&Chunk> = written.iter().filter_map(|written| written.0.get(at)).flatten().collect();
            let mut places = HashSet::new();
            if let Some(twice) = chunks.iter().find(|chunk| !places.insert((&chunk.name, &chunk.offsets))) {
                return Err(CheckpointError::tensor(&twice.name, "it is given twice"));
            }
            let path = folder.join(part).join(".metadata");
            std::fs::write(&path, metadata(&chunks)).map_err(CheckpointError::write(&path))?;
        }
        if let Some(plan) = plan {
            let path = folder.join("plan");
            std::fs::write(&path, plan.to_string()).map_err(CheckpointError::write(&path))?;
        }
        let written = self.dir.join(&self.name);
        if written.exists() {
            let replaced = self.folder.path().join("replaced");
            std::fs::rename(&written, replaced).map_err(CheckpointError::write(&written))?;
        }
        std::fs::rename(&folder, &written).map_err(CheckpointError::write(&written))?;
        Ok(written)
    }
}

/// The subfolders of a checkpoint.
const PARTS: [&str; 2] = ["model", "optimizer"];

/// A tensor, or the rows of a tensor that one process stores.
#[derive(Clone, Debug)]
pub struct Shard<'a> {
    /// The shape of the whole tensor.
    pub shape: &'a [usize],
    /// Index of the first row in the whole tensor.
    pub row: usize,
    /// The rows.
    pub tensor: &'a StoredTensor,
}

impl<'a> Shard<'a> {
    /// A shard that contains the whole tensor.
    pub fn whole(tensor: &'a StoredTensor) -> Self {
        Self { shape: &tensor.shape, row: 0, tensor }
    }
}

/// The locations of the shards that a process has written. It sends them to the process that finishes the checkpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Written([Vec<Chunk>; 2]);

/// Writes the shards of one process: one file for the model and one for the optimizers.
#[derive(Debug)]
pub struct ShardWriter {
    name: String,
    files: [Shards; 2],
    written: Written,
}

#[derive(Debug)]
struct Shards {
    path: PathBuf,
    out: BufWriter<File>,
    end: u64,
}

impl ShardWriter {
    /// Creates the files of a process. `folder` is [`Unfinished::folder`], `process` the number of the process.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] names the file that cannot be created.
    pub fn new(folder: PathBuf, process: usize) -> Result<Self, CheckpointError> {
        let name = format!("__{process}_0.distcp");
        let shards = |part: &str| {
            let path = folder.join(part).join(&name);
            let file = File::create(&path).map_err(CheckpointError::write(&path))?;
            Ok(Shards { path, out: BufWriter::new(file), end: 0 })
        };
        let [model, optimizer] = PARTS;
        let files = [shards(model)?, shards(optimizer)?];
        Ok(Self { name, files, written: Written::default() })
    }

    /// Writes a tensor of the model, or some of its rows. The full name starts with `model.`.
    ///
    /// # Errors
    /// [`CheckpointError::Write`], and [`CheckpointError::Tensor`] if the bytes do not match the shape.
    pub fn model(&mut self, name: &str, shard: &Shard<'_>) -> Result<(), CheckpointError> {
        self.write(0, name.to_owned(), vec![name.to_owned()], shard)
    }

    /// Writes an optimizer state of a parameter, as in [`OptimizerState`], or some of its rows.
    ///
    /// # Errors
    /// As [`ShardWriter::model`].
    pub fn optimizer(&mut self, parameter: &str, key: &str, shard: &Shard<'_>) -> Result<(), CheckpointError> {
        let path = ["state", parameter, key].map(str::to_owned).to_vec();
        self.write(1, format!("state.{parameter}.{key}"), path, shard)
    }

    fn write(
        &mut self,
        part: usize,
        name: String,
        path: Vec<String>,
        Shard { shape, row, tensor }: &Shard<'_>,
    ) -> Result<(), CheckpointError> {
        let bytes = elements(&tensor.shape).and_then(|count| count.checked_mul(tensor.element.bytes()));
        let is_part = tensor.shape.get(1..) == shape.get(1..)
            && tensor.shape.first().copied().unwrap_or(0) + row <= shape.first().copied().unwrap_or(0);
        if bytes != Some(tensor.bytes.len()) || !is_part {
            let (bytes, element, found) = (tensor.bytes.len(), tensor.element, &tensor.shape);
            let reason = format!(
                "it has {bytes} bytes: expected those of {element:?} {found:?}, from row {row} on of {shape:?}"
            );
            return Err(CheckpointError::tensor(&name, reason));
        }
        let Shards { path: file, out, end } = &mut self.files[part];
        let zip = zipped(tensor).map_err(|source| CheckpointError::write(file)(source.into()))?;
        out.write_all(&zip).map_err(CheckpointError::write(file))?;
        let length = zip.len() as u64;
        let mut offsets = vec![0; shape.len()];
        offsets.iter_mut().take(1).for_each(|offset| *offset = *row);
        let (element, shape, sizes) = (tensor.element, shape.to_vec(), tensor.shape.clone());
        let file = self.name.clone();
        self.written.0[part].push(Chunk { name, path, element, shape, offsets, sizes, file, start: *end, length });
        *end += length;
        Ok(())
    }

    /// Finishes the files.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] names the file that cannot be written.
    pub fn finish(self) -> Result<Written, CheckpointError> {
        for Shards { path, out, .. } in self.files {
            let file = out.into_inner().map_err(|error| CheckpointError::write(&path)(error.into_error()))?;
            file.sync_all().map_err(CheckpointError::write(&path))?;
        }
        Ok(self.written)
    }
}

/// A contiguous tensor as the zip that `torch.save` writes.
fn zipped(tensor: &StoredTensor) -> Result<Vec<u8>, zip::result::ZipError> {
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
