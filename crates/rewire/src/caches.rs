use etcetera::BaseStrategy;
use std::path::PathBuf;

/// The folder in the user's cache directory where the `rewire` program stores measurements; `None` if the system has no
/// such directory.
pub fn cache_folder() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.cache_dir().join("rewire"))
}
