use super::Builder;
use super::pool::{broadcasts, is_device};
use crate::noise::Noise;
use crate::program::Instruction;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Tensor};

/// Rows of tables.
const TABLE_ROWS: usize = 7;

const WIDTHS: &[usize] = &[1, 2, 3, 4, 8, 16, 25, 50, 70, 129, 260];

/// A constant axis of more than one entry, chosen by `pick`.
fn constant_axis(x: &Tensor, pick: u8) -> Option<(usize, usize)> {
    let axes: Vec<(usize, usize)> =
        (0..x.rank()).filter_map(|axis| Some((axis, x.ty().extent(axis)?))).filter(|(_, extent)| *extent > 1).collect();
    axes.get(usize::from(pick) % axes.len().max(1)).copied()
}

impl Builder {
    fn any_float(&self, pick: u8) -> Option<Tensor> {
        self.pool.float(pick, |_| true)
    }

    /// A tensor with a constant width.
    fn wide(&self, pick: u8) -> Option<Tensor> {
        self.pool.float(pick, |x| x.rank() > 0 && x.width() > 0)
    }

    pub(super) fn unary(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.any_float(i.a)?;
        Some(match i.c % 18 {
            0 => -&x,
            1 => x.abs(),
            2 => x.clamp(None, Some(1.0)).exp(),
            3 => (&x.abs() + 0.5).log(),
            4 => (&x.abs() + 0.5).sqrt(),
            5 => (&x.square() + 0.25).rsqrt(),
            6 => x.sigmoid(),
            7 => x.silu(),
            8 => x.relu(),
            9 => x.tanh(),
            10 => x.erf(),
            11 => x.clamp(Some(-3.0), Some(3.0)).sin(),
            12 => x.clamp(Some(-3.0), Some(3.0)).cos(),
            13 => x.gelu_erf(),
            14 => x.gelu_tanh(),
            15 => x.square().clamp(None, Some(9.0)),
            // Steep, but scaled down, so that no step amplifies the rounding error of its operand.
            16 => &(&x * 100.0).silu().clamp(Some(-1.0), Some(2.0)) * 0.01,
            _ => &(&x * 200.0).sigmoid() * 0.02,
        })
    }

    pub(super) fn binary(&mut self, i: Instruction) -> Option<Tensor> {
        let a = self.any_float(i.a)?;
        let b = self.pool.float(i.b, |b| broadcasts(a.shape(), b.shape()))?;
        Some(match i.c % 9 {
            0 | 1 => &a + &b,
            2 => &a - &b,
            3 | 4 => (&a * &b).clamp(Some(-8.0), Some(8.0)),
            5 => &a / &(&b.abs() + 0.75),
            6 => a.minimum(&b),
            7 => a.maximum(&b),
            _ => (&a.abs() + 0.5).clamp(None, Some(3.0)).pow(&b.clamp(Some(-2.0), Some(2.0))),
        })
    }

    pub(super) fn scalar(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.any_float(i.a)?;
        let value = f64::from(i.b) / 64.0 - 2.0;
        Some(match i.c % 6 {
            0 => &x + value,
            1 => &x * value,
            2 => &x - value,
            3 => x.binary_scalar(BinaryOp::Max, value),
            4 => x.binary_scalar(BinaryOp::Min, value),
            _ => &x / 3.0,
        })
    }

    pub(super) fn choose(&mut self, i: Instruction) -> Option<Tensor> {
        let a = self.any_float(i.a)?;
        let b = self.pool.float(i.b, |b| broadcasts(a.shape(), b.shape()))?;
        let shifted = &b + 0.0371;
        let condition = match i.c % 4 {
            0 => a.lt(&shifted),
            1 => a.ge(&shifted),
            2 => a.gt(&shifted).and(&b.lt(&self.scope.scalar(DType::F32, 0.53))),
            _ => a.le(&shifted).not(),
        };
        match i.c % 3 {
            0 => Some(condition.select(&a, &b)),
            1 => Some(condition.select(&self.scope.scalar(DType::F32, 0.0), &a)),
            _ => {
                self.pool.add(condition.clone());
                Some(condition.select(&b, &-&a))
            }
        }
    }

    pub(super) fn reduce(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.pool.float(i.a, |x| x.rank() > 0)?;
        let axis = if i.b < 160 { x.rank() - 1 } else { usize::from(i.b) % x.rank() };
        let scale = 1.0 / (x.ty().extent(axis).unwrap_or(8) as f64).sqrt().max(1.0);
        Some(match i.c % 6 {
            0 | 1 => (&x.sum(axis) * scale).clamp(Some(-9.0), Some(9.0)),
            2 => x.max(axis).clamp(Some(-9.0), Some(9.0)),
            3 => x.min(axis).clamp(Some(-9.0), Some(9.0)),
            // The mean of no rows is NaN.
            4 if x.ty().extent(axis).is_some() => x.mean(axis),
            _ => &x - &x.max(axis).clamp(Some(-9.0), Some(9.0)),
        })
    }

    pub(super) fn norm(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.wide(i.a)?;
        let (axis, width) = (x.rank() - 1, x.width());
        let (w, b) = (self.parameter("norm_w", &[width], 1.5), self.parameter("norm_b", &[width], 1.0));
        let eps = 0.01 + f64::from(i.b % 8) / 50.0;
        Some(match i.c % 10 {
            0 | 1 => x.layer_norm(&w, &b, eps),
            2 => x.rms_norm(&w, eps),
            3 => x.swish_layer_norm(&w, &b, eps),
            4 => x.softmax(axis),
            5 => {
                let centered = &x - &x.mean(axis);
                let variance = (&centered * &centered).sum(axis);
                &centered / &(&(&variance * (1.0 / width as f64)) + eps).sqrt()
            }
            6 => {
                let variance = &x.square().mean(axis) - &x.mean(axis).square();
                &(&(&x - &x.mean(axis)) * &(&variance.relu() + 0.5).rsqrt()) * &w
            }
            7 => {
                let length = x.square().sum(axis).sqrt().clamp(Some(0.1), None);
                &x / &length
            }
            8 => x.softmax(usize::from(i.b) % x.rank()),
            _ => {
                let groups = [5, 3, 2].into_iter().find(|n| width.is_multiple_of(*n) && x.rank() == 2)?;
                let by_group = x.reshape(&[x.dim(0), groups.into(), (width / groups).into()]);
                let [w, b] = [w, b].map(|affine| affine.slice(0, 0, groups).reshape(&[groups.into(), 1.into()]));
                (&(&by_group.normalize(eps) * &w) + &b).reshape(x.shape())
            }
        })
    }

    pub(super) fn linear(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.pool.float(i.a, |x| x.rank() >= 2 && x.width() > 0)?;
        let (width, out) = (x.width(), WIDTHS[usize::from(i.b) % WIDTHS.len()]);
        let scale = 1.0 / (width as f64).sqrt();
        let bias = self.parameter("bias", &[out], 0.5);
        let product = match i.c % 4 {
            0 => x.linear(&self.parameter("weight", &[out, width], scale), Some(&bias)),
            1 => x.linear(&self.parameter("weight", &[out, width], scale), None),
            2 => bias.addmm(&x, &self.parameter("weight", &[width, out], scale)),
            _ => x.matmul(&self.parameter("weight", &[width, out], scale)),
        };
        Some(match i.c / 4 % 5 {
            0 => product.relu(),
            1 => product.silu(),
            2 if out == width => &product + &x,
            _ => product,
        })
    }

    pub(super) fn matmul(&mut self, i: Instruction) -> Option<Tensor> {
        let a = self.pool.float(i.a, |x| x.rank() >= 2 && x.width() > 0)?;
        let fits = |b: &Tensor| b.rank() >= 2 && b.width() > 0 && b.width() == a.width();
        let b =
            self.pool.float(i.b, |b| fits(b) && broadcasts(&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2]))?;
        let (ra, rb) = (a.rank(), b.rank());
        let product = match i.c % 3 {
            0 => a.matmul(&b.transpose(rb - 1, rb - 2)),
            1 if a.dim(ra - 2) == b.dim(rb - 2) => a.transpose(ra - 1, ra - 2).matmul(&b),
            _ => b.matmul(&a.transpose(ra - 1, ra - 2)),
        };
        Some((&product * 0.25).clamp(Some(-6.0), Some(6.0)))
    }

    pub(super) fn reshape(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.wide(i.a)?;
        let mut shape: Vec<Dim> = x.shape().to_vec();
        match i.c % 5 {
            0 if x.rank() >= 2 => {
                let last = shape.pop()?;
                let merged = shape.pop()?.product(&last)?;
                shape.push(merged);
            }
            1 => shape.insert(usize::from(i.b) % (shape.len() + 1), 1.into()),
            2 if x.rank() > 2 && x.shape().iter().filter(|dim| dim.as_const().is_none()).count() < 2 => {
                return Some(x.flatten_rows());
            }
            _ => {
                let width = x.width();
                let factors: Vec<usize> = (2..=width).filter(|n| width.is_multiple_of(*n)).collect();
                let inner = *factors.get(usize::from(i.b) % factors.len().max(1))?;
                shape.pop();
                shape.extend([(width / inner).into(), inner.into()]);
            }
        }
        (shape.len() <= 4).then(|| x.reshape(&shape))
    }

    pub(super) fn permute(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.pool.float(i.a, |x| x.rank() >= 2)?;
        let (a, b) = (usize::from(i.b) % x.rank(), usize::from(i.c) % x.rank());
        if a == b { Some(x.transpose(x.rank() - 2, x.rank() - 1)) } else { Some(x.transpose(a, b)) }
    }

    pub(super) fn slice(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.wide(i.a)?;
        let (axis, extent) = constant_axis(&x, i.b)?;
        let start = usize::from(i.c) % extent;
        let len = 1 + usize::from(i.b) % (extent - start);
        Some(x.slice(axis, start, len))
    }

    pub(super) fn concat(&mut self, i: Instruction) -> Option<Tensor> {
        let a = self.pool.float(i.a, |x| x.rank() > 0)?;
        let axis = if i.c < 150 { a.rank() - 1 } else { usize::from(i.c) % a.rank() };
        let b = self
            .pool
            .float(i.b, |b| b.rank() == a.rank() && (0..a.rank()).all(|n| n == axis || a.dim(n) == b.dim(n)))?;
        let parts = if i.c.is_multiple_of(3) { vec![&a, &b, &a] } else { vec![&a, &b] };
        Some(self.scope.concat(&parts, axis))
    }

    pub(super) fn split_join(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.pool.float(i.a, |x| x.rank() > 0 && x.width() > 1)?;
        let width = x.width();
        let cut = 1 + usize::from(i.b) % (width - 1);
        let parts = x.split_columns(&[cut, width - cut]);
        let axis = x.rank() - 1;
        Some(match i.c % 4 {
            0 => self.scope.concat(&[&parts[0].silu(), &parts[1]], axis),
            1 => self.scope.concat(&[&parts[1], &parts[0].tanh(), &x], axis),
            2 => {
                self.pool.add(parts[1].relu());
                parts[0].sigmoid()
            }
            _ => {
                self.pool.add(parts[1].clone());
                parts[0].clone()
            }
        })
    }

    pub(super) fn gather(&mut self, i: Instruction) -> Option<Tensor> {
        // Ids from an input are rows of their table, computed ids are arbitrary.
        let index = match i.c % 3 {
            0 => self.ids(),
            _ => &self.pool.integer(i.a, |x| x.rank() > 0)? + 1,
        };
        if i.c.is_multiple_of(5) && !i.c.is_multiple_of(3) {
            let table = self.pool.float(i.b, |x| x.rank() >= 1 && is_device(x) && x.dim(0) == self.batch)?;
            // An empty table has no rows to take.
            let known = self.inputs.get("second").is_some_and(|lengths| !lengths.is_empty());
            return known.then(|| table.gather(&index));
        }
        let width = WIDTHS[usize::from(i.b) % WIDTHS.len()];
        let table = self.parameter("table", &[TABLE_ROWS, width], 1.0);
        let rows = table.gather(&index);
        Some(if i.c.is_multiple_of(2) { rows } else { &rows * &rows.sigmoid() })
    }

    /// An input with row numbers of tables.
    fn ids(&mut self) -> Tensor {
        let rows = &self.pool.rows[0];
        let (total, count) = (rows.ragged.total.clone(), rows.total());
        let values = Noise::new(self.seed, "ids").integers(DType::I64, &[count], 0, TABLE_ROWS as i64);
        self.inputs.insert("ids".to_owned(), values);
        self.scope.input("ids", DType::I64, &[total])
    }

    pub(super) fn integer(&mut self, i: Instruction) -> Option<Tensor> {
        let a = self.pool.integer(i.a, |_| true)?;
        let fits = |b: &Tensor| b.dtype().scalar() == a.dtype().scalar() && broadcasts(a.shape(), b.shape());
        let b = self.pool.integer(i.b, fits)?;
        let wide = a.dtype() == DType::I64;
        let number = |n: i64| self.scope.scalar(a.dtype(), n);
        let few = [-7, -1, 3, 60, 1000, 0, i32::MIN.into(), i32::MAX.into(), 1 << 53 | 1, i64::MIN];
        let some = number(few[usize::from(i.b) % if wide { 10 } else { 8 }]);
        Some(match i.c % 17 {
            0 => &a + &b,
            1 => &a - &b,
            2 => &a * &b,
            3 => &a / &some,
            4 => a.modulo(&some),
            5 => &a / &b,
            6 => a.modulo(&b),
            7 => a.minimum(&b),
            8 => a.maximum(&b),
            9 => a.and(&b),
            10 => a.or(&b),
            11 => a.lt(&b),
            12 => a.equal(&b).or(&a.gt(&number(3))),
            13 => &a + &some,
            14 => &a * &some,
            15 => a.cast(if wide { DType::I32 } else { DType::I64 }),
            _ => a.ge(&b).select(&-&a, &b.abs()),
        })
    }

    pub(super) fn float(&mut self, i: Instruction) -> Option<Tensor> {
        let x = match i.a % 3 {
            0 => self.pool.truths.get(usize::from(i.b) % self.pool.truths.len().max(1)).cloned(),
            _ => None,
        };
        let x = x.or_else(|| self.pool.integer(i.b, |_| true))?;
        let value = if x.dtype() == DType::Bool { x.cast(DType::F32) } else { &x.cast(DType::F32) * 0.01 };
        let value = value.clamp(Some(-4.0), Some(4.0));
        if i.c.is_multiple_of(2) && value.rank() == 1 {
            let mut shape = value.shape().to_vec();
            shape.push(1.into());
            return Some(value.reshape(&shape));
        }
        Some(value)
    }

    pub(super) fn half(&mut self, i: Instruction) -> Option<Tensor> {
        if i.c.is_multiple_of(2) {
            let width = WIDTHS[usize::from(i.b) % WIDTHS.len()];
            let name = format!("half{}", self.count);
            let values = Noise::new(self.seed, &name).floats(DType::F16, &[3, width], 1.0);
            self.parameters.insert(name.clone(), values);
            return Some(self.scope.parameter(&name, DType::F16, &[3.into(), width.into()]));
        }
        Some(&self.pool.float(i.a, |x| x.dtype() == DType::F16)? * 1.0)
    }

    pub(super) fn host(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.any_float(i.a)?;
        let rows = &self.pool.rows[usize::from(i.b) % self.pool.rows.len()].ragged;
        let size = self.scope.host_size(rows.total.clone());
        let value = match i.c % 4 {
            0 => rows.max(),
            1 => &rows.max() + &size,
            2 => self.scope.host_size(self.batch.clone()).binary_scalar(BinaryOp::Max, 3.0),
            _ => size.binary_scalar(BinaryOp::Mod, 7.0),
        };
        let value = &(&value.cast(DType::F32) + 1.0) * 0.25;
        Some(if i.c < 128 { &x / &value } else { (&x * &value).clamp(Some(-5.0), Some(5.0)) })
    }

    pub(super) fn dropout(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.pool.float(i.a, is_device)?;
        let seed = self.scope.scalar(DType::I64, f64::from(i.b) * 1.0e9);
        Some(x.dropout(f32::from(i.c) / 300.0, &seed))
    }
}
