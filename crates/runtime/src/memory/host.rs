//! Host memory available to the process.

/// More host memory is needed than available.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what} needs {needed} bytes of memory, but {available} are available: use smaller sizes, or free memory")]
pub struct HostMemoryError {
    /// The purpose of the memory.
    pub what: String,
    /// Bytes needed.
    pub needed: u64,
    /// Bytes available.
    pub available: u64,
}

/// Memory that was available at some time, minus the memory to be allocated since.
///
/// ```
/// use rewire_runtime::HostMemory;
/// let mut memory = HostMemory::of(1 << 30);
/// assert_eq!(memory.take("a table", 1 << 29), Ok(()));
/// let error = memory.take("a table", 1 << 30).unwrap_err();
/// assert_eq!((error.needed, error.available), (3 << 29, 1 << 30));
/// ```
#[derive(Clone, Debug)]
pub struct HostMemory {
    available: u64,
    taken: u64,
}

/// Smaller amounts are not checked.
const SMALL: u64 = 64 << 20;

impl HostMemory {
    /// The memory available now, if the system reports it: free memory and memory that can be freed at once, limited by
    /// the process's control groups and its address space limit. Unlimited if the system reports nothing.
    pub fn now() -> Self {
        Self::of(available())
    }

    /// This many bytes.
    pub fn of(available: u64) -> Self {
        Self { available, taken: 0 }
    }

    /// The available memory minus the counted bytes.
    pub fn left(&self) -> u64 {
        self.available.saturating_sub(self.taken)
    }

    /// Counts bytes needed for `what`.
    ///
    /// # Errors
    /// [`HostMemoryError`] if the counted bytes exceed the available memory.
    pub fn take(&mut self, what: &str, bytes: u64) -> Result<(), HostMemoryError> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken <= self.available {
            return Ok(());
        }
        Err(HostMemoryError { what: what.to_owned(), needed: self.taken, available: self.available })
    }

    /// Checks that this many bytes are available for `what` now. Small amounts are not checked.
    ///
    /// # Errors
    /// [`HostMemoryError`] if fewer are available.
    pub fn check(what: &str, bytes: u64) -> Result<(), HostMemoryError> {
        if bytes < SMALL { Ok(()) } else { Self::now().take(what, bytes) }
    }
}

#[cfg(target_os = "linux")]
use super::linux::available;

#[cfg(not(target_os = "linux"))]
fn available() -> u64 {
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_some_memory_and_not_all() {
        assert_eq!(HostMemory::check("a byte", 1), Ok(()));
        assert!(HostMemory::now().take("nothing", 0).is_ok());
        if cfg!(target_os = "linux") {
            let error = HostMemory::check("everything", u64::MAX).unwrap_err();
            assert!(error.available > 0 && error.available < u64::MAX, "{error}");
        }
    }
}
