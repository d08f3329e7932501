//! Kernels as plain loops.

use crate::tensor::{Num, Point, Tensor, extent};
use rewire_graph::pointwise::ExprId;
use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::plan::{Body, Kernel, Output, ReduceOp, Reduction, RowRange};
use std::collections::HashMap;

pub struct Reference<'a> {
    pub body: &'a Body,
    pub operands: &'a [Tensor],
    pub symbols: &'a HashMap<Symbol, i64>,
    sizes: Vec<i64>,
}

impl<'a> Reference<'a> {
    pub fn new(body: &'a Body, operands: &'a [Tensor], symbols: &'a HashMap<Symbol, i64>) -> Self {
        let sizes = body.sizes.iter().map(|d| extent(d, symbols) as i64).collect();
        Self { body, operands, symbols, sizes }
    }

    fn eval(&self, id: ExprId, coords: &[i64], values: &[Num]) -> Num {
        Point { dag: &self.body.dag, operands: self.operands, sizes: &self.sizes, coords, values }.eval(id)
    }

    fn n(&self, dim: &Dim) -> usize {
        extent(dim, self.symbols)
    }

    fn rows(&self, range: &RowRange, sample: i64) -> i64 {
        match range {
            RowRange::Dense(dim) => self.n(dim) as i64,
            RowRange::Ragged { offsets } => {
                let offsets = &self.operands[*offsets as usize].data;
                offsets[sample as usize + 1].int() - offsets[sample as usize].int()
            }
        }
    }

    fn reduce(&self, r: &Reduction, outer: &[i64], values: &[Num]) -> Num {
        let width = self.n(&r.extent);
        let mut coords = outer.to_vec();
        coords.push(0);
        let items = (0..width).map(|x| {
            *coords.last_mut().unwrap() = x as i64;
            self.eval(r.value, &coords, values).float()
        });
        Num::F(match r.op {
            ReduceOp::Sum => items.sum(),
            ReduceOp::Max => items.fold(r.op.start().into(), f64::max),
            ReduceOp::Min => items.fold(r.op.start().into(), f64::min),
        })
    }

    fn store(&self, outputs: &mut [Tensor], output: &Output, coords: &[i64], values: &[Num]) {
        let last = *coords.last().unwrap();
        if output.columns.is_some_and(|(a, b)| last < a as i64 || last >= b as i64) {
            return;
        }
        let index: Vec<_> = output.index.iter().map(|&i| self.eval(i, coords, values).int()).collect();
        let target = &mut outputs[output.target as usize];
        let mut at = 0;
        for (&i, &n) in index.iter().zip(&target.shape) {
            assert!(i >= 0 && (i as usize) < n, "store at {index:?} of {:?}", target.shape);
            at = at * n + i as usize;
        }
        target.data[at] = self.eval(output.value, coords, values);
    }

    pub fn run(&self, kernel: &Kernel) -> Vec<Tensor> {
        let mut outputs: Vec<Tensor> = targets(kernel)
            .iter()
            .map(|o| {
                let shape: Vec<usize> = o.shape.iter().map(|d| self.n(d)).collect();
                Tensor { dtype: o.dtype, data: vec![Num::Never; shape.iter().product()], shape }
            })
            .collect();
        match kernel {
            Kernel::Map(k) => {
                let extents: Vec<_> = k.extents.iter().map(|d| self.n(d)).collect();
                each(&extents, |c| k.outputs.iter().for_each(|o| self.store(&mut outputs, o, c, &[])));
            }
            Kernel::Reduce(k) => {
                let extents: Vec<_> = k.extents.iter().map(|d| self.n(d)).collect();
                let (&width, outer) = extents.split_last().unwrap();
                each(outer, |c| {
                    let mut values = vec![];
                    for r in &k.reductions {
                        values.push(self.reduce(r, c, &values));
                    }
                    let mut point = c.to_vec();
                    point.push(0);
                    for x in 0..width {
                        *point.last_mut().unwrap() = x as i64;
                        k.outputs.iter().for_each(|o| self.store(&mut outputs, o, &point, &values));
                    }
                    *point.last_mut().unwrap() = 0;
                    for o in &k.row_outputs {
                        self.store(&mut outputs, o, &point, &values);
                    }
                });
            }
            Kernel::Matmul(k) => {
                let batch: Vec<_> = k.batch.iter().map(|d| self.n(d)).collect();
                let (cols, depth) = (self.n(&k.n) as i64, self.n(&k.k) as i64);
                each(&batch, |c| {
                    let at = |x: i64, y: i64| [c, &[x, y]].concat();
                    let right: Vec<Vec<f64>> = (0..cols)
                        .map(|n| (0..depth).map(|x| self.eval(k.b, &at(x, n), &[]).float()).collect())
                        .collect();
                    for m in 0..self.rows(&k.m, c.first().copied().unwrap_or(0)) {
                        let mut stats = vec![];
                        for r in &k.stats {
                            stats.push(self.reduce(r, &[c, &[m]].concat(), &stats));
                        }
                        let left: Vec<f64> = (0..depth).map(|x| self.eval(k.a, &at(m, x), &stats).float()).collect();
                        for n in 0..cols {
                            let sum: f64 = left.iter().zip(&right[n as usize]).map(|(a, b)| a * b).sum();
                            for o in &k.outputs {
                                self.store(&mut outputs, o, &at(m, n), &[Num::F(sum)]);
                            }
                        }
                    }
                });
            }
            Kernel::Attention(k) => {
                each(&[self.n(&k.samples), k.heads], |c| {
                    let at = |x: i64, y: i64| [c[0], c[1], x, y];
                    let keys = self.rows(&k.keys, c[0]);
                    let element = |root, j: i64, d: usize| self.eval(root, &at(j, d as i64), &[]).float();
                    let all = |root, width: usize| -> Vec<Vec<f64>> {
                        (0..keys).map(|j| (0..width).map(|d| element(root, j, d)).collect()).collect()
                    };
                    let (key, value) = (all(k.k, k.qk_width), all(k.v, k.v_width));
                    for i in 0..self.rows(&k.rows, c[0]) {
                        let q: Vec<f64> =
                            (0..k.qk_width as i64).map(|d| self.eval(k.q, &at(i, d), &[]).float()).collect();
                        let mut weights = vec![];
                        for j in 0..keys {
                            if k.mask.is_some_and(|mask| self.eval(mask, &at(i, j), &[]).int() == 0) {
                                continue;
                            }
                            let dot = q.iter().zip(&key[j as usize]).map(|(q, k)| q * k);
                            weights.push((j, self.eval(k.score, &at(i, j), &[Num::F(dot.sum())]).float()));
                        }
                        if k.softmax {
                            let max = weights.iter().map(|w| w.1).fold(f64::NEG_INFINITY, f64::max);
                            let sum: f64 = weights.iter().map(|w| (w.1 - max).exp()).sum();
                            weights.iter_mut().for_each(|w| w.1 = (w.1 - max).exp() / sum);
                        }
                        for d in 0..k.v_width as i64 {
                            let sum: f64 = weights.iter().map(|&(j, w)| w * value[j as usize][d as usize]).sum();
                            for o in &k.outputs {
                                self.store(&mut outputs, o, &at(i, d), &[Num::F(sum)]);
                            }
                        }
                    }
                });
            }
            Kernel::Custom(_) => unreachable!("its meaning is its own"),
        }
        outputs
    }
}

/// One output for each tensor that is written.
pub fn targets(kernel: &Kernel) -> Vec<&Output> {
    let mut outputs = kernel.outputs();
    outputs.sort_by_key(|output| output.target);
    outputs.dedup_by_key(|output| output.target);
    outputs
}

fn each(extents: &[usize], mut f: impl FnMut(&[i64])) {
    let total: usize = extents.iter().product();
    for flat in 0..total {
        let mut rest = flat;
        let mut coords = vec![0; extents.len()];
        for (c, &n) in coords.iter_mut().zip(extents).rev() {
            *c = (rest % n) as i64;
            rest /= n;
        }
        f(&coords);
    }
}
