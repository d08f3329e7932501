use super::position::prefix_rows;
use rewire_graph::{Ragged, Scope, Tensor};

/// The rows that remain after the oldest history of each sample is truncated.
#[derive(Clone, Debug)]
pub struct Truncation {
    /// All rows.
    pub rows: Ragged,
    /// Remaining rows.
    pub kept: Ragged,
    /// Number of truncated rows, `[B]` on the host.
    pub dropped: Tensor,
    /// The contextual prefix, which always remains; `None` without one.
    pub prefix: Option<Ragged>,
    /// Remaining rows after the contextual prefix.
    pub tail: Ragged,
}

/// Keeps the contextual prefix, the last `tail_len` history rows and all targets of every sample.
pub fn stu_truncation(
    scope: &Scope,
    rows: &Ragged,
    num_targets: Option<&Tensor>,
    contextual_seq_len: usize,
    tail_len: usize,
) -> Truncation {
    let prefix = if contextual_seq_len > 0 { Some(prefix_rows(scope, rows, contextual_seq_len)) } else { None };
    let rest = prefix.as_ref().map_or_else(|| rows.lengths.clone(), |prefix| &rows.lengths - &prefix.lengths);
    let history = num_targets.map_or_else(|| rest.clone(), |targets| &rest - targets.at_most(&rest, "num_targets"));
    let dropped = &history - history.minimum(scope.host_size(tail_len));
    let tail = Ragged::from_lengths(&(&rest - &dropped));
    let kept = Ragged::from_lengths(&(&rows.lengths - &dropped));
    Truncation { rows: rows.clone(), kept, dropped, prefix, tail }
}

impl Truncation {
    /// Selects the remaining rows of `x` `[total, ..]`.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let tail = x.jagged_tail(&self.rows, &self.tail);
        match &self.prefix {
            Some(prefix) => x.jagged_head(&self.rows, prefix).jagged_concat(prefix, &tail, &self.tail).0,
            None => tail,
        }
    }
}
