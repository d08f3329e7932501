//! Maps from raw 64-bit ids to the rows of embedding tables that grow.
//!
//! An [`IdMap`] belongs to a training. Before each step it counts the step's ids, admits new ones and evicts others as its
//! [`Options`] say, and returns the rows that were [`Placed`]. Everything follows from the ids of the steps: equal steps give equal
//! maps, also after [`IdMap::save`] and [`IdMap::load`].
//!
//! A [`Rows`] is for any number of threads: it looks up ids while the changes of a map are applied.
//!
//! ```
//! use rewire_tables::{Eviction, IdMap, Options, Rows, hash, runs};
//!
//! let mut map = IdMap::new(Options { rows: 2, eviction: Eviction::Lru, ..Options::default() });
//! map.step(&runs(vec![70, 80, 70]));
//! assert_eq!((map.row(70), map.row(80)), (Some(0), Some(1)));
//! let rows = Rows::from(&map);
//! map.changes();
//! map.step(&runs(vec![80]));
//! // Both rows are taken: the id that was used least recently leaves.
//! let placed = map.step(&runs(vec![hash("a new item")]));
//! assert_eq!((placed[0].row, placed[0].evicted), (0, Some(70)));
//! rows.apply(&map.changes());
//! assert_eq!((rows.row(70), rows.row(80)), (None, Some(1)));
//! ```
#![forbid(unsafe_code)]

mod error;
mod hash;
mod index;
mod map;
mod options;
mod ranking;
mod saved;

pub use error::MapError;
pub use hash::{UNKNOWN, hash};
pub use index::Rows;
pub use map::{IdMap, Placed, Run, runs};
pub use options::{Admission, Eviction, Options, Threshold};
