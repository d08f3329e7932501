//! What products on matrix hardware read of the results of others.

use super::partition::{GroupId, Partition};
use crate::plan::MemorySpace;
use crate::schedule::Schedule;
use rewire_graph::{DType, NodeId, Value};
use std::collections::BTreeSet;

impl Partition<'_> {
    /// Operands of products that are halves where they are `stored`, but not where the kernel that reads them computes them itself,
    /// become kernels of their own: matrix hardware gains more than writing and reading them costs.
    pub(super) fn keep_halves(&mut self, stored: impl Fn(DType) -> DType) {
        for group in 0..self.groups.len() {
            if self.takes_halves(group, &stored) != Some(false) {
                continue;
            }
            let (whole, first) = (self.groups[group].clone(), self.groups.len());
            for id in self.computed_halves(group, &stored) {
                let part = self.part(group, id);
                if self.trial_whole(&part).is_ok() {
                    self.create(part);
                }
            }
            if self.groups.len() > first && self.takes_halves(group, &stored) != Some(true) {
                (first..self.groups.len()).rev().for_each(|new| self.dissolve(new));
                self.assign(group, whole);
            }
        }
    }

    /// Whether the factors of a group's products may be halves; `None` for groups without products.
    pub(super) fn takes_halves(&self, group: GroupId, stored: impl Fn(DType) -> DType) -> Option<bool> {
        let nodes = &self.groups[group];
        if !nodes.iter().any(|&id| self.op(id).is_some_and(|op| op.accumulated().is_some())) {
            return None;
        }
        let trial = self.trial(nodes);
        let mut nest = trial.as_ref().as_ref().ok()?.nest()?.clone();
        for operand in nest.body.operands.iter_mut().filter(|operand| operand.space != MemorySpace::Host) {
            operand.dtype = stored(operand.dtype);
        }
        match Schedule::of(&nest).ok()? {
            Schedule::Map(_) | Schedule::Reduction(_) | Schedule::Fold(_) => None,
            schedule => Some(schedule.takes_halves()),
        }
    }

    /// What a kernel computes itself of the operands of its products: halves, the nearest that do more than move the elements of
    /// one tensor.
    fn computed_halves(&self, group: GroupId, stored: impl Fn(DType) -> DType) -> BTreeSet<NodeId> {
        let nodes = &self.groups[group];
        let anchors: BTreeSet<NodeId> = nodes.iter().copied().filter(|&id| !self.is_elementwise(id)).collect();
        let is_half = |id: NodeId| {
            let ty = self.graph.ty(Value { node: id, port: 0 });
            ty.is_some_and(|ty| stored(ty.dtype) == DType::F16)
        };
        let mut stack: Vec<NodeId> = anchors.iter().flat_map(|&id| self.inputs(id)).map(|value| value.node).collect();
        let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
        while let Some(id) = stack.pop() {
            let inside = nodes.contains(&id) || (self.is_free(id) && !self.inputs(id).is_empty());
            if !inside || !is_half(id) || self.depends(vec![id], &anchors) || !seen.insert(id) {
                continue;
            }
            match (self.op(id).and_then(|op| op.movement()), self.inputs(id)) {
                (Some(_), &[moved]) => stack.push(moved.node),
                _ => drop(found.insert(id)),
            }
        }
        found
    }
}
