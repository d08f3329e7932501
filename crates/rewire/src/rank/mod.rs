//! Ranks candidates for users from their histories.

mod batch;
mod cached;
mod caches;
mod cancellation;
mod columns;
mod comparison;
mod description;
mod embedder;
mod error;
mod expected;
#[cfg(feature = "files")]
mod files;
mod index;
mod json;
mod kind;
mod lists;
mod options;
#[cfg(feature = "emit")]
mod pack;
mod package;
mod ranker;
mod request;
mod row;
mod runs;
mod schema;
mod scored;
mod scorer;
mod sequence;
mod sessions;
mod spread;
#[cfg(test)]
mod testing;
mod unread;
mod user;

pub(crate) use caches::{Chain, HistoryRows, Pages, Requests};
#[cfg(feature = "files")]
pub(crate) use files::package as read_package;
pub(crate) use kind::{ModelConfig, config_of_decoder};
#[cfg(feature = "emit")]
pub(crate) use pack::Packed;
pub(crate) use package::{compiled, kind_of, names_of_tables, store, text_of};
pub(crate) use runs::Kept;
pub(crate) use sessions::Sessions;
#[cfg(feature = "train")]
pub(crate) use {
    runs::runs,
    scorer::{capacity, check_buffers, schema},
    sequence::{Capacity, Layout},
};

pub use batch::Batch;
pub use caches::{CacheLimits, CacheReport, Caches};
pub use cancellation::CancellationToken;
pub use columns::{Columns, ColumnsError, Integers};
pub use comparison::{Change, Comparison, ComparisonError};
pub use description::Description;
pub use embedder::{Embedded, Embedder, Vectors};
pub use error::{MissingColumn, RankError, RequestError, RequestFault};
pub use expected::ExpectedRequests;
#[cfg(feature = "files")]
pub use files::{is_model, read_config, read_config_text, read_weights};
pub use index::Index;
pub use json::{JsonError, whole};
pub use kind::trace_text;
pub use options::{RankOptions, parse_config};
#[cfg(feature = "emit")]
pub use pack::{PackOptions, pack, repack};
pub use package::tables_of;
pub use ranker::{Ranker, Task};
pub use request::Request;
pub use rewire_graph_rewrite::plan::Precision;
pub use rewire_hstu::models::dlrm_hstu::{CacheOptions, Config, trace};
pub use rewire_metrics::{Auc, GroupedAuc, NormalizedEntropy};
pub use schema::{Column, Schema, Table};
pub use scored::{Candidate, Ranked, RankedColumns};
pub use spread::Spread;
pub use unread::{UnreadTensors, check_unread};
pub use user::User;
