use crate::op::Identity;
use crate::scope_tags::ScopeId;
use crate::{Dim, Graph, GraphError, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The trace so far.
#[derive(Default)]
pub(super) struct State {
    /// `None` for a part of another graph, which may contain sizes of any scope.
    pub id: Option<ScopeId>,
    pub graph: Graph,
    pub path: String,
    pub error: Option<GraphError>,
    /// True if errors do not name lines of the source.
    pub has_no_places: bool,
    /// Host values and constants, which belong to no module, by operator and operands.
    pub shared: HashMap<(Identity, Vec<Value>), Value>,
    pub named: HashMap<(&'static str, String), Value>,
    pub sizes: HashMap<String, Dim>,
    /// The sums of host vectors.
    pub totals: HashMap<Value, Dim>,
    /// States that the model sets, with their values after a run.
    pub updates: Vec<(String, Value)>,
    /// True while operators are traced for recomputation.
    pub is_recomputed: bool,
    /// Number of dropouts so far.
    pub dropouts: u32,
}

/// State shared by a scope and its values. Only one thread traces at a time.
#[derive(Clone)]
pub(super) struct Trace(Arc<Mutex<State>>);

impl Trace {
    pub fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// While the guard lives, all other calls to the scope and its values block.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if both are the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
