//! Ranking from Python: the native part of the package `rewire`, whose stubs and documentation are in `python/rewire`.

mod errors;
mod predictions;
mod ranker;
mod table;

/// The native part.
#[pyo3::pymodule]
mod _rewire {
    #[pymodule_export]
    use crate::errors::{ModelError, RequestError, RewireError, RunError};
    #[pymodule_export]
    use crate::predictions::Predictions;
    #[pymodule_export]
    use crate::ranker::Ranker;
}
