//! Golden cases.
mod compare;
pub use compare::{Mismatch, relative_error};
