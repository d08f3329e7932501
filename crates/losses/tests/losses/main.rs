//! Losses against loops in double precision, and their gradients against differences of these.
#![allow(clippy::unwrap_used, clippy::panic)]

mod binary;
mod check;
mod classes;
mod matching;
