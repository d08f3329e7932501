use super::Op;
use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// [`PartialEq`], [`Hash`] and [`Clone`] of operators, usable through `dyn Op`.
pub trait Compared {
    /// True if the other is of the same type and equal.
    fn equals(&self, other: &dyn Any) -> bool;

    /// Feeds the compared attributes to a hasher.
    fn digest(&self, state: &mut dyn Hasher);

    /// A copy.
    fn boxed(&self) -> Box<dyn Op>;
}

impl<T: Op + PartialEq + Hash + Clone> Compared for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }

    fn digest(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn boxed(&self) -> Box<dyn Op> {
        Box::new(self.clone())
    }
}

/// An operator as a map key, equal to operators that compute the same.
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
