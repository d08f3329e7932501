use super::axes::{AxisId, View};
use super::convert::{Conversion, Converted, Rows, failed};
use rewire_graph::op::{HostOp, MatMul, ScoreBroadcast, ScoreIndex, ScoreKind, Scores, WeightedSum};
use rewire_graph::{Dim, Tensor, Value};

/// Pairs of rows and keys.
struct Pairs {
    rows: Rows,
    keys: Rows,
    /// Axes of heads, in order.
    heads: Vec<AxisId>,
    /// The number of heads.
    count: usize,
}

impl Conversion<'_, '_, '_> {
    /// A sum over the keys of a sample, weighted by a function of row-key pairs.
    pub(super) fn weighted(&self, value: Value, view: &View, rows: &Rows) -> Converted {
        let [weights, values] = self.graph.inputs(value.node).try_into().map_err(|_| None)?;
        let [leading @ .., m, n] = view.as_slice() else { return failed("a product of vectors") };
        if *m != [rows.row] {
            return failed("a sum over rows that is not one of pairs");
        }
        let leading_axes = leading.concat();
        let heads: Vec<AxisId> = leading_axes.iter().copied().filter(|axis| *axis != rows.sample).collect();
        let Some(longest) = self.ty(weights)?.shape.last().cloned() else { return failed("a product of vectors") };
        let key = self.axes.borrow_mut().add(longest.clone());
        let replaced = |operand: Value, last: [&[AxisId]; 2]| {
            let mut view = self.broadcast(operand, view)?;
            if let [.., a, b] = view.as_mut_slice() {
                (*a, *b) = (last[0].to_vec(), last[1].to_vec());
            }
            Converted::Ok(view)
        };
        let of_values = replaced(values, [&[key], n.as_slice()])?;
        let columns: Vec<AxisId> = heads.iter().chain(n).copied().collect();
        let (keys, v) = self.padded_with_zeros(values, &of_values, [rows.sample, key], columns)?;
        let Some(count) = self.extent_of(&heads) else {
            return failed("a number of heads that differs from run to run");
        };
        let Some(width) = self.extent_of(n) else { return failed("a width that differs from run to run") };
        let v = v.reshape(vec![keys.total.clone(), count.into(), width.into()]);
        let pairs = Pairs { rows: rows.clone(), keys, heads: heads.clone(), count };
        let weight = self.pair(weights, &replaced(weights, [m, &[key]])?, &pairs)?;
        // Keys beyond the padded extent do not exist.
        let is_key = self.index(ScoreKind::Key, &pairs).lt(&self.r.scope().host_size(longest));
        let weight = is_key.select(&weight, &self.r.scope().scalar(weight.dtype(), 0.0));
        let [of_rows, of_keys] = [&pairs.rows, &pairs.keys].map(|rows| self.capture(rows.offsets));
        let sum = self.op(WeightedSum { kind: ScoreKind::Row }, &[&weight, &v, &of_rows, &of_keys]);
        let axes: Vec<AxisId> = std::iter::once(rows.row).chain(heads).chain(n.iter().copied()).collect();
        let shape = [vec![rows.total.clone()], self.axes.borrow().shape(&axes[1..])].concat();
        self.placed(&sum.reshape(shape), &axes, rows)
    }

    /// Rows that are padded with zeros, `[total, ..]`, and their division into samples.
    fn padded_with_zeros(
        &self,
        value: Value,
        view: &View,
        [sample, row]: [AxisId; 2],
        columns: Vec<AxisId>,
    ) -> Converted<(Rows, Tensor)> {
        self.visit(value);
        if let Some((operand, view)) = self.moved(value, view)? {
            return self.padded_with_zeros(operand, &view, [sample, row], columns);
        }
        if let Some((operand, view, divided)) = self.reshaped(value, view)? {
            if !divided.is_empty() {
                return failed("a reshape divides heads");
            }
            return self.padded_with_zeros(operand, &view, [sample, row], columns);
        }
        let Some((x, fill, offsets)) = self.padding(value) else {
            return failed("the summed rows of a sample are not padded with zeros");
        };
        let is_zero = self.r.matched().number(&super::convert::name(fill)) == Some(0.0);
        let Some(total) = self.ty(x)?.shape.first().cloned().filter(|_| is_zero) else {
            return failed("the summed rows of a sample are not padded with zeros");
        };
        let rows = Rows { sample, row, offsets, total, columns };
        let x = self.whole(&self.unpadded(x, view, &rows)?, &rows);
        Ok((rows, x))
    }

    /// A function of row-key pairs as scores, or a scalar.
    fn pair(&self, value: Value, view: &View, pairs: &Pairs) -> Converted {
        let flat = view.concat();
        let depends = |axis: AxisId| flat.contains(&axis);
        let [by_sample, by_row, by_key] = [pairs.rows.sample, pairs.rows.row, pairs.keys.row].map(depends);
        if !by_row && !by_key {
            return self.of_sample(value, view, by_sample, pairs);
        }
        if let Some((operand, view)) = self.moved(value, view)? {
            self.visit(value);
            return self.pair(operand, &view, pairs);
        }
        if let Some((operand, view, divided)) = self.reshaped(value, view)? {
            self.visit(value);
            if !divided.is_empty() {
                return failed("a reshape divides heads");
            }
            return self.pair(operand, &view, pairs);
        }
        if let Some(op) = self.pointwise(value.node) {
            let operands = self.visit(value).into_iter().map(|operand| {
                let view = self.broadcast(operand, view)?;
                self.pair(operand, &view, pairs)
            });
            return Ok(self.apply(&op, &operands.collect::<Converted<Vec<_>>>()?));
        }
        match (by_row, by_key) {
            (true, true) if self.graph.op::<MatMul>(value.node).is_some() => self.dot_products(value, view, pairs),
            (true, true) => {
                failed(format!("{} of pairs", self.graph.node(value.node).map_or("a value", |n| n.op.name())))
            }
            (true, false) if self.is_iota(value) => Ok(self.index(ScoreKind::Row, pairs)),
            (false, true) if self.is_iota(value) => Ok(self.index(ScoreKind::Key, pairs)),
            (true, false) => self.spread(value, view, ScoreKind::Row, pairs),
            _ => self.spread(value, view, ScoreKind::Key, pairs),
        }
    }

    /// The scores of rows and keys.
    fn dot_products(&self, value: Value, view: &View, pairs: &Pairs) -> Converted {
        let [a, b] = self.visit(value).try_into().map_err(|_| None)?;
        let [.., m, n] = view.as_slice() else { return failed("a product of vectors") };
        let Some(depth) = self.ty(a)?.shape.last().and_then(Dim::as_const) else {
            return failed("dot products over rows");
        };
        let k = self.axes.borrow_mut().group(&depth.into());
        let operand = |operand: Value, last: [&Vec<AxisId>; 2], rows: &Rows| {
            let mut view = self.broadcast(operand, view)?;
            if let [.., a, b] = view.as_mut_slice() {
                (*a, *b) = (last[0].clone(), last[1].clone());
            }
            let rows = rows.with(pairs.heads.iter().chain(&k).copied().collect());
            let x = self.whole(&self.row(operand, &view, &rows)?, &rows);
            Converted::Ok(x.reshape(vec![rows.total.clone(), pairs.count.into(), depth.into()]))
        };
        let (q, key) = if *m == [pairs.rows.row] && *n == [pairs.keys.row] {
            (operand(a, [m, &k], &pairs.rows)?, operand(b, [&k, n], &pairs.keys)?)
        } else if *m == [pairs.keys.row] && *n == [pairs.rows.row] {
            (operand(b, [&k, n], &pairs.rows)?, operand(a, [m, &k], &pairs.keys)?)
        } else {
            return failed("a product that is not one of rows and keys");
        };
        let [of_rows, of_keys] = [&pairs.rows, &pairs.keys].map(|rows| self.capture(rows.offsets));
        Ok(self.op(Scores, &[&q, &key, &of_rows, &of_keys]))
    }

    /// One value per sample, or one value for all samples.
    fn of_sample(&self, value: Value, view: &View, by_sample: bool, pairs: &Pairs) -> Converted {
        let x = self.capture(value);
        if x.rank() == 0 {
            return Ok(x);
        }
        if view.concat().is_empty() {
            return Ok(x.reshape(()));
        }
        let by_head = view.iter().flatten().any(|axis| pairs.heads.contains(axis));
        let order: Vec<AxisId> = pairs.heads.iter().copied().chain([pairs.rows.sample]).collect();
        let samples = self.axes.borrow().extent(pairs.rows.sample);
        let x = self.arranged(&x, view, &order)?;
        let x = match (by_head, by_sample) {
            (false, _) => x.reshape(vec![samples]),
            (true, _) => {
                let extents = self.axes.borrow().shape(&order);
                x.broadcast(extents).reshape(vec![pairs.count.into(), samples])
            }
        };
        Ok(self.broadcast_scores(&x, ScoreKind::Sample, pairs))
    }

    /// A value per row or per key, broadcast to pairs.
    fn spread(&self, value: Value, view: &View, kind: ScoreKind, pairs: &Pairs) -> Converted {
        let rows = if kind == ScoreKind::Row { &pairs.rows } else { &pairs.keys };
        let by_head = view.iter().flatten().any(|axis| pairs.heads.contains(axis));
        let rows = rows.with(if by_head { pairs.heads.clone() } else { vec![] });
        let x = self.whole(&self.row(value, view, &rows)?, &rows);
        let x = match by_head {
            true => x.reshape(vec![rows.total.clone(), pairs.count.into()]).permute(&[1, 0]),
            false => x,
        };
        Ok(self.broadcast_scores(&x, kind, pairs))
    }

    fn broadcast_scores(&self, x: &Tensor, kind: ScoreKind, pairs: &Pairs) -> Tensor {
        let [rows, keys] = [&pairs.rows, &pairs.keys].map(|rows| rows.total.clone());
        let [of_rows, of_keys] = [&pairs.rows, &pairs.keys].map(|rows| self.capture(rows.offsets));
        self.op(ScoreBroadcast { kind, heads: pairs.count, rows, keys }, &[x, &of_rows, &of_keys])
    }

    fn index(&self, kind: ScoreKind, pairs: &Pairs) -> Tensor {
        let [rows, keys] = [&pairs.rows, &pairs.keys].map(|rows| rows.total.clone());
        let [of_rows, of_keys] = [&pairs.rows, &pairs.keys].map(|rows| self.capture(rows.offsets));
        self.op(ScoreIndex { kind, heads: pairs.count, rows, keys }, &[&of_rows, &of_keys])
    }

    pub(super) fn is_iota(&self, value: Value) -> bool {
        self.graph.op::<HostOp>(value.node).is_some_and(|op| matches!(op, HostOp::Iota(_)))
    }

    /// The product of extents, if all are constant.
    fn extent_of(&self, axes: &[AxisId]) -> Option<usize> {
        self.axes.borrow().shape(axes).iter().try_fold(1usize, |product, dim| product.checked_mul(dim.as_const()?))
    }
}
