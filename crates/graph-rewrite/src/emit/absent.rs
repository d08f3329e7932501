//! The tunings of a kernel where none are emitted: the one that there is.

use super::{Target, Tuning};
use crate::plan::Computation;
use rewire_graph::Dim;

impl Tuning {
    /// This tuning.
    #[must_use]
    pub fn suited(self, _: &Computation, _: &Target, _: impl Fn(&Dim) -> Option<u64>) -> Self {
        self
    }

    /// This tuning alone.
    pub fn candidates(&self, _: &Computation, _: &Target) -> Vec<Self> {
        vec![*self]
    }

    /// This tuning.
    #[must_use]
    pub fn of_family(self, _: &Computation, _: &Target) -> Self {
        self
    }

    /// The default alone.
    pub fn families(_: &Computation, _: &Target) -> Vec<Self> {
        vec![Self::default()]
    }
}
