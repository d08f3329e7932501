use super::{Ragged, Scope, Tensor};
use crate::DType;

/// Columns that a float counts exactly.
const MOST_COLUMNS: usize = 1 << 24;

/// Tensors that are joined at once, so that a kernel can bind them.
const JOINED: usize = 4;

impl Scope {
    /// The `k` largest elements of every row, largest first, and their columns: `[R, N]` to `[R, k]`, an `F32`, and
    /// `[R, k]`, an `I32`.
    ///
    /// Of equal elements the one in the smaller column comes first. Where a row has fewer than `k` elements, the rest is
    /// `f32::MIN` in column -1. A row is read `k` times.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let scores = scope.input("scores", DType::F32, &[scope.size("users"), scope.size("items")]);
    /// let (best, items) = scope.top_k(&scores, 5);
    /// assert_eq!(items.width(), 5);
    /// let graph = scope.finish(&[("best", best), ("items", items)])?;
    /// # Ok::<(), rewire_graph::GraphError>(())
    /// ```
    pub fn top_k(&self, x: &Tensor, k: usize) -> (Tensor, Tensor) {
        x.require("top_k", "x", x.rank() == 2 && x.dtype().is_float(), "rows of floats", x.ty());
        x.require("top_k", "k", k > 0, "at least 1", k);
        let count = x.dim(1);
        let counted = count.as_const().is_none_or(|count| count < MOST_COLUMNS);
        x.require("top_k", "x", counted, format!("of less than {MOST_COLUMNS} columns"), x.ty());
        let columns = Ragged::dense(self, 1.into(), &self.host_size(count.clone())).position();
        let columns = columns.reshape(&[1.into(), count]);
        let mut rounds: Vec<(Tensor, Tensor)> = vec![];
        for _ in 0..k {
            let next = self.next_largest(x, &columns, rounds.last());
            rounds.push(next);
        }
        let (values, places) = rounds.into_iter().unzip();
        (self.joined(values), self.joined(places))
    }

    /// The largest element after `last` in every row, and its column.
    fn next_largest(&self, x: &Tensor, columns: &Tensor, last: Option<&(Tensor, Tensor)>) -> (Tensor, Tensor) {
        let [lowest, highest] = [f32::MIN, f32::MAX].map(|value| self.scalar(DType::F32, f64::from(value)));
        let left = last.map(|(value, column)| x.lt(value).or(&x.equal(value).and(&columns.gt(column))));
        let candidates = left.as_ref().map_or_else(|| x.cast(DType::F32), |left| left.select(x, &lowest));
        let value = candidates.max(1);
        let equal = candidates.equal(&value);
        let found = left.map_or_else(|| equal.clone(), |left| left.and(&equal));
        let column = found.select(&columns.cast(DType::F32), &highest).min(1);
        let exists = column.lt(&self.scalar(DType::F32, MOST_COLUMNS as f64));
        let column = exists.select(&column, &self.scalar(DType::F32, -1.0));
        (value, column.cast(DType::I32))
    }

    fn joined(&self, mut parts: Vec<Tensor>) -> Tensor {
        while parts.len() > 1 {
            let join = |parts: &[Tensor]| self.concat(&parts.iter().collect::<Vec<_>>(), 1);
            parts = parts.chunks(JOINED).map(join).collect();
        }
        parts.pop().unwrap_or_else(|| self.scalar(DType::F32, 0.0))
    }
}
