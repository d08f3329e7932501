use super::{Application, NearMiss};
use crate::cost::HardwareModel;
use crate::lower::LoweringCache;
use crate::plan::BINDINGS;
use rewire_graph::{DType, Graph, NodeId};
use std::collections::BTreeSet;

/// Options of passes, and a record of their rewrites.
#[derive(Clone, Debug, Default)]
pub struct Context {
    disabled: BTreeSet<String>,
    remaining: Option<usize>,
    explaining: bool,
    machine: HardwareModel,
    storage: Storage,
    bindings: Bindings,
    lowerings: LoweringCache,
    pub(crate) applications: Vec<Application>,
    pub(crate) near_misses: Vec<NearMiss>,
    pub(crate) detail: String,
}

/// The storage type of floats between kernels.
#[derive(Clone, Copy, Debug)]
struct Storage(DType);

impl Default for Storage {
    fn default() -> Self {
        Self(DType::F32)
    }
}

/// The number of tensors that a kernel may read and write.
#[derive(Clone, Copy, Debug)]
struct Bindings(usize);

impl Default for Bindings {
    fn default() -> Self {
        Self(BINDINGS)
    }
}

impl Context {
    /// A context that permits every rewrite.
    pub fn new() -> Self {
        Self::default()
    }

    /// A context for passes within a pass: it permits every rewrite and shares the cache of lowered kernels.
    pub(crate) fn within(&self) -> Self {
        let Self { machine, storage, bindings, ref lowerings, .. } = *self;
        Self { machine, storage, bindings, lowerings: lowerings.clone(), ..Self::default() }
    }

    /// The same context for another graph, with an empty cache of kernels.
    pub(crate) fn fresh(&self) -> Self {
        Self { lowerings: LoweringCache::default(), ..self.clone() }
    }

    /// The cache of lowered kernels.
    pub(crate) fn lowerings(&self) -> &LoweringCache {
        &self.lowerings
    }

    /// Disables a pass or rule by name.
    pub(crate) fn disable(&mut self, name: &str) {
        self.disabled.insert(name.to_owned());
    }

    /// Permits at most this many rewrites.
    pub(crate) fn limit(&mut self, rewrites: usize) {
        self.remaining = Some(rewrites);
    }

    /// Sets the machine that passes optimize for.
    pub(crate) fn choose_for(&mut self, machine: HardwareModel) {
        self.machine = machine;
    }

    /// Sets the storage type of floats between kernels that passes optimize for.
    pub(crate) fn store_floats_as(&mut self, dtype: DType) {
        self.storage = Storage(dtype);
    }

    /// Sets the number of tensors that kernels may read and write.
    pub(crate) fn bind(&mut self, count: usize) {
        self.bindings = Bindings(count);
    }

    /// The number of tensors that a kernel may read and write.
    pub fn bindings(&self) -> usize {
        self.bindings.0
    }

    /// The storage type of a value of type `dtype` between two kernels.
    pub fn stored(&self, dtype: DType) -> DType {
        if dtype == DType::F32 { self.storage.0 } else { dtype }
    }

    /// The machine that passes optimize for, which determines when recomputation is cheaper than memory traffic.
    pub fn machine(&self) -> &HardwareModel {
        &self.machine
    }

    /// Enables the recording of near misses.
    pub(crate) fn explain(&mut self) {
        self.explaining = true;
    }

    /// True if `rule` may rewrite `node` of `graph`. This records the rewrite, so call it right before the rewrite.
    pub fn permits(&mut self, rule: &str, graph: &Graph, node: NodeId) -> bool {
        if self.disabled.contains(rule) {
            return false;
        }
        match &mut self.remaining {
            Some(0) => return false,
            Some(remaining) => *remaining -= 1,
            None => {}
        }
        let (op, path) = describe(graph, node);
        self.applications.push(Application { rule: rule.to_owned(), op, node: node.number(), path });
        true
    }

    /// The rules of the rewrites so far, in order.
    pub fn fired(&self) -> impl Iterator<Item = &str> {
        self.applications.iter().map(|application| application.rule.as_str())
    }

    /// True if the pass or rule is not disabled.
    pub fn is_enabled(&self, name: &str) -> bool {
        !self.disabled.contains(name)
    }

    /// True if [`Context::missed`] records near misses.
    pub fn is_explaining(&self) -> bool {
        self.explaining
    }

    /// Records that `rule` nearly rewrote `node`, and why it did not.
    pub fn missed(&mut self, rule: &str, graph: &Graph, node: NodeId, reason: impl FnOnce() -> String) {
        if self.explaining && self.is_enabled(rule) {
            let (op, path) = describe(graph, node);
            let reason = reason();
            self.near_misses.push(NearMiss { rule: rule.to_owned(), op, node: node.number(), path, reason });
        }
    }

    /// Adds a detail about the pass to the report.
    pub fn note(&mut self, detail: impl Into<String>) {
        self.detail = detail.into();
    }
}

fn describe(graph: &Graph, node: NodeId) -> (String, String) {
    graph.node(node).map_or_else(Default::default, |node| (node.op.name().to_owned(), node.path.clone()))
}
