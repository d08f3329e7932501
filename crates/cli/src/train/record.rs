//! The identity of a training in its checkpoint. Only the same training can be resumed from it.

use super::{Source, TrainFailed};
use crate::continued::hash_files;
use crate::log::say;
use crate::requests::title;
use rewire::MatrixTier;
use rewire::runtime::{Report, cpu::Arch};
use rewire::train::Checkpoint;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The configurations of the model and of the training, the data in order, the device, and the program.
#[derive(Debug)]
pub struct Record {
    model: String,
    config: String,
    /// `None` if the data cannot be read again.
    data: Option<String>,
    kernel: String,
    files: Vec<PathBuf>,
}

impl Record {
    /// Hashes all of the data.
    pub fn new(source: &Source, matrices: Option<MatrixTier>, report: &Report) -> Result<Self, TrainFailed> {
        Ok(Self {
            model: lasting(&source.model),
            config: lasting(&source.training),
            data: data(&source.files)?,
            kernel: kernel(matrices, report),
            files: source.files.clone(),
        })
    }

    /// As metadata of a checkpoint.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let texts = [
            ("model", Some(&self.model)),
            ("config", Some(&self.config)),
            ("data", self.data.as_ref()),
            ("kernel", Some(&self.kernel)),
            ("program", Some(&env!("CARGO_PKG_VERSION").to_owned())),
        ]
        .map(|(key, text)| text.map(|text| (key.to_owned(), text.clone())));
        texts.into_iter().flatten().collect()
    }

    /// Checks that a checkpoint belongs to this training. With `allows_changes` the data, the device and the program may differ,
    /// which is reported.
    pub fn check(&self, file: &str, checkpoint: &Checkpoint, allows_changes: bool) -> Result<(), TrainFailed> {
        if self.data.is_none() {
            let streams = self.files.iter().filter(|file| is_stream(file)).map(|file| title(Some(file)));
            return Err(TrainFailed::Stream { file: streams.collect::<Vec<_>>().join(", ") });
        }
        let own = self.metadata();
        let differing = |key: &'static str| (own.get(key) != checkpoint.metadata.get(key)).then_some(key);
        if let Some(key) = ["model", "config"].into_iter().find_map(differing) {
            return Err(TrainFailed::Other { file: file.to_owned(), key });
        }
        for key in ["data", "kernel", "program"].into_iter().filter_map(differing) {
            let text =
                |texts: &BTreeMap<String, String>| texts.get(key).cloned().unwrap_or_else(|| "not recorded".into());
            let (was, is) = (text(&checkpoint.metadata), text(&own));
            if !allows_changes {
                return Err(TrainFailed::Changed { file: file.to_owned(), key, was, is });
            }
            say(format_args!("the {key} changed from `{was}` to `{is}`: results differ from those of one training"));
        }
        Ok(())
    }
}

/// The keys of a configuration that may change: the duration of a training, and its memory.
const LENGTHS: [&str; 6] = ["steps", "epochs", "num_steps", "num_epochs", "memory_limit", "tables_folder"];

/// A configuration without the keys that may change.
fn lasting(text: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    if let Some(keys) = value.as_object_mut() {
        keys.retain(|key, _| !LENGTHS.contains(&key.as_str()));
        keys.sort_keys();
    }
    value.to_string()
}

/// True for stdin, pipes and devices.
fn is_stream(file: &Path) -> bool {
    file == Path::new("-") || std::fs::metadata(file).is_ok_and(|found| !found.is_file())
}

/// The hashes of the files, in order; `None` if one of them cannot be read twice.
fn data(files: &[PathBuf]) -> Result<Option<String>, TrainFailed> {
    if files.is_empty() {
        return Ok(Some("the data in the program".to_owned()));
    }
    match files.iter().any(|file| is_stream(file)) {
        true => Ok(None),
        false => Ok(Some(hash_files(files.iter().map(PathBuf::as_path))?)),
    }
}

/// The properties that determine the last bits of a step: the adapter with the requested matrix tier, or the processor's
/// instructions.
fn kernel(matrices: Option<MatrixTier>, report: &Report) -> String {
    match (&report.adapter, matrices) {
        (None, _) => format!("cpu with {}", Arch::chosen().name()),
        (Some(adapter), None) => adapter.clone(),
        (Some(adapter), Some(tier)) => format!("{adapter}, matrices of tier {tier}"),
    }
}
