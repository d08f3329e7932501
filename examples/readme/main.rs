//! The program of the README.

include!("rank.rs");
