//! Training steps under a memory limit.

use super::{TrainError, Trainer};
use rewire_graph::Graph;
use rewire_graph_rewrite::cost::{HardwareModel, Sizes};
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::recompute::{Timeline, recompute};
use rewire_runtime::{Inputs, Model};

/// A step with a memory limit.
#[derive(Debug)]
pub(super) struct Limited {
    /// The step without recomputation.
    graph: Graph,
    /// The lifetimes of tensors in the session's graph.
    timeline: Timeline,
    limit: u64,
}

impl Limited {
    pub fn new(graph: &Graph, limit: u64) -> Result<Self, TrainError> {
        Ok(Self { graph: graph.clone(), timeline: Timeline::of(graph)?, limit })
    }
}

impl Trainer {
    /// Recomputes more tensors if a run would exceed the limit. Results keep their bits.
    pub(super) fn fit(&mut self, inputs: &Inputs) -> Result<(), TrainError> {
        let Some(limited) = &mut self.limited else { return Ok(()) };
        let sizes = Sizes::of_values(&self.session.shape_values(inputs)?);
        if limited.timeline.bytes(&sizes) <= limited.limit {
            return Ok(());
        }
        // With a reserve of one eighth, slightly larger batches need no new plan.
        let (limit, machine) = (limited.limit, HardwareModel::default());
        let mut found = recompute(&limited.graph, &sizes, limit - limit / 8, &machine)?;
        if found.bytes > limit - limit / 8 {
            found = recompute(&limited.graph, &sizes, limit, &machine)?;
        }
        if found.bytes > limit {
            return Err(TrainError::Memory { limit, needed: found.bytes });
        }
        let (timeline, plan) = (Timeline::of(&found.graph)?, lower(&found.graph)?);
        let (options, states) = (self.session.model().options().clone(), self.session.states()?);
        let mut session = Model::load(plan, |name: &str| self.fixed.get(name).cloned(), options)?.session();
        for (name, state) in states {
            session.set_state(&name, state)?;
        }
        limited.timeline = timeline;
        self.session = session;
        Ok(())
    }
}
