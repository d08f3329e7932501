//! The commands that train, in a build without the feature `train`: each is an error.

use crate::args::{Bench, Common, Sid, Train};
use crate::error::CliError;
use crate::output::Output;
use std::time::Instant;

pub mod quality {
    use super::*;

    pub fn run(_: &Bench, _: &Common, _: &mut Output) -> Result<(), CliError> {
        Err(CliError::NoTraining)
    }
}

pub mod sid {
    use super::*;

    pub fn run(_: &Sid, _: &Common, _: Instant, _: &mut Output) -> Result<(), CliError> {
        Err(CliError::NoTraining)
    }
}

pub mod train {
    use super::*;

    pub const FILES: [&str; 0] = [];

    pub fn run(_: &Train, _: &Common, _: &mut Output) -> Result<(), CliError> {
        Err(CliError::NoTraining)
    }

    pub fn scaling(_: &Common, _: &mut Output) -> Result<(), CliError> {
        Err(CliError::NoTraining)
    }
}
