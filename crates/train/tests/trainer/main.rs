//! Trainers, alone and as ranks.
#![allow(clippy::unwrap_used)]

mod ranks;
mod reports;
