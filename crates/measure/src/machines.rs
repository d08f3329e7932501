use crate::BenchError;
use rewire::cache_folder;
use rewire_graph_rewrite::cost::HardwareModel;
use rewire_runtime::update_file;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A file with the rooflines measured on this computer, by adapter and driver.
///
/// ```
/// use rewire_measure::Machines;
/// use rewire::graph_rewrite::cost::HardwareModel;
/// let path = std::env::temp_dir().join(format!("machines-{}.json", std::process::id()));
/// let mut machines = Machines::read(&path)?;
/// machines.insert("some adapter (vulkan driver 1)", HardwareModel::TYPICAL)?;
/// assert_eq!(Machines::read(&path)?.find("driver 1").map(|(_, machine)| machine), Some(&HardwareModel::TYPICAL));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    path: PathBuf,
    known: BTreeMap<String, HardwareModel>,
}

impl Machines {
    /// The file in the user's cache directory; `None` if the system has no such directory.
    pub fn usual_path() -> Option<PathBuf> {
        Some(cache_folder()?.join("machines.json"))
    }

    /// Reads a file. A missing file is treated as empty.
    ///
    /// # Errors
    /// [`BenchError::File`] if it cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let failed = |error: io::Error| BenchError::File { path: path.to_owned(), reason: error.to_string() };
        Ok(Self { path: path.to_owned(), known: known(std::fs::read(path)).map_err(failed)? })
    }

    /// The first adapter whose name or driver contains `part`, ignoring case.
    pub fn find(&self, part: &str) -> Option<(&str, &HardwareModel)> {
        let part = part.to_lowercase();
        let mut known = self.known.iter().map(|(name, machine)| (name.as_str(), machine));
        known.find(|(name, _)| name.to_lowercase().contains(&part))
    }

    /// Stores the roofline of an adapter and writes the file. Rooflines that other programs have stored meanwhile are kept.
    ///
    /// # Errors
    /// [`BenchError::File`] if it cannot be written, or is no longer valid.
    pub fn insert(&mut self, adapter: &str, machine: HardwareModel) -> Result<(), BenchError> {
        self.known.insert(adapter.to_owned(), machine);
        let written = update_file(&self.path, |old| {
            let mut all = known(old)?;
            all.append(&mut self.known);
            self.known = all;
            Ok(serde_json::to_vec_pretty(&self.known)?)
        });
        written.map_err(|error| BenchError::File { path: self.path.clone(), reason: error.to_string() })
    }
}

fn known(content: io::Result<Vec<u8>>) -> io::Result<BTreeMap<String, HardwareModel>> {
    match content {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}
