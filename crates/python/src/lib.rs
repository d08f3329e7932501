//! Ranking, imported models, custom models and training in Python: the native part of the package `rewire`, whose stubs and documentation are in
//! `python/rewire`.

mod arrays;
mod closable;
mod columns;
mod decoder;
mod errors;
mod evaluator;
mod model;
mod options;
mod package;
mod predictions;
mod predictor;
mod ranker;
mod requests;
mod table;
mod trace;
mod training;

/// The native part.
#[pyo3::pymodule]
mod _rewire {
    #[pymodule_export]
    use crate::decoder::Decoder;
    #[pymodule_export]
    use crate::errors::{GraphError, ModelError, RequestError, RewireError, RunError};
    #[pymodule_export]
    use crate::evaluator::{Evaluation, Evaluator};
    #[pymodule_export]
    use crate::model::{Model, Session};
    #[pymodule_export]
    use crate::package::package;
    #[pymodule_export]
    use crate::predictions::Predictions;
    #[pymodule_export]
    use crate::predictor::{Predictor, load};
    #[pymodule_export]
    use crate::ranker::Ranker;
    #[pymodule_export]
    use crate::trace::{Graph, Ragged, Scope, Size, Tensor};
    #[pymodule_export]
    use crate::training::train;
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
