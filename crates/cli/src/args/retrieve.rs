//! Retrieval by vectors.

use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Tables of vectors, such as `predict` writes.
#[derive(Debug, clap::Args)]
pub struct Retrieve {
    /// The table with vectors of users, a row each: JSON Lines, CSV or Parquet. A vector as long as several of an item has as many interests,
    /// of which the best counts.
    #[arg(long, value_name = "FILE")]
    pub users: PathBuf,
    /// The table with vectors of items. Of an item in several rows the first one counts.
    #[arg(long, value_name = "FILE")]
    pub items: PathBuf,
    /// The column with the vectors of users.
    #[arg(long, value_name = "COLUMN", default_value = "user_tower_emb")]
    pub user_vector: String,
    /// The column with the vectors of items.
    #[arg(long, value_name = "COLUMN", default_value = "item_tower_emb")]
    pub item_vector: String,
    /// The column with the ids of items, integers.
    #[arg(long, value_name = "COLUMN", default_value = "item_id")]
    pub item: String,
    /// A column of users with the ids of items that are right, one or a list: the share of them that is found is reported as recall@K.
    #[arg(long, value_name = "COLUMN")]
    pub truth: Option<String>,
    /// Items for a user.
    #[arg(long, value_name = "K", default_value = "10")]
    pub top: NonZeroUsize,
}
