use etcetera::BaseStrategy;
use std::path::PathBuf;

/// The folder in the user's caches where the `rewire` program keeps what it measures, if the system names one.
pub fn cache_folder() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.cache_dir().join("rewire"))
}
