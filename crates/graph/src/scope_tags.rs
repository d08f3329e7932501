use crate::Ordered;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

/// A scope, by a number that is unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScopeId(u64);

impl ScopeId {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Memory::Relaxed))
    }
}

/// The scopes whose sizes are part of a dim, each with the name of one of these sizes. Comparisons of dims ignore them:
/// within one scope they are the same.
#[derive(Clone, Default)]
pub(crate) struct ScopeTags(Option<Arc<BTreeMap<ScopeId, String>>>);

impl ScopeTags {
    pub fn new(scope: ScopeId, size: &str) -> Self {
        Self(Some(Arc::new(BTreeMap::from([(scope, size.to_owned())]))))
    }

    /// The origins of a sum.
    pub fn join(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(own), Some(others)) if own.keys().eq(others.keys()) => Self(Some(own)),
            (Some(own), Some(others)) => {
                let both = others.iter().chain(own.iter()).map(|(&scope, size)| (scope, size.clone()));
                Self(Some(Arc::new(both.ordered_map())))
            }
            (own, others) => Self(own.or(others)),
        }
    }

    /// True if there are sizes of several scopes.
    pub fn is_mixed(&self) -> bool {
        self.0.as_ref().is_some_and(|scopes| scopes.len() > 1)
    }

    /// The name of a size of another scope than `own`.
    pub fn foreign(&self, own: ScopeId) -> Option<&str> {
        let mut scopes = self.0.iter().flat_map(|scopes| scopes.iter());
        scopes.find(|(scope, _)| **scope != own).map(|(_, size)| size.as_str())
    }
}

impl PartialEq for ScopeTags {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ScopeTags {}

impl Hash for ScopeTags {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialOrd for ScopeTags {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScopeTags {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}
