//! Times of PyTorch beside those of rewire.

use crate::{BenchError, Workload};
use rewire_runtime::ThreadPool;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("pytorch.py");

/// Keeps the memory of freed results in the process. glibc would return it to the system, and most of PyTorch's time on the CPU
/// would go to page faults.
const MALLOC: &str = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:glibc.malloc.top_pad=268435456";

/// A Python process that times workloads in PyTorch, with as many threads as rewire.
#[derive(Debug)]
pub struct PyTorch {
    python: PathBuf,
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl PyTorch {
    /// Starts a Python interpreter that has PyTorch.
    ///
    /// # Errors
    /// [`BenchError::PyTorch`] if it does not start, or cannot import PyTorch.
    pub fn start(python: &Path) -> Result<Self, BenchError> {
        let failed = |reason: String| BenchError::PyTorch { python: python.to_owned(), reason };
        let threads = ThreadPool::current().threads().to_string();
        let mut process = Command::new(python)
            .args(["-c", SCRIPT, &threads])
            .env("GLIBC_TUNABLES", MALLOC)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed("its standard streams are missing".to_owned()));
        };
        let (requests, answers) = (Some(requests), BufReader::new(answers));
        let mut started = Self { python: python.to_owned(), process, requests, answers };
        // The script has imported PyTorch when it answers with the version.
        match started.answer()? {
            Value::String(_) => Ok(started),
            other => Err(started.failed(format!("expected the version of PyTorch, got {other}"))),
        }
    }

    /// The median time of a run in milliseconds, as its caller sees it; `None` for a workload without a counterpart in PyTorch.
    ///
    /// # Errors
    /// [`BenchError::PyTorch`] if PyTorch fails.
    pub(crate) fn time(&mut self, workload: &Workload, device: &str, seconds: f64) -> Result<Option<f64>, BenchError> {
        let lengths = workload.inputs.iter().find(|(name, _)| name == "lengths").map(|(_, tensor)| tensor.to_i64());
        let mut request = workload.shape.clone();
        request.extend([
            ("op".to_owned(), json!(workload.op)),
            ("dtype".to_owned(), json!(workload.dtype.to_string())),
            ("lengths".to_owned(), json!(lengths)),
            ("device".to_owned(), json!(device)),
            ("seconds".to_owned(), json!(seconds)),
        ]);
        let line = Value::Object(request).to_string() + "\n";
        let sent = self.requests.as_mut().map(|requests| requests.write_all(line.as_bytes()));
        if let Some(Err(error)) = sent {
            return Err(self.failed(error.to_string()));
        }
        match self.answer()? {
            Value::Null => Ok(None),
            Value::String(reason) => Err(self.failed(format!("{}: {reason}", workload.op))),
            time => Ok(time.as_f64()),
        }
    }

    fn answer(&mut self) -> Result<Value, BenchError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(self.failed("it ended early".to_owned())),
            Ok(_) => serde_json::from_str(&line).map_err(|error| self.failed(error.to_string())),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn failed(&self, reason: String) -> BenchError {
        BenchError::PyTorch { python: self.python.clone(), reason }
    }
}

impl Drop for PyTorch {
    fn drop(&mut self) {
        // The end of its input ends the process.
        self.requests = None;
        let _ = self.process.wait();
    }
}
