use crate::MOST_SECONDS;
use crate::draft::DraftError;
use rewire::package::PackageError;
use rewire_graph::DifferentiateError;
use rewire_graph::shape::ShapeError;
use rewire_graph_rewrite::RewriteError;
use rewire_hstu::models::ModelError;
use rewire_runtime::{GpuError, HostMemoryError, RunError, RuntimeError};
use std::path::PathBuf;
use thiserror::Error;

/// Why a workload cannot be benchmarked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The operator does not exist.
    #[error("unknown workload `{name}`: expected a model folder, demo, {known}")]
    UnknownOp {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// The workload has no lookups to split off.
    #[error("{name} cannot be split into two parts: its inputs look up no rows of tables")]
    NoLookups {
        /// The operator, module or model.
        name: String,
    },
    /// A graph is needed, but the package only holds a plan.
    #[error("{name} is a package without a configuration and has no graph: gradients and parts need the traced model")]
    NoGraph {
        /// The package.
        name: String,
    },
    /// A package is damaged.
    #[error(transparent)]
    Package(Box<PackageError>),
    /// There is no standard shape of that name.
    #[error("there is no shape `{name}`: expected {known}")]
    UnknownShape {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A sweep is invalid.
    #[error(
        "`{text}` is not a sweep: expected AXIS=LO:HI with numbers from 1, such as max-len=128:4096, and an axis of {known}"
    )]
    Sweep {
        /// The invalid text.
        text: String,
        /// The existing axes.
        known: String,
    },
    /// There is no suite of that name.
    #[error("there is no suite `{name}`: expected {known}")]
    UnknownSuite {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A file of measurements cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// PyTorch cannot be timed.
    #[error("cannot time PyTorch with {}: {reason}", python.display())]
    PyTorch {
        /// The Python interpreter.
        python: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The graph cannot be traced with these sizes.
    #[error("cannot trace {op}")]
    Trace {
        /// The operator.
        op: String,
        /// The cause.
        source: Box<ModelError>,
    },
    /// A size is invalid.
    #[error("cannot bench {op}: `{name}` must be {expected}, got {actual}")]
    Size {
        /// The operator, module or model.
        op: String,
        /// The name of the size.
        name: &'static str,
        /// The allowed values.
        expected: String,
        /// The actual value.
        actual: String,
    },
    /// The data exceeds the available memory.
    #[error("cannot bench {op}")]
    Memory {
        /// The operator, module or model.
        op: String,
        /// The error with the required memory.
        source: HostMemoryError,
    },
    /// The duration is invalid.
    #[error("the seconds to bench for must be in 0..={MOST_SECONDS}, got {0}")]
    Seconds(f64),
    /// The graph has no gradients.
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    /// The inputs do not match their declarations in the graph.
    #[error(transparent)]
    Sizes(#[from] ShapeError),
    /// The graph cannot be rewritten or lowered.
    #[error(transparent)]
    Compile(Box<RewriteError>),
    /// The requested device is not available, or the device failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The device cannot run the plan.
    #[error(transparent)]
    Load(Box<RuntimeError>),
    /// A run failed.
    #[error(transparent)]
    Run(Box<RunError>),
}

impl BenchError {
    pub(crate) fn draft(op: &str, error: DraftError) -> Self {
        let op = op.to_owned();
        match error {
            DraftError::Model(source) => Self::Trace { op, source },
            DraftError::Memory(source) => Self::Memory { op, source },
            DraftError::Size { name, expected, actual } => Self::Size { op, name, expected, actual },
        }
    }
}

impl From<PackageError> for BenchError {
    fn from(error: PackageError) -> Self {
        Self::Package(Box::new(error))
    }
}

impl From<RewriteError> for BenchError {
    fn from(error: RewriteError) -> Self {
        Self::Compile(Box::new(error))
    }
}

impl From<RuntimeError> for BenchError {
    fn from(error: RuntimeError) -> Self {
        Self::Load(Box::new(error))
    }
}

impl From<RunError> for BenchError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}
