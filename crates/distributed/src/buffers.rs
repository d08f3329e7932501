use bytes::Bytes;
use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that are kept for reuse.
const KEPT: usize = 64;
/// A buffer serves requests of at least its size divided by this.
const WASTE: usize = 2;

/// Memory of messages. A buffer is reused once all ranks of the process have dropped the messages in it.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer that its owner fills.
pub struct Buffer {
    memory: Vec<u8>,
    len: usize,
    home: Buffers,
}

impl Buffers {
    /// A buffer of `len` bytes. Its content is arbitrary.
    pub fn take(&self, len: usize) -> Buffer {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = len..=len.saturating_mul(WASTE);
        let smallest = free.iter().enumerate().filter(|(_, memory)| fits.contains(&memory.len()));
        let position = smallest.min_by_key(|(_, memory)| memory.len()).map(|(position, _)| position);
        let known = position.map(|position| free.swap_remove(position));
        drop(free);
        Buffer { memory: known.unwrap_or_else(|| vec![0; len]), len, home: self.clone() }
    }

    /// A message with a copy of `content`.
    pub fn copied(&self, content: &[u8]) -> Bytes {
        let mut buffer = self.take(content.len());
        buffer.copy_from_slice(content);
        buffer.into()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() == KEPT {
            free.remove(0);
        }
        free.push(std::mem::take(&mut self.memory));
    }
}
