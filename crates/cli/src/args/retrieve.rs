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
    /// The table that has the column of --truth, with a row for each row of --users in their order, such as the data that `predict` read;
    /// --users itself if left out.
    #[arg(long, value_name = "FILE", requires = "truth")]
    pub truth_data: Option<PathBuf>,
    /// Items for a user.
    #[arg(long, value_name = "K", default_value = "10")]
    pub top: NonZeroUsize,
    /// How items are searched: all of them (`exact`), or a graph of neighbours (`hnsw`), which is faster for many items and may miss some.
    #[arg(long, value_name = "INDEX", default_value = "exact")]
    pub index: IndexKind,
    /// Search exactly as well, and report the share of the exact items that `--index hnsw` finds.
    #[arg(long)]
    pub recall: bool,
    /// Candidates that a search of the graph keeps, at least K are: more find more and take longer.
    #[arg(long, value_name = "N", default_value = "128")]
    pub ef: NonZeroUsize,
}

/// How items are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IndexKind {
    /// All inner products.
    Exact,
    /// A hierarchical navigable small world graph. The program has it with the feature `hnsw`.
    Hnsw,
}
