use super::{Binding, Computation, Plan, Source};
use rewire_graph::DType;

impl Plan {
    /// Stores floats of parameters and of values between steps as `dtype`, `F16` or `BF16` to halve their memory; a type that
    /// kernels do not write, such as `Rows8`, holds parameters alone.
    ///
    /// Arithmetic stays in single precision. Inputs and outputs keep their types, and so do parameters that are rows with a
    /// scale.
    pub fn store_floats_as(&mut self, dtype: DType) {
        let written = dtype.format().is_written();
        self.store_as(dtype, |source| match source {
            Source::Parameter(_) => true,
            Source::Step | Source::Load => written,
            _ => false,
        });
    }

    /// [`Plan::store_floats_as`] for the parameters that are `wanted` alone.
    pub fn store_parameters_as(&mut self, dtype: DType, wanted: impl Fn(&str) -> bool) {
        self.store_as(dtype, |source| matches!(source, Source::Parameter(name) if wanted(name)));
    }

    fn store_as(&mut self, dtype: DType, wanted: impl Fn(&Source) -> bool) {
        let outputs: Vec<Binding> = self.outputs.iter().map(|output| output.value).collect();
        let mut changed = vec![false; self.buffers.len()];
        for (number, buffer) in self.buffers.iter_mut().enumerate() {
            let is_float = buffer.dtype.is_float() && buffer.dtype.format().is_written();
            let bound = Binding::Buffer(super::BufferId(number as u32));
            if wanted(&buffer.source) && is_float && !outputs.contains(&bound) {
                buffer.dtype = dtype;
                changed[number] = true;
            }
        }
        let is_changed = |id: &super::BufferId| changed.get(id.0 as usize).copied().unwrap_or(false);
        for step in self.load.iter_mut().chain(&mut self.steps) {
            for (operand, read) in step.computation.body_mut().operands.iter_mut().zip(&step.reads) {
                if matches!(read, Binding::Buffer(id) if is_changed(id)) {
                    operand.dtype = dtype;
                }
            }
            for (target, stored) in step.computation.stored_mut() {
                if step.writes.get(usize::from(target)).is_some_and(is_changed) {
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
