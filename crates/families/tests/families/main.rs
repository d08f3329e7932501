//! Pipelines of all families.
#![allow(clippy::unwrap_used, clippy::panic)]

mod gradients;
mod knobs;
mod losses;
mod options;
mod replay;
mod table;
