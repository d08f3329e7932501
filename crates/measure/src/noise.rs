use rewire_graph::{DType, HostTensor, TensorSizeError};

/// Seeded random numbers.
#[derive(Clone, Debug)]
pub struct Noise(u64);

/// Period of random floats in elements. It is prime, so that no two rows of a tensor are equal.
const PERIOD: usize = 65_521;

impl Noise {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next 64 random bits (splitmix64).
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low + 1).max(1) as u64) as i64
    }

    /// Floats between -0.5 and 0.5.
    ///
    /// # Errors
    /// [`TensorSizeError`] if the shape has too many elements.
    pub fn floats(&mut self, dtype: DType, shape: &[usize]) -> Result<HostTensor, TensorSizeError> {
        let count = shape.iter().fold(1usize, |count, &n| count.saturating_mul(n));
        if !dtype.format().is_written() {
            return self.rows(dtype, shape, count);
        }
        let own = count.min(PERIOD);
        let values: Vec<f64> = (0..own).map(|_| (self.bits() >> 11) as f64 / (1u64 << 53) as f64 - 0.5).collect();
        let block = HostTensor::from_f64(dtype, vec![own], &values)?;
        if own == count {
            return block.reshape(shape.to_vec());
        }
        let bytes = dtype.format().bytes(count as u64) as usize;
        HostTensor::from_bytes(dtype, shape.to_vec(), repeated(block.bytes(), bytes))
    }

    /// Rows with a scale. They repeat with the same period as other floats.
    fn rows(&mut self, dtype: DType, shape: &[usize], count: usize) -> Result<HostTensor, TensorSizeError> {
        let width = shape.last().copied().unwrap_or(1).max(1);
        let own = [(PERIOD / width).clamp(1, (count / width).max(1)), width];
        let values = self.floats(DType::F32, &own)?.to_f64();
        let block = HostTensor::from_f64(dtype, own.to_vec(), &values)?;
        let bytes = dtype.format().host_bytes(shape).unwrap_or(0);
        HostTensor::from_bytes(dtype, shape.to_vec(), repeated(block.bytes(), bytes))
    }

    /// Integers in `0..end`.
    ///
    /// # Errors
    /// As [`Noise::floats`].
    pub fn ids(&mut self, count: usize, end: usize) -> Result<HostTensor, TensorSizeError> {
        let end = u32::try_from(end).unwrap_or(u32::MAX).max(1);
        let values: Vec<u32> = (0..count).map(|_| (self.bits() % u64::from(end)) as u32).collect();
        HostTensor::u32(vec![count], &values)
    }

    /// Numbers that increase by a random step in `least..=most` from row to row of every sample.
    ///
    /// # Errors
    /// As [`Noise::floats`].
    pub fn ascending(&mut self, lengths: &[i64], least: i64, most: i64) -> Result<HostTensor, TensorSizeError> {
        let mut values = Vec::new();
        for &length in lengths {
            let mut value = 1_700_000_000;
            for _ in 0..length {
                value += self.between(least, most);
                values.push(value);
            }
        }
        HostTensor::i64(vec![values.len()], &values)
    }
}

/// A block one time after another, up to this number of bytes.
fn repeated(block: &[u8], bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    while let Some(rest) = bytes.checked_sub(all.len()).filter(|rest| *rest > 0 && !block.is_empty()) {
        all.extend_from_slice(block.get(..rest).unwrap_or(block));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_and_rows_differ() {
        let draw = |seed| Noise::new(seed).floats(DType::F32, &[300, 512]).unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let values = draw(1).to_f32();
        assert_ne!(values[..512], values[128 * 512..129 * 512]);
        assert_eq!(values[..1000], values[PERIOD..PERIOD + 1000]);
        assert!(values.iter().all(|value| value.abs() <= 0.5));
    }
}
