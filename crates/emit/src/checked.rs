use crate::EmitError;
use rewire_graph_rewrite::device::{Target, Tuning};

/// The sizes of a tuning, checked against what a target and a schedule take.
pub(crate) trait Checked {
    /// Invocations of a map or a reduction.
    fn threads(&self, target: &Target) -> Result<u32, EmitError>;
    /// Groups of neighbours of a thread of a map, given what suits its elements.
    fn groups_per_thread(&self, suited: u32) -> Result<u32, EmitError>;
    /// The tile of cooperative matrices that `tile` finds, unless the tuning decides otherwise.
    fn cooperative<T>(&self, tile: impl FnOnce() -> Result<Option<T>, EmitError>) -> Result<Option<T>, EmitError>;
    /// Rows of a thread of a map or of sums over rows, given what suits what it reads.
    fn rows_per_thread(&self, suited: u32) -> Result<u32, EmitError>;
}

impl Checked for Tuning {
    fn threads(&self, target: &Target) -> Result<u32, EmitError> {
        let largest = 1 << target.invocations.max(1).ilog2();
        let threads = self.threads.unwrap_or(256.min(largest));
        if threads.is_power_of_two() && threads <= largest {
            return Ok(threads);
        }
        let expected = format!("a power of two up to {largest}");
        Err(EmitError::Tuning { parameter: "threads", expected, got: threads })
    }

    fn groups_per_thread(&self, suited: u32) -> Result<u32, EmitError> {
        let got = self.groups_per_thread.unwrap_or(suited);
        if (1..=8).contains(&got) {
            return Ok(got);
        }
        Err(EmitError::Tuning { parameter: "groups_per_thread", expected: "1 to 8".to_owned(), got })
    }

    fn cooperative<T>(&self, tile: impl FnOnce() -> Result<Option<T>, EmitError>) -> Result<Option<T>, EmitError> {
        if self.matrices == Some(false) {
            return Ok(None);
        }
        let tile = tile()?;
        if tile.is_none() && self.matrices == Some(true) {
            let expected = "0: cooperative matrices do not fit the kernel and the target".to_owned();
            return Err(EmitError::Tuning { parameter: "matrices", expected, got: 1 });
        }
        Ok(tile)
    }

    fn rows_per_thread(&self, suited: u32) -> Result<u32, EmitError> {
        let got = self.rows_per_thread.unwrap_or(suited);
        if (1..=8).contains(&got) {
            return Ok(got);
        }
        Err(EmitError::Tuning { parameter: "rows_per_thread", expected: "1 to 8".to_owned(), got })
    }
}
