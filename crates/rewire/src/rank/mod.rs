//! Ranking candidates for users by their histories.

mod auc;
mod batch;
mod error;
mod json;
mod ranker;
mod request;
mod schema;
mod scored;
mod sequence;
mod sessions;
#[cfg(test)]
mod testing;
mod unread;

pub use auc::Auc;
pub use error::{RankError, RequestError, RequestFault};
pub use json::{JsonError, whole};
pub use ranker::{RankOptions, Ranker, Task, parse_config, read_config};
pub use request::{Columns, Place, Request, User};
pub use rewire_hstu::models::dlrm_hstu::{Config, trace};
pub use schema::{Column, Schema, Table};
pub use scored::{Candidate, Ranked};
pub use unread::{UnreadTensors, check_unread};
