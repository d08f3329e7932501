//! Tensors and shards in memory.

use super::CheckpointError;
use super::pickle::{Object, Pickle, Value};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{Cursor, Read};
use zip::{CompressionMethod, ZipArchive};

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ElementType {
    F32,
    F16,
    BF16,
    F64,
    I64,
    I32,
}

impl ElementType {
    const ALL: [Self; 6] = [Self::F32, Self::F16, Self::BF16, Self::F64, Self::I64, Self::I32];

    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The name of the `torch.dtype`.
    pub(super) fn dtype(self) -> &'static str {
        match self {
            Self::F32 => "torch.float32",
            Self::F16 => "torch.float16",
            Self::BF16 => "torch.bfloat16",
            Self::F64 => "torch.float64",
            Self::I64 => "torch.int64",
            Self::I32 => "torch.int32",
        }
    }

    /// The class name of the torch storage.
    pub(super) fn storage(self) -> &'static str {
        match self {
            Self::F32 => "torch.FloatStorage",
            Self::F16 => "torch.HalfStorage",
            Self::BF16 => "torch.BFloat16Storage",
            Self::F64 => "torch.DoubleStorage",
            Self::I64 => "torch.LongStorage",
            Self::I32 => "torch.IntStorage",
        }
    }

    pub(super) fn of_dtype(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.dtype() == name)
    }

    fn of_storage(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.storage() == name)
    }
}

/// A tensor with its elements in row-major order, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// Element type.
    pub element: ElementType,
    /// Extents; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

impl StoredTensor {
    /// The elements as f64; exact except for integers beyond 2^53.
    pub fn to_f64(&self) -> Vec<f64> {
        fn decoded<const N: usize>(bytes: &[u8], decode: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            bytes.as_chunks::<N>().0.iter().map(|chunk| decode(*chunk)).collect()
        }
        match self.element {
            ElementType::F32 => decoded(&self.bytes, |b| f64::from(f32::from_le_bytes(b))),
            ElementType::F16 => decoded(&self.bytes, |b| f16::from_le_bytes(b).to_f64()),
            ElementType::BF16 => decoded(&self.bytes, |b| bf16::from_le_bytes(b).to_f64()),
            ElementType::F64 => decoded(&self.bytes, f64::from_le_bytes),
            ElementType::I64 => decoded(&self.bytes, |b| i64::from_le_bytes(b) as f64),
            ElementType::I32 => decoded(&self.bytes, |b| f64::from(i32::from_le_bytes(b))),
        }
    }
}

/// Number of elements of a shape; `None` if it overflows `usize`.
pub(super) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |all, extent| all.checked_mul(*extent))
}

/// Globals that the pickle of a shard may refer to.
const GLOBALS: [&str; 8] = [
    "torch._utils._rebuild_tensor_v2",
    "collections.OrderedDict",
    "torch.FloatStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.DoubleStorage",
    "torch.LongStorage",
    "torch.IntStorage",
];

/// Parses a shard, which is a tensor that `torch.save` wrote as an uncompressed zip.
pub(super) fn shard(zip: &[u8]) -> Result<StoredTensor, CheckpointError> {
    let wrong = |reason: &str| CheckpointError::metadata(reason);
    let mut archive = ZipArchive::new(Cursor::new(zip)).map_err(CheckpointError::metadata)?;
    if let Some(order) = entry(&mut archive, "byteorder")?
        && order != b"little"
    {
        return Err(wrong("its shard is not little-endian"));
    }
    let pickle = entry(&mut archive, "data.pkl")?.ok_or_else(|| wrong("its shard has no data.pkl"))?;
    let pickle = Pickle::read(&pickle, &GLOBALS)?;
    let view = View::of(&pickle).ok_or_else(|| wrong("its shard holds something other than a dense tensor"))?;
    let data = entry(&mut archive, &format!("data/{}", view.key))?;
    let data = data.ok_or_else(|| wrong(&format!("its shard has no data/{}", view.key)))?;
    view.contiguous(&data).ok_or_else(|| wrong("its shard describes a tensor that reaches beyond its data"))
}

/// Reads an entry of a zip. `path` is relative to the only top-level folder.
fn entry(archive: &mut ZipArchive<Cursor<&[u8]>>, path: &str) -> Result<Option<Vec<u8>>, CheckpointError> {
    let below = |name: &str| name.split_once('/').is_some_and(|(_, rest)| rest == path);
    let name = archive.file_names().flatten().find(|name| below(name)).map(Cow::into_owned);
    let Some(name) = name else { return Ok(None) };
    let mut file = archive.by_name(&name).map_err(CheckpointError::metadata)?;
    if file.compression() != CompressionMethod::Stored || file.size() != file.compressed_size() {
        return Err(CheckpointError::metadata(format!("`{name}` is compressed: expected a stored entry")));
    }
    let mut content = vec![];
    file.read_to_end(&mut content).map_err(|error| CheckpointError::metadata(format!("`{name}`: {error}")))?;
    Ok(Some(content))
}

/// A strided view of a storage. Offset and strides are in elements.
struct View {
    element: ElementType,
    key: String,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    fn of(pickle: &Pickle) -> Option<Self> {
        let ("torch._utils._rebuild_tensor_v2", arguments, _) = pickle.call(pickle.root())? else { return None };
        let [storage, Value::Int(offset), shape, strides, ..] = arguments else { return None };
        let Some(Object::Persistent(id)) = pickle.object(storage) else { return None };
        let [Value::Str(kind), Value::Global(storage), Value::Str(key), ..] = pickle.items(id)? else { return None };
        let (shape, strides) = (pickle.extents(shape)?, pickle.extents(strides)?);
        if &**kind != "storage" || shape.len() != strides.len() {
            return None;
        }
        let offset = usize::try_from(*offset).ok()?;
        Some(Self { element: ElementType::of_storage(storage)?, key: (**key).to_owned(), offset, shape, strides })
    }

    /// Number of outer axes, and number of elements of the contiguous inner axes.
    fn runs(&self) -> (usize, usize) {
        let (mut outer, mut run) = (self.shape.len(), 1);
        while outer > 0 && (self.strides[outer - 1] == run || self.shape[outer - 1] == 1) {
            outer -= 1;
            run *= self.shape[outer];
        }
        (outer, run)
    }

    /// Copies the elements in row-major order. `None` if the view exceeds the data, or has more elements than the data, as expanded tensors
    /// do.
    fn contiguous(self, data: &[u8]) -> Option<StoredTensor> {
        let width = self.element.bytes();
        let bytes = elements(&self.shape)?.checked_mul(width).filter(|bytes| *bytes <= data.len())?;
        let mut content = Vec::with_capacity(bytes);
        let (outer, run) = if bytes == 0 { (0, 0) } else { self.runs() };
        let mut index = vec![0; outer];
        while content.len() < bytes {
            let mut steps = index.iter().zip(&self.strides);
            let place = steps
                .try_fold(self.offset, |at, (i, stride): (&usize, &usize)| at.checked_add(i.checked_mul(*stride)?));
            let start = place?.checked_mul(width)?;
            content.extend_from_slice(data.get(start..start.checked_add(run * width)?)?);
            for (i, extent) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < *extent {
                    break;
                }
                *i = 0;
            }
        }
        Some(StoredTensor { element: self.element, shape: self.shape, bytes: content })
    }
}
