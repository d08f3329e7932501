//! Encoded columns and groups of features.
#![allow(clippy::unwrap_used, clippy::panic)]

mod encode;
mod groups;
