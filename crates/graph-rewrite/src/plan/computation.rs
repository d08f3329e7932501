use super::{Body, Custom, Nest, Output, ScheduledNest};
use crate::error::NotLowerable;
use crate::schedule::Schedule;
use rewire_graph::{DType, Dim};
use serde::{Deserialize, Serialize};

/// The computation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Computation {
    /// A loop nest.
    Nest(ScheduledNest),
    /// A custom operator.
    Custom(Custom),
}

/// A tensor, or part of a tensor, that a kernel writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written<'a> {
    /// Position among [`super::Step::writes`].
    pub target: u16,
    /// Element type in memory.
    pub dtype: DType,
    /// Logical shape.
    pub shape: &'a [Dim],
}

impl Computation {
    /// The computation of a nest, with the first schedule that supports it.
    ///
    /// # Errors
    /// As [`ScheduledNest::of`].
    pub fn of(nest: Nest) -> Result<Self, NotLowerable> {
        ScheduledNest::of(nest).map(Self::Nest)
    }

    /// The schedule; `None` for a custom operator.
    pub fn schedule(&self) -> Option<&Schedule> {
        match self {
            Self::Nest(nest) => Some(nest.schedule()),
            Self::Custom(_) => None,
        }
    }

    /// The expressions.
    pub fn body(&self) -> &Body {
        match self {
            Self::Nest(nest) => &nest.body,
            Self::Custom(custom) => &custom.body,
        }
    }

    pub(crate) fn body_mut(&mut self) -> &mut Body {
        match self {
            Self::Nest(nest) => &mut nest.nest_mut().body,
            Self::Custom(custom) => &mut custom.body,
        }
    }

    /// The loops; `None` for a custom operator.
    pub fn nest(&self) -> Option<&Nest> {
        match self {
            Self::Nest(nest) => Some(nest),
            Self::Custom(_) => None,
        }
    }

    /// [`Nest::points`]; 1 for a custom operator.
    pub fn points(&self, size: impl Fn(&Dim) -> Option<usize>) -> Option<usize> {
        self.nest().map_or(Some(1), |nest| nest.points(size))
    }

    /// The tensors that the kernel writes.
    pub fn written(&self) -> Vec<Written<'_>> {
        match self {
            Self::Custom(custom) => vec![Written { target: 0, dtype: custom.dtype, shape: &custom.shape }],
            Self::Nest(nest) => {
                nest.outputs.iter().map(|o| Written { target: o.target, dtype: o.dtype, shape: &o.shape }).collect()
            }
        }
    }

    /// An output of a type that kernels can only read.
    pub fn unwritable(&self) -> Option<Written<'_>> {
        self.written().into_iter().find(|written| !written.dtype.format().is_written())
    }

    /// The outputs, as expressions of a loop.
    pub fn outputs(&self) -> &[Output] {
        self.nest().map_or(&[], |nest| &nest.outputs)
    }
}
