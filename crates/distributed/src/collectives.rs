use crate::{Buffers, CollectiveError};
use bytemuck::Pod;
use bytes::Bytes;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are added at once.
const BLOCK: usize = 1 << 14;
/// Slices begin at multiples of this many bytes.
const LINE: usize = 64;

/// The collective operations of one rank.
///
/// An implementation provides [`all_to_all`](Collectives::all_to_all); the other operations have defaults based on it. It may override
/// them, but [`sum`](Collectives::sum) must add in the specified order.
pub trait Collectives: Debug + Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks, at least 1.
    fn ranks(&self) -> usize;

    /// Sends `parts[r]` to rank `r`, for all ranks, and returns the parts received from all ranks, in rank order. Parts may differ in size.
    /// Ranks of one process may share their memory.
    ///
    /// # Errors
    /// [`CollectiveError`] names the rank that ended or did not answer within the time limit.
    fn all_to_all(&self, parts: Vec<Bytes>) -> Result<Vec<Bytes>, CollectiveError>;

    /// Sends `part` to all ranks, and returns the parts of all ranks, in rank order.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`].
    fn all_gather(&self, part: Bytes) -> Result<Vec<Bytes>, CollectiveError> {
        self.all_to_all(vec![part; self.ranks()])
    }

    /// Returns the content of rank `root`; that of the other ranks is ignored.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`]; [`CollectiveError::Usage`] if `root` is not a rank of the group.
    fn broadcast(&self, root: usize, content: Bytes) -> Result<Bytes, CollectiveError> {
        let part = if self.rank() == root { content } else { Bytes::new() };
        let ranks = self.ranks();
        let usage = CollectiveError::Usage { expected: "a rank of the group as root", actual: root, ranks };
        self.all_gather(part)?.into_iter().nth(root).ok_or(usage)
    }

    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`].
    fn barrier(&self) -> Result<(), CollectiveError> {
        self.all_gather(Bytes::new()).map(drop)
    }

    /// The sums of `values`, which are `f32` in the byte order of the machine, over all ranks, added in rank order: every rank adds one slice
    /// in memory of `buffers`, then the slices are gathered. Returns the slices, in order.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`]; [`CollectiveError::Length`] if the numbers of values differ between ranks.
    fn sum(&self, values: Bytes, buffers: &Buffers) -> Result<Vec<Bytes>, CollectiveError> {
        let ranks = self.ranks();
        if ranks == 1 {
            return Ok(vec![values]);
        }
        let slices: Vec<Range<usize>> = (0..ranks).map(|rank| slice(values.len(), rank, ranks)).collect();
        let parts = slices.iter().map(|slice| values.slice(slice.clone())).collect();
        let expected = slices.get(self.rank()).map_or(0, Range::len);
        let parts = of_lengths(self.all_to_all(parts)?, |_| expected)?;
        drop(values);
        let mut sum = buffers.take(expected);
        add(&parts, &mut sum);
        drop(parts);
        of_lengths(self.all_gather(sum.into())?, |rank| slices.get(rank).map_or(0, Range::len))
    }

    /// Replaces `values` by their sums over all ranks, added in rank order.
    ///
    /// # Errors
    /// As [`Collectives::sum`].
    fn all_reduce(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        let buffers = Buffers::default();
        let sums = self.sum(buffers.copied(bytemuck::cast_slice(values)), &buffers)?;
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(values);
        for slice in &sums {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(slice.len());
            own.copy_from_slice(slice);
            rest = others;
        }
        Ok(())
    }
}

impl<C: Collectives + ?Sized> Collectives for Arc<C> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn ranks(&self) -> usize {
        (**self).ranks()
    }

    fn all_to_all(&self, parts: Vec<Bytes>) -> Result<Vec<Bytes>, CollectiveError> {
        (**self).all_to_all(parts)
    }
}

/// [`Collectives::all_to_all`] for slices of elements.
///
/// # Errors
/// As [`Collectives::all_to_all`]; [`CollectiveError::Length`] if the bytes from a rank are not a whole number of elements.
pub fn all_to_all_of<T: Pod>(group: &dyn Collectives, parts: &[Vec<T>]) -> Result<Vec<Vec<T>>, CollectiveError> {
    let bytes = parts.iter().map(|part| Bytes::copy_from_slice(bytemuck::cast_slice(part))).collect();
    let parts = group.all_to_all(bytes)?.into_iter().enumerate();
    parts.map(|(rank, part)| elements(rank, &part)).collect()
}

/// [`Collectives::all_gather`] for slices of elements.
///
/// # Errors
/// As [`all_to_all_of`].
pub fn all_gather_of<T: Pod>(group: &dyn Collectives, part: &[T]) -> Result<Vec<Vec<T>>, CollectiveError> {
    let parts = group.all_gather(Bytes::copy_from_slice(bytemuck::cast_slice(part)))?.into_iter().enumerate();
    parts.map(|(rank, part)| elements(rank, &part)).collect()
}

/// The parts, if that of each rank has the expected number of bytes.
fn of_lengths(parts: Vec<Bytes>, expected: impl Fn(usize) -> usize) -> Result<Vec<Bytes>, CollectiveError> {
    let mut lengths = parts.iter().map(|part| part.len()).enumerate();
    match lengths.find(|(rank, actual)| *actual != expected(*rank)) {
        Some((rank, actual)) => Err(CollectiveError::Length { rank, expected: expected(rank).to_string(), actual }),
        None => Ok(parts),
    }
}

/// Writes the sums of the floats of all parts, added in order.
fn add(parts: &[Bytes], sums: &mut [u8]) {
    // A block stays in the fastest cache while the parts are added.
    for (block, sums) in sums.chunks_mut(BLOCK).enumerate() {
        let (sums, _) = sums.as_chunks_mut::<{ size_of::<f32>() }>();
        for (rank, part) in parts.iter().enumerate() {
            let (values, _) = part[block * BLOCK..].as_chunks();
            let float = |bytes: &[u8; size_of::<f32>()]| f32::from_ne_bytes(*bytes);
            match rank {
                0 => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = *value),
                _ => sums.iter_mut().zip(values).for_each(|(sum, value)| {
                    *sum = (float(sum) + float(value)).to_ne_bytes();
                }),
            }
        }
    }
}

/// The elements received from `rank`. The bytes need not be aligned.
fn elements<T: Pod>(rank: usize, bytes: &[u8]) -> Result<Vec<T>, CollectiveError> {
    let size = size_of::<T>().max(1);
    if bytes.len().is_multiple_of(size) {
        return Ok(bytemuck::pod_collect_to_vec(bytes));
    }
    Err(CollectiveError::Length { rank, expected: format!("a multiple of {size}"), actual: bytes.len() })
}

/// The slice of `bytes` bytes that `rank` sums.
fn slice(bytes: usize, rank: usize, ranks: usize) -> Range<usize> {
    let size = bytes.div_ceil(ranks).next_multiple_of(LINE);
    (rank * size).min(bytes)..((rank + 1) * size).min(bytes)
}
