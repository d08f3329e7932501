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

/// Why something cannot be benched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// There is no operator of a name.
    #[error("there is nothing to bench called `{name}`: expected a model folder, demo, {known}")]
    UnknownOp {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// There are no two parts.
    #[error("{name} has no two parts: it looks up no rows of tables by its inputs")]
    NoLookups {
        /// The operator, module or model.
        name: String,
    },
    /// A package holds a plan, where a graph is meant.
    #[error(
        "{name} is a package without a configuration, which holds no graph: gradients and parts need the model as traced"
    )]
    NoGraph {
        /// The package.
        name: String,
    },
    /// A package is damaged.
    #[error(transparent)]
    Package(Box<PackageError>),
    /// There is no standard shape of a name.
    #[error("there is no shape `{name}`: expected {known}")]
    UnknownShape {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A sweep is not described as one.
    #[error(
        "`{text}` is no sweep: expected AXIS=LO:HI with numbers from 1, such as max-len=128:4096, and an axis of {known}"
    )]
    Sweep {
        /// What was given.
        text: String,
        /// The axes that there are.
        known: String,
    },
    /// There is no suite of a name.
    #[error("there is no suite `{name}`: expected {known}")]
    UnknownSuite {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A file of figures cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The graph cannot be traced with these sizes.
    #[error("cannot trace {op}")]
    Trace {
        /// The operator.
        op: String,
        /// Why.
        source: Box<ModelError>,
    },
    /// A size is none that can be.
    #[error("cannot bench {op}: `{name}` must be {expected}, got {actual}")]
    Size {
        /// The operator, module or model.
        op: String,
        /// The size.
        name: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        actual: String,
    },
    /// The data takes more memory than there is.
    #[error("cannot bench {op}")]
    Memory {
        /// The operator, module or model.
        op: String,
        /// How much it takes.
        source: HostMemoryError,
    },
    /// The seconds to bench for are none that can be.
    #[error("the seconds to bench for must be in 0..={MOST_SECONDS}, got {0}")]
    Seconds(f64),
    /// The graph has no gradients.
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    /// The inputs are not those that the graph declares.
    #[error(transparent)]
    Sizes(#[from] ShapeError),
    /// The graph cannot be rewritten or lowered.
    #[error(transparent)]
    Compile(Box<RewriteError>),
    /// There is no device as asked, or it failed.
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
