//! The head of a package, which describes its content.

use super::error::decoded;
use super::header::BYTES;
use super::tables::Identity;
use super::{Contents, PackageError};
use crate::program::Signature;
use rewire_graph::DType;
use rewire_graph_rewrite::plan::{Named, Plan};
use serde::{Deserialize, Serialize};
use std::ops::Range;
#[cfg(feature = "files")]
use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
};

/// Alignment of parts in bytes; tensors of the weights are aligned to their elements.
const ALIGNMENT: usize = 64;

/// The part with the weights.
pub(super) const WEIGHTS: &str = "weights";

/// Bytes of the number that holds the length of the head.
const LENGTH: usize = 8;

/// The maximum size in bytes of a head that is read without its package.
#[cfg(feature = "files")]
const LARGEST: u64 = 1 << 26;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vocabulary {
    /// The name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents; `None` if an extent is only known in a run.
    pub shape: Vec<Option<usize>>,
}

impl Vocabulary {
    /// Its type in readable form, such as `f32 [_, 2]`; `_` is an extent that is only known in a run.
    pub(crate) fn ty(&self) -> String {
        let extents =
            self.shape.iter().map(|extent| extent.map_or_else(|| "_".to_owned(), |extent| extent.to_string()));
        format!("{} [{}]", self.dtype, extents.collect::<Vec<_>>().join(", "))
    }
}

/// A part of a package.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PartLength {
    name: String,
    bytes: usize,
}

/// The head of a package.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// The text of the model's `config.json`, if it has one.
    pub config: Option<String>,
    pub inputs: Vec<Vocabulary>,
    pub outputs: Vec<Vocabulary>,
    /// The file of the tables, if they are in a separate file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<Identity>,
    /// Names and element types of an exported model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// In the order of their bytes.
    parts: Vec<PartLength>,
}

/// The start of the part that follows one ending at `end`.
fn aligned(end: usize) -> Option<usize> {
    end.checked_next_multiple_of(ALIGNMENT)
}

impl Head {
    /// The head of a package, without its parts.
    pub fn of(contents: &Contents<'_>) -> Self {
        let (inputs, outputs) = vocabulary(contents.plan);
        Self {
            config: contents.config.map(str::to_owned),
            inputs,
            outputs,
            tables: contents.tables.map(|tables| tables.identity.clone()),
            signature: contents.signature.cloned(),
            parts: vec![],
        }
    }

    /// The bytes that follow the header of a package with these parts.
    pub fn content(mut self, parts: &[(&str, &[u8])]) -> Result<Vec<u8>, PackageError> {
        let lengths = parts.iter().map(|(name, part)| PartLength { name: (*name).to_owned(), bytes: part.len() });
        self.parts = lengths.collect();
        let mut content = self.bytes()?;
        for (_, part) in parts {
            content.resize((BYTES + content.len()).next_multiple_of(ALIGNMENT) - BYTES, 0);
            content.extend_from_slice(part);
        }
        Ok(content)
    }

    /// The head of a package with a different length of the weights, and a different file of tables.
    #[cfg(feature = "files")]
    pub fn with_weights(&self, bytes: usize, tables: Option<Identity>) -> Self {
        let length = |part: &PartLength| PartLength {
            name: part.name.clone(),
            bytes: if part.name == WEIGHTS { bytes } else { part.bytes },
        };
        Self { tables, parts: self.parts.iter().map(length).collect(), ..self.clone() }
    }

    /// The bytes of the head, after its length.
    fn bytes(&self) -> Result<Vec<u8>, PackageError> {
        let head = serde_json::to_vec(self).map_err(|error| PackageError::part("head", error))?;
        Ok([&(head.len() as u64).to_le_bytes()[..], &head].concat())
    }

    /// Writes a head after the header of a package, and its parts: the weights by `weights`, other parts copied from
    /// `package`.
    #[cfg(feature = "files")]
    pub fn write(
        &self,
        file: &mut File,
        package: &[u8],
        weights: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (_, old) = Self::read(&package[BYTES..]).map_err(io::Error::other)?;
        file.seek(SeekFrom::Start(BYTES as u64))?;
        file.write_all(&self.bytes().map_err(io::Error::other)?)?;
        let mut weights = Some(weights);
        for (name, range) in old.iter() {
            let end = file.stream_position()?.next_multiple_of(ALIGNMENT as u64);
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            match weights.take_if(|_| name == WEIGHTS) {
                Some(weights) => weights(file)?,
                None => file.write_all(&package[range])?,
            }
            file.seek(SeekFrom::End(0))?;
        }
        Ok(())
    }

    /// Reads the head of a whole package from the bytes after its header.
    pub fn read(content: &[u8]) -> Result<(Self, Parts), PackageError> {
        let wrong = |reason: &str| PackageError::part("head", reason);
        let (length, rest) = content.split_first_chunk::<LENGTH>().ok_or_else(|| wrong("is missing"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let text = rest.get(..length).ok_or_else(|| wrong("reaches beyond the end"))?;
        let head: Self = decoded("head", text)?;
        let (mut end, all) = (BYTES + LENGTH + length, BYTES + content.len());
        let mut parts = Vec::with_capacity(head.parts.len());
        for PartLength { name, bytes } in &head.parts {
            let range = aligned(end).and_then(|start| Some(start..start.checked_add(*bytes)?));
            let range = range.filter(|range| range.end <= all).ok_or_else(|| wrong("has parts beyond the end"))?;
            end = range.end;
            parts.push((name.clone(), range));
        }
        match end == all {
            true => Ok((head, Parts(parts))),
            false => Err(wrong("has parts that end before the end")),
        }
    }

    /// Reads the head of a file that starts like a package, without checks.
    #[cfg(feature = "files")]
    pub fn peek(file: &mut impl io::Read) -> Option<Self> {
        use std::io::Read as _;
        let mut first = [0; BYTES + LENGTH];
        file.read_exact(&mut first).ok()?;
        let mut text = Vec::new();
        file.take(u64::from_le_bytes(*first.last_chunk()?).min(LARGEST)).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Checks that a plan has the inputs and outputs that the head lists.
    pub fn check(&self, plan: &Plan) -> Result<(), PackageError> {
        match vocabulary(plan) == (self.inputs.clone(), self.outputs.clone()) {
            true => Ok(()),
            false => Err(PackageError::part("plan", "has other inputs or outputs than the head lists")),
        }
    }
}

/// The byte ranges of a package's parts.
#[derive(Clone, Debug)]
pub(super) struct Parts(Vec<(String, Range<usize>)>);

impl Parts {
    /// All parts by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.0.iter().map(|(name, range)| (name.as_str(), range.clone()))
    }

    /// The place of a part.
    pub fn get(&self, name: &'static str) -> Result<Range<usize>, PackageError> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, range)| range.clone()).ok_or_else(|| PackageError::part(name, "is missing"))
    }
}

/// The inputs and outputs of a plan.
pub(crate) fn vocabulary(plan: &Plan) -> (Vec<Vocabulary>, Vec<Vocabulary>) {
    let entry = |Named { name, dtype, shape }: Named<'_>| Vocabulary {
        name: name.to_owned(),
        dtype,
        shape: shape.iter().map(|dim| dim.as_const()).collect(),
    };
    let outputs = plan.outputs.iter().map(|o| Named { name: &o.name, dtype: o.dtype, shape: &o.shape });
    (plan.inputs().map(entry).collect(), outputs.map(entry).collect())
}
