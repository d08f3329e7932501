use crate::rank::InputError;
use rewire::hstu::models::ModelError;
use rewire::rank::RankError;
use rewire::verify::CaseError;
use rewire::{GpuError, RewriteError, describe};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum CliError {
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Rank(#[from] RankError),
    #[error("{file}")]
    Data { file: String, source: RankError },
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error("cannot trace the model")]
    Trace(#[from] ModelError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    #[error("{failed} of {cases} cases are not ok")]
    NotOk { failed: usize, cases: usize },
    #[error("{}: found no .safetensors files", path.display())]
    NoCases { path: PathBuf },
    #[error("cannot read {}", path.display())]
    Path { path: PathBuf, source: io::Error },
    #[error("no adapter matches `{0}`")]
    NoDevice(String),
}

impl CliError {
    /// Prints the error and its causes on one line of stderr. A reader that went away needs no message.
    pub fn report(&self) {
        if let Self::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return;
        }
        eprintln!("error: {}", describe(self));
    }
}
