//! Operators of a user's own.

use super::error::CpuError;
use super::memory::{Elements, Memory, pitch};
use super::operand::{Env, View, extents, matches};
use super::own;
use super::scratch::{reserve, zeros};
use bytemuck::cast_slice;
use half::f16;
use half::slice::HalfFloatSliceExt;
use rewire_graph::op::Op;
use rewire_graph::op::custom::{Data, DataMut, View as OperandView, ViewMut};
use rewire_graph::{DType, Scalar, Symbol};
use rewire_graph_rewrite::plan::Custom;
use std::borrow::Cow;
use std::sync::Arc;

/// An operator with its CPU form.
#[derive(Clone, Debug)]
pub(super) struct CompiledCustom {
    kernel: Custom,
    definition: Arc<dyn Op>,
}

/// Elements without padding, in the type that the operator takes them in.
enum Dense<'a> {
    F32(Cow<'a, [f32]>),
    I32(Cow<'a, [i32]>),
    I64(Cow<'a, [i64]>),
}

impl CompiledCustom {
    pub(super) fn new(kernel: &Custom) -> Result<Self, CpuError> {
        let operator = &kernel.operator;
        let bound = operator.definition().filter(|definition| definition.custom().is_some());
        let definition = bound.cloned().ok_or_else(|| CpuError::Unsupported {
            kernel: "custom",
            reason: format!("`{}` has no CPU form: bind the plan to a registry that has it", operator.name()),
        })?;
        Ok(Self { kernel: kernel.clone(), definition })
    }

    pub(super) fn run(
        &self,
        env: &Env<'_>,
        outputs: &mut [&mut Memory],
        symbol: &dyn Fn(Symbol) -> Option<i64>,
    ) -> Result<(), CpuError> {
        let shape = extents(&self.kernel.shape, "a result", symbol)?;
        let [output] = outputs else {
            return Err(CpuError::Count { what: "outputs", expected: 1, actual: outputs.len() });
        };
        if !matches(output, self.kernel.dtype, &shape) {
            return Err(CpuError::Mismatch {
                what: "output",
                position: 0,
                expected: format!("a {} tensor of {shape:?}", self.kernel.dtype),
                actual: format!("{output:?}"),
            });
        }
        let mut views = Vec::with_capacity(self.kernel.operands.len());
        for &position in &self.kernel.operands {
            let view = env.views.get(usize::from(position)).ok_or(CpuError::Count {
                what: "operands",
                expected: usize::from(position) + 1,
                actual: env.views.len(),
            })?;
            views.push((view, dense(view)?));
        }
        let operands: Vec<OperandView<'_>> = views
            .iter()
            .map(|(view, dense)| {
                let data = match dense {
                    Dense::F32(values) => Data::F32(values),
                    Dense::I32(values) => Data::I32(values),
                    Dense::I64(values) => Data::I64(values),
                };
                OperandView { shape: &view.shape, data }
            })
            .collect();
        self.compute(&operands, &shape, output)
    }

    fn compute(&self, operands: &[OperandView<'_>], shape: &[usize], output: &mut Memory) -> Result<(), CpuError> {
        let count = shape.iter().product();
        let run = |data: DataMut<'_>| match self.definition.custom() {
            Some(forms) => {
                let name = self.kernel.operator.name();
                own::call(name, || forms.compute(operands, &mut ViewMut { shape, data }))
                    .map_err(|reason| CpuError::Custom { name: name.to_owned(), reason })
            }
            None => Ok(()),
        };
        match self.kernel.dtype.scalar() {
            Scalar::F32 => {
                let mut values: Vec<f32> = zeros(count)?;
                run(DataMut::F32(&mut values))?;
                if self.kernel.dtype == DType::F16 {
                    let mut halves: Vec<f16> = zeros(count)?;
                    halves.convert_from_f32_slice(&values);
                    output.write(cast_slice(&halves))?;
                } else {
                    output.write(cast_slice(&values))?;
                }
            }
            Scalar::I32 | Scalar::Bool => {
                let mut values: Vec<i32> = zeros(count)?;
                run(DataMut::I32(&mut values))?;
                output.write(cast_slice(&values))?;
            }
            Scalar::I64 => {
                let mut values: Vec<i64> = zeros(count)?;
                run(DataMut::I64(&mut values))?;
                output.write(cast_slice(&values))?;
            }
        }
        Ok(())
    }
}

fn dense<'a>(view: &'a View<'a>) -> Result<Dense<'a>, CpuError> {
    Ok(match view.elements {
        Elements::F32(elements) => Dense::F32(rows(elements, &view.shape)?),
        Elements::F16(elements) => {
            let halves = rows(elements, &view.shape)?;
            let mut floats: Vec<f32> = zeros(halves.len())?;
            halves.convert_to_f32_slice(&mut floats);
            Dense::F32(Cow::Owned(floats))
        }
        Elements::I64(elements) => Dense::I64(rows(elements, &view.shape)?),
        Elements::I32(elements) => Dense::I32(rows(elements, &view.shape)?),
        Elements::Bool(elements) => {
            let truths = rows(elements, &view.shape)?;
            let mut values: Vec<i32> = zeros(truths.len())?;
            values.iter_mut().zip(&*truths).for_each(|(value, &truth)| *value = i32::from(truth != 0));
            Dense::I32(Cow::Owned(values))
        }
    })
}

/// The elements without what pads their rows.
fn rows<'a, T: Copy>(elements: &'a [T], shape: &[usize]) -> Result<Cow<'a, [T]>, CpuError> {
    let (width, outer) = shape.split_last().map_or((1, &[][..]), |(&width, outer)| (width, outer));
    let count = outer.iter().product::<usize>();
    if elements.len() == count * width {
        return Ok(Cow::Borrowed(elements));
    }
    let rows = elements.chunks_exact(pitch(shape).max(1)).take(count);
    let mut dense = vec![];
    reserve(&mut dense, count * width)?;
    dense.extend(rows.flat_map(|row| row.iter().take(width)));
    Ok(Cow::Owned(dense))
}
