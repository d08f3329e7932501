/// Counts positives among the `k` items with the largest scores, row by row.
///
/// ```
/// use rewire_metrics::TopK;
/// let mut best = TopK::new(2);
/// // The positive is the second of three, and the last of three.
/// best.add([(0.9, false), (0.8, true), (0.1, false)]);
/// best.add([(0.9, false), (0.8, false), (0.1, true)]);
/// assert_eq!((best.recall(), best.hit_rate()), (Some(0.5), Some(0.5)));
/// assert_eq!(best.ndcg(), Some(0.5 / 3f64.log2()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TopK {
    k: usize,
    /// Positives among the top `k`.
    found: f64,
    positives: usize,
    /// Rows with a positive among the top `k`.
    hits: f64,
    gain: f64,
    /// Rows with a positive.
    rows: usize,
}

impl TopK {
    /// For the top `k` items of every row, `k` at least 1.
    pub fn new(k: usize) -> Self {
        Self { k: k.max(1), found: 0.0, positives: 0, hits: 0.0, gain: 0.0, rows: 0 }
    }

    /// Adds a row of items, each with its score and whether it is positive. NaN is the smallest score. Rows without a
    /// positive are ignored.
    pub fn add(&mut self, row: impl IntoIterator<Item = (f32, bool)>) {
        let number = |score: f32| if score.is_nan() { f32::NEG_INFINITY } else { score };
        let mut row: Vec<(f32, bool)> = row.into_iter().map(|(score, label)| (number(score), label)).collect();
        row.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let positives = row.iter().filter(|(_, label)| *label).count();
        if positives == 0 {
            return;
        }
        let (mut rank, mut missed, mut found, mut gain) = (0, 1.0, 0.0, 0.0);
        for ties in row.chunk_by(|a, b| a.0 == b.0) {
            let own = ties.iter().filter(|(_, label)| *label).count();
            let places = ties.len().min(self.k - rank);
            let share = own as f64 / ties.len() as f64;
            found += share * places as f64;
            gain += share * (rank..rank + places).map(discount).sum::<f64>();
            missed *= none_of(own, ties.len(), places);
            rank += places;
        }
        self.found += found;
        self.hits += 1.0 - missed;
        self.gain += gain / (0..positives.min(self.k)).map(discount).sum::<f64>();
        self.positives += positives;
        self.rows += 1;
    }

    /// The share of all positives that are in the top `k` of their row; `None` without a positive.
    pub fn recall(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.found / self.positives as f64)
    }

    /// The share of rows with a positive that have one in the top `k`; `None` without a positive.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.hits / self.rows as f64)
    }

    /// Normalized discounted cumulative gain (Järvelin and Kekäläinen, 2002), the mean over rows with a positive: the sum of `1
    /// / log2(1 + rank)` of positives in the top `k`, divided by that of the best order; `None` without a positive.
    pub fn ndcg(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.gain / self.rows as f64)
    }
}

/// The gain of a positive at a rank, counted from 0.
fn discount(rank: usize) -> f64 {
    (rank as f64 + 2.0).log2().recip()
}

/// The probability that none of `own` among `all` items is in `places` of them.
fn none_of(own: usize, all: usize, places: usize) -> f64 {
    (0..places).map(|place| (all - place).saturating_sub(own) as f64 / (all - place) as f64).product()
}
