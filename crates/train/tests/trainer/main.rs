//! Trainers, alone and as ranks.
#![allow(clippy::unwrap_used)]

mod growing;
mod ranks;
mod reports;
