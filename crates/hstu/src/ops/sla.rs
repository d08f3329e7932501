use super::Pairs;
use rewire_graph::{Ragged, Scope, Tensor};

/// Semi-local attention: rows attend to a global prefix and a local window. Targets attend to all history, but not to themselves.
#[derive(Clone, Debug)]
pub struct SemiLocal {
    /// Length of the local window, which ends with the row itself.
    pub sla_k1: usize,
    /// Length of the global prefix.
    pub sla_k2: usize,
    /// Length of the contextual prefix; the global prefix is at least as long.
    pub contextual_seq_len: usize,
    /// Number of targets `[B]`.
    pub num_targets: Option<Tensor>,
}

impl SemiLocal {
    /// True for the pairs where the query attends to the key.
    pub fn trace(&self, pairs: &Pairs) -> Tensor {
        let history = pairs.per_sample(&self.history(pairs.lengths()));
        let (row, key) = (pairs.row(), pairs.key());
        let global = key.lt(pairs.int(self.global()));
        let local = (row - key).lt(pairs.int(self.sla_k1));
        let of_history = key.le(row).and(global.or(&local));
        row.lt(&history).select(&of_history, &key.lt(&history))
    }

    fn global(&self) -> usize {
        self.sla_k2.max(self.contextual_seq_len)
    }

    fn history(&self, lengths: &Tensor) -> Tensor {
        match &self.num_targets {
            Some(targets) => {
                (lengths - targets.counts("num_targets")).binary_scalar(rewire_graph::pointwise::BinaryOp::Max, 0.0)
            }
            None => lengths.clone(),
        }
    }
}

/// The intervals of semi-local attention for [`super::IntervalMask`], `[heads, 3, total]` of `I32`.
pub fn build_sla_func_tensor(scope: &Scope, rows: &Ragged, heads: usize, mask: &SemiLocal) -> Tensor {
    rows.lengths.require("build_sla_func_tensor", "nheads", heads > 0, "at least 1", heads);
    let row = rows.position();
    let history = mask.history(&rows.lengths).jagged_broadcast(rows);
    let of_history = row.lt(&history);
    let end = &row + 1.0;
    let global = mask.global() as f64;
    let bounds = [end.clamp(None, Some(global)), (&end - mask.sla_k1 as f64).clamp(Some(global), None), end.clone()];
    let bounds = bounds.map(|bound| of_history.select(&bound, &history));
    let stacked = scope.stack(&bounds.each_ref(), 0);
    stacked.broadcast(&[heads.into(), 3.into(), rows.total.clone()])
}
