//! The checkpoint of an interrupted run.

use super::PredictError;
use super::partial::{Mark, beside, unwritten};
use crate::requests::Kind;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// The format of journals.
const FORMAT: u32 = 1;

/// The properties that must match for resuming a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub model: String,
    /// `None` if the data cannot be read again.
    pub data: Option<String>,
    pub options: String,
    /// The adapter of the model.
    pub adapter: String,
    pub version: String,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub rows: u64,
    pub users: u64,
    pub rejected: u64,
}

/// The progress of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Journal {
    format: u32,
    pub identity: Identity,
    /// Lines or rows of the input.
    pub row: u64,
    pub counts: Counts,
    pub kinds: Option<Vec<Option<Kind>>>,
    pub out: Mark,
    pub rejects: Option<Mark>,
    /// True if only the files remain to be moved into place.
    pub is_whole: bool,
    /// The bytes after those of the output.
    #[serde(skip)]
    pub foot: Vec<u8>,
}

impl Journal {
    pub fn new(identity: Identity) -> Self {
        Self {
            format: FORMAT,
            identity,
            row: 0,
            counts: Counts::default(),
            kinds: None,
            out: Mark { bytes: 0, hash: String::new() },
            rejects: None,
            is_whole: false,
            foot: vec![],
        }
    }

    /// Replaces the journal atomically: a hash of the rest, a line of JSON, and the foot.
    pub fn write(&self, path: &Path) -> Result<(), PredictError> {
        let mut rest = serde_json::to_vec(self).map_err(io::Error::from).map_err(unwritten(path))?;
        rest.push(b'\n');
        rest.extend_from_slice(&self.foot);
        let hash = format!("{:032x}\n", XxHash3_128::oneshot(&rest));
        let new = Self::new_beside(path);
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&[hash.as_bytes(), &rest].concat())?;
            file.sync_all()?;
            std::fs::rename(&new, path)
        });
        written.inspect_err(|_| drop(std::fs::remove_file(&new))).map_err(unwritten(path))
    }

    /// The temporary path of the next journal, before it replaces the one at `path`.
    pub fn new_beside(path: &Path) -> PathBuf {
        beside(path, ".new")
    }

    /// Reads it; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, PredictError> {
        let file = path.display().to_string();
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| PredictError::Read { file: file.clone(), source })?,
        };
        let damaged = || PredictError::Damaged { file: file.clone(), reason: "is damaged".into() };
        let (hash, rest) = split(&bytes).ok_or_else(damaged)?;
        if hash != format!("{:032x}", XxHash3_128::oneshot(rest)).as_bytes() {
            return Err(damaged());
        }
        let (json, foot) = split(rest).ok_or_else(damaged)?;
        let mut journal: Self = serde_json::from_slice(json).map_err(|error| PredictError::Damaged {
            file: file.clone(),
            reason: format!("is of another version of the program: {error}"),
        })?;
        journal.foot = foot.to_vec();
        match journal.format {
            FORMAT => Ok(Some(journal)),
            other => {
                let reason = format!("has format {other}: this program resumes from format {FORMAT}");
                Err(PredictError::Damaged { file, reason })
            }
        }
    }

    /// Checks that a run is of the same model, data and options.
    pub fn check(&self, identity: &Identity, path: &Path) -> Result<(), PredictError> {
        let Identity { model, data, options, adapter, version } = &self.identity;
        let data_of = |data: &Option<String>| data.clone().unwrap_or_default();
        let pairs = [
            ("the model", model.clone(), identity.model.clone()),
            ("the data", data_of(data), data_of(&identity.data)),
            ("the options", options.clone(), identity.options.clone()),
            ("the adapter", adapter.clone(), identity.adapter.clone()),
            ("the program", version.clone(), identity.version.clone()),
        ];
        match pairs.into_iter().find(|(_, was, is)| was != is) {
            None => Ok(()),
            Some((key, was, is)) => Err(PredictError::Other { file: path.display().to_string(), key, was, is }),
        }
    }
}

/// Splits off the first line.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}
