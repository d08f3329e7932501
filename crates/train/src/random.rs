/// Random numbers on the host: SplitMix64 (Steele et al., 2014).
///
/// ```
/// use rewire_train::Random;
/// let mut random = Random::new(7);
/// assert!((0.0..1.0).contains(&random.unit()));
/// assert!(random.below(3).is_some_and(|number| number < 3));
/// assert_eq!(random.below(0), None);
///
/// let mut other = Random::new(7);
/// other.skip(2);
/// assert_eq!(random.unit(), other.unit());
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

/// The increment of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A generator with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator with a seed for a named item.
    pub fn of_name(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self(hash ^ seed.wrapping_mul(STEP))
    }

    /// A generator with a seed for a row of a named table.
    pub fn of_row(seed: u64, name: &str, row: u32) -> Self {
        let word = Self::of_name(seed, name).next();
        Self(Self(word ^ u64::from(row)).next())
    }

    /// A generator with a seed for an epoch.
    pub fn of_epoch(seed: u64, epoch: u64) -> Self {
        let word = Self(seed).next();
        Self(word ^ epoch.wrapping_mul(STEP))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Skips `count` numbers in constant time.
    pub fn skip(&mut self, count: u64) {
        self.0 = self.0.wrapping_add(STEP.wrapping_mul(count));
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `end`; `None` if `end` is 0.
    pub fn below(&mut self, end: usize) -> Option<usize> {
        // The high 64 bits of the product are below `end`.
        (end > 0).then(|| ((u128::from(self.next()) * end as u128) >> 64) as usize)
    }
}
