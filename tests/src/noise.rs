//! Reproducible tensors.

use rewire_graph::{DType, HostTensor};

/// A sequence of numbers determined by its seed.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// The sequence of a seed and a name.
    pub fn new(seed: u64, name: &str) -> Self {
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next 64 bits (splitmix64).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer in `low..high`.
    pub fn below(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low).max(1) as u64) as i64
    }

    /// A float in `-scale..scale`.
    pub fn float(&mut self, scale: f64) -> f64 {
        ((self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0) * scale
    }

    /// Floats in `-scale..scale`.
    pub fn floats(&mut self, dtype: DType, shape: &[usize], scale: f64) -> HostTensor {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| self.float(scale)).collect();
        HostTensor::from_f64(dtype, shape.to_vec(), &values).unwrap()
    }

    /// Integers in `low..high`.
    pub fn integers(&mut self, dtype: DType, shape: &[usize], low: i64, high: i64) -> HostTensor {
        let values: Vec<i64> = (0..shape.iter().product()).map(|_| self.below(low, high)).collect();
        match dtype {
            DType::I64 => HostTensor::i64(shape.to_vec(), &values).unwrap(),
            _ => HostTensor::from_f64(dtype, shape.to_vec(), &values.iter().map(|&v| v as f64).collect::<Vec<_>>())
                .unwrap(),
        }
    }
}
