use super::{Ragged, Scope, Tensor};
use crate::{DType, Dim};

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
    #[track_caller]
    pub fn top_k(&self, x: impl AsRef<Tensor>, k: usize) -> (Tensor, Tensor) {
        self.largest("top_k", x.as_ref(), k, None)
    }

    /// [`Scope::top_k`] without the columns `seen` of each row, such as the items of a user's history: `rows` divides `seen`
    /// `[total]`, integers, among the rows of `x`. Repeated columns count once; numbers that are not columns are ignored.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope, interpret};
    /// use std::collections::HashMap;
    ///
    /// let scope = Scope::new();
    /// let history = scope.lengths("lengths", scope.size("users"));
    /// let ids = scope.input("ids", DType::I64, [&history.total]);
    /// let scores = scope.input("scores", DType::F32, (&history.batch, 3));
    /// let (_, items) = scope.top_k_unseen(scores, 2, ids, history);
    /// let graph = scope.finish(&[("items", items)])?;
    ///
    /// let inputs = HashMap::from([
    ///     ("lengths".to_owned(), HostTensor::lengths(&[1, 2])),
    ///     ("ids".to_owned(), HostTensor::vector(&[2i64, 0, 1])),
    ///     ("scores".to_owned(), HostTensor::f32([2, 3], &[0.1, 0.2, 0.3, 0.6, 0.5, 0.4])?),
    /// ]);
    /// assert_eq!(interpret(&graph, &inputs, &HashMap::new())?["items"].to_i64(), [1, 0, 2, -1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn top_k_unseen(
        &self,
        x: impl AsRef<Tensor>,
        k: usize,
        seen: impl AsRef<Tensor>,
        rows: impl AsRef<Ragged>,
    ) -> (Tensor, Tensor) {
        let (op, x) = ("top_k_unseen", x.as_ref());
        rows.as_ref().require_batch(op, "rows", &x.dim(0));
        let unseen = self.unseen(op, x, seen.as_ref(), rows.as_ref());
        self.largest(op, x, k, Some(&unseen))
    }

    /// The elements of `x` whose column is not among those of their row, as a bool.
    #[track_caller]
    fn unseen(&self, op: &str, x: &Tensor, seen: &Tensor, rows: &Ragged) -> Tensor {
        let (batch, count) = (x.dim(0), x.dim(1));
        let Some(size) = batch.product(&count) else {
            return x.fail(op, "x", "of a constant number of rows or columns", x.ty());
        };
        let sample = self.places(&batch).jagged_broadcast(rows);
        let is_column = seen.ge(0).and(seen.lt(self.host_size(count.clone()).cast(seen.dtype())));
        let first = &sample * self.host_size(&count).cast(DType::I32);
        let place = is_column.select(first + seen.cast(DType::I32), self.scalar(DType::I32, 0));
        is_column.cast(DType::F32).index_add(place, size).reshape([batch, count]).equal(0.0)
    }

    /// `0, 1, 2, ..`, an `I32`.
    #[track_caller]
    fn places(&self, count: &Dim) -> Tensor {
        Ragged::dense(self, 1, self.host_size(count)).position().reshape([count.clone()])
    }

    /// The largest elements of every row, of those to `keep`, and their columns.
    #[track_caller]
    fn largest(&self, op: &str, x: &Tensor, k: usize, keep: Option<&Tensor>) -> (Tensor, Tensor) {
        x.require(op, "x", x.rank() == 2 && x.dtype().is_float(), "rows of floats", x.ty());
        x.require(op, "k", k > 0, "at least 1", k);
        let count = x.dim(1);
        let counted = count.as_const().is_none_or(|count| count < MOST_COLUMNS);
        x.require(op, "x", counted, format!("of less than {MOST_COLUMNS} columns"), x.ty());
        let columns = self.places(&count).reshape([1.into(), count]);
        let mut rounds: Vec<Round> = vec![];
        for _ in 0..k {
            let next = self.next_largest(x, &columns, keep, rounds.last());
            rounds.push(next);
        }
        let (values, places) = rounds.iter().map(|round| self.found(round)).unzip();
        (self.joined(values), self.joined(places))
    }

    /// The largest element after `last` in every row.
    #[track_caller]
    fn next_largest(&self, x: &Tensor, columns: &Tensor, keep: Option<&Tensor>, last: Option<&Round>) -> Round {
        let [lowest, highest] = [f64::NEG_INFINITY, f64::INFINITY].map(|value| self.scalar(DType::F32, value));
        let left = match last {
            Some(Round { value, column }) => x.lt(value).or(x.equal(value).and(columns.cast(DType::F32).gt(column))),
            None => x.le(&highest),
        };
        let left = match keep {
            Some(keep) => left.and(keep),
            None => left,
        };
        let candidates = left.select(x, &lowest);
        let value = candidates.max(1);
        let found = left.and(candidates.equal(&value));
        let column = found.select(&columns.cast(DType::F32), &highest).min(1);
        Round { value, column }
    }

    /// The elements and columns of a round, if any.
    #[track_caller]
    fn found(&self, Round { value, column }: &Round) -> (Tensor, Tensor) {
        let [least, none] = [f32::MIN, -1.0].map(|value| self.scalar(DType::F32, f64::from(value)));
        let exists = column.lt(self.scalar(DType::F32, MOST_COLUMNS as f64));
        (exists.select(value, &least), exists.select(column, &none).cast(DType::I32))
    }

    #[track_caller]
    fn joined(&self, mut parts: Vec<Tensor>) -> Tensor {
        while parts.len() > 1 {
            let join = |parts: &[Tensor]| self.concat(parts, 1);
            parts = parts.chunks(JOINED).map(join).collect();
        }
        parts.pop().unwrap_or_else(|| self.scalar(DType::F32, 0.0))
    }
}
