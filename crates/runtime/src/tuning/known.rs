use super::Bucket;
use crate::store::hash;
use rewire_graph_rewrite::emit::Tuning;
use rewire_graph_rewrite::plan::Kernel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The tunings of a kernel that were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelTunings {
    /// Cooperative matrices or multiply-adds. They add in different orders, so that the choice is one for all sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrices: Option<bool>,
    /// By sizes.
    pub sizes: BTreeMap<Bucket, Tuning>,
}

impl KernelTunings {
    /// Adds a tuning. Those of another order of sums are forgotten.
    pub fn insert(&mut self, bucket: Bucket, tuning: Tuning) {
        if self.matrices != tuning.matrices {
            self.sizes.clear();
        }
        self.matrices = tuning.matrices;
        self.sizes.insert(bucket, tuning);
    }

    /// The tuning for some sizes, unless it adds in another order than those for others.
    pub fn get(&self, bucket: &Bucket) -> Option<Tuning> {
        self.sizes.get(bucket).copied().filter(|tuning| tuning.matrices == self.matrices)
    }
}

/// What tells kernels apart on disk: a hash of the whole kernel, all its attributes included. `None` where it cannot be
/// written down.
pub(crate) fn identity(kernel: &Kernel) -> Option<String> {
    let text = serde_json::to_vec(kernel).ok()?;
    Some(format!("{:016x}", hash(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_sums_do_not_mix() {
        let bucket = |rows| Bucket::new(&[rewire_graph::Symbol(0)], |_| Some(rows));
        let tuning = |rows, matrices| Tuning { rows: Some(rows), matrices: Some(matrices), ..Tuning::default() };
        let mut known = KernelTunings::default();
        known.insert(bucket(64), tuning(64, true));
        known.insert(bucket(128), tuning(128, true));
        assert_eq!(known.get(&bucket(64)), Some(tuning(64, true)));
        known.insert(bucket(256), tuning(32, false));
        assert_eq!((known.matrices, known.get(&bucket(64))), (Some(false), None));
        known.sizes.insert(bucket(64), tuning(64, true));
        assert_eq!(known.get(&bucket(64)), None);
    }
}
