//! Small matrices, computed as one contiguous line.

use super::error::CpuError;
use super::lanes::LANES;
use super::machine::{RowInputs, Vm};
use super::operand::Env;
use super::panel::{fill, segments, within};
use super::program::{AccumulatorValue, Program};
use super::run::{as_one, scattered};
use rewire_graph::pointwise::{Dag, ExprId};
use rewire_graph_rewrite::plan::Body;
use std::ops::Range;

/// The matrix of an expression over row and column coordinates of constant extents, computed as one row-major line.
#[derive(Clone, Debug)]
pub(super) struct JoinedMatrix {
    /// Ranges of points, each with a program for points counted from the start of the range.
    segments: Vec<(Range<usize>, Program)>,
}

/// A [`JoinedMatrix`] bound to a run.
pub(super) struct JoinedMachine<'a>(Vec<(&'a Range<usize>, Vm<'a>)>);

impl JoinedMatrix {
    /// `None` if the matrix is large, or a load would not be contiguous along the line.
    pub(super) fn new(
        body: &Body,
        id: ExprId,
        (row, column): (u8, u8),
        (rows, columns): (usize, usize),
    ) -> Result<Option<Self>, CpuError> {
        let Some(points @ 1..=LANES) = rows.checked_mul(columns).filter(|_| body.dag.values(id) == 0) else {
            return Ok(None);
        };
        let (dag, roots) = as_one(&body.dag, &[id], (row, column, column), (columns, Some(points)));
        let body = Body { dag, operands: body.operands.clone(), sizes: body.sizes.clone() };
        if scattered(&body, &roots, column) > 0 {
            return Ok(None);
        }
        let none = |_: &Dag, _: ExprId| -> Option<AccumulatorValue> { None };
        let segment = |points: Range<usize>| {
            let (dag, roots) = within(&body.dag, &roots, column, std::slice::from_ref(&points));
            Ok((points, Program::compile(&dag, &body.operands, &roots, column, &none)?))
        };
        let segments = segments(&body.dag, &roots, column, Some(points)).into_iter().map(segment);
        Ok(Some(Self { segments: segments.collect::<Result<_, CpuError>>()? }))
    }

    pub(super) fn machine<'a>(&'a self, env: &'a Env<'a>) -> Result<JoinedMachine<'a>, CpuError> {
        let machines = self.segments.iter().map(|(points, program)| Ok((points, Vm::new(program, env)?)));
        Ok(JoinedMachine(machines.collect::<Result<_, CpuError>>()?))
    }
}

impl JoinedMachine<'_> {
    /// Computes a range of points of the line in each row of `inputs`. Results are `pitch` apart.
    pub(super) fn fill(&mut self, inputs: RowInputs<'_>, points: Range<usize>, lines: &mut [f32], pitch: usize) {
        for (segment, machine) in &mut self.0 {
            let (start, end) = (segment.start.max(points.start), segment.end.min(points.end));
            if start < end
                && let Some(lines) = lines.get_mut(start - points.start..)
            {
                fill(machine, inputs, (start - segment.start, end - start), (lines, pitch), |_| 0);
            }
        }
    }
}
