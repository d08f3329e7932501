//! Maps from raw 64-bit ids to the rows of embedding tables that grow.
//!
//! A training owns an [`IdMap`]. Each step counts ids, admits and evicts ids as the [`Options`] define, and returns the rows
//! of the ids in a [`MapStep`]. Maps are deterministic: equal steps give equal maps. A [`MapState`] replays the steps without
//! an index of ids; checkpoints store it ([`MapState::save`], [`MapState::load`]).
//!
//! [`Rows`] is one version of a map for concurrent lookups. [`MapChanges`] produce the next version.
//!
//! ```
//! use rewire_tables::{Eviction, IdMap, MapRecorder, MapState, Options, Rows, hash};
//!
//! let options = Options { rows: 2, eviction: Eviction::Lru, ..Options::default() };
//! let (mut map, mut state) = (IdMap::new(options), MapState::new(options));
//! let step = map.step(&[70, 80, 70]);
//! assert_eq!(step.rows, [0, 1, 0]);
//! state.apply(&step);
//!
//! let (before, mut recorder) = (Rows::from(&state), MapRecorder::default());
//! // No row is free: the least recently used id is evicted.
//! for ids in [[80], [hash("a new item")]] {
//!     let step = map.step(&ids);
//!     recorder.record(&step);
//!     state.apply(&step);
//! }
//! let after = before.with(&recorder.take(&state).placed)?;
//! assert_eq!((before.row(70), before.row(80)), (Some(0), Some(1)));
//! assert_eq!((after.row(70), after.row(hash("a new item"))), (None, Some(0)));
//! # Ok::<(), rewire_tables::MapError>(())
//! ```
#![forbid(unsafe_code)]

mod changes;
mod error;
mod hash;
mod index;
mod map;
mod options;
mod ranking;
mod row_index;
mod state;

pub use changes::{MapChanges, MapRecorder, RowSet, RowUse};
pub use error::MapError;
pub use hash::{UNKNOWN, hash};
pub use index::Rows;
pub use map::{IdMap, MapStep, Placed};
pub use options::{Admission, Eviction, Options, Threshold};
pub use state::MapState;
