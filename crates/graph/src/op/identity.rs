use super::Op;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An operator as a key of maps, equal to operators that compute the same.
#[derive(Clone, Debug)]
pub struct Identity(pub Arc<dyn Op>);

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.same(other.0.as_ref())
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
        self.0.digest(state);
    }
}
