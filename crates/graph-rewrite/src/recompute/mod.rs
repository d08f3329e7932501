//! Recomputes values instead of storing them, to meet a memory limit (activation checkpointing).
//!
//! A training step keeps results of its forward pass until the backward pass reads them. If that needs too much memory,
//! kernels run a second time, right before the readers of their results. The operands are the same, so results are
//! identical to the bit.

mod choice;
mod timeline;

pub use timeline::Timeline;

use crate::cost::{HardwareModel, Sizes, operators};
use crate::error::RewriteError;
use choice::Costs;
use rewire_graph::Graph;

/// A graph with recomputed values.
#[derive(Clone, Debug)]
pub struct Recomputed {
    /// The graph.
    pub graph: Graph,
    /// Number of repeated kernels.
    pub kernels: usize,
    /// Bytes of the tensors between kernels, see [`Timeline::bytes`]. Above the limit if the limit cannot be met.
    pub bytes: u64,
    /// Additional seconds on the machine, predicted by the cost model.
    pub seconds: f64,
}

/// Repeats kernels of a graph until its tensors fit in `limit` bytes at some sizes. Kernels that free the most bytes
/// per second of run time come first. `graph` should come from [`optimize`](crate::optimize).
///
/// ```
/// use rewire_graph::{DType, Scope, Seed, differentiate};
/// use rewire_graph_rewrite::cost::{HardwareModel, Sizes};
/// use rewire_graph_rewrite::recompute::{Timeline, recompute};
///
/// let scope = Scope::new();
/// let mut x = scope.input("x", DType::F32, [scope.size("rows"), 32.into()]);
/// let weights = ["a", "b", "c", "d", "e", "f"];
/// for name in weights {
///     x = x.matmul(&scope.parameter(name, DType::F32, [32, 32])).silu();
/// }
/// let graph = differentiate(&scope.finish(&[("y", x)])?, &[("y", Seed::One)], &weights)?;
/// let (graph, _) = rewire_graph_rewrite::optimize(graph)?;
///
/// let sizes = Sizes::assumed(&graph);
/// let all = Timeline::of(&graph)?.bytes(&sizes);
/// let less = recompute(&graph, &sizes, all * 9 / 10, &HardwareModel::TYPICAL)?;
/// assert!(less.bytes <= all * 9 / 10 && less.kernels > 0 && less.seconds > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RewriteError::Graph`] if the graph is invalid.
pub fn recompute(
    graph: &Graph,
    sizes: &Sizes,
    limit: u64,
    machine: &HardwareModel,
) -> Result<Recomputed, RewriteError> {
    let failed = |source| RewriteError::graph("recompute", source);
    let mut timeline = Timeline::of(graph)?;
    let costs = Costs {
        seconds: operators(graph, sizes)?.into_iter().map(|(id, count)| (id, machine.seconds(&count))).collect(),
        bytes: timeline.tensor_bytes(sizes),
    };
    let (mut best, mut least) = (timeline.clone(), timeline.bytes(sizes));
    let (mut costs, most) = (costs, 64 + 8 * timeline.len());
    for _ in 0..most {
        if least <= limit || !costs.improve(&mut timeline) {
            break;
        }
        let bytes = timeline.bytes(sizes);
        if bytes < least {
            (best, least) = (timeline.clone(), bytes);
        }
    }
    let repeated: Vec<_> = best.repeated().collect();
    Ok(Recomputed {
        graph: best.graph(graph).map_err(failed)?,
        kernels: repeated.len(),
        bytes: least,
        seconds: repeated.iter().filter_map(|id| costs.seconds.get(id)).sum(),
    })
}
