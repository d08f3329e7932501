use super::{Scope, Tensor};
use crate::op::{HostOp, JaggedBroadcast, JaggedConcat, JaggedSlice, RowIndex, RowIndexKind};
use crate::pointwise::BinaryOp;
use crate::{Dim, SizeSource, Value};

/// How rows are divided among samples: lengths and offsets of the shape program.
#[derive(Clone, Debug)]
pub struct Ragged {
    /// Rows of every sample, `[B]`.
    pub lengths: Tensor,
    /// 0 and the cumulative sums of the lengths, `[B + 1]`.
    pub offsets: Tensor,
    /// Number of samples.
    pub batch: Dim,
    /// Number of rows of all samples.
    pub total: Dim,
}

impl Ragged {
    /// From lengths `[B]` of the shape program.
    pub fn from_lengths(lengths: &Tensor) -> Self {
        let offsets = lengths.host(HostOp::Offsets, &[]);
        let total = lengths.total();
        Self { lengths: lengths.clone(), offsets, batch: lengths.dim(0), total }
    }

    /// From offsets `[B + 1]` of the shape program.
    pub fn from_offsets(offsets: &Tensor) -> Self {
        let lengths = offsets.host(HostOp::Lengths, &[]);
        let total = lengths.total();
        Self { batch: lengths.dim(0), lengths, offsets: offsets.clone(), total }
    }

    /// Samples of equal length.
    pub fn dense(scope: &Scope, batch: Dim, length: &Tensor) -> Self {
        Self::from_lengths(&scope.host_fill(batch, length))
    }

    /// The longest sample, a scalar of the shape program; 0 without samples.
    pub fn max(&self) -> Tensor {
        self.lengths.host(HostOp::Max, &[])
    }

    /// The sum of both lengths in every sample.
    pub fn plus(&self, other: &Self) -> Self {
        Self::from_lengths(&(&self.lengths + &other.lengths))
    }

    /// The position of every row within its sample, `[total]`, an `I32`.
    pub fn position(&self) -> Tensor {
        self.offsets.apply(RowIndex { kind: RowIndexKind::Position, rows: self.total.clone() }, &[])
    }

    /// For every row the row after the last one of its sample, counted over all samples, `[total]`, an `I32`.
    pub fn sample_end(&self) -> Tensor {
        self.offsets.apply(RowIndex { kind: RowIndexKind::SampleEnd, rows: self.total.clone() }, &[])
    }
}

impl Scope {
    /// Lengths `[B]` bound by name for each run.
    pub fn lengths(&self, name: &str, batch: &Dim) -> Ragged {
        Ragged::from_lengths(&self.host_input(name, std::slice::from_ref(batch)))
    }

    /// Offsets `[B + 1]` bound by name for each run.
    pub fn offsets(&self, name: &str) -> Ragged {
        let extent = self.size(&format!("{name} entries"));
        Ragged::from_offsets(&self.host_input(name, &[extent]))
    }
}

impl Tensor {
    /// A scalar of the shape program as a size.
    pub fn as_dim(&self) -> Dim {
        let Some(value) = self.value else { return Dim::default() };
        if let Some(HostOp::Size(dim)) = self.host_op(value) {
            return dim;
        }
        self.size_of(value, SizeSource::Scalar(value))
    }

    /// The sum of a vector of the shape program as a size, in terms of the sums it is made of.
    pub fn total(&self) -> Dim {
        self.value.map_or_else(Dim::default, |value| self.total_of(value))
    }

    fn total_of(&self, value: Value) -> Dim {
        let (inputs, len) = {
            let state = self.state.borrow();
            let len = state.graph.ty(value).and_then(|ty| ty.shape.first().cloned()).unwrap_or_default();
            (state.graph.inputs(value.node), len)
        };
        let scalar = |value: &Value| match self.host_op(*value) {
            Some(HostOp::Size(dim)) => Some(dim),
            _ => None,
        };
        let is_vector = |value: &Value| self.state.borrow().graph.ty(*value).is_some_and(|ty| ty.rank() == 1);
        let linear = match (self.host_op(value), inputs.as_slice()) {
            (Some(HostOp::AtMost(_)), [x, _]) => Some(self.total_of(*x)),
            (Some(HostOp::Fill(_)), [x]) => scalar(x).and_then(|x| x.product(&len)),
            (Some(HostOp::Lengths), [offsets]) if matches!(self.host_op(*offsets), Some(HostOp::Offsets)) => {
                let lengths = self.state.borrow().graph.inputs(offsets.node);
                lengths.first().map(|&lengths| self.total_of(lengths))
            }
            (Some(HostOp::Binary(op)), [a, b]) if is_vector(a) => match (op, is_vector(b)) {
                (BinaryOp::Add, true) => Some(self.total_of(*a) + self.total_of(*b)),
                (BinaryOp::Sub, true) => Some(self.total_of(*a) - self.total_of(*b)),
                (BinaryOp::Add, false) => scalar(b).and_then(|b| b.product(&len)).map(|b| self.total_of(*a) + b),
                (BinaryOp::Sub, false) => scalar(b).and_then(|b| b.product(&len)).map(|b| self.total_of(*a) - b),
                (BinaryOp::Mul, false) => scalar(b).and_then(|b| self.total_of(*a).product(&b)),
                _ => None,
            },
            _ => None,
        };
        linear.unwrap_or_else(|| self.size_of(value, SizeSource::Total(value)))
    }

    fn host_op(&self, value: Value) -> Option<HostOp> {
        self.state.borrow().graph.node(value.node).and_then(|node| node.op.downcast_ref::<HostOp>().cloned())
    }

    /// The symbol with a source, the same for the same source.
    fn size_of(&self, value: Value, source: SizeSource) -> Dim {
        let mut state = self.state.borrow_mut();
        let known = state.graph.sizes().iter().position(|size| size.source == source);
        let symbol = match known {
            Some(symbol) => crate::Symbol(symbol as u32),
            None => state.graph.add_size(&format!("n{}", value.node.number()), source),
        };
        Dim::symbol(symbol)
    }

    /// For every sample the rows of this `[total, ..]`, then those of `other`; also how the result is divided.
    pub fn jagged_concat(&self, rows: &Ragged, other: &Tensor, other_rows: &Ragged) -> (Tensor, Ragged) {
        let both = rows.plus(other_rows);
        let values = self.apply(JaggedConcat, &[other, &rows.offsets, &other_rows.offsets, &both.offsets]);
        (values, both)
    }

    /// From every sample `kept` rows, starting at row `starts` `[B]`, values of the shape program, of the sample.
    pub fn jagged_slice(&self, rows: &Ragged, starts: &Tensor, kept: &Ragged) -> Tensor {
        let op = JaggedSlice { rows: kept.total.clone() };
        self.apply(op, &[&rows.offsets, starts, &kept.offsets])
    }

    /// The last `kept` rows of every sample.
    pub fn jagged_tail(&self, rows: &Ragged, kept: &Ragged) -> Tensor {
        self.jagged_slice(rows, &(&rows.lengths - &kept.lengths), kept)
    }

    /// The first `kept` rows of every sample.
    pub fn jagged_head(&self, rows: &Ragged, kept: &Ragged) -> Tensor {
        let starts = &rows.lengths * 0.0;
        self.jagged_slice(rows, &starts, kept)
    }

    /// A row a sample, `[B, ..]`, repeated for each row of the sample.
    pub fn jagged_broadcast(&self, rows: &Ragged) -> Tensor {
        self.apply(JaggedBroadcast { rows: rows.total.clone() }, &[&rows.offsets])
    }
}
