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
        let slices = (0..ranks).map(|rank| bytemuck::cast_slice(&values[slice(values.len(), rank, ranks)]).to_vec());
        let own = slice(values.len(), self.rank(), ranks);
        let mut sum = vec![0.0; own.len()];
        for (rank, part) in self.all_to_all(slices.collect())?.into_iter().enumerate() {
            let part = elements::<f32>(rank, &part, Some(own.len()))?;
            match rank {
                0 => sum = part,
                _ => sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value),
            }
        }
        for (rank, part) in self.all_gather(bytemuck::cast_slice(&sum))?.into_iter().enumerate() {
            let place = slice(values.len(), rank, ranks);
            values[place.clone()].copy_from_slice(&elements(rank, &part, Some(place.len()))?);
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
    parts.map(|(rank, part)| elements(rank, &part, None)).collect()
}

/// [`Collectives::all_gather`] for slices of elements.
///
/// # Errors
/// As [`all_to_all_of`].
pub fn all_gather_of<T: Pod>(group: &dyn Collectives, part: &[T]) -> Result<Vec<Vec<T>>, CollectiveError> {
    let parts = group.all_gather(bytemuck::cast_slice(part))?.into_iter().enumerate();
    parts.map(|(rank, part)| elements(rank, &part, None)).collect()
}

/// The elements received from `rank`. The bytes need not be aligned. `count` is the expected number, if known.
fn elements<T: Pod>(rank: usize, bytes: &[u8], count: Option<usize>) -> Result<Vec<T>, CollectiveError> {
    let size = size_of::<T>().max(1);
    let expected = match count {
        Some(count) if bytes.len() != count * size => (count * size).to_string(),
        None if !bytes.len().is_multiple_of(size) => format!("a multiple of {size}"),
        _ => return Ok(bytemuck::pod_collect_to_vec(bytes)),
    };
    Err(CollectiveError::Length { rank, expected, actual: bytes.len() })
}

/// The slice of `count` values that `rank` sums.
fn slice(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    let size = count.div_ceil(ranks);
    (rank * size).min(count)..((rank + 1) * size).min(count)
}
