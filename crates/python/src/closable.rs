//! Frees models at the end of a `with` block, before the garbage collector does.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Arc, PoisonError, RwLock};

/// A model until it is closed.
pub struct Closable<T>(RwLock<Option<Arc<T>>>);

impl<T: Send + Sync> Closable<T> {
    pub fn new(model: T) -> Self {
        Self(RwLock::new(Some(Arc::new(model))))
    }

    /// The model, or a `ValueError` if it is closed.
    pub fn get(&self) -> PyResult<Arc<T>> {
        let model = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        model.ok_or_else(|| PyValueError::new_err("the model is closed"))
    }

    /// Frees the model, or lets the last call of another thread that still uses it free it. A closed model stays
    /// closed.
    pub fn close(&self, py: Python<'_>) {
        let model = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(model));
    }
}
