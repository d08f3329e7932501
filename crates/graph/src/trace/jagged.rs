use super::{Scope, Tensor};
use crate::op::{Check, HostOp, JaggedBroadcast, JaggedConcat, JaggedSlice, RowIndex, RowIndexKind};
use crate::pointwise::BinaryOp;
use crate::{Dim, SizeSource, Value};

/// The components of the sum of a vector.
enum Parts {
    /// The sum itself is a size.
    Whole,
    /// This dim.
    Known(Dim),
    /// The sum of another vector.
    Same(Value),
    /// The sum of one vector, plus a multiple of the sum of another.
    Both(Value, Value, i64),
    /// The sum of another vector, plus this dim.
    Plus(Value, Dim),
    /// The sum of another vector, times this dim.
    Times(Value, Dim),
}

impl Parts {
    fn vectors(&self) -> Vec<Value> {
        match self {
            Self::Whole | Self::Known(_) => vec![],
            Self::Same(x) | Self::Plus(x, _) | Self::Times(x, _) => vec![*x],
            Self::Both(a, b, _) => vec![*a, *b],
        }
    }
}

/// The division of rows among samples: lengths and offsets on the host.
#[derive(Clone, Debug)]
pub struct Ragged {
    /// Number of rows of every sample, `[B]`.
    pub lengths: Tensor,
    /// 0 and the cumulative sums of the lengths, `[B + 1]`.
    pub offsets: Tensor,
    /// Number of samples.
    pub batch: Dim,
    /// Number of rows in all samples.
    pub total: Dim,
}

impl AsRef<Ragged> for Ragged {
    fn as_ref(&self) -> &Ragged {
        self
    }
}

impl Ragged {
    /// From host lengths `[B]`. A run fails if one of them is negative.
    #[track_caller]
    pub fn from_lengths(lengths: impl AsRef<Tensor>) -> Self {
        let lengths = lengths.as_ref();
        let lengths = lengths.counts("lengths");
        let offsets = lengths.host(HostOp::Offsets, &[]);
        Self { batch: lengths.dim(0), total: lengths.total(), lengths, offsets }
    }

    /// From host offsets `[B + 1]`. A run fails if they do not begin with 0, or descend.
    #[track_caller]
    pub fn from_offsets(offsets: impl AsRef<Tensor>) -> Self {
        let offsets = offsets.as_ref();
        let lengths = offsets.host(HostOp::Lengths, &[]);
        let total = lengths.total();
        let offsets = offsets.checked(Check::Offsets { rows: total.clone() }, "rows", &[]);
        Self { batch: lengths.dim(0), lengths, offsets, total }
    }

    /// Samples of equal length.
    #[track_caller]
    pub fn dense(scope: &Scope, batch: impl Into<Dim>, length: impl AsRef<Tensor>) -> Self {
        let length = length.as_ref();
        Self::from_lengths(&scope.host_fill(batch, length))
    }

    /// From host offsets `[B + 1]` that are known to divide `total` rows.
    #[track_caller]
    pub(crate) fn of(offsets: &Tensor, total: &Dim) -> Self {
        let value = offsets.value.map(|value| offsets.unchecked(value));
        let lengths = Tensor { value, ..offsets.clone() }.host(HostOp::Lengths, &[]);
        if let Some(value) = lengths.value {
            offsets.state.lock().totals.insert(value, total.clone());
        }
        Self { batch: lengths.dim(0), lengths, offsets: offsets.clone(), total: total.clone() }
    }

    /// The same rows. A run fails if there are not `total` of them.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let values = scope.input("values", DType::F32, (scope.size("rows"), 4));
    /// let rows = scope.lengths("lengths", scope.size("users")).of_total(&values.dim(0));
    /// let sums = values.jagged_sum(&rows);
    /// assert_eq!(sums.shape(), [rows.batch.clone(), 4.into()]);
    /// # let _ = scope.finish(&[("sums", sums)])?;
    /// # Ok::<(), rewire_graph::GraphError>(())
    /// ```
    #[track_caller]
    pub fn of_total(&self, total: &Dim) -> Self {
        let check = Check::Offsets { rows: total.clone() };
        Self { offsets: self.offsets.checked(check, "rows", &[]), ..self.clone() }
    }

    /// The length of the longest sample, a host scalar; 0 without samples.
    #[track_caller]
    pub fn max(&self) -> Tensor {
        self.lengths.host(HostOp::Max, &[])
    }

    /// The sum of both lengths for every sample.
    #[track_caller]
    pub fn plus(&self, other: impl AsRef<Ragged>) -> Self {
        Self::from_lengths(&self.lengths + &other.as_ref().lengths)
    }

    /// The position of every row within its sample, `[total]`, an `I32`.
    #[track_caller]
    pub fn position(&self) -> Tensor {
        self.offsets.apply(RowIndex { kind: RowIndexKind::Position, rows: self.total.clone() }, &[])
    }

    /// For every row, the first row after its sample, counted over all samples: `[total]`, an `I32`.
    #[track_caller]
    pub fn sample_end(&self) -> Tensor {
        self.offsets.apply(RowIndex { kind: RowIndexKind::SampleEnd, rows: self.total.clone() }, &[])
    }
}

impl Scope {
    /// Lengths `[B]` bound by name for each run; a run fails if one is negative.
    #[track_caller]
    pub fn lengths(&self, name: &str, batch: impl Into<Dim>) -> Ragged {
        Ragged::from_lengths(&self.host_input(name, [batch]))
    }

    /// A number for each of `batch` samples, `[B]`, bound by name for each run; a run fails if one is negative.
    #[track_caller]
    pub fn counts(&self, name: &str, batch: impl Into<Dim>) -> Tensor {
        self.host_input(name, [batch]).counts(name)
    }

    /// Offsets `[B + 1]` bound by name for each run; a run fails if they do not begin with 0, or descend.
    #[track_caller]
    pub fn offsets(&self, name: &str) -> Ragged {
        let extent = self.size(&format!("{name} entries"));
        Ragged::from_offsets(&self.host_input(name, [extent]))
    }
}

impl Tensor {
    /// A host scalar as a size.
    pub fn as_dim(&self) -> Dim {
        let Some(value) = self.value else { return Dim::default() };
        if let Some(HostOp::Size(dim)) = self.host_op(value) {
            return dim;
        }
        self.size_of(value, SizeSource::Scalar(value))
    }

    /// The sum of a host vector as a size, in terms of the sums of its components.
    pub fn total(&self) -> Dim {
        let Some(value) = self.value else { return Dim::default() };
        let mut stack = vec![value];
        while let Some(&value) = stack.last() {
            let parts = self.parts(value);
            let missing = |part: &Value| !self.state.lock().totals.contains_key(part);
            let before = stack.len();
            stack.extend(parts.vectors().into_iter().filter(missing));
            if stack.len() == before {
                let total = self.total_of(&parts).unwrap_or_else(|| self.size_of(value, SizeSource::Total(value)));
                self.state.lock().totals.insert(value, total);
                stack.pop();
            }
        }
        self.state.lock().totals.get(&value).cloned().unwrap_or_default()
    }

    /// The components of the sum of a vector.
    fn parts(&self, value: Value) -> Parts {
        let inputs = self.state.lock().graph.inputs(value.node);
        let len = self.state.lock().graph.ty(value).and_then(|ty| ty.shape.first().cloned()).unwrap_or_default();
        let size = |value: &Value| match self.host_op(*value) {
            Some(HostOp::Size(dim)) => Some(dim),
            _ => None,
        };
        let is_vector = |value: &Value| self.state.lock().graph.ty(*value).is_some_and(|ty| ty.rank() == 1);
        match (self.host_op(value), inputs.as_slice()) {
            (Some(HostOp::Check { .. }), [x, ..]) => Parts::Same(*x),
            (Some(HostOp::Fill(_)), [x]) => size(x).and_then(|x| x.product(&len)).map_or(Parts::Whole, Parts::Known),
            (Some(HostOp::Lengths), [offsets]) => {
                match (self.unchecked(*offsets), self.host_op(self.unchecked(*offsets))) {
                    (offsets, Some(HostOp::Offsets)) => {
                        let lengths = self.state.lock().graph.inputs(offsets.node);
                        lengths.first().map_or(Parts::Whole, |&lengths| Parts::Same(lengths))
                    }
                    _ => Parts::Whole,
                }
            }
            (Some(HostOp::Binary(op)), [a, b]) if is_vector(a) => match (op, is_vector(b), size(b)) {
                (BinaryOp::Add, true, _) => Parts::Both(*a, *b, 1),
                (BinaryOp::Sub, true, _) => Parts::Both(*a, *b, -1),
                (BinaryOp::Add, false, Some(b)) => b.product(&len).map_or(Parts::Whole, |all| Parts::Plus(*a, all)),
                (BinaryOp::Sub, false, Some(b)) => {
                    b.product(&len).map_or(Parts::Whole, |all| Parts::Plus(*a, all * -1))
                }
                (BinaryOp::Mul, false, Some(b)) => Parts::Times(*a, b),
                _ => Parts::Whole,
            },
            _ => Parts::Whole,
        }
    }

    /// The sum of components with known sums; `None` if it is a size itself.
    fn total_of(&self, parts: &Parts) -> Option<Dim> {
        let total = |value: &Value| self.state.lock().totals.get(value).cloned().unwrap_or_default();
        match parts {
            Parts::Whole => None,
            Parts::Known(total) => Some(total.clone()),
            Parts::Same(x) => Some(total(x)),
            Parts::Both(a, b, factor) => Some(total(a) + total(b) * *factor),
            Parts::Plus(x, all) => Some(total(x) + all.clone()),
            Parts::Times(x, factor) => total(x).product(factor),
        }
    }

    /// The value before its checks.
    fn unchecked(&self, mut value: Value) -> Value {
        while let Some(HostOp::Check { .. }) = self.host_op(value)
            && let Some(&checked) = self.state.lock().graph.inputs(value.node).first()
        {
            value = checked;
        }
        value
    }

    fn host_op(&self, value: Value) -> Option<HostOp> {
        self.state.lock().graph.op::<HostOp>(value.node).cloned()
    }

    /// The symbol with a source; equal sources share a symbol.
    fn size_of(&self, value: Value, source: SizeSource) -> Dim {
        let mut state = self.state.lock();
        let known = state.graph.sizes().iter().position(|size| size.source == source);
        let symbol = match known {
            Some(symbol) => crate::Symbol(symbol as u32),
            None => {
                let kind = if matches!(source, SizeSource::Total(_)) { "total" } else { "value" };
                let name = format!("{kind} of {}", state.graph.host_name(value));
                state.graph.add_size(&name, source)
            }
        };
        let name = state.graph.sizes().get(symbol.0 as usize).map_or("", |size| &size.name);
        Dim::of_scope(symbol, state.id, name)
    }

    /// For every sample, the rows of this `[total, ..]` followed by those of `other`; also returns the division of the
    /// result into samples.
    #[track_caller]
    pub fn jagged_concat(
        &self,
        rows: impl AsRef<Ragged>,
        other: impl AsRef<Tensor>,
        other_rows: impl AsRef<Ragged>,
    ) -> (Tensor, Ragged) {
        let (rows, other, other_rows) = (rows.as_ref(), other.as_ref(), other_rows.as_ref());
        let both = rows.plus(other_rows);
        let values = self.apply(JaggedConcat, &[other, &rows.offsets, &other_rows.offsets, &both.offsets]);
        (values, both)
    }

    /// From every sample `kept` rows, starting at row `starts` `[B]` of the sample; both are host values. A run fails
    /// if they extend beyond their sample.
    #[track_caller]
    pub fn jagged_slice(
        &self,
        rows: impl AsRef<Ragged>,
        starts: impl AsRef<Tensor>,
        kept: impl AsRef<Ragged>,
    ) -> Tensor {
        let (rows, starts, kept) = (rows.as_ref(), starts.as_ref(), kept.as_ref());
        let op = JaggedSlice { rows: kept.total.clone() };
        self.apply(op, &[&rows.offsets, starts, &kept.offsets])
    }

    /// The last `kept` rows of every sample. A run fails if a sample has fewer.
    #[track_caller]
    pub fn jagged_tail(&self, rows: impl AsRef<Ragged>, kept: impl AsRef<Ragged>) -> Tensor {
        let (rows, kept) = (rows.as_ref(), kept.as_ref());
        self.jagged_slice(rows, &rows.lengths - &kept.lengths, kept)
    }

    /// The first `kept` rows of every sample. A run fails if a sample has fewer.
    #[track_caller]
    pub fn jagged_head(&self, rows: impl AsRef<Ragged>, kept: impl AsRef<Ragged>) -> Tensor {
        let (rows, kept) = (rows.as_ref(), kept.as_ref());
        let starts = &rows.lengths * 0.0;
        self.jagged_slice(rows, &starts, kept)
    }

    /// Repeats one row per sample, `[B, ..]`, for each row of the sample.
    #[track_caller]
    pub fn jagged_broadcast(&self, rows: impl AsRef<Ragged>) -> Tensor {
        let rows = rows.as_ref();
        self.apply(JaggedBroadcast { rows: rows.total.clone() }, &[&rows.offsets])
    }
}
