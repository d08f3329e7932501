//! What the program keeps in the user's cache folder for later runs.

use rewire::{PipelineStore, TuningStore, cache_folder};

/// The tunings that were measured on this computer.
pub fn tunings() -> Option<TuningStore> {
    Some(TuningStore::at(cache_folder()?.join("tunings")))
}

/// The kernels that were compiled on this computer.
pub fn pipelines() -> Option<PipelineStore> {
    Some(PipelineStore::at(cache_folder()?.join("pipelines")))
}
