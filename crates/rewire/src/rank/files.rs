//! Models in files: folders and packages.

use super::package::{config_of, text_of};
use super::{Config, RankError, RankOptions, Ranker, parse_config};
use crate::package::{Package, PackageError};
use crate::weights::Weights;
use rewire_runtime::{Mapping, block_on};
use std::path::Path;

/// Bytes of a `config.json` at most.
const LARGEST_CONFIG: u64 = 64 << 20;

/// True for what may hold a model: a folder, or a file that begins as a package does.
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

/// Reads a package; one that is not there is a model that cannot be read.
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
        true => Ok(Weights::read_mapping(&model.join("model.safetensors"), mapping)?),
        false => Ok(package(model, mapping)?.weights().clone()),
    }
}

impl Ranker {
    /// Loads a package, or a folder with `config.json` and `model.safetensors`. Reading, compiling and, for a folder, tracing take
    /// the thread that polls. To put another model in the place of its files, rename others over them; [`RankOptions::mapping`] says why.
    ///
    /// # Errors
    /// [`RankError`] names the file, key or tensor that is not good, or what is missing for a device.
    pub async fn load_async(model: &Path, options: &RankOptions) -> Result<Self, RankError> {
        if !model.is_dir() {
            return Self::from_package_async(&package(model, options.mapping)?, options).await;
        }
        let (config, weights) = (read_config(model, options.mapping)?, read_weights(model, options.mapping)?);
        Self::new_async(&config, &weights, options).await
    }

    /// Loads a package, blocking; a folder is an error. As [`Ranker::from_package`] it traces nothing, and a program that loads no folders carries nothing that does.
    ///
    /// # Errors
    /// [`RankError`] names the file or the part of the package that is not good, or what is missing for a device.
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
