use super::{Binding, Buffer, BufferId, Computation, Plan, Source, Step};
use crate::schedule::{Analysis, Bound, Schedule};
use rewire_graph::pointwise::Expr;
use rewire_graph::{DType, Dim, Ordered};
use std::collections::BTreeMap;

/// Storage types of a plan's floats and types of accumulators; `None` leaves them unchanged. Other arithmetic is f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precision {
    /// Embedding tables.
    pub tables: Option<DType>,
    /// Embedding tables whose rows are not pooled, in models with such tables; like `tables` if `None`.
    pub sequence_tables: Option<DType>,
    /// All other parameters, and values computed from parameters when a plan is loaded. A type that kernels cannot
    /// write, such as `Rows8`, applies to parameters with at least two dimensions, and to computed values that are rows
    /// of these; operands of matmuls are stored with one row per column of the result. In `Rows4` and `Rows2`, each 32
    /// elements of a row have a scale, if the width of the rows is a multiple of 32.
    pub weights: Option<DType>,
    /// Values between steps, if kernels can write the type.
    pub activations: Option<DType>,
    /// Accumulators of products. `F16`: accumulate products of f16 in f16 on devices whose matrix hardware supports it;
    /// sums are rounded after every few steps and limited to 65504; the CPU accumulates them in `F32`. `I32`: multiply
    /// integers in matmuls with weights whose `k` is a multiple of 16, at least 32, and that have at least 64 columns:
    /// both factors are rounded to [`DType::I8`] by the largest element of their row or column, weights when a plan is
    /// loaded, other factors by the kernel that computes the row. Everything else accumulates in `F32`, such as norms,
    /// softmax and attention.
    pub sums: Option<DType>,
}

/// The kind of an embedding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Rows are summed or averaged after the lookup.
    Pooled,
    /// Rows are the elements of sequences.
    Sequence,
}

impl Precision {
    /// One type for all floats.
    pub fn all(dtype: DType) -> Self {
        Self { tables: Some(dtype), weights: Some(dtype), activations: Some(dtype), ..Self::default() }
    }

    fn of(&self, buffer: &Buffer, table: impl Fn(&str) -> Option<Table>) -> Option<DType> {
        let dtype = match &buffer.source {
            Source::Parameter(name) => match table(name) {
                Some(Table::Sequence) => return self.sequence_tables.or(self.tables),
                Some(Table::Pooled) => return self.tables,
                None => return self.weights.filter(|dtype| is_written(*dtype) || buffer.shape.len() > 1),
            },
            Source::Load => self.weights,
            Source::Step => self.activations,
            _ => None,
        };
        dtype.filter(|dtype| is_written(*dtype) || buffer.source == Source::Load)
    }
}

pub(super) fn is_written(dtype: DType) -> bool {
    dtype.format().is_written()
}

impl Plan {
    /// Stores floats of parameters and of values between steps as `dtype`, `F16` or `BF16` to halve their memory:
    /// [`Plan::store`] with one type.
    pub fn store_floats_as(&mut self, dtype: DType) {
        self.store(Precision::all(dtype), |_| None);
    }

    /// Sets the storage types of parameters, some of which are tables, and of values between steps.
    ///
    /// Inputs and outputs keep their types, and so do parameters that are rows with a scale. [`Plan::check_limits`]
    /// checks whether a type supports the row widths.
    pub fn store(&mut self, precision: Precision, table: impl Fn(&str) -> Option<Table>) {
        if precision.sums == Some(DType::I32) {
            self.multiply_integers();
        }
        let changed = self.changed(precision, table);
        for (id, dtype) in &changed {
            self.buffers[id.0 as usize].dtype = *dtype;
        }
        let scaled: Vec<BufferId> =
            changed.iter().filter(|(_, dtype)| !is_written(**dtype)).map(|(id, _)| *id).collect();
        let summed: Vec<BufferId> = scaled.iter().copied().filter(|id| self.is_summed_by_row(*id)).collect();
        summed.into_iter().for_each(|id| self.turn(id));
        let is_kept = |id: BufferId| self.buffers[id.0 as usize].source == Source::Load && scaled.contains(&id);
        let floats =
            changed.iter().map(|(&id, &dtype)| (id, if is_kept(id) { DType::F32 } else { dtype })).ordered_map();
        self.load.iter_mut().for_each(|step| step.store(&floats));
        self.steps.iter_mut().for_each(|step| step.store(&changed));
        scaled.into_iter().for_each(|id| self.divide(id));
        if let Some(sums) = precision.sums {
            self.steps.iter_mut().for_each(|step| step.computation.keep_sums(sums));
        }
    }

    /// The new types of buffers.
    fn changed(&self, precision: Precision, table: impl Fn(&str) -> Option<Table>) -> BTreeMap<BufferId, DType> {
        let scales = self.scales();
        let is_output = |id: BufferId| self.outputs.iter().any(|output| output.value == Binding::Buffer(id));
        let dtype = |(id, buffer): (BufferId, &Buffer)| {
            let dtype = precision.of(buffer, &table)?;
            let is_float = buffer.dtype.is_float() && is_written(buffer.dtype);
            let keeps = is_written(dtype) || buffer.source != Source::Load || self.has_copied_rows(id);
            let is_rounded = buffer.dtype == DType::I8 || scales.contains(&id);
            (is_float && keeps && !is_rounded && !is_output(id)).then_some((id, dtype))
        };
        (0..).map(BufferId).zip(&self.buffers).filter_map(dtype).ordered_map()
    }

    /// True if the row of a matrix is a reduced index in all loads. A scale per row then cannot be applied to the
    /// result.
    pub(super) fn is_summed_by_row(&self, id: BufferId) -> bool {
        let reads = |step: &&Step| step.reads.contains(&Binding::Buffer(id));
        let mut steps = self.steps.iter().filter(reads).peekable();
        steps.peek().is_some() && !self.load.iter().any(|step| reads(&step)) && steps.all(|step| step.sums_rows_of(id))
    }

    /// Swaps the last two dimensions of a parameter in memory.
    fn turn(&mut self, id: BufferId) {
        let exchange = |shape: &mut Vec<Dim>| {
            if let [.., rows, columns] = shape.as_mut_slice() {
                std::mem::swap(rows, columns);
            }
        };
        if let Some(buffer) = self.buffers.get_mut(id.0 as usize) {
            exchange(&mut buffer.shape);
        }
        for Step { reads, computation, .. } in &mut self.steps {
            let is_read = |operand: usize| reads.get(operand) == Some(&Binding::Buffer(id));
            let body = computation.body_mut();
            body.dag.transpose(|operand| is_read(operand.into()));
            let operands = body.operands.iter_mut().enumerate().filter(|(operand, _)| is_read(*operand));
            operands.for_each(|(_, operand)| exchange(&mut operand.shape));
        }
        self.by_column.insert(id);
    }
}

impl Step {
    /// Sets the types of operands and results in memory.
    fn store(&mut self, types: &BTreeMap<BufferId, DType>) {
        for (operand, read) in self.computation.body_mut().operands.iter_mut().zip(&self.reads) {
            if let Binding::Buffer(id) = read
                && let Some(dtype) = types.get(id)
            {
                operand.dtype = *dtype;
            }
        }
        for (target, stored) in self.computation.stored_mut() {
            if let Some(dtype) = self.writes.get(usize::from(target)).and_then(|id| types.get(id)) {
                *stored = *dtype;
            }
        }
    }

    /// True if the row in all loads from a buffer is a reduced coordinate, and the column is not.
    fn sums_rows_of(&self, id: BufferId) -> bool {
        let Computation::Nest(nest) = &self.computation else { return false };
        let dag = &nest.body.dag;
        let is_summed = |axis: u8| nest.axes.get(usize::from(axis)).is_some_and(|axis| axis.summed);
        let summed = || (0..nest.axes.len() as u8).filter(|&axis| is_summed(axis));
        dag.ids().all(|load| match dag.expr(load) {
            Expr::Load { operand, index } if self.reads.get(usize::from(*operand)) == Some(&Binding::Buffer(id)) => {
                let [outer @ .., _] = index.as_slice() else { return false };
                let rows = dag.access(outer);
                summed().any(|axis| rows.ends_with(&[axis]))
                    && !summed().any(|axis| dag.access(index).columns_move(axis))
            }
            _ => true,
        })
    }
}

impl Computation {
    /// Sets the accumulator type of a matmul, if permitted.
    fn keep_sums(&mut self, dtype: DType) {
        let Self::Nest(own) = self else { return };
        let Schedule::Product(schedule) = own.schedule() else { return };
        let product = Bound { nest: own, schedule };
        let may_be = match dtype {
            DType::F16 => product.allows_f16_operands() && !product.has_rows_of_bytes(),
            DType::I32 => product.has_rows_of_bytes(),
            _ => true,
        };
        if let Some(sum) = own.nest_mut().accumulations.last_mut().filter(|_| may_be) {
            sum.dtype = dtype;
        }
    }

    /// Positions among [`super::Step::writes`] and element types in memory of the outputs.
    fn stored_mut(&mut self) -> Vec<(u16, &mut DType)> {
        match self {
            Self::Custom(custom) => vec![(0, &mut custom.dtype)],
            Self::Nest(nest) => {
                nest.nest_mut().outputs.iter_mut().map(|output| (output.target, &mut output.dtype)).collect()
            }
        }
    }
}
