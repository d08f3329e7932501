use super::{Ragged, Scope, Tensor};
use crate::DType;

/// Columns that f32 represents exactly.
const MOST_COLUMNS: usize = 1 << 24;

/// Tensors concatenated at once, limited so that a kernel can bind them.
const JOINED: usize = 4;

/// One element of every row: its value, and its column as a float, infinity if there is none.
struct Round {
    value: Tensor,
    column: Tensor,
}

impl Scope {
    /// The `k` largest elements of every row, largest first, and their columns: `[R, N]` to `[R, k]`, an `F32`, and
    /// `[R, k]`, an `I32`.
    ///
    /// Of equal elements the one in the smaller column comes first. NaN is ignored. If a row has fewer than `k`
    /// elements, the rest is `f32::MIN` with column -1. A row is read `k` times.
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
        let columns = Ragged::dense(self, 1, &self.host_size(count.clone())).position();
        let columns = columns.reshape(&[1.into(), count]);
        let mut rounds: Vec<Round> = vec![];
        for _ in 0..k {
            let next = self.next_largest(x, &columns, rounds.last());
            rounds.push(next);
        }
        let (values, places) = rounds.iter().map(|round| self.found(round)).unzip();
        (self.joined(values), self.joined(places))
    }

    /// The largest element after `last` in every row.
    fn next_largest(&self, x: &Tensor, columns: &Tensor, last: Option<&Round>) -> Round {
        let [lowest, highest] = [f64::NEG_INFINITY, f64::INFINITY].map(|value| self.scalar(DType::F32, value));
        let left = match last {
            Some(Round { value, column }) => x.lt(value).or(x.equal(value).and(columns.cast(DType::F32).gt(column))),
            None => x.le(&highest),
        };
        let candidates = left.select(x, &lowest);
        let value = candidates.max(1);
        let found = left.and(candidates.equal(&value));
        let column = found.select(&columns.cast(DType::F32), &highest).min(1);
        Round { value, column }
    }

    /// The elements and columns of a round, if any.
    fn found(&self, Round { value, column }: &Round) -> (Tensor, Tensor) {
        let [least, none] = [f32::MIN, -1.0].map(|value| self.scalar(DType::F32, f64::from(value)));
        let exists = column.lt(self.scalar(DType::F32, MOST_COLUMNS as f64));
        (exists.select(value, &least), exists.select(column, &none).cast(DType::I32))
    }

    fn joined(&self, mut parts: Vec<Tensor>) -> Tensor {
        while parts.len() > 1 {
            let join = |parts: &[Tensor]| self.concat(&parts.iter().collect::<Vec<_>>(), 1);
            parts = parts.chunks(JOINED).map(join).collect();
        }
        parts.pop().unwrap_or_else(|| self.scalar(DType::F32, 0.0))
    }
}
