use super::{Config, RankError, RankOptions, Ranker, parse_config};
use crate::weights::Weights;
use rewire_runtime::block_on;
use std::path::Path;

/// Bytes of a `config.json` at most.
const LARGEST_CONFIG: u64 = 64 << 20;

/// Reads the `config.json` of a model folder.
///
/// # Errors
/// [`RankError::Read`] and [`RankError::Config`].
pub fn read_config(folder: &Path) -> Result<Config, RankError> {
    let path = folder.join("config.json");
    let unread = |source| RankError::Read { path: path.clone(), source };
    let found = std::fs::metadata(&path).map_err(unread)?;
    if !found.is_file() || found.len() > LARGEST_CONFIG {
        let reason = format!("not a file of at most {LARGEST_CONFIG} bytes");
        return Err(unread(std::io::Error::other(reason)));
    }
    let text = std::fs::read_to_string(&path).map_err(unread)?;
    parse_config(&path.display().to_string(), &text)
}

impl Ranker {
    /// Loads a folder with `config.json` and `model.safetensors`. Reading, tracing and compiling take the thread that polls.
    ///
    /// # Errors
    /// [`RankError`] names the file, key or tensor that is not good, or what is missing for a device.
    pub async fn load_async(folder: &Path, options: &RankOptions) -> Result<Self, RankError> {
        let config = read_config(folder)?;
        let weights = Weights::read(&folder.join("model.safetensors"))?;
        Self::new_async(&config, &weights, options).await
    }

    /// [`Ranker::load_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::load_async`].
    pub fn load(folder: &Path, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::load_async(folder, options))
    }
}
