use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use rewire::describe;
use rewire::graph::Coded;
use rewire::rank::RankError;
use std::error::Error;

pyo3::create_exception!(rewire, RewireError, PyException, "Base class of all errors; `code` names the kind of error.");
pyo3::create_exception!(rewire, GraphError, RewireError, "A traced model is invalid.");
pyo3::create_exception!(
    rewire,
    ModelError,
    RewireError,
    "A model cannot be read, or the requested device is not available."
);
pyo3::create_exception!(rewire, RequestError, RewireError, "Requests do not fit the model.");
pyo3::create_exception!(rewire, RunError, RewireError, "A run or a training failed.");

fn with_code(error: PyErr, code: &str) -> PyErr {
    Python::attach(|py| {
        // If the code cannot be set, the error is raised without it.
        let _ = error.value(py).setattr("code", code);
    });
    error
}

/// An error in a traced model.
pub fn of_graph(error: &(impl Error + Coded)) -> PyErr {
    with_code(GraphError::new_err(describe(error)), error.code())
}

/// A model that cannot be read, or loaded on the device.
pub fn of_model(error: &(impl Error + Coded)) -> PyErr {
    with_code(ModelError::new_err(describe(error)), error.code())
}

/// A run that failed.
pub fn of_run(error: &(impl Error + Coded)) -> PyErr {
    with_code(RunError::new_err(describe(error)), error.code())
}

/// A training that failed, possibly by an exception of its progress function.
pub fn of_training(error: &(impl Error + Coded)) -> PyErr {
    let mut cause = error.source();
    while let Some(inner) = cause {
        let own = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(raised) = own.and_then(|own| own.downcast_ref::<PyErr>()) {
            return Python::attach(|py| raised.clone_ref(py));
        }
        cause = inner.source();
    }
    of_run(error)
}

/// Requests that do not fit.
pub fn of_request(error: &dyn Error) -> PyErr {
    with_code(RequestError::new_err(describe(error)), "rank.request")
}

/// A prediction that failed, because of the table's columns or during the run.
pub fn of_prediction(error: &RankError) -> PyErr {
    if let RankError::Columns(error) = error { of_request(error) } else { of_run(error) }
}

/// Columns that do not form a table.
pub fn request(message: &str) -> PyErr {
    with_code(RequestError::new_err(message.to_owned()), "rank.request")
}
