//! The program's data in the user's cache folder.

use rewire::{PipelineStore, TuningStore, cache_folder};

/// The tunings measured on this computer.
pub fn tunings() -> Option<TuningStore> {
    Some(TuningStore::at(cache_folder()?.join("tunings")))
}

/// The kernels compiled on this computer.
pub fn pipelines() -> Option<PipelineStore> {
    Some(PipelineStore::at(cache_folder()?.join("pipelines")))
}
