//! Clamping of indices to their tensors.

use super::{Access, Unproven};
use crate::error::NotLowerable;
use crate::plan::{Computation, Nest};
use rewire_graph::Dim;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use std::collections::{BTreeMap, BTreeSet};

/// The dimensions in which an index is clamped, and whether their extents may be 0.
#[derive(Clone, Default)]
struct Clamped {
    dimensions: BTreeSet<usize>,
    empty: bool,
}

/// A shape, and the dimensions in which an index is clamped.
pub(super) type Place = (Vec<Dim>, Vec<usize>);

/// Clamps unproven indices in all loops of a kernel. Returns the shapes and dimensions, or `None` for a store to a
/// tensor that may be empty.
pub(super) fn clamp(computation: &mut Computation, found: &[Unproven]) -> Result<Option<Vec<Place>>, NotLowerable> {
    match computation {
        Computation::Nest(kernel) if !found.is_empty() => kernel.edit(|nest| clamp_nest(nest, found)),
        _ => Ok(Some(vec![])),
    }
}

fn clamp_nest(nest: &mut Nest, found: &[Unproven]) -> Option<Vec<Place>> {
    let mut accesses: BTreeMap<Access, Clamped> = BTreeMap::new();
    for Unproven { access, outside, empty } in found {
        let bounds = accesses.entry(*access).or_default();
        bounds.dimensions.extend(outside);
        bounds.empty |= empty;
    }
    let shapes: Vec<Vec<Dim>> = accesses.keys().map(|access| shape(nest, *access)).collect::<Option<_>>()?;
    let loads = accesses.iter().filter_map(|(access, bounds)| match access {
        Access::Load(id) => Some((nest.body.dag.expr(*id).clone(), bounds.clone())),
        Access::Store(_) => None,
    });
    let loads: Vec<(Expr, Clamped)> = loads.collect();
    if !loads.is_empty() {
        clamp_loads(nest, &loads);
    }
    for ((access, bounds), shape) in accesses.iter().zip(&shapes) {
        if let Access::Store(output) = access {
            if bounds.empty {
                return None;
            }
            clamp_store(nest, *output, bounds, shape)?;
        }
    }
    let dimensions = accesses.into_values().map(|bounds| bounds.dimensions.into_iter().collect());
    Some(shapes.into_iter().zip(dimensions).collect())
}

fn shape(nest: &Nest, access: Access) -> Option<Vec<Dim>> {
    match access {
        Access::Load(id) => match nest.body.dag.expr(id) {
            Expr::Load { operand, .. } => Some(nest.body.operands.get(usize::from(*operand))?.shape.clone()),
            _ => None,
        },
        Access::Store(output) => Some(nest.outputs.get(output)?.shape.clone()),
    }
}

fn clamp_loads(nest: &mut Nest, loads: &[(Expr, Clamped)]) {
    let operands = nest.body.operands.clone();
    let mut sizes = std::mem::take(&mut nest.body.sizes);
    nest.rebuild(|dag, expr, index| {
        let (load, bounds) = loads.iter().find(|(load, _)| load == expr)?;
        let Expr::Load { operand, .. } = load else { return None };
        let declared = operands.get(usize::from(*operand))?;
        let (mut index, mut filled) = (index.to_vec(), None);
        for &axis in &bounds.dimensions {
            let extent = dag.extent(&mut sizes, declared.shape.get(axis)?);
            index[axis] = nearest(dag, index[axis], extent);
            if bounds.empty {
                let zero = dag.int(0);
                let some = dag.binary(BinaryOp::Gt, extent, zero);
                filled = Some(filled.map_or(some, |filled| dag.binary(BinaryOp::And, filled, some)));
            }
        }
        let load = dag.load(*operand, declared.dtype, index);
        Some(match filled {
            Some(filled) => {
                let zero = dag.constant(declared.dtype.scalar(), 0);
                dag.select(filled, load, zero)
            }
            None => load,
        })
    });
    nest.body.sizes = sizes;
}

fn clamp_store(nest: &mut Nest, output: usize, bounds: &Clamped, shape: &[Dim]) -> Option<()> {
    let (body, output) = (&mut nest.body, nest.outputs.get_mut(output)?);
    for &axis in &bounds.dimensions {
        let extent = body.dag.extent(&mut body.sizes, shape.get(axis)?);
        output.index[axis] = nearest(&mut body.dag, output.index[axis], extent);
    }
    Some(())
}

/// The index clamped below an extent.
fn nearest(dag: &mut Dag, index: ExprId, extent: ExprId) -> ExprId {
    let (zero, one) = (dag.int(0), dag.int(1));
    let last = dag.binary(BinaryOp::Sub, extent, one);
    let index = dag.binary(BinaryOp::Min, index, last);
    dag.binary(BinaryOp::Max, index, zero)
}
