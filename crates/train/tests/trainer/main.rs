//! Single trainers, and trainers as ranks.
#![allow(clippy::unwrap_used)]

mod changes;
mod growing;
mod ranks;
mod reports;
