//! CPU kernels and parallel execution. A separate crate, because it is optimised for speed and all other crates for
//! size.

#[cfg_attr(not(feature = "kernels"), path = "kernels/absent.rs")]
mod kernels;
pub mod parallel;

pub use kernels::*;

/// A source that replaces rows of a host table, such as a cache. Rows have host layout, in the type of the destination.
pub trait RowOverlay: Sync {
    /// Passes a row to `copy`; false if it must be read from the table.
    fn read(&self, row: usize, copy: &mut dyn FnMut(&[u8])) -> bool;

    /// Called before rows are read from the table.
    fn will_read(&self, rows: &[usize]);

    /// Called after a row was read from the table.
    fn was_read(&self, row: usize, content: &[u8]);
}
