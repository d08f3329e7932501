//! Vertical fusion: forms kernels from operators and as much of their surroundings as fits.
//!
//! A kernel is a main operator (a matmul, attention, reductions of a row, or none) with elementwise operators around
//! it. Every candidate kernel is lowered before it is accepted, so that it can be computed.

mod arrange;
mod bindings;
mod body;
mod cost;
mod f16;
mod grow;
mod norms;
mod outline;
mod pairs;
mod partition;

use super::{Context, Pass};
use crate::error::RewriteError;
use partition::Partition;
use rewire_graph::{Graph, NodeId, Ordered};
use std::collections::BTreeSet;

/// The name of the rule that puts several operators into a kernel.
const FUSION: &str = "fusion";

/// Replaces the operators of a graph by fused operators, one per kernel.
///
/// Drops nodes that no output needs. Fails if an operator fits in no kernel. Without its rule `fusion`, each operator
/// is a separate kernel, except scores and everything computed from them, which are never stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fuse;

impl Pass for Fuse {
    fn name(&self) -> &str {
        "fuse"
    }

    fn rules(&self) -> Vec<String> {
        vec![self.name().to_owned(), FUSION.to_owned()]
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph("fuse", source);
        let mut partition = Partition::new(graph, context.lowerings(), context.bindings()).map_err(failed)?;
        if context.is_enabled(FUSION) {
            partition.seed();
            for group in 0..partition.groups.len() {
                partition.grow_epilogue(group);
            }
            partition.place_free(context.machine());
            partition.absorb_norms(context.machine(), |dtype| context.stored(dtype));
            partition.keep_f16(|dtype| context.stored(dtype));
            partition.free_bindings();
            partition.join_norms();
            partition.join_maps();
            partition.shorten();
        } else {
            partition.separate();
        }
        let fused = outline::outline(&partition, context)?;
        if context.is_explaining() {
            explain(&partition, context);
        }
        let kernels = partition.groups.iter().filter(|nodes| !nodes.is_empty()).count();
        context.note(format!("{kernels} kernels"));
        Ok(fused)
    }
}

/// Records why kernels and their readers were not merged.
fn explain(partition: &Partition, context: &mut Context) {
    for (group, nodes) in partition.groups.iter().enumerate() {
        for other in partition.connected(group).into_iter().filter(|&other| other > group) {
            let both: BTreeSet<NodeId> = nodes.union(&partition.groups[other]).copied().ordered_set();
            let main_operators =
                [nodes, &partition.groups[other]].map(|nodes| outline::main_operator(partition.graph, nodes));
            let [Some(first), Some(second)] = main_operators else { continue };
            let name = partition.graph.node(second).map_or("", |node| node.op.name());
            context.missed("fuse", partition.graph, first, || {
                format!("not one kernel with {name} %{}: {}", second.number(), partition.refusal(&both))
            });
        }
    }
}
