use std::time::Duration;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a collective operation failed. Ranks may then have different states, so the training must end.
#[derive(Clone, Debug, Error, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "collective.")]
#[non_exhaustive]
pub enum CollectiveError {
    /// A rank ended early.
    #[error("rank {rank} ended: its output has the error")]
    Lost {
        /// The rank.
        rank: usize,
    },
    /// A rank did not answer in time.
    #[error("rank {rank} has not answered for {} s: it hangs, lost its connection, or needs a longer time limit", waited.as_secs_f64())]
    Timeout {
        /// The first rank that did not answer.
        rank: usize,
        /// The time limit.
        waited: Duration,
    },
    /// A rank sent a message of an unexpected size.
    #[error("rank {rank} sent {actual} bytes, not {expected}: it runs another model, configuration or program")]
    Length {
        /// The rank.
        rank: usize,
        /// The expected size.
        expected: String,
        /// The actual size.
        actual: usize,
    },
    /// The number of parts or a rank is outside the group.
    #[error("expected {expected}, got {actual}: the group has {ranks} ranks")]
    Usage {
        /// The requirement.
        expected: &'static str,
        /// The actual number.
        actual: usize,
        /// The size of the group.
        ranks: usize,
    },
    /// The library that transports messages failed.
    #[error("{library} failed: {reason}")]
    Library {
        /// Its name.
        library: &'static str,
        /// Its message.
        reason: String,
    },
}
