use super::{Computation, Custom, Nest, Output, Plan, ShapeEntry, Source};
use crate::error::{NotLowerable, PlanError};
use rewire_graph::limits::{
    LimitError, MAX_AXES, MAX_OPERANDS, MAX_RANK, MAX_VALUES, check_count, check_extent, check_rows, check_shape,
};
use rewire_graph::{DType, Symbol};
use std::collections::HashSet;

/// The number of tensors that a kernel may read and write on every GPU.
pub(crate) const BINDINGS: usize = 8;

/// Largest number of elements of a pooled parameter: a bias, a norm, the weights of a small layer.
pub(crate) const LARGEST_POOLED: usize = 1 << 16;

impl Plan {
    /// Checks ranks, sizes, types and names. Plans from lowering always pass; plans read from files must meet the same
    /// limits.
    ///
    /// ```
    /// let scope = rewire_graph::Scope::new();
    /// let n = scope.host_input("n", &[]);
    /// let graph = scope.finish(&[("n", n)])?;
    /// let mut plan = rewire_graph_rewrite::lower(&graph)?;
    /// assert_eq!(plan.check_limits(), Ok(()));
    /// plan.shapes.slots = 1 << 40;
    /// assert!(plan.check_limits().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PlanError`] names the buffer, input, output or step.
    pub fn check_limits(&self) -> Result<(), PlanError> {
        self.check_slots()?;
        self.check_ids()?;
        for (position, buffer) in self.buffers.iter().enumerate() {
            let place = || match &buffer.source {
                Source::Parameter(name) => format!("parameter `{name}`"),
                _ => format!("buffer {position}"),
            };
            check_shape(&buffer.shape).map_err(|error| PlanError::new(place(), error))?;
            check_rows(buffer.dtype, &buffer.shape).map_err(|error| PlanError::new(place(), error))?;
            if buffer.source.is_resident() && buffer.shape.iter().any(|dim| dim.as_const().is_none()) {
                let reason = "is held from run to run, and its shape depends on inputs";
                return Err(PlanError::new(place(), reason));
            }
        }
        self.check_states()?;
        let mut names = HashSet::new();
        for output in &self.outputs {
            let place = || format!("output `{}`", output.name);
            check_shape(&output.shape).map_err(|error| PlanError::new(place(), error))?;
            if !names.insert(&output.name) {
                return Err(PlanError::new(place(), "exists twice"));
            }
        }
        for (what, steps) in [("load step", &self.load), ("step", &self.steps)] {
            for (position, step) in steps.iter().enumerate() {
                let place = || format!("{what} {position} ({}, `{}`)", step.name, step.path);
                step.computation.check_limits().map_err(|reason| PlanError::new(place(), reason))?;
            }
        }
        Ok(())
    }

    /// Checks that slots do not outnumber the inputs and entries that fill them.
    fn check_slots(&self) -> Result<(), PlanError> {
        let (slots, most) = (self.shapes.slots, self.host_inputs.len() + self.shapes.entries.len());
        let wrong = |reason: String| Err(PlanError::new("the shape program", reason));
        if slots > most {
            return wrong(format!("has {slots} slots, and {most} inputs and entries"));
        }
        let filled = self.shapes.entries.iter().filter_map(|entry| match entry {
            ShapeEntry::Compute { output, .. } => Some(output),
            ShapeEntry::Define { .. } | ShapeEntry::Check { .. } => None,
        });
        for slot in self.host_inputs.iter().map(|input| &input.slot).chain(filled) {
            if slot.0 as usize >= slots {
                return wrong(format!("fills slot {}, it has {slots}", slot.0));
            }
        }
        self.host_inputs.iter().try_for_each(|input| {
            check_shape(&input.shape).map_err(|error| PlanError::new(format!("input `{}`", input.name), error))
        })
    }

    /// Checks that ids are integer inputs, and that the shape program defines the sizes of tables.
    fn check_ids(&self) -> Result<(), PlanError> {
        let on_device = self.buffers.iter().filter_map(|buffer| match &buffer.source {
            Source::Input(name) if matches!(buffer.dtype, DType::I32 | DType::I64 | DType::U32) => Some(name),
            _ => None,
        });
        let inputs: HashSet<&String> = on_device.chain(self.host_inputs.iter().map(|input| &input.name)).collect();
        let defined: HashSet<Symbol> = self
            .shapes
            .entries
            .iter()
            .filter_map(|entry| match entry {
                ShapeEntry::Define { symbol, .. } => Some(*symbol),
                ShapeEntry::Compute { .. } | ShapeEntry::Check { .. } => None,
            })
            .collect();
        for ids in &self.shapes.ids {
            let wrong = |reason: &str| Err(PlanError::new(format!("the ids `{}`", ids.input), reason));
            if !inputs.contains(&ids.input) {
                return wrong("are not an input of integers");
            }
            if !ids.rows.terms().all(|(symbol, _)| defined.contains(&symbol)) {
                return wrong("choose from a table of a size that the shape program does not define");
            }
        }
        Ok(())
    }
}

impl Computation {
    /// Checks the size limits of kernels, which fusion respects, and that expressions have the types that the loops
    /// require.
    pub(crate) fn check_limits(&self) -> Result<(), NotLowerable> {
        let body = self.body();
        body.dag.check_limits()?;
        check_count("operands", body.operands.len(), MAX_OPERANDS)?;
        body.sizes.iter().try_for_each(check_extent)?;
        body.operands.iter().try_for_each(|operand| check_shape(&operand.shape))?;
        match self {
            Self::Nest(nest) => {
                check_loops(nest)?;
                self.check_types()?;
                nest.outputs.iter().try_for_each(check_output)
            }
            Self::Custom(custom) => {
                self.check_types()?;
                custom.check_operands()
            }
        }
    }

    /// Checks the loops of the kernel.
    pub fn check_loop(&self) -> Result<(), NotLowerable> {
        match self {
            Self::Nest(nest) => check_loops(nest),
            Self::Custom(custom) => Ok(custom.check_loop()?),
        }
    }
}

/// Checks that axes and accumulations fit together, and that all referenced expressions exist.
pub(super) fn check_form(nest: &Nest) -> Result<(), NotLowerable> {
    check_loops(nest)?;
    let count = nest.body.dag.len();
    match nest.roots().into_iter().find(|id| id.0 as usize >= count) {
        Some(id) => Err(format!("refers to expression {}, there are {count}", id.0).into()),
        None => Ok(()),
    }
}

/// Checks axes, and that accumulations are over existing axes.
fn check_loops(nest: &Nest) -> Result<(), NotLowerable> {
    check_count("dimensions", nest.rank(), MAX_RANK)?;
    check_count("axes", nest.axes.len(), MAX_AXES)?;
    check_count("results of reductions", nest.accumulations.len(), MAX_VALUES)?;
    nest.axes.iter().filter_map(|axis| axis.extent.dense()).try_for_each(check_extent)?;
    if nest.axes.iter().skip(nest.rank()).any(|axis| !axis.summed) {
        return Err("has an axis of results after one that is summed".into());
    }
    if let Some(sum) = nest.accumulations.iter().find(|sum| usize::from(sum.axis) >= nest.axes.len()) {
        return Err(format!("combines over axis {}, there are {}", sum.axis, nest.axes.len()).into());
    }
    Ok(())
}

impl Custom {
    fn check_loop(&self) -> Result<(), LimitError> {
        check_count("operands", self.operands.len(), MAX_OPERANDS)?;
        check_shape(&self.shape)?;
        check_shape(&self.shader.extents)
    }

    fn check_operands(&self) -> Result<(), NotLowerable> {
        self.check_loop()?;
        let count = self.body.operands.len();
        match self.operands.iter().find(|position| usize::from(**position) >= count) {
            Some(position) => Err(format!("has operand {position}, there are {count}").into()),
            None => Ok(()),
        }
    }
}

fn check_output(output: &Output) -> Result<(), NotLowerable> {
    if output.index.len() != output.shape.len() {
        let (expected, actual) = (output.shape.len(), output.index.len());
        return Err(format!("writes a tensor of {expected} dimensions at an index of {actual}").into());
    }
    match output.columns {
        Some((start, end)) if start >= end || i32::try_from(end).is_err() => {
            Err(format!("writes the columns {start}..{end}").into())
        }
        _ => Ok(check_shape(&output.shape)?),
    }
}
