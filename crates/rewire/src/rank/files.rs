//! Models in files: folders and packages.

use super::package::{config_of, text_of};
use super::{Config, RankError, RankOptions, Ranker, parse_config};
use crate::package::{Package, PackageError};
use crate::weights::Weights;
use rewire_runtime::{Mapping, block_on};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum size of a `config.json` in bytes.
const LARGEST_CONFIG: u64 = 64 << 20;

/// True for a path that may be a model: a folder, or a file that starts like a package.
pub fn is_model(path: &Path) -> bool {
    path.is_dir() || Package::is_at(path)
}

/// Reads the text of the `config.json` of a model folder or package.
///
/// # Errors
/// [`RankError::Read`] and [`RankError::Package`].
pub fn read_config_text(model: &Path, mapping: Mapping) -> Result<String, RankError> {
    if !model.is_dir() {
        return Ok(text_of(&package(model, mapping)?)?.to_owned());
    }
    let path = model.join("config.json");
    let unread = |source| RankError::Read { path: path.clone(), source };
    let found = std::fs::metadata(&path).map_err(unread)?;
    if !found.is_file() || found.len() > LARGEST_CONFIG {
        let reason = format!("not a file of at most {LARGEST_CONFIG} bytes");
        return Err(unread(std::io::Error::other(reason)));
    }
    std::fs::read_to_string(&path).map_err(unread)
}

/// Reads a package; a missing file is the error of an unreadable model.
pub(crate) fn package(model: &Path, mapping: Mapping) -> Result<Package, RankError> {
    Package::read_mapping(model, mapping).map_err(|error| match error {
        PackageError::Read { path, source } => RankError::Read { path, source },
        other => other.into(),
    })
}

/// Reads the configuration of a model folder or package.
///
/// # Errors
/// [`RankError::Read`], [`RankError::Package`] and [`RankError::Config`].
pub fn read_config(model: &Path, mapping: Mapping) -> Result<Config, RankError> {
    match model.is_dir() {
        true => parse_config(&model.join("config.json").display().to_string(), &read_config_text(model, mapping)?),
        false => config_of(&package(model, mapping)?),
    }
}

/// Reads the weights of a model folder or package, see [`Weights::read`].
///
/// # Errors
/// [`RankError::Weights`] and [`RankError::Package`].
pub fn read_weights(model: &Path, mapping: Mapping) -> Result<Weights<'static>, RankError> {
    match model.is_dir() {
        true => read_folder(model, mapping),
        false => Ok(package(model, mapping)?.weights().clone()),
    }
}

/// The weights of a folder: `model.safetensors`, or the files of its index.
fn read_folder(folder: &Path, mapping: Mapping) -> Result<Weights<'static>, RankError> {
    let (whole, index) = (folder.join("model.safetensors"), folder.join("model.safetensors.index.json"));
    if whole.is_file() || !index.is_file() {
        return Ok(Weights::read_mapping(&whole, mapping)?);
    }
    let bad = |reason: String| RankError::Index { path: index.clone(), reason };
    let text = std::fs::read(&index).map_err(|error| bad(error.to_string()))?;
    let Shards { weight_map } = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let mut all: Option<Weights<'static>> = None;
    for name in weight_map.values().collect::<BTreeSet<_>>() {
        if Path::new(name).file_name().is_none_or(|file| file != name.as_str()) {
            return Err(bad(format!("`{name}` is not the name of a file")));
        }
        let shard = Weights::read_mapping(&folder.join(name), mapping)?;
        all = Some(match all {
            Some(all) => all.and(&shard),
            None => shard,
        });
    }
    let all = all.ok_or_else(|| bad("it names no files".to_owned()))?;
    match weight_map.keys().find(|name| all.describe(name).is_none()) {
        Some(name) => Err(bad(format!("no file has the tensor `{name}`"))),
        None => Ok(all),
    }
}

/// The index of weights in several files.
#[derive(Deserialize)]
struct Shards {
    weight_map: BTreeMap<String, String>,
}

impl Ranker {
    /// Loads a package, or a folder with `config.json` and `model.safetensors`. Reading, compiling and, for a folder, tracing run on the
    /// polling thread. To replace the files of a loaded model, rename others over them; [`RankOptions::mapping`] explains why.
    ///
    /// # Errors
    /// [`RankError`] names the invalid file, key or tensor, or the reason why no device is available.
    pub async fn load_async(model: &Path, options: &RankOptions) -> Result<Self, RankError> {
        if !model.is_dir() {
            return Self::from_package_async(&package(model, options.mapping)?, options).await;
        }
        let (config, weights) = (read_config(model, options.mapping)?, read_weights(model, options.mapping)?);
        Self::new_async(&config, &weights, options).await
    }

    /// Loads a package, blocking; a folder is an error. Like [`Ranker::from_package`] it needs no tracing, so a program
    /// that loads no folders does not link the tracing code.
    ///
    /// # Errors
    /// [`RankError`] names the invalid file or part of the package, or the reason why no device is available.
    pub fn load_package(path: &Path, options: &RankOptions) -> Result<Self, RankError> {
        Self::from_package(&package(path, options.mapping)?, options)
    }

    /// [`Ranker::load_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::load_async`].
    pub fn load(model: &Path, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::load_async(model, options))
    }
}
