//! Memory of the host that a process may still take.

/// What takes more memory of the host than there is.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what} takes {needed} bytes of memory, of which {available} are available: use smaller sizes, or free memory")]
pub struct HostMemoryError {
    /// What takes it.
    pub what: String,
    /// Bytes it takes.
    pub needed: u64,
    /// Bytes that were available.
    pub available: u64,
}

/// The memory that was available at some time, counted down by what is to be taken of it.
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

/// Less than this is taken without asking.
const SMALL: u64 = 64 << 20;

impl HostMemory {
    /// What is available now, as far as the system tells: memory that is free or can be freed at once, what the control
    /// groups of the process leave of theirs, and what its limit of address space leaves. No bound where it does not tell.
    pub fn now() -> Self {
        Self::of(available())
    }

    /// So many bytes.
    pub fn of(available: u64) -> Self {
        Self { available, taken: 0 }
    }

    /// What was available, less what was taken.
    pub fn left(&self) -> u64 {
        self.available.saturating_sub(self.taken)
    }

    /// Counts bytes that `what` takes.
    ///
    /// # Errors
    /// [`HostMemoryError`] if all that was taken is more than there was.
    pub fn take(&mut self, what: &str, bytes: u64) -> Result<(), HostMemoryError> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken <= self.available {
            return Ok(());
        }
        Err(HostMemoryError { what: what.to_owned(), needed: self.taken, available: self.available })
    }

    /// Checks that `what` can take so many bytes now. A few are not worth asking the system.
    ///
    /// # Errors
    /// [`HostMemoryError`] if they are more than there are.
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
