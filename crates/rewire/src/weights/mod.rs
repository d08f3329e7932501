//! Named tensors of safetensors files.

mod error;
mod metadata;
mod write;

pub use error::WeightsError;
#[cfg(feature = "train")]
pub(crate) use write::Header;
pub use write::serialize;

pub(crate) use metadata::with_columns;
#[cfg(any(feature = "files", feature = "train"))]
pub(crate) use write::{Described, described, file_bytes, header};

use error::format_error;
use metadata::{COLUMNS, ROWS, told_of};
use rewire_graph::{DType, HostTensor, Ordered, SharedBytes, TensorSizeError};
use rewire_runtime::{Backing, Parameters};
#[cfg(feature = "files")]
use rewire_runtime::{FileContent, Mapping, read_file};
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
#[cfg(feature = "files")]
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Entry {
    dtype: DType,
    shape: Vec<usize>,
    /// The last two dimensions are swapped relative to the parameter.
    by_column: bool,
    /// The file, and the byte range in it.
    file: usize,
    bytes: Range<usize>,
}

/// The tensors of one or several safetensors files, by name.
///
/// Tensors are decoded on access. They share the file's bytes unless these are borrowed. `U8` tensors are rows that end with a scale and a
/// bias each: [`DType::Rows8`], or the type in the entry `rewire.rows` of the file's metadata, JSON with names and types.
///
/// ```
/// use rewire::weights::Weights;
/// let error = Weights::parse(&b"not a file"[..]).unwrap_err();
/// assert!(error.to_string().contains("expected a complete safetensors file"));
/// ```
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    files: Vec<Data<'a>>,
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
    /// The owners of shared bytes.
    backing: Vec<Arc<dyn Backing>>,
}

/// The bytes of a file.
#[derive(Clone)]
enum Data<'a> {
    Borrowed(&'a [u8]),
    Shared(SharedBytes),
}

/// A part of the bytes of a file.
#[derive(Clone)]
pub(crate) struct Part {
    all: SharedBytes,
    part: Range<usize>,
}

impl Part {
    pub fn of(all: &SharedBytes, part: Range<usize>) -> Self {
        Self { all: all.clone(), part }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.part.len())
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        (*self.all).as_ref().get(self.part.clone()).unwrap_or(&[])
    }
}

impl Data<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => (**bytes).as_ref(),
        }
    }
}

impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}

#[cfg(feature = "files")]
impl Weights<'static> {
    /// Reads a file. A large one is memory-mapped, and its tensors are read from disk on access. A mapped file must not be written to or
    /// truncated: replace it by renaming another one over it, see [`Mapping`].
    ///
    /// # Errors
    /// [`WeightsError::Read`] if the file does not exist, and [`WeightsError::File`] if it is invalid.
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        Self::read_mapping(path, Mapping::Large)
    }

    /// [`Weights::read`], with a choice of the files that are mapped.
    ///
    /// # Errors
    /// As [`Weights::read`].
    pub fn read_mapping(path: &Path, mapping: Mapping) -> Result<Self, WeightsError> {
        Self::of_file(path, mapping, |_| DType::Rows8)
    }

    /// [`Weights::read`] for a file whose `U8` tensors all have the type that `rows` determines from the metadata.
    ///
    /// # Errors
    /// As [`Weights::read`].
    pub fn read_rows(path: &Path, rows: impl FnOnce(&BTreeMap<String, String>) -> DType) -> Result<Self, WeightsError> {
        Self::of_file(path, Mapping::Large, rows)
    }

    fn of_file(
        path: &Path,
        mapping: Mapping,
        rows: impl FnOnce(&BTreeMap<String, String>) -> DType,
    ) -> Result<Self, WeightsError> {
        let file = read_file(path, mapping).map_err(|source| WeightsError::Read { path: path.to_owned(), source })?;
        let read = Self::of(Data::Shared(file.bytes().clone()), rows).map(|weights| weights.resting_on(&file));
        read.map_err(|source| WeightsError::File { path: path.to_owned(), source: Box::new(source) })
    }

    /// The same weights, with bytes that belong to a file.
    pub(crate) fn resting_on(mut self, file: &FileContent) -> Self {
        self.backing.extend(file.backing());
        self
    }
}

impl<'a> Weights<'a> {
    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// [`WeightsError::Format`] or [`WeightsError::ElementType`].
    pub fn parse(data: impl Into<Cow<'a, [u8]>>) -> Result<Self, WeightsError> {
        let data = match data.into() {
            Cow::Borrowed(bytes) => Data::Borrowed(bytes),
            Cow::Owned(bytes) => Data::Shared(Arc::new(bytes)),
        };
        Self::of(data, |_| DType::Rows8)
    }

    /// Parses the bytes of a file that have another owner and do not change.
    pub(crate) fn shared(data: SharedBytes) -> Result<Self, WeightsError> {
        Self::of(Data::Shared(data), |_| DType::Rows8)
    }

    fn of(data: Data<'a>, rows: impl FnOnce(&BTreeMap<String, String>) -> DType) -> Result<Self, WeightsError> {
        let bytes = data.bytes();
        let (header, index) = SafeTensors::read_metadata(bytes).map_err(|error| format_error(&error, bytes.len()))?;
        let mut metadata = index.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).ordered_map();
        let others = rows(&metadata);
        let told: BTreeMap<String, String> = told_of(&mut metadata, ROWS, bytes.len())?;
        let by_column: BTreeSet<String> = told_of(&mut metadata, COLUMNS, bytes.len())?;
        let mut entries = BTreeMap::new();
        for (name, info) in index.tensors() {
            let rows = told.get(&name).map_or(Some(others), |rows| DType::named(rows));
            let Some((dtype, shape)) = rows.and_then(|rows| stored(info.dtype, &info.shape, rows)) else {
                return Err(WeightsError::ElementType { name, dtype: info.dtype.to_string() });
            };
            let start = header + 8;
            let bytes = start + info.data_offsets.0..start + info.data_offsets.1;
            let by_column = by_column.contains(&name);
            entries.insert(name, Entry { dtype, shape, by_column, file: 0, bytes });
        }
        Ok(Self { files: vec![data], entries, metadata, backing: vec![] })
    }

    /// Adds the tensors of another file. Existing names take precedence.
    pub fn and(mut self, other: &Self) -> Self {
        let first = self.files.len();
        self.files.extend(other.files.iter().cloned());
        self.backing.extend(other.backing.iter().cloned());
        for (name, entry) in &other.entries {
            let moved = || Entry { file: first + entry.file, ..entry.clone() };
            self.entries.entry(name.clone()).or_insert_with(moved);
        }
        self
    }

    /// The tensor of a name; `None` if it does not exist.
    ///
    /// # Errors
    /// [`WeightsError::Tensor`] if there is not enough memory for it.
    pub fn get(&self, name: &str) -> Result<Option<HostTensor>, WeightsError> {
        self.laid(name, false).map_err(|source| WeightsError::Tensor { name: name.to_owned(), source })
    }

    /// All tensors by name.
    ///
    /// # Errors
    /// As [`Weights::get`].
    pub fn tensors(&self) -> Result<BTreeMap<String, HostTensor>, WeightsError> {
        let mut tensors = BTreeMap::new();
        for name in self.entries.keys() {
            tensors.extend(self.get(name)?.map(|tensor| (name.clone(), tensor)));
        }
        Ok(tensors)
    }

    /// The tensor of a name, with its last two dimensions swapped if `by_column`; no copy is made if the file stores it
    /// in this form.
    pub(crate) fn laid(&self, name: &str, by_column: bool) -> Result<Option<HostTensor>, TensorSizeError> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let tensor = self.stored(entry)?;
        if entry.by_column == by_column { Ok(Some(tensor)) } else { tensor.transposed().map(Some) }
    }

    /// A tensor in the layout of the file.
    fn stored(&self, Entry { dtype, shape, file, bytes: range, .. }: &Entry) -> Result<HostTensor, TensorSizeError> {
        let (shape, file) = (shape.clone(), &self.files[*file]);
        let bytes = &file.bytes()[range.clone()];
        match (dtype, file) {
            (DType::Bool, _) => {
                let words = bytes.iter().flat_map(|&byte| u32::from(byte != 0).to_le_bytes()).collect();
                HostTensor::from_bytes(DType::Bool, shape, words)
            }
            (_, Data::Shared(all)) => HostTensor::from_shared(*dtype, shape, Arc::new(Part::of(all, range.clone()))),
            (_, Data::Borrowed(_)) => HostTensor::copied(*dtype, shape, bytes),
        }
    }

    /// Element type and shape of a tensor in its file.
    pub fn describe(&self, name: &str) -> Option<(DType, &[usize])> {
        let entry = self.entries.get(name)?;
        Some((entry.dtype, &entry.shape))
    }

    /// The type of all floats, if kernels can write it; `F32` if there are several types.
    pub(crate) fn common_float(&self) -> DType {
        let mut floats = self.entries.values().map(|entry| entry.dtype).filter(|dtype| dtype.is_float());
        let first = floats.next().filter(|dtype| dtype.format().is_written()).unwrap_or(DType::F32);
        if floats.all(|dtype| dtype == first) { first } else { DType::F32 }
    }

    /// All names in ascending order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The file's metadata, without the entries about tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
}

impl Parameters for &Weights<'_> {
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        self.laid(name, false)
    }

    fn columns(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        self.laid(name, true)
    }

    fn backing(&self) -> Vec<Arc<dyn Backing>> {
        self.backing.clone()
    }
}

/// The stored form of a tensor. Bytes are whole rows of a type.
fn stored(dtype: Dtype, shape: &[usize], rows: DType) -> Option<(DType, Vec<usize>)> {
    match (dtype, shape) {
        (Dtype::U8, [outer @ .., row]) if !rows.format().is_written() => {
            let width = rows.format().row_elements(*row)?;
            Some((rows, outer.iter().copied().chain([width]).collect()))
        }
        _ => Some((DType::named(&dtype.to_string().to_ascii_lowercase())?, shape.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let tensors = BTreeMap::from([
            ("a".to_owned(), HostTensor::f32(vec![2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()),
            ("b".to_owned(), HostTensor::i64(vec![2], &[-1, 1 << 40]).unwrap()),
            ("c".to_owned(), HostTensor::from_f64(DType::Bool, vec![3], &[1.0, 0.0, 1.0]).unwrap()),
        ]);
        serialize(&tensors, &BTreeMap::from([("op".to_owned(), "x".to_owned())])).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = file();
        let weights = Weights::parse(&bytes[..]).unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(weights.get("a").unwrap().unwrap().shape(), [2, 3]);
        assert_eq!(weights.get("b").unwrap().unwrap().to_i64(), [-1, 1 << 40]);
        assert_eq!(weights.get("c").unwrap().unwrap().to_i64(), [1, 0, 1]);
        assert_eq!(weights.metadata()["op"], "x");
        assert!(weights.get("d").unwrap().is_none());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = file();
        for end in 0..bytes.len() {
            assert!(Weights::parse(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn hostile_headers_are_errors() {
        let huge = u64::MAX.to_le_bytes().to_vec();
        let deep = with_header(&"[".repeat(100_000), &[]);
        let overflow = with_header(
            r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}"#,
            &[0; 4],
        );
        let beyond = with_header(r#"{"a":{"dtype":"F32","shape":[1024],"data_offsets":[0,4096]}}"#, &[0; 4]);
        let backwards = with_header(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, &[0; 4]);
        for bytes in [huge, deep, overflow, beyond, backwards] {
            assert!(matches!(Weights::parse(bytes), Err(WeightsError::Format { .. })));
        }
    }

    #[test]
    fn other_element_types_are_named() {
        let bytes = with_header(r#"{"w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#, &[0; 8]);
        let error = Weights::parse(bytes).unwrap_err().to_string();
        assert!(error.contains("`w` is F64"), "{error}");
    }

    #[test]
    fn bf16_stays_as_it_is() {
        let bytes =
            with_header(r#"{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#, &[0x80, 0x3f, 0x00, 0xc0]);
        let tensor = Weights::parse(bytes).unwrap().get("w").unwrap().unwrap();
        assert_eq!((tensor.dtype(), tensor.to_f32()), (DType::BF16, vec![1.0, -2.0]));
        let written = serialize(&BTreeMap::from([("w".to_owned(), tensor.clone())]), &BTreeMap::new()).unwrap();
        assert_eq!(Weights::parse(written).unwrap().get("w").unwrap(), Some(tensor));
    }

    #[test]
    fn bytes_that_are_no_rows_are_errors() {
        let refused = |metadata: &str, columns: usize| {
            let bytes = vec![0; 2 * columns];
            let header = format!(
                r#"{{{metadata}"w":{{"dtype":"U8","shape":[2,{columns}],"data_offsets":[0,{}]}}}}"#,
                bytes.len()
            );
            matches!(Weights::parse(with_header(&header, &bytes)), Err(WeightsError::ElementType { .. }))
        };
        let of = |rows: &str| format!(r#""__metadata__":{{"rewire.rows":"{{\"w\":\"{rows}\"}}"}},"#);
        assert!(refused("", 7) && !refused("", 8) && !refused("", 9));
        assert!(refused(&of("rows4"), 3) && refused(&of("rows4"), 5) && !refused(&of("rows4"), 6));
        assert!(refused(&of("rows2"), 5) && !refused(&of("rows2"), 6));
        assert!(refused(&of("f32"), 8) && refused(&of("rows5"), 8));
        let other = with_header(
            r#"{"__metadata__":{"rewire.rows":"rows4"},"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#,
            &[0; 8],
        );
        assert!(matches!(Weights::parse(other), Err(WeightsError::Format { .. })));
    }

    #[test]
    fn tensors_of_a_file_share_its_bytes() {
        let path = std::env::temp_dir().join(format!("rewire-weights-{}", std::process::id()));
        std::fs::write(&path, file()).unwrap();
        let weights = Weights::read(&path).unwrap();
        let first = || weights.get("a").unwrap().unwrap();
        assert_eq!((first().bytes().as_ptr(), first().to_f32().len()), (first().bytes().as_ptr(), 6));
        let (again, parsed) = (weights.clone(), Weights::parse(file()).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(again.tensors().unwrap(), parsed.tensors().unwrap());
        std::fs::write(&path, []).unwrap();
        assert!(matches!(Weights::read(&path), Err(WeightsError::File { .. })));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_folder_is_not_a_file() {
        assert!(matches!(Weights::read(Path::new("/")), Err(WeightsError::Read { .. })));
    }
}
