use super::{Context, Pass};
use crate::error::RewriteError;
use rewire_graph::Graph;
use rewire_graph::op::Role;

/// Removes everything that no output needs: operators, parameters and constants.
///
/// Inputs stay, since callers bind them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &str {
        "dead_code"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let live = graph.live();
        let mut rest = graph.clone();
        let (mut parameters, mut bytes) = (0, 0usize);
        let mut order = graph.order().map_err(|source| RewriteError::graph(self.name(), source))?;
        // Readers are removed first, so that the graph is valid even if the rewrite limit stops the pass.
        order.reverse();
        for id in order.into_iter().filter(|id| !live.contains(id)) {
            let Some(node) = graph.node(id) else { continue };
            if !rest.users(id).is_empty() || !context.permits(self.name(), graph, id) {
                continue;
            }
            if matches!(node.op.role(), Role::Parameter(_)) {
                parameters += 1;
                bytes = node.types.iter().map(size).fold(bytes, usize::saturating_add);
            }
            rest.remove(id);
        }
        let kept = rest.clone();
        rest.rebind_sizes(|value| kept.node(value.node).map(|_| value));
        context.note(format!("{parameters} parameters of {bytes} bytes"));
        Ok(rest)
    }
}

fn size(ty: &rewire_graph::Type) -> usize {
    let extents: Vec<usize> = ty.shape.iter().map(|dim| dim.as_const().unwrap_or(0)).collect();
    ty.dtype.format().host_bytes(&extents).unwrap_or(usize::MAX)
}
