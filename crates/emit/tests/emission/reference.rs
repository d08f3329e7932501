//! Evaluates kernels as plain loops.

use crate::tensor::{NEVER, Tensor, extent};
use rewire_graph::pointwise::{ExprId, Point};
use rewire_graph::{Number, Scalar, Symbol};
use rewire_graph_rewrite::plan::{Extent, Nest, Output, ReduceOp};
use std::cell::RefCell;
use std::collections::HashMap;

/// Caches an expression: it is evaluated once per combination of the coordinates that it depends on.
struct Memo {
    /// By axis; 0 for axes that it does not depend on.
    strides: Vec<usize>,
    known: RefCell<Vec<Option<Number>>>,
}

impl Memo {
    fn new(free: u32, extents: &[usize]) -> Self {
        let mut count = 1;
        let stride = |(axis, extent): (usize, &usize)| {
            let stride = if free >> axis & 1 == 1 { count } else { 0 };
            count *= if stride > 0 { *extent } else { 1 };
            stride
        };
        let strides = extents.iter().enumerate().map(stride).collect();
        Self { strides, known: RefCell::new(vec![None; count]) }
    }

    fn once(&self, coords: &[i64], evaluate: impl FnOnce() -> Number) -> Number {
        let at: usize = coords.iter().zip(&self.strides).map(|(&coord, stride)| coord as usize * stride).sum();
        let known = self.known.borrow()[at];
        known.unwrap_or_else(|| {
            let value = evaluate();
            self.known.borrow_mut()[at] = Some(value);
            value
        })
    }
}

/// The caches of an accumulation.
struct Sum {
    /// The coordinates that it depends on, as a bit mask.
    free: u32,
    result: Memo,
    factors: Vec<Memo>,
}

pub struct Reference<'a> {
    nest: &'a Nest,
    operands: &'a [Tensor],
    symbols: &'a HashMap<Symbol, i64>,
    sizes: Vec<i64>,
    sums: Vec<Sum>,
}

impl<'a> Reference<'a> {
    pub fn new(nest: &'a Nest, operands: &'a [Tensor], symbols: &'a HashMap<Symbol, i64>) -> Self {
        let sizes = nest.body.sizes.iter().map(|d| extent(d, symbols) as i64).collect();
        let mut reference = Self { nest, operands, symbols, sizes, sums: vec![] };
        let extents: Vec<usize> = (0..nest.axes.len()).map(|axis| reference.longest(axis)).collect();
        for sum in &nest.accumulations {
            let read: Vec<u32> = sum.factors.iter().map(|&factor| reference.free(factor)).collect();
            let sample = u32::from(nest.axes[usize::from(sum.axis)].extent.dense().is_none());
            let free = read.iter().fold(0, |bits, free| bits | free) & !(1 << sum.axis) | sample;
            let factors = read.iter().map(|&free| Memo::new(free, &extents)).collect();
            reference.sums.push(Sum { free, result: Memo::new(free, &extents), factors });
        }
        reference
    }

    /// The coordinates that an expression depends on, directly or through accumulations.
    fn free(&self, id: ExprId) -> u32 {
        let values = self.nest.body.dag.values(id);
        let through = self.sums.iter().enumerate().filter(|(n, _)| values >> n & 1 == 1);
        through.fold(self.nest.body.dag.coords(id), |bits, (_, sum)| bits | sum.free)
    }

    fn eval(&self, id: ExprId, coords: &[i64]) -> Number {
        At { reference: self, coords }.evaluate(&self.nest.body.dag, id)
    }

    fn accumulated(&self, n: u8, coords: &[i64]) -> Number {
        let (sum, known) = (&self.nest.accumulations[usize::from(n)], &self.sums[usize::from(n)]);
        known.result.once(coords, || {
            let mut point = coords.to_vec();
            let elements = (0..self.extent(sum.axis.into(), coords)).map(|at| {
                point[usize::from(sum.axis)] = at;
                let factors = sum.factors.iter().zip(&known.factors);
                factors.map(|(&id, known)| known.once(&point, || self.eval(id, &point)).float()).product::<f64>()
            });
            Number::Float(match sum.op {
                ReduceOp::Sum => elements.sum(),
                ReduceOp::Max => elements.fold(sum.op.start().into(), f64::max),
                ReduceOp::Min => elements.fold(sum.op.start().into(), f64::min),
            })
        })
    }

    /// The largest extent of an axis in any sample.
    fn longest(&self, axis: usize) -> usize {
        let samples = match &self.nest.axes[axis].extent {
            Extent::Dense(_) => 1,
            Extent::Ragged { offsets } => self.operands[usize::from(*offsets)].data.len() as i64 - 1,
        };
        (0..samples).map(|sample| self.extent(axis, &[sample]) as usize).max().unwrap_or(0)
    }

    fn extent(&self, axis: usize, coords: &[i64]) -> i64 {
        match &self.nest.axes[axis].extent {
            Extent::Dense(dim) => extent(dim, self.symbols) as i64,
            Extent::Ragged { offsets } => {
                let (offsets, sample) = (&self.operands[usize::from(*offsets)].data, coords[0] as usize);
                offsets[sample + 1].integer() - offsets[sample].integer()
            }
        }
    }

    fn store(&self, outputs: &mut [Tensor], output: &Output, coords: &[i64]) {
        let last = coords[self.nest.rank() - 1];
        if output.columns.is_some_and(|(a, b)| last < a as i64 || last >= b as i64) {
            return;
        }
        let index: Vec<_> = output.index.iter().map(|&i| self.eval(i, coords).integer()).collect();
        let target = &mut outputs[output.target as usize];
        let mut at = 0;
        for (&i, &n) in index.iter().zip(&target.shape) {
            assert!(i >= 0 && (i as usize) < n, "store at {index:?} of {:?}", target.shape);
            at = at * n + i as usize;
        }
        target.data[at] = self.eval(output.value, coords);
    }

    /// Calls `f` at every point of the result axes from `axis` on.
    fn each(&self, axis: usize, coords: &mut [i64], f: &mut impl FnMut(&[i64])) {
        if axis == self.nest.rank() {
            return f(coords);
        }
        for at in 0..self.extent(axis, coords) {
            coords[axis] = at;
            self.each(axis + 1, coords, f);
        }
    }

    pub fn run(&self) -> Vec<Tensor> {
        let mut outputs: Vec<Tensor> = targets(&self.nest.outputs)
            .iter()
            .map(|o| {
                let shape: Vec<usize> = o.shape.iter().map(|d| extent(d, self.symbols)).collect();
                Tensor { dtype: o.dtype, data: vec![NEVER; shape.iter().product()], shape }
            })
            .collect();
        self.each(0, &mut vec![0; self.nest.axes.len()], &mut |coords| {
            self.nest.outputs.iter().for_each(|output| self.store(&mut outputs, output, coords));
        });
        outputs
    }
}

/// A point of the loops.
struct At<'a> {
    reference: &'a Reference<'a>,
    coords: &'a [i64],
}

impl Point for At<'_> {
    fn coord(&self, axis: u8) -> i64 {
        self.coords[usize::from(axis)]
    }

    fn size(&self, position: u16) -> i64 {
        self.reference.sizes[usize::from(position)]
    }

    fn accumulated(&self, position: u8) -> Number {
        self.reference.accumulated(position, self.coords)
    }

    fn load(&self, operand: u16, index: &[i64], _: Scalar) -> Number {
        self.reference.operands[usize::from(operand)].at(index)
    }

    fn sample(&self, offsets: u16, row: i64) -> i64 {
        let offsets = &self.reference.operands[usize::from(offsets)].data;
        (0..offsets.len() - 1).rev().find(|&b| offsets[b].integer() <= row).unwrap_or(0) as i64
    }
}

/// One output per written tensor.
pub fn targets(outputs: &[Output]) -> Vec<&Output> {
    let mut outputs: Vec<&Output> = outputs.iter().collect();
    outputs.sort_by_key(|output| output.target);
    outputs.dedup_by_key(|output| output.target);
    outputs
}
