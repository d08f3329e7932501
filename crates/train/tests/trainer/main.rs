//! Trainers, alone and as ranks.
#![allow(clippy::unwrap_used)]

mod changes;
mod growing;
mod ranks;
mod reports;
