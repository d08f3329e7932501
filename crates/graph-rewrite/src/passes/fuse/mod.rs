//! Vertical fusion: every operator gets a kernel, with as much of its surroundings as fits.
//!
//! A kernel is an anchor (a product, attention, reductions of a row, or nothing) with elementwise operators
//! around it. Each step is tried by lowering the kernel it would make, so what is accepted can be computed.

mod cost;
mod grow;
mod outline;
mod partition;
mod relieve;

use super::PassReport;
use crate::lower::RewriteError;
use partition::Partition;
use rewire_graph::Graph;

/// Replaces the operators of a graph by fused operators, one a kernel.
///
/// # Errors
/// [`RewriteError`] if the graph has a cycle or an operator fits no kernel.
pub fn fuse(graph: &Graph) -> Result<(Graph, PassReport), RewriteError> {
    let failed = |source| RewriteError::graph("fuse", source);
    let mut partition = Partition::new(graph).map_err(failed)?;
    partition.seed();
    for group in 0..partition.groups.len() {
        partition.grow_epilogue(group);
    }
    partition.settle();
    partition.absorb_norms();
    partition.relieve();
    partition.join_maps();
    let fused = outline::outline(&partition)?;
    let kernels = partition.groups.iter().filter(|nodes| !nodes.is_empty()).count();
    let report = PassReport {
        pass: "fuse",
        changes: graph.len() - fused.len().min(graph.len()),
        detail: format!("{kernels} kernels"),
    };
    Ok((fused, report))
}
