//! Families of pipelines.
#![allow(clippy::unwrap_used, clippy::panic)]

mod knobs;
mod options;
mod replay;
mod table;
