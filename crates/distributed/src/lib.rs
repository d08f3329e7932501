//! Collective operations between the ranks of a training, over buffers of the host.
//!
//! All ranks call the same operations in the same order. Sums are computed in rank order, so results do not depend on
//! the order in which messages arrive. Every operation ends within a time limit; if a rank dies or hangs, the error of
//! the other ranks names it.
//!
//! ```
//! use rewire_distributed::{Collectives, in_process};
//! use std::time::Duration;
//!
//! let ranks = in_process(3, Duration::from_secs(10));
//! let sums = std::thread::scope(|scope| {
//!     let threads: Vec<_> = ranks.iter().map(|rank| scope.spawn(move || {
//!         let mut values = vec![rank.rank() as f32, 1.0];
//!         rank.all_reduce(&mut values).map(|()| values)
//!     })).collect();
//!     threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Result<Vec<_>, _>>()
//! })?;
//! assert_eq!(sums, vec![[3.0, 3.0]; 3]);
//! # Ok::<(), rewire_distributed::CollectiveError>(())
//! ```
#![deny(unsafe_code)]

mod buffers;
mod collectives;
mod error;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
mod timed;

#[cfg(feature = "mpi")]
pub use self::mpi::Mpi;
pub use buffers::{Buffer, Buffers};
pub use bytes::Bytes;
pub use collectives::{Collectives, all_gather_of, all_to_all_of};
pub use error::CollectiveError;
pub use local::{Local, in_process};
pub use timed::{Spent, Timed};
