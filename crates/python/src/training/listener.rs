use pyo3::prelude::*;
use pyo3::types::PyDict;
use rewire_cli::{Listener, StepLine};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Calls a function with each step, and logs messages to the logger `rewire`.
pub struct Progress {
    pub function: Option<Py<PyAny>>,
    pub cancelled: Arc<AtomicBool>,
}

impl Listener for Progress {
    fn step(&mut self, step: &StepLine<'_>) -> io::Result<()> {
        let Some(function) = &self.function else { return Ok(()) };
        let called = Python::attach(|py| {
            let (line, rates) = (PyDict::new(py), PyDict::new(py));
            rates.set_item("dense", step.lr.dense)?;
            rates.set_item("sparse", step.lr.sparse)?;
            line.set_item("step", step.step)?;
            line.set_item("loss", step.loss)?;
            line.set_item("losses", &step.losses)?;
            line.set_item("lr", rates)?;
            function.call1(py, (line,)).map(drop)
        });
        called.map_err(io::Error::other)
    }

    fn message(&mut self, text: &str) {
        Python::attach(|py| {
            let logger = py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("rewire",)));
            // A message that cannot be logged does not end the training.
            let _ = logger.and_then(|logger| logger.call_method1("info", ("%s", text)));
        });
    }

    fn cancelled(&self) -> Option<Arc<AtomicBool>> {
        Some(self.cancelled.clone())
    }
}
