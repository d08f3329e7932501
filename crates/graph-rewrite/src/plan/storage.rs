use super::{Binding, Buffer, Computation, Plan, Source};
use rewire_graph::DType;

/// How the floats of a plan are stored; `None` leaves them as they are. Arithmetic and sums stay in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precision {
    /// Embedding tables.
    pub tables: Option<DType>,
    /// All other parameters, and what is computed of parameters where a plan is loaded. A type that kernels do not write, such as
    /// `Rows8`, holds the parameters of two dimensions and more.
    pub weights: Option<DType>,
    /// Values between steps, where kernels write the type.
    pub activations: Option<DType>,
}

impl Precision {
    /// One type for all floats.
    pub fn all(dtype: DType) -> Self {
        Self { tables: Some(dtype), weights: Some(dtype), activations: Some(dtype) }
    }

    fn of(&self, buffer: &Buffer, is_table: impl Fn(&str) -> bool) -> Option<DType> {
        let dtype = match &buffer.source {
            Source::Parameter(name) if is_table(name) => return self.tables,
            Source::Parameter(_) => return self.weights.filter(|dtype| is_written(*dtype) || buffer.shape.len() > 1),
            Source::Load => self.weights,
            Source::Step => self.activations,
            _ => None,
        };
        dtype.filter(|dtype| is_written(*dtype))
    }
}

fn is_written(dtype: DType) -> bool {
    dtype.format().is_written()
}

impl Plan {
    /// Stores floats of parameters and of values between steps as `dtype`, `F16` or `BF16` to halve their memory: [`Plan::store`]
    /// with one type.
    pub fn store_floats_as(&mut self, dtype: DType) {
        self.store(Precision::all(dtype), |_| false);
    }

    /// Stores floats of parameters, some of which are tables, and of values between steps as a precision has them.
    ///
    /// Inputs and outputs keep their types, and so do parameters that are rows with a scale. Whether a type has rows of the widths
    /// that there are, [`Plan::check_limits`] tells.
    pub fn store(&mut self, precision: Precision, is_table: impl Fn(&str) -> bool) {
        let outputs: Vec<Binding> = self.outputs.iter().map(|output| output.value).collect();
        let mut changed = vec![None; self.buffers.len()];
        for (number, buffer) in self.buffers.iter_mut().enumerate() {
            let is_float = buffer.dtype.is_float() && is_written(buffer.dtype);
            let bound = Binding::Buffer(super::BufferId(number as u32));
            if let Some(dtype) = precision.of(buffer, &is_table).filter(|_| is_float && !outputs.contains(&bound)) {
                buffer.dtype = dtype;
                changed[number] = Some(dtype);
            }
        }
        let changed = |id: &super::BufferId| changed.get(id.0 as usize).copied().flatten();
        for step in self.load.iter_mut().chain(&mut self.steps) {
            for (operand, read) in step.computation.body_mut().operands.iter_mut().zip(&step.reads) {
                if let Binding::Buffer(id) = read
                    && let Some(dtype) = changed(id)
                {
                    operand.dtype = dtype;
                }
            }
            for (target, stored) in step.computation.stored_mut() {
                if let Some(dtype) = step.writes.get(usize::from(target)).and_then(changed) {
                    *stored = dtype;
                }
            }
        }
    }
}

impl Computation {
    /// Position among [`super::Step::writes`] and element type in memory of what is written.
    fn stored_mut(&mut self) -> Vec<(u16, &mut DType)> {
        match self {
            Self::Custom(custom) => vec![(0, &mut custom.dtype)],
            Self::Nest(nest) => nest.outputs.iter_mut().map(|output| (output.target, &mut output.dtype)).collect(),
        }
    }
}
