//! Approximate search by a hierarchical navigable small world graph.

use super::{RetrieveError, Search};
use crate::error::CliError;
use hnsw_rs::prelude::{DistL2, Hnsw};

/// Neighbours of an item in a layer of the graph.
const NEIGHBOURS: usize = 24;

/// Candidates kept while an item is inserted.
const CANDIDATES: usize = 200;

/// Maximum number of layers.
const LAYERS: usize = 16;

/// Items ordered by inner product: vectors are divided by the length of the longest one and extended by one element, which makes all of
/// them unit vectors. For a user's vector of any length this element is 0.
///
/// One thread inserts the items in order, and levels are drawn from a fixed seed, so equal tables give equal results.
pub struct Graph {
    hnsw: Hnsw<'static, f32, DistL2>,
    ids: Vec<i64>,
    vectors: Vec<f32>,
    ef: usize,
}

impl Graph {
    /// Builds the graph of items and their finite vectors of `width` elements, concatenated. If an item occurs twice, its first vector
    /// counts. A search keeps `ef` candidates.
    pub fn new(ids: &[i64], vectors: &[f32], width: usize, ef: usize) -> Self {
        let mut order: Vec<(i64, &[f32])> = ids.iter().copied().zip(vectors.chunks_exact(width)).collect();
        order.sort_by_key(|(id, _)| *id);
        order.dedup_by_key(|(id, _)| *id);
        let longest = order.iter().map(|(_, vector)| dot(vector, vector).sqrt()).fold(0.0, f64::max);
        let hnsw = Hnsw::new(NEIGHBOURS, order.len(), LAYERS, CANDIDATES, DistL2 {});
        for (at, (_, vector)) in order.iter().enumerate() {
            let point = scaled(vector, longest);
            let rest = (1.0 - dot(&point, &point)).max(0.0).sqrt() as f32;
            hnsw.insert_slice((&[&point[..], &[rest]].concat(), at));
        }
        let ids = order.iter().map(|(id, _)| *id).collect();
        let vectors = order.iter().flat_map(|(_, vector)| *vector).copied().collect();
        Self { hnsw, ids, vectors, ef }
    }

    /// The items found by a search, with their products.
    fn search(&self, user: &[f32], count: usize) -> Result<Vec<(i64, f32)>, RetrieveError> {
        let mut point = scaled(user, dot(user, user).sqrt());
        point.push(0.0);
        let near = self.hnsw.search(&point, count, self.ef.max(count));
        let product = |at: usize| {
            let item = *self.ids.get(at)?;
            let vector = self.vectors.get(at * user.len()..(at + 1) * user.len())?;
            Some((item, dot(user, vector) as f32))
        };
        let mut found: Vec<(i64, f32)> = near.iter().filter_map(|near| product(near.d_id)).collect();
        if let Some(&(item, product)) = found.iter().find(|(_, product)| !product.is_finite()) {
            return Err(RetrieveError::Product { item, product });
        }
        found.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        Ok(found)
    }
}

impl Search for Graph {
    fn top(&self, users: &[f32], width: usize, count: usize) -> Result<Vec<Vec<(i64, f32)>>, CliError> {
        Ok(users.chunks_exact(width).map(|user| self.search(user, count)).collect::<Result<_, _>>()?)
    }

    fn len(&self) -> usize {
        self.ids.len()
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// The vector divided by a length; zeros stay zeros.
fn scaled(vector: &[f32], length: f64) -> Vec<f32> {
    let length = if length > 0.0 { length } else { 1.0 };
    vector.iter().map(|&value| (f64::from(value) / length) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::Kernel;
    use rewire::rank::{Index, RankOptions};

    /// Vectors of clusters, of very different lengths.
    fn vectors(rows: usize, width: usize, mut state: u64) -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let centres: Vec<f32> = (0..16 * width).map(|_| next()).collect();
        let row = |at: usize| {
            let (centre, length) = (at % 16 * width, 1.0 + (at % 7) as f32);
            (0..width).map(|column| length * (centres[centre + column] + 0.3 * next())).collect::<Vec<_>>()
        };
        (0..rows).flat_map(row).collect()
    }

    #[test]
    fn nearly_all_of_the_best_items_are_found_with_their_products() {
        let (items, width, count) = (2000, 12, 20);
        let ids: Vec<i64> = (0..items as i64).map(|id| id * 7919 % items as i64 - 5).collect();
        let (table, users) = (vectors(items, width, 1), vectors(100, width, 2));
        let graph = Graph::new(&ids, &table, width, 128);
        let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
        let exact = Index::new(&ids, &table, width, &options).unwrap().top(&users, width, count).unwrap();
        let found = Search::top(&graph, &users, width, count).unwrap();
        let mut hits = 0;
        for (found, exact) in found.iter().zip(&exact) {
            assert!(found.len() == count && found.is_sorted_by(|a, b| a.1 >= b.1));
            for (item, product) in found {
                if let Some((_, expected)) = exact.iter().find(|(exact, _)| exact == item) {
                    assert!((product - expected).abs() <= 1e-5 * expected.abs(), "{product} {expected}");
                    hits += 1;
                }
            }
        }
        assert!(hits >= 98 * count, "{hits} of {}", 100 * count);
        assert_eq!(Search::top(&Graph::new(&ids, &table, width, 128), &users, width, count).unwrap(), found);
    }

    #[test]
    fn vectors_may_be_zero_huge_and_there_twice() {
        let graph = Graph::new(&[9, 4, 9, 2], &[3e38, 0.0, 1.0, 1.0, 5.0, 5.0, 0.0, 0.0], 2, 8);
        assert_eq!(graph.len(), 3);
        let found = Search::top(&graph, &[0.5, 0.0, 0.0, 0.0], 2, 5).unwrap();
        assert_eq!(found[0], [(9, 1.5e38), (4, 0.5), (2, 0.0)]);
        assert_eq!(found[1], [(2, 0.0), (4, 0.0), (9, 0.0)]);
        let error = Search::top(&graph, &[3e38, 0.0], 2, 1).unwrap_err().to_string();
        assert!(error.contains("item 9 is inf"), "{error}");
        assert!(Search::top(&Graph::new(&[], &[], 2, 8), &[1.0, 0.0], 2, 3).unwrap()[0].is_empty());
    }
}
