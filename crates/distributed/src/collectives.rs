use crate::CollectiveError;
use bytemuck::Pod;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// The collective operations of one rank.
///
/// An implementation provides [`all_to_all`](Collectives::all_to_all); the other operations have defaults based on it. It may override
/// them, but [`all_reduce`](Collectives::all_reduce) must add in the specified order.
pub trait Collectives: Debug + Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks, at least 1.
    fn ranks(&self) -> usize;

    /// Sends `parts[r]` to rank `r`, for all ranks, and returns the parts received from all ranks, in rank order. Parts may differ in size.
    ///
    /// # Errors
    /// [`CollectiveError`] names the rank that ended or did not answer within the time limit.
    fn all_to_all(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CollectiveError>;

    /// Sends `part` to all ranks, and returns the parts of all ranks, in rank order.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`].
    fn all_gather(&self, part: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        self.all_to_all(vec![part.to_vec(); self.ranks()])
    }

    /// Replaces `content` on all ranks by the content of rank `root`.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`]; [`CollectiveError::Usage`] if `root` is not a rank of the group.
    fn broadcast(&self, root: usize, content: &mut Vec<u8>) -> Result<(), CollectiveError> {
        let part = if self.rank() == root { content.clone() } else { vec![] };
        let ranks = self.ranks();
        let usage = CollectiveError::Usage { expected: "a rank of the group as root", actual: root, ranks };
        *content = self.all_gather(&part)?.into_iter().nth(root).ok_or(usage)?;
        Ok(())
    }

    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`].
    fn barrier(&self) -> Result<(), CollectiveError> {
        self.all_gather(&[]).map(drop)
    }

    /// Replaces `values` by their sums over all ranks, added in rank order: every rank sums one slice, then the slices are gathered.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`]; [`CollectiveError::Length`] if the numbers of values differ between ranks.
    fn all_reduce(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        let ranks = self.ranks();
        if ranks == 1 {
            return Ok(());
        }
        let slices: Vec<Range<usize>> = (0..ranks).map(|rank| slice(values.len(), rank, ranks)).collect();
        let parts = slices.iter().map(|slice| bytemuck::cast_slice(&values[slice.clone()]).to_vec()).collect();
        let own = &mut values[slices[self.rank()].clone()];
        for (rank, part) in self.all_to_all(parts)?.iter().enumerate() {
            let part = floats(rank, part, own.len())?;
            match rank {
                0 => own.iter_mut().zip(part).for_each(|(sum, value)| *sum = value),
                _ => own.iter_mut().zip(part).for_each(|(sum, value)| *sum += value),
            }
        }
        let sum = bytemuck::cast_slice(own).to_vec();
        for (rank, part) in self.all_gather(&sum)?.iter().enumerate() {
            let place = &mut values[slices[rank].clone()];
            let sums = floats(rank, part, place.len())?;
            place.iter_mut().zip(sums).for_each(|(value, sum)| *value = sum);
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

    fn all_to_all(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CollectiveError> {
        (**self).all_to_all(parts)
    }
}

/// [`Collectives::all_to_all`] for slices of elements.
///
/// # Errors
/// As [`Collectives::all_to_all`]; [`CollectiveError::Length`] if the bytes from a rank are not a whole number of elements.
pub fn all_to_all_of<T: Pod>(group: &dyn Collectives, parts: &[Vec<T>]) -> Result<Vec<Vec<T>>, CollectiveError> {
    let bytes = parts.iter().map(|part| bytemuck::cast_slice(part).to_vec()).collect();
    let parts = group.all_to_all(bytes)?.into_iter().enumerate();
    parts.map(|(rank, part)| elements(rank, &part)).collect()
}

/// [`Collectives::all_gather`] for slices of elements.
///
/// # Errors
/// As [`all_to_all_of`].
pub fn all_gather_of<T: Pod>(group: &dyn Collectives, part: &[T]) -> Result<Vec<Vec<T>>, CollectiveError> {
    let parts = group.all_gather(bytemuck::cast_slice(part))?.into_iter().enumerate();
    parts.map(|(rank, part)| elements(rank, &part)).collect()
}

/// The `count` floats received from `rank`.
fn floats(rank: usize, bytes: &[u8], count: usize) -> Result<impl Iterator<Item = f32> + '_, CollectiveError> {
    let (floats, rest) = bytes.as_chunks();
    if floats.len() != count || !rest.is_empty() {
        let expected = (count * size_of::<f32>()).to_string();
        return Err(CollectiveError::Length { rank, expected, actual: bytes.len() });
    }
    Ok(floats.iter().map(|float| f32::from_ne_bytes(*float)))
}

/// The elements received from `rank`. The bytes need not be aligned.
fn elements<T: Pod>(rank: usize, bytes: &[u8]) -> Result<Vec<T>, CollectiveError> {
    let size = size_of::<T>().max(1);
    if bytes.len().is_multiple_of(size) {
        return Ok(bytemuck::pod_collect_to_vec(bytes));
    }
    Err(CollectiveError::Length { rank, expected: format!("a multiple of {size}"), actual: bytes.len() })
}

/// The slice of `count` values that `rank` sums.
fn slice(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    let size = count.div_ceil(ranks);
    (rank * size).min(count)..((rank + 1) * size).min(count)
}
