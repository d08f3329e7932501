//! Selects operands that matmuls on matrix hardware read from other kernels.

use super::partition::{GroupId, Partition};
use crate::plan::{Computation, MemorySpace};
use rewire_graph::op::{JaggedConcat, JaggedSlice};
use rewire_graph::{DType, NodeId, Ordered, Value};
use std::collections::BTreeSet;

impl Partition<'_> {
    /// Some matmul operands may be f16 only if another kernel stores them, not if they are computed in the prologue.
    /// Such operands become separate kernels: matrix hardware saves more time than their memory traffic costs. Rows
    /// whose sample the prologue would have to search for also become separate kernels, since the search would run for
    /// each element of a tile.
    pub(super) fn keep_f16(&mut self, stored: impl Fn(DType) -> DType) {
        for group in 0..self.groups.len() {
            let Some(takes) = self.allows_f16_operands(group, &stored) else { continue };
            let (whole, first) = (self.groups[group].clone(), self.groups.len());
            // Attention finds the samples for a whole tile at once.
            let searches = takes && !whole.iter().any(|&id| self.is_scores(id));
            for id in self.computed_f16(group, &stored) {
                let part = self.part(group, id);
                let is_searched = searches && part.iter().any(|&id| self.is_searched(id));
                if (!takes || is_searched) && self.try_lower_whole(&part).is_ok() {
                    self.create(part);
                }
            }
            if searches {
                self.keep_searched(group);
            }
            if self.groups.len() > first && self.allows_f16_operands(group, &stored) != Some(true) {
                (first..self.groups.len()).rev().for_each(|new| self.dissolve(new));
                self.assign(group, whole);
            }
        }
    }

    /// Moves rows whose samples a kernel has to search for into another kernel that searches too, or into separate
    /// kernels.
    fn keep_searched(&mut self, group: GroupId) {
        let nodes = &self.groups[group];
        let cone = self.cone(nodes, &self.results(nodes));
        let main_operators = self.main_operators(group);
        let is_read = |id: &NodeId| self.is_searched(*id) && !self.depends(vec![*id], &main_operators);
        let searched = nodes.iter().copied().chain(cone.free).filter(is_read);
        let searched: Vec<NodeId> = searched.collect();
        for id in searched {
            let mut others: BTreeSet<GroupId> =
                self.users(id).iter().filter_map(|&user| self.group_of(user)).ordered_set();
            others.remove(&group);
            let part = self.part(group, id);
            if !others.into_iter().any(|other| self.is_free(id) && self.place_into(other, id))
                && self.try_lower_whole(&part).is_ok()
            {
                self.create(part);
            }
        }
    }

    /// True for rows whose samples a kernel has to search for.
    fn is_searched(&self, id: NodeId) -> bool {
        self.graph.op::<JaggedConcat>(id).is_some() || self.graph.op::<JaggedSlice>(id).is_some()
    }

    /// True if the factors of a group's products may be f16; `None` for groups without products.
    pub(super) fn allows_f16_operands(&self, group: GroupId, stored: impl Fn(DType) -> DType) -> Option<bool> {
        let nodes = &self.groups[group];
        if !nodes.iter().any(|&id| self.op(id).is_some_and(|op| op.accumulated().is_some())) {
            return None;
        }
        let lowered = self.try_lower(nodes);
        let Computation::Nest(mut own) = lowered.as_ref().as_ref().ok()?.clone() else { return None };
        for operand in own.nest_mut().body.operands.iter_mut().filter(|operand| operand.space != MemorySpace::Host) {
            operand.dtype = stored(operand.dtype);
        }
        own.scheduled(|schedule| schedule.has_products().then(|| schedule.allows_f16_operands()))
    }

    /// The main operators of a group.
    fn main_operators(&self, group: GroupId) -> BTreeSet<NodeId> {
        self.groups[group].iter().copied().filter(|&id| !self.is_elementwise(id)).ordered_set()
    }

    /// The f16 operands of its matmuls that a kernel computes itself: the nearest operators that are not layout
    /// changes.
    fn computed_f16(&self, group: GroupId, stored: impl Fn(DType) -> DType) -> BTreeSet<NodeId> {
        let (nodes, main_operators) = (&self.groups[group], self.main_operators(group));
        let is_half = |id: NodeId| {
            let ty = self.graph.ty(Value { node: id, port: 0 });
            ty.is_some_and(|ty| stored(ty.dtype) == DType::F16)
        };
        let mut stack: Vec<NodeId> =
            main_operators.iter().flat_map(|&id| self.inputs(id)).map(|value| value.node).collect();
        let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
        while let Some(id) = stack.pop() {
            let inside = nodes.contains(&id) || (self.is_free(id) && !self.inputs(id).is_empty());
            if !inside || !is_half(id) || self.depends(vec![id], &main_operators) || !seen.insert(id) {
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
