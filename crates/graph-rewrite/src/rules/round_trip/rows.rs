use super::axes::{AxisId, View};
use super::convert::{Conversion, Converted, Rows, failed};
use rewire_graph::op::{JaggedBroadcast, MatMul, PaddedToJagged, Reduce};
use rewire_graph::{Dim, Layout, Tensor, Value};

impl Conversion<'_, '_, '_> {
    /// The rows of a padded value: `[total, ..]` with the extents of the columns, or 1 if the value does not depend on
    /// a column. The content of rows beyond the padded extent is unspecified.
    pub(super) fn row(&self, value: Value, view: &View, rows: &Rows) -> Converted {
        if let Some((operand, view)) = self.moved(value, view)? {
            self.visit(value);
            return self.row(operand, &view, rows);
        }
        if let Some((operand, view, divided)) = self.reshaped(value, view)? {
            self.visit(value);
            return self.divided(operand, &view, rows, &divided);
        }
        if let Some(op) = self.pointwise(value.node).filter(|_| self.is_of_row(view, rows)) {
            let operands = self.visit(value).into_iter().map(|operand| {
                let view = self.broadcast(operand, view)?;
                self.row(operand, &view, rows)
            });
            return Ok(self.apply(&op, &operands.collect::<Converted<Vec<_>>>()?));
        }
        if let Some((x, ..)) = self.padding(value).filter(|(_, _, offsets)| *offsets == rows.offsets) {
            return self.unpadded(x, view, rows);
        }
        if self.graph.op::<MatMul>(value.node).is_some() && self.is_of_row(view, rows) {
            return self.product(value, view, rows);
        }
        if let Some(reduce) = self.graph.op::<Reduce>(value.node).filter(|_| self.is_of_row(view, rows)) {
            return self.reduction(value, reduce, view, rows);
        }
        self.read(value, view, rows)
    }

    /// True for values that differ from row to row.
    fn is_of_row(&self, view: &View, rows: &Rows) -> bool {
        view.iter().flatten().any(|axis| *axis == rows.row)
    }

    /// The rows of a reshape whose operand splits some of the columns.
    fn divided(&self, operand: Value, view: &View, rows: &Rows, divided: &[(AxisId, Vec<AxisId>)]) -> Converted {
        if divided.is_empty() {
            return self.row(operand, view, rows);
        }
        let parts = |axis: &AxisId| divided.iter().find(|(whole, _)| whole == axis).map(|(_, parts)| parts.clone());
        let columns = rows.columns.iter().flat_map(|axis| parts(axis).unwrap_or_else(|| vec![*axis]));
        let finer = rows.with(columns.collect());
        let x = self.whole(&self.row(operand, view, &finer)?, &finer);
        let axes = self.axes.borrow();
        Ok(x.reshape([vec![rows.total.clone()], axes.shape(&rows.columns)].concat()))
    }

    /// The rows that were padded.
    pub(super) fn unpadded(&self, x: Value, view: &View, rows: &Rows) -> Converted {
        let (Some([sample, row]), Some(rest)) = (view.first_chunk::<2>(), view.get(2..)) else {
            return failed("padding of other axes");
        };
        if sample != &[rows.sample] || row != &[rows.row] {
            return failed("rows of several samples meet");
        }
        self.is_trip.set(true);
        let view: View = std::iter::once(vec![rows.row]).chain(rest.iter().cloned()).collect();
        let flat = rest.concat();
        let shape = [vec![rows.total.clone()], self.axes.borrow().shape(&flat)].concat();
        let x = self.capture(x).reshape(shape);
        self.placed(&x, &view.concat(), rows)
    }

    /// One value per row, with columns `flat[1..]`, in the order of the rows' columns.
    pub(super) fn placed(&self, x: &Tensor, flat: &[AxisId], rows: &Rows) -> Converted {
        let order: Vec<AxisId> = std::iter::once(rows.row).chain(rows.columns.iter().copied()).collect();
        let kept: Vec<usize> = order.iter().filter_map(|axis| flat.iter().position(|of| of == axis)).collect();
        if kept.len() != flat.len() {
            return failed("a value depends on other axes");
        }
        let x = if kept.is_sorted() { x.clone() } else { x.permute(&kept) };
        let mut extents = x.shape().iter().skip(1);
        let columns = rows.columns.iter().map(|axis| match flat.contains(axis) {
            true => extents.next().cloned().unwrap_or_else(|| 1.into()),
            false => 1.into(),
        });
        let shape: Vec<Dim> = std::iter::once(rows.total.clone()).chain(columns).collect();
        Ok(x.reshape(shape))
    }

    /// A matmul with a weight, or of pair weights with rows.
    fn product(&self, value: Value, view: &View, rows: &Rows) -> Converted {
        let [a, b] = self.visit(value).try_into().map_err(|_| None)?;
        let Some(depth) = self.ty(a)?.shape.last().cloned() else { return failed("a product of vectors") };
        if self.broadcast(b, view)?.iter().flatten().any(|axis| *axis == rows.sample) {
            return self.weighted(value, view, rows);
        }
        let [.., m, n] = view.as_slice() else { return failed("a product of vectors") };
        if self.ty(b)?.rank() != 2 || n.contains(&rows.row) || n.contains(&rows.sample) {
            return failed("a matmul of rows with a matrix that is not the same for all of them");
        }
        let k = self.axes.borrow_mut().group(&depth);
        let mut left = self.broadcast(a, view)?;
        if let [.., rest, last] = left.as_mut_slice() {
            (*rest, *last) = (m.clone(), k.clone());
        }
        let others: Vec<AxisId> = rows.columns.iter().copied().filter(|axis| !n.contains(axis)).collect();
        let deeper = rows.with(others.iter().chain(&k).copied().collect());
        let x = self.whole(&self.row(a, &left, &deeper)?, &deeper);
        let shape = [vec![rows.total.clone()], self.axes.borrow().shape(&others), vec![depth]].concat();
        let y = x.reshape(shape).matmul(&self.capture(b));
        let axes: Vec<AxisId> = std::iter::once(rows.row).chain(others).chain(n.iter().copied()).collect();
        let extents = self.axes.borrow().shape(&axes[1..]);
        self.placed(&y.reshape([vec![rows.total.clone()], extents].concat()), &axes, rows)
    }

    /// A reduction of columns.
    fn reduction(&self, value: Value, reduce: &Reduce, view: &View, rows: &Rows) -> Converted {
        let operands = self.visit(value);
        let Some(&x) = operands.first() else { return failed("a reduction of nothing") };
        let Some(extent) = self.ty(x)?.shape.get(reduce.axis).filter(|dim| dim.as_const().is_some()) else {
            return failed("a reduction over the rows of a sample");
        };
        let axis = self.axes.borrow_mut().group(extent);
        let mut view = view.clone();
        if let Some(place) = view.get_mut(reduce.axis) {
            place.clone_from(&axis);
        }
        let longer = rows.with(rows.columns.iter().chain(&axis).copied().collect());
        let x = self.row(x, &view, &longer)?;
        let [.., last] = x.shape() else { return failed("a reduction of nothing") };
        let is_last = axis.is_empty() || last == extent;
        let x = if is_last { x } else { self.whole(&x, &longer) };
        let kept: Vec<Dim> = x.shape().iter().take(rows.columns.len() + 1).cloned().collect();
        if axis.is_empty() {
            return Ok(x);
        }
        Ok(self.op(Reduce { op: reduce.op, axis: rows.columns.len() + 1 }, &[&x]).reshape(kept))
    }

    /// A value that is read without conversion of its operands.
    fn read(&self, value: Value, view: &View, rows: &Rows) -> Converted {
        let flat = view.concat();
        let [by_sample, by_row] = [rows.sample, rows.row].map(|axis| flat.contains(&axis));
        let offsets = || self.capture(rows.offsets);
        if self.ty(value)?.layout == Layout::Host {
            return self.read_host(value, by_row, rows);
        }
        let leading: Vec<AxisId> = [(by_sample, rows.sample), (by_row, rows.row)]
            .into_iter()
            .filter_map(|(is, axis)| is.then_some(axis))
            .collect();
        let order: Vec<AxisId> = leading.iter().chain(&rows.columns).copied().collect();
        let x = self.arranged(&self.capture(value), view, &order)?;
        Ok(match (by_sample, by_row) {
            (true, true) => self.op(PaddedToJagged { rows: rows.total.clone() }, &[&x, &offsets()]),
            (true, false) => self.op(JaggedBroadcast { rows: rows.total.clone() }, &[&x, &offsets()]),
            (false, true) => self.gathered(&x, rows),
            (false, false) => x.reshape([vec![1.into()], x.shape().to_vec()].concat()),
        })
    }

    /// For every row, the row of a table at its position in the sample.
    fn gathered(&self, table: &Tensor, rows: &Rows) -> Tensor {
        let columns: Vec<Dim> = table.shape().iter().skip(1).cloned().collect();
        let width = columns.iter().try_fold(Dim::from(1), |width, dim| width.product(dim));
        let (Some(width), Some(longest)) = (width, table.shape().first().cloned()) else { return table.clone() };
        let read = table.reshape(vec![longest, width]).gather(&self.position(rows));
        read.reshape([vec![rows.total.clone()], columns].concat())
    }

    /// A value of the shape program: positions, or a scalar.
    fn read_host(&self, value: Value, by_row: bool, rows: &Rows) -> Converted {
        let width = rows.columns.len();
        if by_row && self.is_iota(value) {
            return Ok(self.position(rows).reshape(super::convert::ones_after(&rows.total, width)));
        }
        if self.ty(value)?.rank() == 0 {
            return Ok(self.capture(value));
        }
        failed("a vector of the shape program")
    }
}
