use super::PassReport;
use crate::lower::RewriteError;
use rewire_graph::op::Parameter;
use rewire_graph::{Graph, SizeSource};

/// Removes what no output needs: operators, and parameters with the bytes they would take.
///
/// Inputs stay, since callers bind them.
///
/// # Errors
/// [`RewriteError`] if the graph is not well formed.
pub fn remove_dead_code(graph: &Graph) -> Result<(Graph, PassReport), RewriteError> {
    let live = graph.live();
    let mut rest = graph.clone();
    let (mut removed, mut parameters, mut bytes) = (0, 0, 0);
    for id in graph.ids().filter(|id| !live.contains(id)) {
        let Some(node) = graph.node(id) else { continue };
        if node.op.downcast_ref::<Parameter>().is_some() {
            parameters += 1;
            bytes += node.types.iter().map(size).sum::<usize>();
        }
        rest.remove(id);
        removed += 1;
    }
    rest.map_size_sources(|source| match source {
        SizeSource::Total(value) | SizeSource::Scalar(value) if !live.contains(&value.node) => SizeSource::Unbound,
        other => other,
    });
    let detail = format!("{parameters} parameters of {bytes} bytes");
    Ok((rest, PassReport { pass: "dead_code", changes: removed, detail }))
}

fn size(ty: &rewire_graph::Type) -> usize {
    ty.shape.iter().map(|dim| dim.as_const().unwrap_or(0)).product::<usize>() * ty.dtype.bytes()
}
