//! Searches a table for the best items of users.

use super::sessions::Sessions;
use super::{RankError, RankOptions};
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Inputs, Model, ModelOptions, RuntimeError};

/// Items per block of the search.
const BLOCK: usize = 1 << 13;

const OUTPUT: &str = "scores";

/// Items with their vectors, in memory. Any number of threads may search it at the same time.
#[derive(Debug)]
pub struct Index {
    model: Model,
    sessions: Sessions,
    /// Ascending.
    blocks: Vec<(Vec<i64>, HostTensor)>,
    width: usize,
}

impl Index {
    /// Builds an index of items and their vectors of `width` elements, concatenated. If an item occurs twice, its first vector
    /// counts.
    ///
    /// # Errors
    /// [`RankError::Width`] if the vectors have another number of elements, or the reason why no device is available.
    pub fn new(items: &[i64], vectors: &[f32], width: usize, options: &RankOptions) -> Result<Self, RankError> {
        if vectors.len() != items.len() * width {
            return Err(RankError::Width { actual: vectors.len() / items.len().max(1), expected: width });
        }
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&at| items.get(at));
        order.dedup_by_key(|at| items.get(*at));
        let block = |order: &[usize]| {
            let ids = order.iter().filter_map(|&at| items.get(at).copied()).collect();
            let rows = order.iter().filter_map(|&at| vectors.get(at * width..(at + 1) * width));
            Ok((ids, HostTensor::f32([order.len(), width], &rows.flatten().copied().collect::<Vec<_>>())?))
        };
        let blocks = order.chunks(BLOCK).map(block).collect::<Result<_, RankError>>()?;
        let scope = Scope::new().without_places();
        let users = scope.input("users", DType::F32, (scope.size("batch"), width));
        let table = scope.input("items", DType::F32, (scope.size("block"), width));
        let graph = scope.finish(&[(OUTPUT, users.matmul(&table.transpose(0, 1)))]);
        let graph = graph.map_err(|error| RankError::Trace(Box::new(error.into())))?;
        let plan = lower(&optimize(graph)?.0)?;
        let none: [(&str, HostTensor); 0] = [];
        // Kernel rules apply to the modules of the model.
        let of_model = ModelOptions { kernel_rules: vec![], ..options.of_model() };
        let model = Model::build(|| Ok::<_, RuntimeError>(plan), none, of_model)?;
        Ok(Self { model, sessions: Sessions::default(), blocks, width })
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|(ids, _)| ids.len()).sum()
    }

    /// True if there are no items.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// For each of the users' vectors, which are concatenated, the `count` items with the largest inner products, in descending order,
    /// with the products. Ties are broken by the smaller item.
    ///
    /// # Errors
    /// [`RankError::Width`] if user and item vectors differ in length, [`RankError::Output`] if a product is not finite; other errors are
    /// failures of the run.
    pub fn top(&self, users: &[f32], width: usize, count: usize) -> Result<Vec<Vec<(i64, f32)>>, RankError> {
        let rows = users.len() / width.max(1);
        let mut best: Vec<Vec<(i64, f32)>> = vec![Vec::new(); rows];
        if rows == 0 || count == 0 {
            return Ok(best);
        }
        if width != self.width || users.len() != rows * width {
            return Err(RankError::Width { actual: width, expected: self.width });
        }
        let users = HostTensor::f32([rows, width], users)?;
        let mut session = self.sessions.lend(&self.model);
        for (ids, items) in &self.blocks {
            let inputs = Inputs::new().with("users", users.clone()).with("items", items.clone());
            let scores = session.run(&inputs)?.get(OUTPUT).map(|scores| scores.to_f32()).unwrap_or_default();
            for (user, (best, scores)) in best.iter_mut().zip(scores.chunks_exact(ids.len())).enumerate() {
                if let Some((item, score)) = ids.iter().zip(scores).find(|(_, score)| !score.is_finite()) {
                    let reason =
                        format!("is {score} for the vector {user} of users and item {item}: expected a finite number");
                    return Err(RankError::Output { output: OUTPUT.into(), reason });
                }
                keep(best, ids, scores, count);
            }
        }
        self.sessions.give(session);
        Ok(best)
    }
}

/// Keeps the best `count`. All new items are larger than the kept ones.
fn keep(best: &mut Vec<(i64, f32)>, items: &[i64], scores: &[f32], count: usize) {
    for (&item, &score) in items.iter().zip(scores) {
        let is_better = |last: &(i64, f32)| score > last.1;
        if best.len() == count && !best.last().is_some_and(is_better) {
            continue;
        }
        best.truncate(count - 1);
        let place = best.partition_point(|&(_, other)| other >= score);
        best.insert(place, (item, score));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_runtime::Kernel;

    fn options() -> RankOptions {
        RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() }
    }

    #[test]
    fn the_best_of_all_blocks_come_first_and_ties_go_to_the_smaller_item() {
        // Few values, so that there are ties, within blocks and between them.
        let count = BLOCK * 2 + 77;
        let items: Vec<i64> = (0..count as i64).map(|at| (at * 7919) % count as i64 * 3 - 50).collect();
        let vectors: Vec<f32> = (0..count * 2).map(|at| ((at * 2_654_435_761) >> 7 & 15) as f32 - 7.0).collect();
        let index = Index::new(&items, &vectors, 2, &options()).unwrap();
        let users = [1.0, 2.0, -3.0, 0.5, 0.0, 0.0];
        for top in [1, 10, 3000] {
            let found = index.top(&users, 2, top).unwrap();
            for (user, found) in users.chunks(2).zip(found) {
                let products = vectors.chunks(2).map(|row| row[0] * user[0] + row[1] * user[1]);
                let mut all: Vec<(i64, f32)> = items.iter().copied().zip(products).collect();
                all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
                assert!(found == all[..top]);
            }
        }
        assert_eq!(index.len(), count);
    }

    #[test]
    fn products_that_are_not_finite_are_errors() {
        for (item, user) in [(3e38, 3e38), (f32::NAN, 1.0), (-3e38, 3e38)] {
            let index = Index::new(&[5, 7], &[1.0, item], 1, &options()).unwrap();
            assert!(index.top(&[1e-3], 1, 1).is_ok() == item.is_finite());
            let error = index.top(&[0.0, user], 1, 1).unwrap_err().to_string();
            assert!(error.contains("and item 7: expected a finite number"), "{error}");
        }
    }

    #[test]
    fn vectors_of_other_widths_are_errors_and_few_items_are_all_there_is() {
        assert!(matches!(Index::new(&[1, 2], &[0.0; 3], 2, &options()), Err(RankError::Width { .. })));
        let index = Index::new(&[9, 4, 9], &[1.0, 2.0, 3.0], 1, &options()).unwrap();
        assert_eq!(index.top(&[2.0], 1, 5).unwrap(), [[(4, 4.0), (9, 2.0)]]);
        assert!(matches!(index.top(&[2.0, 1.0], 2, 5), Err(RankError::Width { .. })));
        assert!(index.top(&[], 1, 5).unwrap().is_empty());
    }
}
