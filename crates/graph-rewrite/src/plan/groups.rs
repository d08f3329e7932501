//! Weights of few bits in groups with a scale each, and values computed from weights that are rows of these.

use super::storage::is_written;
use super::{Binding, Buffer, BufferId, Computation, Nest, Output, Plan, Source, Step};
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId};
use rewire_graph::{DType, Dim, Scalar};
use std::borrow::Cow;

/// Neighbouring elements of a row that share a scale, in types of fewer than 8 bits.
const GROUP: usize = 32;

impl Plan {
    /// The plan with buffers as the steps of [`Plan::load`] see them: these compute floats in whole rows, which a session
    /// then stores in the buffer's type and groups.
    pub fn when_loading(&self) -> Cow<'_, Self> {
        let is_converted = |buffer: &Buffer| buffer.source == Source::Load && !is_written(buffer.dtype);
        if !self.buffers.iter().any(is_converted) {
            return Cow::Borrowed(self);
        }
        let mut plan = self.clone();
        for (n, buffer) in plan.buffers.iter_mut().enumerate().filter(|(_, buffer)| is_converted(buffer)) {
            buffer.dtype = DType::F32;
            if self.in_groups.contains(&BufferId(n as u32)) {
                join(&mut buffer.shape);
            }
        }
        Cow::Owned(plan)
    }

    /// True if a value that is computed from parameters consists of rows of them, and its rows are not summed up, so that
    /// they can be stored with a scale each.
    pub(super) fn has_copied_rows(&self, id: BufferId) -> bool {
        let is_matrix = self.buffer(id).is_some_and(|buffer| buffer.shape.len() > 1);
        let mut steps = self.load.iter().filter(|step| step.writes.contains(&id)).peekable();
        is_matrix && steps.peek().is_some() && steps.all(|step| step.copies_rows_to(id)) && !self.is_summed_by_row(id)
    }

    /// Stores the rows of a tensor of few bits in groups, if steps can read them.
    pub(super) fn divide(&mut self, id: BufferId) {
        let Some(buffer) = self.buffer(id) else { return };
        let width = buffer.shape.last().and_then(Dim::as_const).unwrap_or(0);
        if buffer.dtype.format().bits >= 8 || width <= GROUP || !width.is_multiple_of(GROUP) {
            return;
        }
        let computed = buffer.source == Source::Load;
        let groups = [width / GROUP, GROUP].map(Dim::from);
        let divided = |step: &Step| step.with_groups(id, &groups);
        let Some(steps) = self.steps.iter().map(divided).collect::<Option<Vec<Step>>>() else { return };
        let load = self.load.iter().map(|step| if computed { Some(step.clone()) } else { divided(step) });
        let Some(load) = load.collect::<Option<Vec<Step>>>() else { return };
        (self.load, self.steps) = (load, steps);
        split(&mut self.buffers[id.0 as usize].shape, &groups);
        self.in_groups.insert(id);
    }
}

/// Replaces the last dimension by groups.
fn split(shape: &mut Vec<Dim>, groups: &[Dim]) {
    shape.pop();
    shape.extend_from_slice(groups);
}

/// Joins the last two dimensions.
fn join(shape: &mut Vec<Dim>) {
    if let Some((groups, group)) = shape.pop().zip(shape.pop()).map(|(group, groups)| (groups, group)) {
        shape.extend(groups.product(&group));
    }
}

impl Step {
    /// The step, which reads a tensor in groups instead of rows; `None` if it cannot.
    fn with_groups(&self, id: BufferId, groups: &[Dim; 2]) -> Option<Self> {
        let mut step = self.clone();
        if !self.reads.contains(&Binding::Buffer(id)) {
            return Some(step);
        }
        let Computation::Nest(own) = &mut step.computation else { return None };
        let is_it = |operand: u16| self.reads.get(usize::from(operand)) == Some(&Binding::Buffer(id));
        let size = groups[1].as_const()?;
        own.edit(|nest| {
            for (_, operand) in (0..).zip(&mut nest.body.operands).filter(|(position, _)| is_it(*position)) {
                split(&mut operand.shape, groups);
            }
            let dtypes: Vec<DType> = nest.body.operands.iter().map(|operand| operand.dtype).collect();
            nest.rebuild(|dag, expr, copies| {
                let (Expr::Load { operand, .. }, [outer @ .., column]) = (expr, copies) else { return None };
                let size = dag.int(size as i64);
                let place = [BinaryOp::Div, BinaryOp::Mod].map(|op| dag.binary(op, *column, size));
                let index = outer.iter().copied().chain(place).collect();
                is_it(*operand).then(|| dag.load(*operand, dtypes[usize::from(*operand)], index))
            });
        })
        .ok()?;
        Some(step)
    }

    /// True if all results for a buffer are copies of rows.
    fn copies_rows_to(&self, id: BufferId) -> bool {
        let Computation::Nest(nest) = &self.computation else { return false };
        let is_result = |output: &&Output| self.writes.get(usize::from(output.target)) == Some(&id);
        nest.accumulations.is_empty() && nest.outputs.iter().filter(is_result).all(|output| copies_rows(nest, output))
    }
}

/// True if every element of a result is that of the same column in a row of an operand.
fn copies_rows(nest: &Nest, output: &Output) -> bool {
    let dag = &nest.body.dag;
    let column = Expr::Coord(nest.rank().saturating_sub(1) as u8);
    let is_column = |index: &[ExprId]| index.len() > 1 && index.last().is_some_and(|last| *dag.expr(*last) == column);
    let is_copied = |id: ExprId| match dag.expr(id) {
        Expr::Load { index, .. } => is_column(index),
        Expr::Select(..) => true,
        _ => dag.scalar(id) != Scalar::F32,
    };
    is_column(&output.index) && output.columns.is_none() && dag.reachable(&[output.value]).into_iter().all(is_copied)
}
