//! Kernels on the CPU, and parallel execution. It is a separate crate because it is optimised for speed, and everything
//! else for size.

#[cfg_attr(not(feature = "kernels"), path = "kernels/absent.rs")]
mod kernels;
pub mod parallel;

pub use kernels::*;

/// Rows of a table that are found elsewhere than in the table, in the layout of a host tensor of the type of the copies.
pub trait RowOverlay: Sync {
    /// Passes a row to `copy`; false if it has to be read from the table.
    fn read(&self, row: usize, copy: &mut dyn FnMut(&[u8])) -> bool;

    /// Receives the rows that will be read from the table.
    fn will_read(&self, rows: &[usize]);

    /// Receives a row that was read from the table.
    fn was_read(&self, row: usize, content: &[u8]);
}
