use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyList};
use rewire::train::distributed::{Bytes, CollectiveError, Collectives};
use std::time::Duration;

/// Collective operations of a Python object with `rank`, `ranks` and `all_to_all`.
#[derive(Debug)]
pub struct OfPython {
    object: Py<PyAny>,
    rank: usize,
    ranks: usize,
}

impl OfPython {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let number = |name: &str| object.getattr(name)?.extract::<usize>();
        Ok(Self { rank: number("rank")?, ranks: number("ranks")?, object: object.clone().unbind() })
    }
}

impl Collectives for OfPython {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn all_to_all(&self, parts: Vec<Bytes>) -> Result<Vec<Bytes>, CollectiveError> {
        let received = Python::attach(|py| {
            let parts = PyList::new(py, parts.iter().map(|part| PyByteArray::new(py, part)));
            let received = parts.and_then(|parts| self.object.bind(py).call_method1("all_to_all", (parts,)));
            let received = received.and_then(|received| received.extract::<Vec<PyBackedBytes>>());
            received.map_err(|error| fault(py, &error))
        })?;
        match received.len() == self.ranks {
            true => Ok(received.into_iter().map(Bytes::from_owner).collect()),
            false => {
                let (actual, ranks) = (received.len(), self.ranks);
                Err(CollectiveError::Usage { expected: "one part of each rank", actual, ranks })
            }
        }
    }
}

/// Converts an exception to an error. The exception may have the attributes `rank`, the failed rank, and `waited`, the
/// seconds waited for it.
fn fault(py: Python<'_>, error: &PyErr) -> CollectiveError {
    let value = error.value(py);
    let rank = value.getattr("rank").and_then(|rank| rank.extract::<usize>());
    let waited = value.getattr("waited").and_then(|waited| waited.extract::<f64>());
    match (rank, waited.ok().and_then(|waited| Duration::try_from_secs_f64(waited).ok())) {
        (Ok(rank), Some(waited)) => CollectiveError::Timeout { rank, waited },
        (Ok(rank), None) => CollectiveError::Lost { rank },
        (Err(_), _) => CollectiveError::Library { library: "the object of collectives", reason: error.to_string() },
    }
}
