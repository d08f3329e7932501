use crate::eval::EvalError;
use crate::import::ImportError;
use crate::log::say;
use crate::paths::PathError;
use crate::predict::PredictError;
use crate::rank::RankUsage;
use crate::requests::InputError;
use crate::retrieve::RetrieveError;
#[cfg(feature = "train")]
use crate::train::TrainFailed;
use rewire::generate::GenerateError;
use rewire::graph::DifferentiateError;
use rewire::hstu::models::ModelError;
use rewire::rank::{ComparisonError, RankError};
use rewire::weights::WeightsError;
use rewire::{GpuError, RewriteError, ThreadPoolError, describe};
use rewire_measure::BenchError;
use rewire_verify::{BisectError, CaseError};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error;

/// The exit code for invalid arguments.
pub const USAGE: u8 = 2;

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CliError {
    #[error("cannot write standard output")]
    Output(#[from] io::Error),
    #[error("cannot start a thread: allow more processes (`ulimit -u`, or the limit of the container) or more memory")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Threads(#[from] ThreadPoolError),
    #[error(transparent)]
    Input(Box<InputError>),
    #[error(transparent)]
    Rank(Box<RankError>),
    #[error(transparent)]
    RankUsage(#[from] RankUsage),
    #[error(transparent)]
    Predict(Box<PredictError>),
    #[error(transparent)]
    Generate(Box<GenerateError>),
    #[error(transparent)]
    Retrieve(#[from] RetrieveError),
    #[error(transparent)]
    Paths(#[from] PathError),
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error(transparent)]
    Import(Box<ImportError>),
    #[cfg(feature = "train")]
    #[error(transparent)]
    Train(Box<TrainFailed>),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error("cannot trace the model")]
    Trace(#[from] ModelError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    #[error(transparent)]
    Rewrite(Box<RewriteError>),
    #[error("{file} does not describe a device")]
    Target { file: String, source: serde_json::Error },
    #[error("cannot read {file}")]
    Read { file: String, source: io::Error },
    #[error("{file} holds unsupported tensors")]
    Tensors { file: String, source: Box<rewire::import::ImportError> },
    #[error("cannot write {file}")]
    Write { file: String, source: io::Error },
    #[error("{failed} of {cases} cases failed")]
    NotOk { failed: usize, cases: usize },
    #[error("{}: found no .safetensors files", path.display())]
    NoCases { path: PathBuf },
    #[error(transparent)]
    Comparison(Box<ComparisonError>),
    #[error("no adapter matches `{0}`")]
    NoDevice(String),
    #[error("--devices selects where the model runs: leave out --adapter, and kernel cpu")]
    DevicesTwice,
    #[error("tunings are measured on adapters, but --for names none")]
    NoAdapter,
    #[error("%{node} has no WGSL: {reason}")]
    NoKernel { node: usize, reason: String },
    #[error("the tensors take {needed} bytes with all memory-saving recomputation, more than {limit}")]
    Memory { limit: u64, needed: u64 },
    #[error("out of host memory: raise the limit (`ulimit -v`, or that of the container)")]
    Short,
    #[error("there is no folder for tunings: set HOME, or XDG_CACHE_HOME (LOCALAPPDATA on Windows)")]
    NoCaches,
    #[error("{failed} of {all} could not be measured")]
    NotMeasured { failed: usize, all: usize },
    #[error("{failed} of {all} kernels did not compile")]
    NotCompiled { failed: usize, all: usize },
    #[error("{spilling} of {all} kernels spill registers, and --deny-spills is given")]
    Spills { spilling: usize, all: usize },
    #[error("the training of {op} with seed {seed} failed: {reason}")]
    Quality { op: String, seed: u64, reason: String },
    #[cfg(not(feature = "train"))]
    #[error("this build cannot train: build it with the cargo feature `train`")]
    NoTraining,
    #[error("{worse} of {all} are worse, mixed, or could not be compared")]
    Worse { worse: usize, all: usize },
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("only golden cases can be bisected: they hold the inputs to compare with")]
    NoCase,
    #[error(
        "{model} is a package without a graph: for packages, `graph` prints kernels and accepts only --target, --wgsl and --json"
    )]
    NoGraph { model: String },
    #[error(transparent)]
    Bisect(#[from] BisectError),
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Serve(#[from] crate::serve::ServerError),
    #[cfg(feature = "serve")]
    #[error("{connections} connections were cut off after the grace period")]
    CutOff { connections: usize },
}

impl From<RankError> for CliError {
    fn from(error: RankError) -> Self {
        Self::Rank(Box::new(error))
    }
}

impl From<ComparisonError> for CliError {
    fn from(error: ComparisonError) -> Self {
        Self::Comparison(Box::new(error))
    }
}

impl From<InputError> for CliError {
    fn from(error: InputError) -> Self {
        Self::Input(Box::new(error))
    }
}

impl From<RewriteError> for CliError {
    fn from(error: RewriteError) -> Self {
        Self::Rewrite(Box::new(error))
    }
}

impl CliError {
    /// The exit code.
    pub fn code(&self) -> ExitCode {
        if self.is_usage() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    }

    /// True if the arguments themselves are invalid: an unknown name, a value out of range, or contradictory options.
    fn is_usage(&self) -> bool {
        use BenchError::{Seconds, Size, UnknownOp, UnknownShape, UnknownSuite};
        match self {
            Self::Bench(error) => {
                matches!(error, UnknownOp { .. } | UnknownShape { .. } | UnknownSuite { .. } | Size { .. } | Seconds(_))
            }
            Self::Rewrite(error) => matches!(**error, RewriteError::Unknown { .. }),
            Self::RankUsage(_) => true,
            Self::Predict(error) => error.is_usage(),
            #[cfg(feature = "train")]
            Self::Train(error) => error.is_usage(),
            Self::Import(error) => error.is_usage(),
            Self::Eval(error) => error.is_usage(),
            Self::Paths(_) | Self::DevicesTwice | Self::NoAdapter | Self::NoCase | Self::Threads(_) => true,
            _ => false,
        }
    }

    /// Prints the error and its causes on one line of stderr. A broken pipe needs no message.
    pub fn report(&self) {
        if let Self::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return;
        }
        say(format_args!("error: {}", describe(self)));
    }
}
