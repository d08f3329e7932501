//! Ranking candidates for users by their histories.

mod auc;
mod error;
mod json;
mod request;
mod schema;
mod scored;
mod sequence;
#[cfg(test)]
mod testing;

pub use auc::Auc;
pub use error::{RankError, RequestError, RequestFault};
pub use json::{JsonError, whole};
pub use request::{Columns, Place, Request, User};
pub use schema::{Column, Schema, Table};
pub use scored::{Candidate, Ranked};
