//! Families of pipelines.
#![allow(clippy::unwrap_used, clippy::panic)]

mod options;
mod replay;
mod table;
