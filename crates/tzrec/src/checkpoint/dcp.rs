//! Folders of `torch.distributed.checkpoint`: a pickle with the locations of all shards, and files that contain the shards.

use super::pickle::{Pickle, Value};
use super::tensor::{ElementType, StoredTensor, elements, shard};
use super::{CheckpointError, limited};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// Maximum size of the metadata in bytes.
const MOST_METADATA: u64 = 1 << 30;

/// Maximum number of shards per tensor.
const MOST_SHARDS: usize = 4096;

const METADATA: &str = "torch.distributed.checkpoint.metadata.Metadata";
const TENSOR: &str = "torch.distributed.checkpoint.metadata.TensorStorageMetadata";
const BYTES: &str = "torch.distributed.checkpoint.metadata.BytesStorageMetadata";
const PROPERTIES: &str = "torch.distributed.checkpoint.metadata.TensorProperties";
const CHUNK: &str = "torch.distributed.checkpoint.metadata.ChunkStorageMetadata";
const INDEX: &str = "torch.distributed.checkpoint.metadata.MetadataIndex";
const STORAGE: &str = "torch.distributed.checkpoint.filesystem._StorageInfo";

/// Globals that metadata may refer to.
const GLOBALS: [&str; 19] = [
    METADATA,
    TENSOR,
    BYTES,
    PROPERTIES,
    CHUNK,
    INDEX,
    STORAGE,
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.serialization._get_layout",
    "torch.Size",
    "torch.float32",
    "torch.float16",
    "torch.bfloat16",
    "torch.float64",
    "torch.int64",
    "torch.int32",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
];

/// A folder of named tensors that are stored in shards.
#[derive(Debug)]
pub(super) struct Dcp {
    folder: PathBuf,
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Debug)]
struct Tensor {
    element: ElementType,
    shape: Vec<usize>,
    chunks: Vec<Chunk>,
}

/// A block of a tensor, and the location of its shard in a file, in bytes.
#[derive(Debug)]
struct Chunk {
    offsets: Vec<usize>,
    sizes: Vec<usize>,
    file: String,
    start: u64,
    length: u64,
}

/// Locations of shards (file, start and length in bytes) by tensor name and offsets of the block in the tensor.
type Places = BTreeMap<(String, Option<Vec<usize>>), (String, u64, u64)>;

impl Dcp {
    /// Reads the metadata of a folder.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(".metadata");
        let bytes = limited(&path, MOST_METADATA)?;
        let dcp = Self::parse(folder, &bytes).map_err(CheckpointError::file(&path))?;
        dcp.check_files()?;
        Ok(dcp)
    }

    fn parse(folder: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let pickle = Pickle::read(bytes, &GLOBALS)?;
        let field = |name: &str| {
            let value = pickle.field(pickle.root(), METADATA, name).and_then(|value| pickle.entries(value));
            value.ok_or_else(|| CheckpointError::metadata(format!("it has no `{name}`")))
        };
        let places = places(&pickle, field("storage_data")?)?;
        let mut tensors = BTreeMap::new();
        for (name, description) in field("state_dict_metadata")? {
            let Value::Str(name) = name else { return Err(CheckpointError::metadata("a name is not a string")) };
            // Objects that are not tensors, such as the options of optimizers, are skipped.
            if matches!(pickle.call(description), Some((BYTES, ..))) {
                continue;
            }
            let tensor = Tensor::of(&pickle, name, description, &places)?;
            tensors.insert((**name).to_owned(), tensor);
        }
        Ok(Self { folder: folder.to_owned(), tensors })
    }

    /// Checks that shards lie inside their files and do not overlap, so that all tensors together are at most as large as the
    /// files.
    fn check_files(&self) -> Result<(), CheckpointError> {
        let mut files: BTreeMap<&str, Vec<(u64, u64, &str)>> = BTreeMap::new();
        for (name, tensor) in &self.tensors {
            for chunk in &tensor.chunks {
                files.entry(&chunk.file).or_default().push((chunk.start, chunk.length, name));
            }
        }
        for (file, mut ranges) in files {
            let path = self.folder.join(file);
            let bytes = std::fs::metadata(&path).map_err(CheckpointError::read(&path))?.len();
            ranges.sort_unstable();
            let mut end = 0;
            for (start, length, name) in ranges {
                let next = start.checked_add(length).filter(|next| start >= end && *next <= bytes);
                end = next.ok_or_else(|| {
                    let reason = format!(
                        "its shard of {length} bytes at {start} exceeds the {bytes} bytes of {file} or overlaps another one"
                    );
                    CheckpointError::tensor(name, reason)
                })?;
            }
        }
        Ok(())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Reads a tensor from its shards.
    pub fn read(&self, name: &str) -> Result<StoredTensor, CheckpointError> {
        let tensor = self.tensors.get(name).ok_or_else(|| CheckpointError::Missing { name: name.to_owned() })?;
        let shards = tensor.chunks.iter().map(|chunk| self.shard(name, tensor.element, chunk));
        let mut shards = shards.collect::<Result<Vec<_>, _>>()?;
        if let [shard] = shards.as_slice()
            && shard.shape == tensor.shape
        {
            return Ok(shards.swap_remove(0));
        }
        let wrong = || CheckpointError::tensor(name, "it is too large");
        let width = tensor.element.bytes();
        let bytes = elements(&tensor.shape).and_then(|count| count.checked_mul(width)).ok_or_else(wrong)?;
        let mut whole = StoredTensor { element: tensor.element, shape: tensor.shape.clone(), bytes: vec![0; bytes] };
        for (chunk, shard) in tensor.chunks.iter().zip(shards) {
            place(&mut whole, &chunk.offsets, &shard).ok_or_else(wrong)?;
        }
        Ok(whole)
    }

    fn shard(&self, name: &str, element: ElementType, chunk: &Chunk) -> Result<StoredTensor, CheckpointError> {
        let path = self.folder.join(&chunk.file);
        let mut file = File::open(&path).map_err(CheckpointError::read(&path))?;
        file.seek(SeekFrom::Start(chunk.start)).map_err(CheckpointError::read(&path))?;
        let mut zip = vec![];
        file.take(chunk.length).read_to_end(&mut zip).map_err(CheckpointError::read(&path))?;
        let shard = shard(&zip).map_err(|error| CheckpointError::tensor(name, error))?;
        match shard.element == element && shard.shape == chunk.sizes {
            true => Ok(shard),
            false => {
                let (found, shape, sizes) = (shard.element, &shard.shape, &chunk.sizes);
                let reason = format!("its shard is {found:?} {shape:?}: expected {element:?} {sizes:?}");
                Err(CheckpointError::tensor(name, reason))
            }
        }
    }
}

/// Parses the locations of all shards.
fn places(pickle: &Pickle, entries: &[(Value, Value)]) -> Result<Places, CheckpointError> {
    let mut places = Places::new();
    for (index, info) in entries {
        let place = || {
            let Value::Str(name) = pickle.field(index, INDEX, "fqn")? else { return None };
            let offsets = match pickle.field(index, INDEX, "offset")? {
                Value::None => None,
                offsets => Some(pickle.extents(offsets)?),
            };
            let Value::Str(file) = pickle.field(info, STORAGE, "relative_path")? else { return None };
            let Value::Int(start) = pickle.field(info, STORAGE, "offset")? else { return None };
            let Value::Int(length) = pickle.field(info, STORAGE, "length")? else { return None };
            let range = (u64::try_from(*start).ok()?, u64::try_from(*length).ok()?);
            let transformed = pickle.field(info, STORAGE, "transform_descriptors");
            if !matches!(transformed, None | Some(Value::None)) {
                return None;
            }
            Some((((**name).to_owned(), offsets), ((**file).to_owned(), range.0, range.1)))
        };
        let wrong = || CheckpointError::metadata("the place of a shard is not described as a range of a plain file");
        let (key, (file, start, length)) = place().ok_or_else(wrong)?;
        let mut components = Path::new(&file).components();
        let plain = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
        if !plain || file.contains(['/', '\\', ':']) {
            return Err(CheckpointError::Traversal { path: file });
        }
        places.insert(key, (file, start, length));
    }
    Ok(places)
}

impl Tensor {
    fn of(pickle: &Pickle, name: &str, description: &Value, places: &Places) -> Result<Self, CheckpointError> {
        let wrong = |reason: &str| CheckpointError::tensor(name, reason);
        let field = |key: &str| {
            let value = pickle.field(description, TENSOR, key);
            value.ok_or_else(|| wrong("it is described as something other than a tensor"))
        };
        let element = dtype(pickle, field("properties")?).ok_or_else(|| wrong("its element type is not supported"))?;
        let shape = pickle.extents(field("size")?).ok_or_else(|| wrong("its size is not valid"))?;
        let described = pickle.items(field("chunks")?).ok_or_else(|| wrong("its chunks are not valid"))?;
        if described.len() > MOST_SHARDS {
            return Err(wrong("it has more than 4096 shards"));
        }
        let mut chunks = Vec::with_capacity(described.len());
        for chunk in described {
            let extents = |key| pickle.field(chunk, CHUNK, key).and_then(|value| pickle.extents(value));
            let (offsets, sizes) =
                extents("offsets").zip(extents("sizes")).ok_or_else(|| wrong("its chunks are not valid"))?;
            let place = places.get(&(name.to_owned(), Some(offsets.clone())));
            let place = place.or_else(|| places.get(&(name.to_owned(), None)).filter(|_| described.len() == 1));
            let (file, start, length) = place.cloned().ok_or_else(|| wrong("a shard has no place"))?;
            chunks.push(Chunk { offsets, sizes, file, start, length });
        }
        match covered(&shape, &chunks) {
            true => Ok(Self { element, shape, chunks }),
            false => Err(wrong("its shards do not cover it exactly once")),
        }
    }
}

/// The element type of a `TensorProperties` object.
fn dtype(pickle: &Pickle, properties: &Value) -> Option<ElementType> {
    let (PROPERTIES, _, Some(state)) = pickle.call(properties)? else { return None };
    let dtype = match pickle.items(state) {
        Some(state) => state.first(),
        None => pickle.field(properties, PROPERTIES, "dtype"),
    };
    match dtype? {
        Value::Global(name) => ElementType::of_dtype(name),
        _ => None,
    }
}

/// True if the chunks lie inside the shape and cover each element exactly once.
fn covered(shape: &[usize], chunks: &[Chunk]) -> bool {
    let inside = |chunk: &Chunk| {
        let within = |((offset, size), extent): ((&usize, &usize), &usize)| {
            offset.checked_add(*size).is_some_and(|end| end <= *extent)
        };
        chunk.offsets.len() == shape.len()
            && chunk.sizes.len() == shape.len()
            && chunk.offsets.iter().zip(&chunk.sizes).zip(shape).all(within)
    };
    let apart = |a: &Chunk, b: &Chunk| {
        let disjoint =
            |i: usize| a.offsets[i] + a.sizes[i] <= b.offsets[i] || b.offsets[i] + b.sizes[i] <= a.offsets[i];
        (0..shape.len()).any(disjoint)
    };
    let filled = || {
        let parts = chunks.iter().try_fold(0_usize, |all, chunk| all.checked_add(elements(&chunk.sizes)?));
        parts.is_some() && parts == elements(shape)
    };
    let distinct = || chunks.iter().enumerate().all(|(at, a)| chunks[..at].iter().all(|b| apart(a, b)));
    chunks.iter().all(inside) && filled() && distinct()
}

/// Copies a shard into the whole tensor, row by row.
fn place(whole: &mut StoredTensor, offsets: &[usize], shard: &StoredTensor) -> Option<()> {
    let width = whole.element.bytes();
    let row = shard.shape.last().copied().unwrap_or(1) * width;
    if row == 0 {
        return Some(());
    }
    let outer = shard.shape.len().saturating_sub(1);
    for (number, source) in shard.bytes.chunks_exact(row).enumerate() {
        let (mut rest, mut at, mut stride) = (number, offsets.last().copied().unwrap_or(0), 1);
        for axis in (0..outer).rev() {
            stride *= whole.shape[axis + 1];
            at += (offsets[axis] + rest % shard.shape[axis]) * stride;
            rest /= shard.shape[axis];
        }
        whole.bytes.get_mut(at * width..at * width + row)?.copy_from_slice(source);
    }
    Some(())
}
