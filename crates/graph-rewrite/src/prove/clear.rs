//! Clearing of results with zeros.

use crate::error::NotLowerable;
use crate::plan::{Body, Buffer, BufferId, Computation, Nest, Output, Source, Step};
use rewire_graph::pointwise::Dag;
use std::collections::HashSet;

/// Clears each buffer in a separate step before the first step that may write only part of it. `partial` holds, for
/// every step, such positions in [`Step::writes`]. A state keeps its unwritten elements. Returns the cleared buffers.
pub(super) fn clear(
    steps: &mut Vec<Step>,
    buffers: &[Buffer],
    partial: &mut impl Iterator<Item = Vec<usize>>,
) -> Result<Vec<BufferId>, NotLowerable> {
    let (mut known, mut cleared) = (HashSet::new(), vec![]);
    for (step, partial) in std::mem::take(steps).into_iter().zip(partial) {
        for (position, &id) in step.writes.iter().enumerate() {
            if known.insert(id)
                && partial.contains(&position)
                && let Some(buffer) = buffers.get(id.0 as usize)
                && !matches!(buffer.source, Source::State(_))
            {
                steps.push(zeros(id, buffer, &step.path)?);
                cleared.push(id);
            }
        }
        steps.push(step);
    }
    Ok(cleared)
}

/// A step that fills a buffer with zeros.
fn zeros(id: BufferId, Buffer { dtype, shape, .. }: &Buffer, path: &str) -> Result<Step, NotLowerable> {
    let mut dag = Dag::new();
    let index = shape.iter().enumerate().map(|(axis, dim)| dag.coord(axis as u8, dim.as_const())).collect();
    let value = dag.constant(dtype.scalar(), 0);
    let extents = if shape.is_empty() { vec![1.into()] } else { shape.clone() };
    let outputs = vec![Output { target: 0, dtype: *dtype, shape: shape.clone(), index, value, columns: None }];
    let computation = Computation::of(Nest::map(Body { dag, ..Body::default() }, extents, outputs))?;
    Ok(Step { name: "clear".to_owned(), path: path.to_owned(), computation, reads: vec![], writes: vec![id] })
}
