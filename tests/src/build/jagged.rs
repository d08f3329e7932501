use super::Builder;
use super::pool::{Rows, is_device};
use crate::noise::Noise;
use crate::program::Instruction;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Ragged, Tensor};

impl Builder {
    /// A tensor with the rows of a division.
    fn jagged(&self, pick: u8, rank: usize) -> Option<(Tensor, Rows)> {
        let x = self.pool.float(pick, |x| x.rank() == rank && x.width() > 0 && self.pool.rows_of(x).is_some())?;
        let rows = self.pool.rows_of(&x)?;
        Some((x, rows))
    }

    pub(super) fn jagged_concat(&mut self, i: Instruction) -> Option<Tensor> {
        let (a, a_rows) = self.jagged(i.a, 2)?;
        let fits = |b: &Tensor| b.rank() == 2 && b.dim(1) == a.dim(1) && self.pool.rows_of(b).is_some();
        let b = self.pool.float(i.b, fits)?;
        let b_rows = self.pool.rows_of(&b)?;
        let (values, ragged) = a.jagged_concat(&a_rows.ragged, &b, &b_rows.ragged);
        let lengths = a_rows.lengths.iter().zip(&b_rows.lengths).map(|(a, b)| a + b).collect();
        self.divide(ragged, lengths);
        Some(values)
    }

    pub(super) fn jagged_slice(&mut self, i: Instruction) -> Option<Tensor> {
        let (x, rows) = self.jagged(i.a, 2)?;
        let limit = i64::from(i.b % 6);
        let kept = Ragged::from_lengths(&rows.ragged.lengths.binary_scalar(BinaryOp::Min, limit as f64));
        let values = match i.c % 3 {
            0 => x.jagged_head(&rows.ragged, &kept),
            1 => x.jagged_tail(&rows.ragged, &kept),
            _ => {
                let rest = Ragged::from_lengths(&(&rows.ragged.lengths - &kept.lengths));
                let values = x.jagged_slice(&rows.ragged, &kept.lengths, &rest);
                self.divide(rest, rows.lengths.iter().map(|n| n - n.min(&limit)).collect());
                return Some(values);
            }
        };
        self.divide(kept, rows.lengths.iter().map(|n| *n.min(&limit)).collect());
        Some(values)
    }

    fn divide(&mut self, ragged: Ragged, lengths: Vec<i64>) {
        if self.pool.rows.iter().all(|rows| rows.ragged.total != ragged.total) {
            self.pool.rows.push(Rows { ragged, lengths });
        }
    }

    pub(super) fn jagged_broadcast(&mut self, i: Instruction) -> Option<Tensor> {
        let rows = &self.pool.rows[usize::from(i.b) % self.pool.rows.len()];
        let per_sample = |x: &Tensor| x.rank() > 0 && is_device(x) && x.dim(0) == self.batch;
        if i.c.is_multiple_of(4) {
            return Some(self.pool.integer(i.a, per_sample)?.jagged_broadcast(&rows.ragged));
        }
        if i.c % 4 == 1 {
            return Some(rows.ragged.lengths.jagged_broadcast(&rows.ragged));
        }
        Some(self.pool.float(i.a, per_sample)?.jagged_broadcast(&rows.ragged))
    }

    pub(super) fn position(&mut self, i: Instruction) -> Option<Tensor> {
        let rows = &self.pool.rows[usize::from(i.a) % self.pool.rows.len()];
        Some(if i.c.is_multiple_of(2) { rows.ragged.position() } else { rows.ragged.sample_end() })
    }

    pub(super) fn padded(&mut self, i: Instruction) -> Option<Tensor> {
        let (x, rows) = self.jagged(i.a, 2)?;
        let rows = &rows.ragged;
        let fill = f64::from(i.b) / 100.0 - 1.0;
        Some(match i.c % 6 {
            0 => x.jagged_sum(rows),
            1 => x.jagged_mean(rows),
            2 => x.jagged_softmax(rows),
            3 => x.jagged_to_padded(rows, &rows.max().as_dim(), fill).tanh().padded_to_jagged(rows),
            4 => {
                let padded = x.jagged_to_padded(rows, &(usize::from(i.b) % 9).into(), fill);
                padded.sum(1).reshape(&[self.batch.clone(), x.dim(1)])
            }
            _ => {
                let padded = x.jagged_to_padded(rows, &rows.max().as_dim(), 0.0);
                let weight = self.parameter("weight", &[x.width(), 6], 1.0 / (x.width() as f64).sqrt());
                padded.matmul(&weight).relu().padded_to_jagged(rows)
            }
        })
    }

    pub(super) fn jagged_matmul(&mut self, i: Instruction) -> Option<Tensor> {
        let (x, rows) = self.jagged(i.a, 2)?;
        let (width, out) = (x.width(), [1, 3, 4, 16, 25][usize::from(i.b) % 5]);
        let name = format!("dense{}", self.count);
        let shape = [self.batch.clone(), width.into(), out.into()];
        let count = rows.lengths.len();
        let scale = 1.0 / (width as f64).sqrt();
        let dense = self.scope.input(&name, DType::F32, &shape);
        let values = Noise::new(self.seed, &name).floats(DType::F32, &[count, width, out], scale);
        self.inputs.insert(name, values);
        let product = x.jagged_matmul(&dense, &rows.ragged);
        Some(match i.c % 3 {
            0 => product,
            1 => product.silu(),
            _ => {
                let bias = self.pool.float(i.c, |b| b.rank() == 2 && b.dim(0) == self.batch && b.width() == out);
                match bias {
                    Some(bias) => &product + &bias.jagged_broadcast(&rows.ragged),
                    None => &product + &self.parameter("jagged_bias", &[out], 0.5),
                }
            }
        })
    }

    pub(super) fn attention(&mut self, i: Instruction) -> Option<Tensor> {
        let (q, rows) = self.jagged(i.a, 2)?;
        let width = q.width();
        let same = |x: &Tensor| x.rank() == 2 && x.width() == width && self.pool.rows_of(x).is_some();
        let k = if i.c.is_multiple_of(3) { self.pool.float(i.b, same)? } else { self.like(&q, i.b)? };
        let keys = self.pool.rows_of(&k)?;
        let v = self.pool.float(i.b.wrapping_add(7), |x| x.rank() == 2 && x.width() > 0 && x.dim(0) == k.dim(0))?;
        let heads = [4, 3, 2, 1].into_iter().find(|h| {
            width.is_multiple_of(*h) && v.width().is_multiple_of(*h) && (i.c / 8 > 8 || *h <= 1 + usize::from(i.c % 2))
        })?;
        let split = |x: &Tensor| x.reshape(&[x.dim(0), heads.into(), (x.width() / heads).into()]);
        let alpha = 1.0 / ((width / heads) as f64).sqrt();
        let scores = &split(&q).scores(&split(&k), &rows.ragged, &keys.ragged) * alpha;
        let weights = match i.c / 2 % 4 {
            0 => &scores.silu() * 0.1,
            1 => &scores.sigmoid() * 0.2,
            2 => &scores * 0.1,
            _ => &(&scores + 0.5).relu() * 0.1,
        };
        let weights = match self.mask(i, &rows, &keys, heads) {
            Some(mask) => mask.select(&weights, &self.scope.scalar(DType::F32, 0.0)),
            None => weights,
        };
        let attended = weights.weighted_sum(&split(&v), &rows.ragged, &keys.ragged);
        if i.a.is_multiple_of(7) {
            let other = weights.weighted_sum(&split(&k), &rows.ragged, &keys.ragged);
            self.pool.add(other.reshape(&[rows.ragged.total.clone(), k.dim(1)]));
        }
        let flat = attended.reshape(&[rows.ragged.total.clone(), v.dim(1)]);
        Some(match i.b % 3 {
            0 => attended,
            1 => flat,
            _ => flat.silu(),
        })
    }

    /// Another tensor of the shape of `x`, or `x` itself.
    fn like(&self, x: &Tensor, pick: u8) -> Option<Tensor> {
        self.pool.float(pick, |other| other.shape() == x.shape())
    }

    fn mask(&mut self, i: Instruction, rows: &Rows, keys: &Rows, heads: usize) -> Option<Tensor> {
        let (row, key) = (rows.ragged.row_index(&keys.ragged, heads), keys_index(rows, keys, heads));
        let causal = row.ge(&key);
        let number = |n: i64| self.scope.scalar(DType::I32, n as f64);
        match i.c / 16 % 9 {
            0 => None,
            1 | 2 => Some(causal),
            3 => Some(causal.and(&(&row - &key).le(&number(i64::from(i.b % 9))))),
            4 => {
                let ends = rows.ragged.per_sample(&keys.ragged, heads, &rows.ragged.lengths);
                let target = (&ends - &number(2)).minimum(&row);
                Some(target.gt(&key).or(&row.equal(&key)))
            }
            5 => Some(self.intervals(rows, keys, heads, false)),
            6 => Some(self.intervals(rows, keys, heads, true)),
            7 => Some(key.lt(&number(i64::from(i.b % 40))).and(&causal.not())),
            _ => {
                let gate = self.pool.float(i.b, |x| x.rank() == 1 && x.dim(0) == keys.ragged.total);
                match gate {
                    Some(gate) => {
                        let gate = rows.ragged.per_key(&keys.ragged, heads, &gate);
                        Some(causal.and(&gate.lt(&self.scope.scalar(DType::F32, 0.217))))
                    }
                    None => Some(causal.or(&key.equal(&number(0)))),
                }
            }
        }
    }

    /// For every query the keys below a bound and those between two others.
    fn intervals(&mut self, rows: &Rows, keys: &Rows, heads: usize, per_head: bool) -> Tensor {
        let key = keys_index(rows, keys, heads);
        let longest = keys.lengths.iter().copied().max().unwrap_or(0);
        let bounds: Vec<Tensor> = (0..3)
            .map(|n| {
                let name = format!("bound{}.{n}", self.count);
                let (mut dims, mut shape) = (vec![rows.ragged.total.clone()], vec![rows.total()]);
                if per_head {
                    dims.insert(0, heads.into());
                    shape.insert(0, heads);
                }
                let bound = self.scope.input(&name, DType::I32, &dims);
                let values = Noise::new(self.seed, &name).integers(DType::I32, &shape, 0, longest + 2);
                self.inputs.insert(name, values);
                rows.ragged.per_row(&keys.ragged, heads, &bound)
            })
            .collect();
        key.lt(&bounds[0]).or(&bounds[1].le(&key).and(&key.lt(&bounds[2])))
    }
}

fn keys_index(rows: &Rows, keys: &Rows, heads: usize) -> Tensor {
    rows.ragged.key_index(&keys.ragged, heads)
}
