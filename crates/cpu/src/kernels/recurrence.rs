//! Recurrent layers. A task computes all steps of a block of batch rows.

use super::arch::Arch;
use super::error::CpuError;
use super::operand::{Env, View};
use super::product::{Matrix, PackedRhs};
use super::scratch::room;
use super::tasks;
use super::vectors::Instructions;
use crate::parallel::threads;
use pulp::{Simd, WithSimd};
use rewire_graph::DType;
use rewire_graph::op::{Cell, Recurrence};
use rewire_graph::pointwise::functions::{Relu, Sigmoid, Tanh, Unary};
use std::sync::Arc;

/// Maximum number of rows per task.
const ROWS: usize = 48;

/// The unpadded operands.
pub(super) struct Operands<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub bias: &'a [f32],
    pub start: &'a [f32],
}

/// Steps, batch rows and hidden units of a layer.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub steps: usize,
    pub batch: usize,
    pub width: usize,
}

/// Scratch memory of a thread.
#[derive(Default)]
struct Scratch {
    hidden: Vec<f32>,
    cell: Vec<f32>,
    sums: Vec<f32>,
}

/// Stores the states of all steps in `out`, whose rows are `pitch` apart. A weight with known content is packed once.
pub(super) fn run(
    op: &Recurrence,
    env: &Env<'_>,
    weight: &View<'_>,
    operands: &Operands<'_>,
    Extents { steps, batch, width }: Extents,
    (out, pitch): (&mut [f32], usize),
) -> Result<(), CpuError> {
    let (rows, states) = (op.cell.gates() * width, op.cell.states());
    if batch == 0 || steps == 0 {
        return Ok(());
    }
    let pack = || {
        let matrix = Matrix::new(operands.weight, (rows, width), (width, 1)).map(Matrix::transposed);
        matrix.map_or_else(|| Err(content(vec![rows, width])), PackedRhs::new).map(Arc::new)
    };
    let panels = match weight.content {
        Some(content) => env.kept.panels.get(&[content], pack)?,
        None => pack()?,
    };
    let size = batch.div_ceil(threads()).clamp(1, ROWS);
    let mut parts: Vec<Vec<&mut [f32]>> = (0..batch.div_ceil(size)).map(|_| Vec::with_capacity(steps)).collect();
    for step in out.chunks_mut(batch * pitch).take(steps) {
        parts.iter_mut().zip(step.chunks_mut(size * pitch)).for_each(|(part, rows)| part.push(rows));
    }
    tasks::for_each(
        parts.into_iter().enumerate().collect(),
        || Ok(Scratch::default()),
        |scratch, (n, mut part)| {
            let (first, count) = (n * size, size.min(batch - n * size));
            let hidden = room(&mut scratch.hidden, count * width)?;
            let cell = room(&mut scratch.cell, count * width * (states - 1))?;
            let begin = operands.start.chunks_exact(states * width).skip(first);
            for (n, start) in begin.take(count).enumerate() {
                hidden[n * width..][..width].copy_from_slice(&start[..width]);
                cell.iter_mut().skip(n * width).zip(&start[width..]).for_each(|(to, &from)| *to = from);
            }
            let stride = rows.next_multiple_of(64);
            let sums = room(&mut scratch.sums, count * stride)?;
            for step in op.steps(steps) {
                let left =
                    Matrix::new(hidden, (count, width), (width, 1)).ok_or_else(|| content(vec![count, width]))?;
                panels.multiply(sums, stride, left, (0, rows, 0), false)?;
                let x = &operands.x[(step * batch + first) * rows..];
                let out = &mut *part[step];
                let (bias, order) = (operands.bias, op.order.as_slice());
                let gates = Gates { x, sums, stride, bias, order, width };
                Arch::chosen().dispatch(Advance { kind: op.cell, gates, hidden, cell, out, pitch });
            }
            Ok(())
        },
    )
}

fn content(shape: Vec<usize>) -> CpuError {
    CpuError::Content { dtype: DType::F32, shape }
}

/// The inputs of all gates for a block of rows in a step.
#[derive(Clone, Copy)]
struct Gates<'a> {
    x: &'a [f32],
    sums: &'a [f32],
    /// Row stride of `sums`.
    stride: usize,
    bias: &'a [f32],
    order: &'a [usize],
    width: usize,
}

impl Gates<'_> {
    /// The input term and the hidden term of a gate, for units from `unit` on.
    #[inline(always)]
    fn parts<S: Simd>(&self, simd: S, gate: usize, row: usize, unit: usize) -> [S::f32s; 2] {
        let (at, rest) = (self.order[gate] * self.width + unit, self.width - unit);
        let rows = self.order.len() * self.width;
        let load = |data: &[f32], at: usize| load(simd, &data[at..at + rest]);
        let hidden = simd.add_f32s(load(self.sums, row * self.stride + at), load(self.bias, at));
        [load(self.x, row * rows + at), hidden]
    }
}

/// Loads the first vector, zero-padded.
#[inline(always)]
fn load<S: Simd>(simd: S, floats: &[f32]) -> S::f32s {
    match S::as_simd_f32s(floats) {
        ([vector, ..], _) => *vector,
        ([], rest) => simd.partial_load_f32s(rest),
    }
}

#[inline(always)]
fn store<S: Simd>(simd: S, floats: &mut [f32], value: S::f32s) {
    match S::as_mut_simd_f32s(floats) {
        ([vector, ..], _) => *vector = value,
        ([], rest) => simd.partial_store_f32s(rest, value),
    }
}

/// Computes a step for a block of rows.
struct Advance<'a> {
    kind: Cell,
    gates: Gates<'a>,
    hidden: &'a mut [f32],
    cell: &'a mut [f32],
    out: &'a mut [f32],
    pitch: usize,
}

impl WithSimd for Advance<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { kind, gates, hidden, cell, out, pitch } = self;
        let (v, width) = (Instructions(simd), gates.width);
        for (row, (hidden, out)) in hidden.chunks_exact_mut(width).zip(out.chunks_mut(pitch)).enumerate() {
            let mut cell = cell.get_mut(row * width..(row + 1) * width);
            for unit in (0..width).step_by(S::F32_LANES) {
                let parts = |gate: usize| gates.parts(simd, gate, row, unit);
                let sum = |gate: usize| {
                    let [x, u] = parts(gate);
                    simd.add_f32s(x, u)
                };
                let next = match kind {
                    Cell::Tanh => Tanh::lanes(v, sum(0)),
                    Cell::Relu => Relu::lanes(v, sum(0)),
                    Cell::Gru => {
                        let (reset, update) = (Sigmoid::lanes(v, sum(0)), Sigmoid::lanes(v, sum(1)));
                        let [x, u] = parts(2);
                        let new = Tanh::lanes(v, simd.add_f32s(x, simd.mul_f32s(reset, u)));
                        let kept = simd.mul_f32s(simd.sub_f32s(load(simd, &hidden[unit..]), new), update);
                        simd.add_f32s(kept, new)
                    }
                    Cell::Lstm => {
                        let (input, forget) = (Sigmoid::lanes(v, sum(0)), Sigmoid::lanes(v, sum(1)));
                        let (new, output) = (Tanh::lanes(v, sum(2)), Sigmoid::lanes(v, sum(3)));
                        let Some(cell) = &mut cell else { return };
                        let kept = simd.mul_f32s(forget, load(simd, &cell[unit..]));
                        let next = simd.add_f32s(kept, simd.mul_f32s(input, new));
                        store(simd, &mut cell[unit..], next);
                        store(simd, &mut out[width + unit..2 * width], next);
                        simd.mul_f32s(output, Tanh::lanes(v, next))
                    }
                };
                store(simd, &mut hidden[unit..], next);
                store(simd, &mut out[unit..width], next);
            }
        }
    }
}
