//! Kernels as plain loops.

use crate::tensor::{Num, Point, Tensor, extent};
use rewire_graph::Symbol;
use rewire_graph::pointwise::ExprId;
use rewire_graph_rewrite::plan::{Extent, Nest, Output, ReduceOp};
use std::cell::RefCell;
use std::collections::HashMap;

/// What is evaluated once for all points that agree in the coordinates it depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Accumulation(u8),
    Factor(ExprId),
}

pub struct Reference<'a> {
    nest: &'a Nest,
    operands: &'a [Tensor],
    symbols: &'a HashMap<Symbol, i64>,
    sizes: Vec<i64>,
    /// By accumulation, the coordinates that it depends on, a bit each.
    free: Vec<u32>,
    known: RefCell<HashMap<(Part, Vec<i64>), Num>>,
}

impl<'a> Reference<'a> {
    pub fn new(nest: &'a Nest, operands: &'a [Tensor], symbols: &'a HashMap<Symbol, i64>) -> Self {
        let sizes = nest.body.sizes.iter().map(|d| extent(d, symbols) as i64).collect();
        let mut reference = Self { nest, operands, symbols, sizes, free: vec![], known: RefCell::default() };
        for sum in &nest.accumulations {
            let read = sum.factors.iter().fold(0, |bits, &factor| bits | reference.free(factor));
            let sample = u32::from(nest.axes[usize::from(sum.axis)].extent.dense().is_none());
            reference.free.push(read & !(1 << sum.axis) | sample);
        }
        reference
    }

    /// The coordinates that an expression depends on, through what is accumulated too.
    fn free(&self, id: ExprId) -> u32 {
        let values = self.nest.body.dag.values(id);
        let through = self.free.iter().enumerate().filter(|(n, _)| values >> n & 1 == 1);
        through.fold(self.nest.body.dag.coords(id), |bits, (_, free)| bits | free)
    }

    fn once(&self, part: Part, free: u32, coords: &[i64], evaluate: impl FnOnce() -> Num) -> Num {
        let point = coords.iter().enumerate().map(|(n, &at)| if free >> n & 1 == 1 { at } else { 0 }).collect();
        let key = (part, point);
        if let Some(&known) = self.known.borrow().get(&key) {
            return known;
        }
        let value = evaluate();
        self.known.borrow_mut().insert(key, value);
        value
    }

    fn eval(&self, id: ExprId, coords: &[i64]) -> Num {
        let values = |n: u8, coords: &[i64]| self.accumulated(n, coords);
        Point { dag: &self.nest.body.dag, operands: self.operands, sizes: &self.sizes, coords, values: &values }
            .eval(id)
    }

    fn accumulated(&self, n: u8, coords: &[i64]) -> Num {
        let sum = &self.nest.accumulations[usize::from(n)];
        self.once(Part::Accumulation(n), self.free[usize::from(n)], coords, || {
            let mut point = coords.to_vec();
            let elements = (0..self.extent(sum.axis.into(), coords)).map(|at| {
                point[usize::from(sum.axis)] = at;
                sum.factors.iter().map(|&factor| self.factor(factor, &point)).product::<f64>()
            });
            Num::F(match sum.op {
                ReduceOp::Sum => elements.sum(),
                ReduceOp::Max => elements.fold(sum.op.start().into(), f64::max),
                ReduceOp::Min => elements.fold(sum.op.start().into(), f64::min),
            })
        })
    }

    fn factor(&self, id: ExprId, coords: &[i64]) -> f64 {
        self.once(Part::Factor(id), self.free(id), coords, || self.eval(id, coords)).float()
    }

    fn extent(&self, axis: usize, coords: &[i64]) -> i64 {
        match &self.nest.axes[axis].extent {
            Extent::Dense(dim) => extent(dim, self.symbols) as i64,
            Extent::Ragged { offsets } => {
                let (offsets, sample) = (&self.operands[usize::from(*offsets)].data, coords[0] as usize);
                offsets[sample + 1].int() - offsets[sample].int()
            }
        }
    }

    fn store(&self, outputs: &mut [Tensor], output: &Output, coords: &[i64]) {
        let last = coords[self.nest.rank() - 1];
        if output.columns.is_some_and(|(a, b)| last < a as i64 || last >= b as i64) {
            return;
        }
        let index: Vec<_> = output.index.iter().map(|&i| self.eval(i, coords).int()).collect();
        let target = &mut outputs[output.target as usize];
        let mut at = 0;
        for (&i, &n) in index.iter().zip(&target.shape) {
            assert!(i >= 0 && (i as usize) < n, "store at {index:?} of {:?}", target.shape);
            at = at * n + i as usize;
        }
        target.data[at] = self.eval(output.value, coords);
    }

    /// Calls `f` at every point of the axes of results from `axis` on.
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
                Tensor { dtype: o.dtype, data: vec![Num::Never; shape.iter().product()], shape }
            })
            .collect();
        self.each(0, &mut vec![0; self.nest.axes.len()], &mut |coords| {
            self.nest.outputs.iter().for_each(|output| self.store(&mut outputs, output, coords));
        });
        outputs
    }
}

/// One output for each tensor that is written.
pub fn targets(outputs: &[Output]) -> Vec<&Output> {
    let mut outputs: Vec<&Output> = outputs.iter().collect();
    outputs.sort_by_key(|output| output.target);
    outputs.dedup_by_key(|output| output.target);
    outputs
}
