use crate::count::{Count, Sizes};
use crate::plan::Computation;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Counts kernels; caches equal kernels at the same sizes, since layers of a model repeat them.
#[derive(Debug)]
pub struct Counter<K> {
    /// By a digest of expressions and operands.
    known: HashMap<u64, Vec<(K, Sizes, Count)>>,
}

impl<K> Default for Counter<K> {
    fn default() -> Self {
        Self { known: HashMap::new() }
    }
}

impl<K: Borrow<Computation>> Counter<K> {
    /// [`Count::of`] a kernel.
    pub fn count(&mut self, kernel: K, sizes: Sizes) -> Count {
        let alike = self.known.entry(digest(kernel.borrow())).or_default();
        let known = alike.iter().find(|(other, at, _)| other.borrow() == kernel.borrow() && *at == sizes);
        if let Some(&(.., count)) = known {
            return count;
        }
        let count = Count::of(kernel.borrow(), &sizes);
        alike.push((kernel, sizes, count));
        count
    }
}

fn digest(computation: &Computation) -> u64 {
    let mut hasher = DefaultHasher::new();
    let body = computation.body();
    body.dag.ids().for_each(|id| body.dag.expr(id).hash(&mut hasher));
    body.operands.hash(&mut hasher);
    hasher.finish()
}
