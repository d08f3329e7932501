//! Semantic ids of items by residual k-means: the codebook of each level quantizes the residuals of the previous
//! levels.

use super::GenerateError;
use super::random::SplitMix;
use rewire_graph::{HostTensor, TensorSizeError};
use std::collections::BTreeMap;

/// The minimum length of a residual that is normalized.
pub(super) const SHORTEST: f32 = 1e-12;

/// Options of codebooks. The defaults are those of TorchEasyRec's `SidRqkmeans` and its k-means.
#[derive(Clone, Debug, PartialEq)]
pub struct SidOptions {
    /// Codes of each level.
    pub codes: Vec<usize>,
    /// Passes over the vectors of a level.
    pub iterations: usize,
    /// The maximum number of vectors per code from which a level is computed.
    pub points_per_code: usize,
    /// Whether residuals are normalized to length 1 before each level.
    pub normalize_residuals: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for SidOptions {
    fn default() -> Self {
        Self { codes: vec![256; 3], iterations: 25, points_per_code: 256, normalize_residuals: false, seed: 0 }
    }
}

/// One codebook per level.
///
/// ```
/// use rewire::generate::{Codebooks, SidOptions};
/// let vectors = [[1.0, 1.0], [1.0, 0.9], [-1.0, 0.0], [-1.0, 0.1]].concat();
/// let codebooks = Codebooks::train(&vectors, 2, &SidOptions { codes: vec![2, 2], ..SidOptions::default() })?;
/// let ids = codebooks.encode(&vectors);
/// assert!(ids[0][0] == ids[1][0] && ids[0][0] != ids[2][0] && ids[0] != ids[1]);
/// # Ok::<(), rewire::generate::GenerateError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Codebooks {
    width: usize,
    normalize_residuals: bool,
    /// The centroids of each level, concatenated.
    levels: Vec<Vec<f32>>,
}

impl Codebooks {
    /// Computes codebooks of concatenated vectors of `width` elements.
    ///
    /// # Errors
    /// [`GenerateError::Vectors`] for vectors that are not whole rows or not finite, and for a level without codes or with more codes than vectors.
    pub fn train(vectors: &[f32], width: usize, options: &SidOptions) -> Result<Self, GenerateError> {
        Self::check(vectors, width, &options.codes)?;
        let mut random = SplitMix(options.seed);
        let mut codebooks = Self { width, normalize_residuals: options.normalize_residuals, levels: vec![] };
        let mut residuals = vectors.to_vec();
        for &codes in &options.codes {
            codebooks.prepare(&mut residuals);
            let sample = sample(&residuals, width, codes.saturating_mul(options.points_per_code.max(1)), &mut random);
            let centroids = k_means(&sample, width, (codes, options.iterations), &mut random);
            residuals.chunks_exact_mut(width).for_each(|row| subtract(row, nearest_row(&centroids, row)));
            codebooks.levels.push(centroids);
        }
        Ok(codebooks)
    }

    /// Checks that codebooks can be computed from vectors.
    pub(super) fn check(vectors: &[f32], width: usize, codes: &[usize]) -> Result<(), GenerateError> {
        let count = vectors.len() / width.max(1);
        let wrong = |reason: String| Err(GenerateError::Vectors { reason });
        if width == 0 || !vectors.len().is_multiple_of(width) {
            return wrong(format!("have {} elements: expected rows of {width}", vectors.len()));
        }
        if vectors.iter().any(|value| !value.is_finite()) {
            return wrong("have values that are not finite".to_owned());
        }
        if let Some(codes) = codes.iter().find(|&&codes| codes == 0 || codes > count) {
            return wrong(format!("are {count}: a level of {codes} codes needs 1 to {count}"));
        }
        Ok(())
    }

    /// Codebooks of centroids, concatenated by level.
    #[cfg(feature = "train")]
    pub(super) fn of_levels(width: usize, normalize_residuals: bool, levels: Vec<Vec<f32>>) -> Self {
        Self { width, normalize_residuals, levels }
    }

    /// Elements of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Codes of each level.
    pub fn codes(&self) -> Vec<usize> {
        self.levels.iter().map(|centroids| centroids.len() / self.width).collect()
    }

    /// The semantic id of every vector.
    pub fn encode(&self, vectors: &[f32]) -> Vec<Vec<u32>> {
        vectors.chunks_exact(self.width).map(|vector| self.walk(vector).0).collect()
    }

    /// The ids of items by their vectors, with few collisions: among items with one id, the first by a hash of the item
    /// keeps it, and the others get the nearest free code of the last level, or keep the id if no code is free.
    pub fn encode_items(&self, items: &[i64], vectors: &[f32]) -> Vec<Vec<u32>> {
        let mut walked: Vec<(Vec<u32>, Vec<f32>)> =
            vectors.chunks_exact(self.width).take(items.len()).map(|vector| self.walk(vector)).collect();
        let mut taken: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        let mut order: Vec<usize> = (0..walked.len()).collect();
        order.sort_by_key(|&at| (walked.get(at).map(|(id, _)| id.clone()), items.get(at).map(|&item| hash(item))));
        walked.iter().for_each(|(id, _)| *taken.entry(id.clone()).or_default() += 1);
        let last = self.levels.last().map_or(&[][..], Vec::as_slice);
        let mut before: Option<Vec<u32>> = None;
        for at in order {
            let Some((id, residual)) = walked.get_mut(at) else { continue };
            let is_first = before.as_ref() != Some(id);
            before = Some(id.clone());
            if is_first {
                continue;
            }
            let mut candidates = self.by_distance(last, residual).into_iter().map(|code| with_last(id, code));
            if let Some(free) = candidates.find(|id| !taken.contains_key(id)) {
                taken.insert(free.clone(), 1);
                *id = free;
            }
        }
        walked.into_iter().map(|(id, _)| id).collect()
    }

    /// The id of a vector, and the residual before the last level.
    fn walk(&self, vector: &[f32]) -> (Vec<u32>, Vec<f32>) {
        let (mut id, mut residual, mut left) = (vec![], vector.to_vec(), vec![]);
        for centroids in &self.levels {
            self.prepare(&mut residual);
            left.clone_from(&residual);
            let code = nearest(centroids, &residual);
            id.push(code as u32);
            subtract(&mut residual, row(centroids, self.width, code));
        }
        (id, left)
    }

    fn prepare(&self, residuals: &mut [f32]) {
        if !self.normalize_residuals {
            return;
        }
        for row in residuals.chunks_exact_mut(self.width) {
            let length = row.iter().map(|value| value * value).sum::<f32>().sqrt().max(SHORTEST);
            row.iter_mut().for_each(|value| *value /= length);
        }
    }

    /// Codes by distance, the nearest first.
    fn by_distance(&self, centroids: &[f32], vector: &[f32]) -> Vec<u32> {
        let mut codes: Vec<(f32, u32)> = centroids
            .chunks_exact(self.width)
            .zip(0..)
            .map(|(centroid, code)| (distance(centroid, vector), code))
            .collect();
        codes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        codes.into_iter().map(|(_, code)| code).collect()
    }

    /// The centroids, with the names of TorchEasyRec's layers.
    ///
    /// # Errors
    /// [`TensorSizeError`] if they cannot be allocated.
    pub fn tensors(&self) -> Result<BTreeMap<String, HostTensor>, TensorSizeError> {
        let tensor = |(level, centroids): (usize, &Vec<f32>)| {
            let shape = vec![centroids.len() / self.width, self.width];
            Ok((format!("layers.{level}.centroids"), HostTensor::f32(shape, centroids)?))
        };
        self.levels.iter().enumerate().map(tensor).collect()
    }
}

fn with_last(id: &[u32], code: u32) -> Vec<u32> {
    let levels = id.len().saturating_sub(1);
    id.iter().copied().take(levels).chain([code]).collect()
}

/// The order of items with one id. It does not depend on the order in which they are given.
fn hash(item: i64) -> u64 {
    SplitMix((item as u64).wrapping_add(2025u64.wrapping_mul(SplitMix::STEP))).bits()
}

fn row(rows: &[f32], width: usize, at: usize) -> &[f32] {
    rows.get(at * width..(at + 1) * width).unwrap_or(&[])
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn subtract(row: &mut [f32], other: &[f32]) {
    row.iter_mut().zip(other).for_each(|(value, other)| *value -= other);
}

/// The row that is nearest to a vector; the first one on a tie.
fn nearest(rows: &[f32], vector: &[f32]) -> usize {
    let by_distance = rows.chunks_exact(vector.len()).map(|row| distance(row, vector)).enumerate();
    by_distance.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
}

fn nearest_row<'a>(rows: &'a [f32], vector: &[f32]) -> &'a [f32] {
    row(rows, vector.len(), nearest(rows, vector))
}

/// A uniform random sample of at most this many rows.
fn sample(rows: &[f32], width: usize, most: usize, random: &mut SplitMix) -> Vec<f32> {
    let places = shuffled(rows.len() / width, most, random);
    places.into_iter().flat_map(|at| row(rows, width, at).iter().copied()).collect()
}

/// The first `most` of `count` indices in a random order.
fn shuffled(count: usize, most: usize, random: &mut SplitMix) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    for at in 0..most.min(count) {
        places.swap(at, at + random.below(count - at));
    }
    places.truncate(most);
    places
}

/// Centroids by Lloyd's algorithm from random rows. A code without rows gets half of the rows of the largest code.
fn k_means(rows: &[f32], width: usize, (codes, iterations): (usize, usize), random: &mut SplitMix) -> Vec<f32> {
    let first = shuffled(rows.len() / width, codes, random);
    let mut centroids: Vec<f32> = first.into_iter().flat_map(|at| row(rows, width, at).iter().copied()).collect();
    for _ in 0..iterations {
        let (mut sums, mut counts) = (vec![0.0f64; codes * width], vec![0usize; codes]);
        for vector in rows.chunks_exact(width) {
            let code = nearest(&centroids, vector);
            counts.iter_mut().skip(code).take(1).for_each(|count| *count += 1);
            sums.iter_mut().skip(code * width).zip(vector).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        for ((centroid, sums), &count) in centroids.chunks_exact_mut(width).zip(sums.chunks_exact(width)).zip(&counts) {
            if count > 0 {
                centroid.iter_mut().zip(sums).for_each(|(value, sum)| *value = (sum / count as f64) as f32);
            }
        }
        split_largest(&mut centroids, width, &mut counts);
    }
    centroids
}

/// Moves codes without rows next to the centroid of the largest code.
fn split_largest(centroids: &mut [f32], width: usize, counts: &mut [usize]) {
    const APART: f32 = 1.0 / 1024.0;
    while let Some(empty) = counts.iter().position(|&count| count == 0) {
        let largest = counts.iter().enumerate().max_by_key(|(_, count)| **count).map_or(0, |(at, _)| at);
        let half = counts.get(largest).copied().unwrap_or(0) / 2;
        if half == 0 {
            return;
        }
        for column in 0..width {
            let shift = if column % 2 == 0 { APART } else { -APART };
            let Some(value) = centroids.get(largest * width + column).copied() else { continue };
            centroids.iter_mut().skip(empty * width + column).take(1).for_each(|place| *place = value * (1.0 + shift));
            centroids
                .iter_mut()
                .skip(largest * width + column)
                .take(1)
                .for_each(|place| *place = value * (1.0 - shift));
        }
        counts.iter_mut().skip(empty).take(1).for_each(|count| *count = half);
        counts.iter_mut().skip(largest).take(1).for_each(|count| *count -= half);
    }
}
