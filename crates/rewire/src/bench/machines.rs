use super::BenchError;
use crate::cache_folder;
use rewire_graph_rewrite::cost::Machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was measured on this computer, by adapter and driver, in a file.
///
/// ```
/// use rewire::bench::Machines;
/// use rewire::graph_rewrite::cost::Machine;
/// let path = std::env::temp_dir().join(format!("machines-{}.json", std::process::id()));
/// let mut machines = Machines::read(&path)?;
/// machines.insert("some adapter (vulkan driver 1)", Machine::TYPICAL)?;
/// assert_eq!(Machines::read(&path)?.find("driver 1").map(|(_, machine)| machine), Some(&Machine::TYPICAL));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    path: PathBuf,
    known: BTreeMap<String, Machine>,
}

impl Machines {
    /// The file in the user's folder for caches, if the system names one.
    pub fn usual_path() -> Option<PathBuf> {
        Some(cache_folder()?.join("machines.json"))
    }

    /// Reads a file; nothing is known where there is none.
    ///
    /// # Errors
    /// [`BenchError::File`] if it cannot be read or is not good.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let failed = |reason: String| BenchError::File { path: path.to_owned(), reason };
        let known = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed(error.to_string())),
        };
        Ok(Self { path: path.to_owned(), known })
    }

    /// The first adapter whose name or driver contains `part`, whatever its case.
    pub fn find(&self, part: &str) -> Option<(&str, &Machine)> {
        let part = part.to_lowercase();
        let mut known = self.known.iter().map(|(name, machine)| (name.as_str(), machine));
        known.find(|(name, _)| name.to_lowercase().contains(&part))
    }

    /// Keeps what was measured of an adapter, and writes the file.
    ///
    /// # Errors
    /// [`BenchError::File`] if it cannot be written.
    pub fn insert(&mut self, adapter: &str, machine: Machine) -> Result<(), BenchError> {
        self.known.insert(adapter.to_owned(), machine);
        let failed = |error: std::io::Error| BenchError::File { path: self.path.clone(), reason: error.to_string() };
        let text = serde_json::to_vec_pretty(&self.known).map_err(|error| failed(error.into()))?;
        std::fs::create_dir_all(self.path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        // Another program may read the file meanwhile: it finds the old one or the new one.
        let own = self.path.with_extension(format!("{}.json", std::process::id()));
        std::fs::write(&own, text).and_then(|()| std::fs::rename(&own, &self.path)).map_err(failed)
    }
}
