/// A buffer serves requests of at least its size divided by this.
const WASTE: u64 = 2;

/// Unused buffers, reused for similar sizes.
#[derive(Debug)]
pub(crate) struct Spares<B> {
    /// The buffers with their sizes, in the order of their return.
    free: Vec<(u64, B)>,
    allowance: u64,
    dropped: u64,
}

impl<B> Default for Spares<B> {
    fn default() -> Self {
        Self { free: Vec::new(), allowance: 0, dropped: 0 }
    }
}

impl<B> Spares<B> {
    /// The smallest buffer that holds `bytes` without much waste. If there is none, drops one that is slightly too
    /// small, since a larger one will replace it.
    pub fn take(&mut self, bytes: u64) -> Option<B> {
        let sizes = || self.free.iter().map(|(size, _)| *size).enumerate();
        let fits = bytes..=bytes.saturating_mul(WASTE);
        if let Some((position, _)) = sizes().filter(|(_, size)| fits.contains(size)).min_by_key(|(_, size)| *size) {
            return Some(self.free.remove(position).1);
        }
        let small = bytes.div_ceil(WASTE)..bytes;
        if let Some((position, _)) = sizes().filter(|(_, size)| small.contains(size)).max_by_key(|(_, size)| *size) {
            self.drop_at(position);
        }
        None
    }

    /// Returns a buffer; drops the oldest ones beyond the limit.
    pub fn give(&mut self, size: u64, buffer: B) {
        self.free.push((size, buffer));
        while self.bytes() > self.allowance {
            self.drop_at(0);
        }
    }

    /// Sets the limit of unused memory for users of `bytes` at once, whose sizes change from one to the next.
    pub fn allow(&mut self, bytes: u64) {
        self.allowance = self.allowance.max(bytes.saturating_mul(WASTE));
    }

    /// Drops all buffers, and those returned before the next [`Spares::allow`].
    pub fn clear(&mut self) {
        self.allowance = 0;
        while !self.free.is_empty() {
            self.drop_at(0);
        }
    }

    /// Bytes of unused buffers.
    pub fn bytes(&self) -> u64 {
        self.free.iter().map(|(size, _)| size).sum()
    }

    /// Number of buffers dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn drop_at(&mut self, position: usize) {
        self.free.remove(position);
        self.dropped += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_that_fits_is_taken() {
        let mut spares = Spares::default();
        spares.allow(1000);
        for size in [300, 100, 150] {
            spares.give(size, size);
        }
        assert_eq!(spares.take(90), Some(100));
        assert_eq!(spares.take(140), Some(150));
        assert_eq!((spares.take(140), spares.bytes()), (None, 300), "more than twice the bytes is waste");
        assert_eq!((spares.take(301), spares.dropped(), spares.bytes()), (None, 1, 0), "a larger one takes its place");
    }

    #[test]
    fn no_more_is_free_than_allowed() {
        let mut spares = Spares::default();
        spares.give(10, 0);
        assert_eq!(spares.bytes(), 0);
        spares.allow(100);
        (1..=30).for_each(|number| spares.give(10, number));
        assert_eq!((spares.bytes(), spares.take(10)), (200, Some(11)));
        spares.clear();
        spares.give(10, 31);
        assert_eq!((spares.bytes(), spares.dropped()), (0, 31));
    }

    #[test]
    fn sizes_that_change_take_bounded_memory() {
        let mut spares = Spares::default();
        let mut state = 1u64;
        let mut made = 0;
        for run in 0..10_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bytes = 1 + (state >> 33) % 1000;
            let buffer = spares.take(bytes);
            made += usize::from(buffer.is_none() && run > 5000);
            let size = buffer.unwrap_or(bytes);
            spares.allow(size);
            spares.give(size, size);
        }
        assert!(spares.bytes() <= 2 * 1000 && made < 100, "{} bytes, {made} made", spares.bytes());
    }
}
