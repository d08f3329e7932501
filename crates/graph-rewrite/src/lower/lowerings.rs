use super::computation;
use crate::error::NotLowerable;
use crate::plan::Computation;
use rewire_graph::op::{Identity, Op};
use rewire_graph::{Graph, GraphError, Type};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of cached kernels.
const KEPT: usize = 1 << 12;

/// Caches the kernels of bodies: equal bodies are lowered once, across layers and graphs.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoweringCache(Arc<Mutex<Known>>);

/// A kernel, or the reason why a body has none.
pub(crate) type LoweringResult = Arc<Result<Computation, NotLowerable>>;

#[derive(Debug, Default)]
struct Known {
    /// Operators by address, with their numbers. They are kept alive so that no address is reused.
    addresses: HashMap<usize, (Arc<dyn Op>, u32)>,
    operators: HashMap<Identity, u32>,
    types: HashMap<Type, u32>,
    kernels: HashMap<Vec<u32>, LoweringResult>,
}

impl LoweringCache {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number shared by equal operators.
    pub fn operator(&self, op: &Arc<dyn Op>) -> u32 {
        let known = &mut *self.known();
        let address = Arc::as_ptr(op).cast::<()>() as usize;
        if let Some(&(_, number)) = known.addresses.get(&address) {
            return number;
        }
        let next = known.operators.len() as u32;
        let number = *known.operators.entry(Identity(Arc::clone(op))).or_insert(next);
        known.addresses.insert(address, (Arc::clone(op), number));
        number
    }

    /// A number shared by equal types.
    pub fn ty(&self, ty: &Type) -> u32 {
        let known = &mut *self.known();
        if let Some(&number) = known.types.get(ty) {
            return number;
        }
        let next = known.types.len() as u32;
        known.types.insert(ty.clone(), next);
        next
    }

    /// The kernel of a body; `form` is equal for equal bodies.
    pub fn kernel(&self, form: Vec<u32>, body: impl FnOnce() -> Result<Graph, GraphError>) -> LoweringResult {
        if let Some(lowered) = self.known().kernels.get(&form) {
            return Arc::clone(lowered);
        }
        let made = body().map_err(|error| NotLowerable::Form(error.to_string())).and_then(|body| computation(&body));
        let lowered = Arc::new(made);
        let kernels = &mut self.known().kernels;
        if kernels.len() < KEPT {
            kernels.insert(form, Arc::clone(&lowered));
        }
        lowered
    }
}
