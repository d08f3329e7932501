//! Retrieval by vectors.

use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Tables of vectors, such as `predict` writes.
#[derive(Debug, clap::Args)]
pub struct Retrieve {
    /// The table of user vectors, one per row: JSON Lines, CSV or Parquet. If a user vector has several times the width
    /// of an item vector, it holds several interests, and the best one counts.
    #[arg(long, value_name = "FILE")]
    pub users: PathBuf,
    /// The table of item vectors. If an item has several rows, the first one counts.
    #[arg(long, value_name = "FILE")]
    pub items: PathBuf,
    /// The column of user vectors.
    #[arg(long, value_name = "COLUMN", default_value = "user_tower_emb")]
    pub user_vector: String,
    /// The column of item vectors.
    #[arg(long, value_name = "COLUMN", default_value = "item_tower_emb")]
    pub item_vector: String,
    /// The column of item ids, integers.
    #[arg(long, value_name = "COLUMN", default_value = "item_id")]
    pub item: String,
    /// A user column with the ids of the relevant items, one or a list; the share of them that is found is reported as recall@K.
    #[arg(long, value_name = "COLUMN")]
    pub truth: Option<String>,
    /// The table with the column of --truth, one row per row of --users in the same order, such as the input of `predict`; --users itself
    /// if left out.
    #[arg(long, value_name = "FILE", requires = "truth")]
    pub truth_data: Option<PathBuf>,
    /// Items per user.
    #[arg(long, value_name = "K", default_value = "10")]
    pub top: NonZeroUsize,
    /// Search method: all items (`exact`), or a graph of neighbours (`hnsw`), which is faster for many items but
    /// approximate.
    #[arg(long, value_name = "INDEX", default_value = "exact")]
    pub index: IndexKind,
    /// Also search exactly, and report the share of the exact results that `--index hnsw` finds.
    #[arg(long)]
    pub recall: bool,
    /// Candidates that a graph search keeps, at least K; more of them raise recall and time.
    #[arg(long, value_name = "N", default_value = "128")]
    pub ef: NonZeroUsize,
}

/// Search method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IndexKind {
    /// All inner products.
    Exact,
    /// A hierarchical navigable small world graph. Requires the feature `hnsw`.
    Hnsw,
}
