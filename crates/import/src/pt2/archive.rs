//! The zip archive of a `.pt2` file.

use super::schema::{Payload, Payloads, Program, SCHEMA_MAJOR, SymInt, TensorMeta};
use crate::elements::Elements;
use crate::{ImportError, ScalarType};
use rewire_graph::HostTensor;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use zip::{CompressionMethod, ZipArchive};

/// Maximum number of entries of an archive.
const MAX_ENTRIES: usize = 1 << 20;

/// Maximum size of all tensors, in multiples of the file's size. Views may share a storage.
const MAX_EXPANSION: usize = 8;

/// An open archive.
pub(crate) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    root: String,
    /// Number of bytes that further tensors may have.
    left: usize,
}

impl<'a> Archive<'a> {
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self, ImportError> {
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(|error| ImportError::archive("the archive", error))?;
        if zip.len() > MAX_ENTRIES {
            return Err(ImportError::archive("the archive", format!("more than {MAX_ENTRIES} entries")));
        }
        let first = zip.name_for_index(0).ok_or_else(|| ImportError::archive("the archive", "no entries"))?;
        let first = first.map_err(|error| ImportError::archive("the archive", error))?;
        let root = first.split('/').next().unwrap_or_default().to_owned();
        let left = bytes.len().saturating_mul(MAX_EXPANSION).saturating_add(1 << 20);
        let mut archive = Self { zip, root, left };
        archive.expect("archive_format", "pt2")?;
        archive.expect("archive_version", "0")?;
        archive.expect("byteorder", "little")?;
        Ok(archive)
    }

    fn expect(&mut self, entry: &'static str, expected: &str) -> Result<(), ImportError> {
        let actual = self.bytes(entry)?;
        let actual = String::from_utf8_lossy(&actual).trim().to_owned();
        if actual == expected {
            return Ok(());
        }
        Err(ImportError::Version { what: entry, expected: expected.to_owned(), actual })
    }

    /// Reads an entry by its path below the root folder.
    fn bytes(&mut self, entry: &str) -> Result<Vec<u8>, ImportError> {
        let failed = |error: &dyn ToString| ImportError::archive(entry, error.to_string());
        let mut file = self.zip.by_name(&format!("{}/{entry}", self.root)).map_err(|error| failed(&error))?;
        if file.compression() != CompressionMethod::Stored || file.size() != file.compressed_size() {
            return Err(failed(&"compressed, which PyTorch never writes"));
        }
        let mut bytes = vec![];
        file.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        Ok(bytes)
    }

    fn json<T: DeserializeOwned>(&mut self, entry: &str) -> Result<T, ImportError> {
        let bytes = self.bytes(entry)?;
        serde_json::from_slice(&bytes).map_err(|error| ImportError::archive(entry, error))
    }

    /// The name of the only program in the archive.
    fn program_name(&self) -> Result<String, ImportError> {
        let prefix = format!("{}/models/", self.root);
        let names = self.zip.file_names().filter_map(Result::ok);
        let mut names = names.filter_map(|name| Some(name.strip_prefix(&prefix)?.strip_suffix(".json")?.to_owned()));
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            (None, _) => Err(ImportError::archive("models", "no program")),
            (Some(_), Some(_)) => Err(ImportError::archive("models", "several programs")),
        }
    }

    /// Parses the program after checking its schema version.
    pub(crate) fn program(&mut self) -> Result<(String, Program), ImportError> {
        let name = self.program_name()?;
        let entry = format!("models/{name}.json");
        // The version is parsed first, because another schema may have other fields.
        #[derive(serde::Deserialize)]
        struct Versioned {
            schema_version: super::schema::SchemaVersion,
        }
        let Versioned { schema_version: version } = self.json(&entry)?;
        if version.major != SCHEMA_MAJOR {
            let actual = format!("{}.{}", version.major, version.minor);
            return Err(ImportError::Version { what: "schema", expected: format!("{SCHEMA_MAJOR}.x"), actual });
        }
        let program = self.json(&entry)?;
        Ok((name, program))
    }

    /// The configuration of `weights` or `constants`; empty if it is missing.
    pub(crate) fn payloads(&mut self, kind: &str, name: &str) -> Result<BTreeMap<String, Payload>, ImportError> {
        let entry = format!("data/{kind}/{name}_{kind}_config.json");
        if self.zip.index_for_name(&format!("{}/{entry}", self.root)).is_none() {
            return Ok(BTreeMap::new());
        }
        Ok(self.json::<Payloads>(&entry)?.config)
    }

    /// Reads a tensor by its configuration.
    pub(crate) fn tensor(&mut self, kind: &str, name: &str, payload: &Payload) -> Result<StoredTensor, ImportError> {
        let Some(meta) = payload.tensor_meta.as_ref().filter(|_| !payload.use_pickle) else {
            return Err(ImportError::Pickle { name: name.to_owned() });
        };
        let storage = self.bytes(&format!("data/{kind}/{}", payload.path_name))?;
        let (tensor, ty) = self.view(name, meta, &storage)?;
        Ok(StoredTensor { tensor, ty })
    }

    fn view(&mut self, name: &str, meta: &TensorMeta, storage: &[u8]) -> Result<(HostTensor, ScalarType), ImportError> {
        let wrong = |reason: &str| ImportError::program(name, reason);
        let ty = element_type(name, meta)?;
        let sizes = constants(&meta.sizes).ok_or_else(|| wrong("a stored tensor has a symbolic or negative size"))?;
        let strides = constants(&meta.strides).filter(|strides| strides.len() == sizes.len());
        let strides = strides.ok_or_else(|| wrong("strides do not fit the sizes"))?;
        let offset = constants(std::slice::from_ref(&meta.storage_offset)).and_then(|offset| offset.first().copied());
        let offset = offset.ok_or_else(|| wrong("a symbolic offset"))?;
        let count = sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        // No storage type has more than 8 bytes per element.
        let bytes = count.and_then(|count| count.checked_mul(8)).filter(|&bytes| bytes <= self.left.saturating_mul(2));
        let bytes = bytes.ok_or_else(|| wrong("a tensor much larger than the archive"))?;
        self.left = self.left.saturating_sub(bytes / 2);
        let elements = Elements { storage, ty, sizes: &sizes, strides: &strides, offset };
        let tensor = elements.tensor(name)?;
        Ok((tensor, ty))
    }
}

/// A stored parameter, buffer or constant.
pub(crate) struct StoredTensor {
    pub tensor: HostTensor,
    pub ty: ScalarType,
}

/// The element type of a dense tensor.
pub(crate) fn element_type(name: &str, meta: &TensorMeta) -> Result<ScalarType, ImportError> {
    if meta.layout != 7 {
        return Err(ImportError::program(name, "a sparse tensor"));
    }
    let unknown = || ImportError::program(name, format!("the element type {} is not supported", meta.dtype));
    ScalarType::of_code(meta.dtype).ok_or_else(unknown)
}

fn constants(sizes: &[SymInt]) -> Option<Vec<usize>> {
    let constant = |size: &SymInt| match size {
        SymInt::AsInt(size) => usize::try_from(*size).ok(),
        SymInt::AsExpr(_) => None,
    };
    sizes.iter().map(constant).collect()
}
