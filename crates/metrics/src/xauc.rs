use std::collections::BTreeMap;

/// The share of pairs of examples whose predictions have the order of their labels. Pairs with equal labels or predictions do not
/// count as ordered.
///
/// If at least as many pairs are requested as exist, all are counted. Otherwise that many are drawn uniformly, with repetition, from
/// a generator with a fixed seed: equal examples give equal values.
///
/// ```
/// use rewire_metrics::xauc;
/// let examples = [(0.1, 1.0), (0.2, 2.0), (0.9, 1.5)];
/// assert_eq!(xauc(&examples, usize::MAX), Some(2.0 / 3.0));
/// ```
pub fn xauc(examples: &[(f32, f64)], pairs: usize) -> Option<f64> {
    let count = examples.len() as u64;
    let all = count * count.saturating_sub(1) / 2;
    let is_ordered = |i: usize, j: usize| {
        let (first, second) = (examples.get(i)?, examples.get(j)?);
        Some((first.1 - second.1) * f64::from(first.0 - second.0) > 0.0)
    };
    let ordered = |i: usize, j: usize| u64::from(is_ordered(i, j) == Some(true));
    if all == 0 || pairs == 0 {
        return None;
    }
    if pairs as u64 >= all {
        let own = |j: usize| (0..j).map(move |i| ordered(i, j)).sum::<u64>();
        return Some((0..examples.len()).map(own).sum::<u64>() as f64 / all as f64);
    }
    let mut random = SplitMix(0);
    let mut right = 0;
    for _ in 0..pairs {
        // A first example among all, and a second among the others.
        let (i, j) = (random.below(count), random.below(count - 1));
        right += ordered(i as usize, if j < i { j } else { j + 1 } as usize);
    }
    Some(right as f64 / pairs as f64)
}

/// [`xauc`] of the examples of each group, with at most `pairs` pairs each, averaged with the sizes of the groups as weights. Groups of
/// one example are ignored.
#[derive(Clone, Debug)]
pub struct GroupedXauc<G> {
    pairs: usize,
    groups: BTreeMap<G, Vec<(f32, f64)>>,
}

impl<G: Ord> GroupedXauc<G> {
    /// With at most this many pairs per group.
    pub fn new(pairs: usize) -> Self {
        Self { pairs, groups: BTreeMap::new() }
    }

    /// Adds an example.
    pub fn add(&mut self, group: G, prediction: f32, label: f64) {
        self.groups.entry(group).or_default().push((prediction, label));
    }

    /// The average; `None` if no group has a pair.
    pub fn value(&self) -> Option<f64> {
        let values = self.groups.values().filter_map(|own| Some((xauc(own, self.pairs)?, own.len() as f64)));
        let (sum, weight) = values.fold((0.0, 0.0), |(sum, all), (value, own)| (sum + value * own, all + own));
        (weight > 0.0).then(|| sum / weight)
    }
}

/// SplitMix64 (Steele et al., 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Below `count`, which is above 0.
    fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }
}
