//! Replays golden cases: stored inputs, parameters and expected outputs of operators and modules.
#![forbid(unsafe_code)]

mod bisect;
mod case;
mod compare;
pub mod replay;
mod verifier;

pub use bisect::{BisectError, bisect};
pub use case::{CaseError, GoldenCase, cases};
pub use compare::{Mismatch, relative_error};
pub use verifier::{CaseReport, Status, Verifier, VerifyOptions};
