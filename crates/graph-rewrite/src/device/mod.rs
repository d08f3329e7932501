//! Device capabilities, and kernels as data that runs dispatch and packages store.
//!
//! The crate `rewire-emit` creates the kernels.

mod choices;
mod dequantize;
mod kernel;
mod subgroups;
mod target;
mod tile;
mod tuning;
mod windows;

pub use choices::with_shallow_choices;
pub use dequantize::dequantized;
pub use kernel::{BindingSource, EmittedKernel, Extension, GridFactor, Param, TileList};
pub use subgroups::SubgroupSizes;
pub use target::Target;
pub use tile::{
    MatrixPairReductionTile, NarrowProductTile, PairReductionTile, ProductTile, ReductionTile, SubgroupProductTile,
    ThreadTile, Tile, WorkgroupProductTile,
};
pub use tuning::{ParseTuningError, Tuning};
pub use windows::BindingChunks;
