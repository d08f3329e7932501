use crate::op::Identity;
use crate::origins::ScopeId;
use crate::{Dim, Graph, GraphError, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was traced so far.
#[derive(Debug, Default)]
pub(super) struct State {
    /// `None` for a part of another graph, whose sizes are of any scope.
    pub id: Option<ScopeId>,
    pub graph: Graph,
    pub path: String,
    pub error: Option<GraphError>,
    /// Nodes without a place in a module, by operator and operands: host values and constants.
    pub shared: HashMap<(Identity, Vec<Value>), Value>,
    pub named: HashMap<(&'static str, String), Value>,
    pub sizes: HashMap<String, Dim>,
    /// The sums of host vectors.
    pub totals: HashMap<Value, Dim>,
    /// States that the model sets, with their values after a run.
    pub updates: Vec<(String, Value)>,
    /// True while what is traced is to be computed again.
    pub is_recomputed: bool,
    /// Dropouts so far.
    pub dropouts: u32,
}

/// The state that a scope and its values share. One thread at a time traces.
#[derive(Clone, Debug)]
pub(super) struct Trace(Arc<Mutex<State>>);

impl Trace {
    pub fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// Until what is returned is gone, nothing else can be asked of the scope and its values.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if both are the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
