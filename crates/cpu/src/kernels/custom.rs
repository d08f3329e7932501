//! Custom operators.

use super::error::CpuError;
use super::integers::Left;
use super::memory::Memory;
use super::operand::{Env, View};
use super::scratch::{reserve, zeros};
use super::storage::{Elements, ElementsMut, Values};
use super::{Scheduled, integers, recurrence, user_code};
use rewire_graph::op::custom::{Data, DataMut, Definition, View as OperandView, ViewMut};
use rewire_graph::op::{IntegerProduct, QuantizedProduct, Recurrence};
use rewire_graph::{DType, Scalar};
use rewire_graph_rewrite::plan::Custom;
use std::borrow::Cow;
use std::sync::Arc;

/// A custom operator with its CPU implementation.
#[derive(Clone, Debug)]
pub(super) struct CompiledCustom {
    kernel: Custom,
    definition: Arc<dyn Definition>,
}

/// Unpadded elements, in a type that the operator accepts.
enum Dense<'a> {
    F32(Cow<'a, [f32]>),
    I32(Cow<'a, [i32]>),
    I64(Cow<'a, [i64]>),
}

impl CompiledCustom {
    pub(super) fn new(kernel: &Custom) -> Result<Self, CpuError> {
        let operator = &kernel.operator;
        let bound = operator.definition().filter(|definition| definition.kernels().is_some());
        let definition = bound.cloned().ok_or_else(|| CpuError::Unsupported {
            kernel: "custom",
            reason: format!("`{}` has no CPU form: bind the plan to a registry that has it", operator.name()),
        })?;
        Ok(Self { kernel: kernel.clone(), definition })
    }

    fn operand<'e>(&self, env: &'e Env<'_>, place: usize) -> Result<&'e View<'e>, CpuError> {
        let view = self.kernel.operands.get(place).and_then(|&position| env.views.get(usize::from(position)));
        view.ok_or(CpuError::Count { what: "operands", expected: place + 1, actual: env.views.len() })
    }

    /// Multiplies `left` by the last operand, a matrix of bytes. A matrix with known content is packed once.
    fn integer_product(
        &self,
        env: &Env<'_>,
        left: Left<'_>,
        shape: &[usize],
        output: &mut Memory,
    ) -> Result<(), CpuError> {
        let right = self.operand(env, self.kernel.operands.len() - 1)?;
        let (Some(&depth), Some(&columns)) = (self.operand(env, 0)?.shape.last(), shape.last()) else {
            return Err(CpuError::Count { what: "axes", expected: 2, actual: shape.len() });
        };
        let prepare = || integers::factor(&integers_of(right)?, depth, columns);
        let factor = match right.content {
            Some(content) => env.kept.columns.get(&[content], prepare)?,
            None => prepare()?,
        };
        let pitch = output.strides().first().copied().unwrap_or(columns);
        match output.elements_mut()? {
            ElementsMut::I32(out) => factor.multiply(left, out, pitch),
            _ => Err(no_integers()),
        }
    }

    /// Computes the states of a recurrent layer, as f32.
    fn recurrence(&self, env: &Env<'_>, op: &Recurrence, shape: &[usize], output: &mut Memory) -> Result<(), CpuError> {
        let views = [0, 1, 2, 3].map(|place| self.operand(env, place));
        let [x, weight, bias, start] = views.map(|view| floats_of(view?));
        let (x, weight, bias, start) = (x?, weight?, bias?, start?);
        let operands = recurrence::Operands { x: &x, weight: &weight, bias: &bias, start: &start };
        let (&[steps, batch, columns], (ElementsMut::F32(out), [_, &[_, pitch, _]])) = (shape, output.parts_mut()?)
        else {
            return Err(CpuError::Unsupported { kernel: Recurrence::NAME, reason: "its result is F32".to_owned() });
        };
        let extents = recurrence::Extents { steps, batch, width: columns / op.cell.states() };
        recurrence::run(op, env, self.operand(env, 1)?, &operands, extents, (out, pitch))
    }

    fn compute(&self, operands: &[OperandView<'_>], shape: &[usize], output: &mut Memory) -> Result<(), CpuError> {
        let count = shape.iter().product();
        let run = |data: DataMut<'_>| match self.definition.kernels() {
            Some(forms) => {
                let name = self.kernel.operator.name();
                user_code::call(name, || forms.compute(operands, &mut ViewMut { shape, data }))
                    .map_err(|reason| CpuError::Custom { name: name.to_owned(), reason })
            }
            None => Ok(()),
        };
        match self.kernel.dtype.scalar() {
            Scalar::F32 => {
                let mut values: Vec<f32> = zeros(count)?;
                run(DataMut::F32(&mut values))?;
                output.store(Values::F32(&values))
            }
            Scalar::I32 | Scalar::Bool => {
                let mut values: Vec<i32> = zeros(count)?;
                run(DataMut::I32(&mut values))?;
                output.store(Values::I32(&values))
            }
            Scalar::I64 => {
                let mut values: Vec<i64> = zeros(count)?;
                run(DataMut::I64(&mut values))?;
                output.store(Values::I64(&values))
            }
        }
    }
}

impl Scheduled for CompiledCustom {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        let shape = env.extents(&self.kernel.shape, "a result")?;
        let [output] = outputs else {
            return Err(CpuError::Count { what: "outputs", expected: 1, actual: outputs.len() });
        };
        if self.definition.downcast_ref::<IntegerProduct>().is_some() {
            let left = integers_of(self.operand(env, 0)?)?;
            return self.integer_product(env, Left::Bytes(&left), &shape, output);
        }
        if self.definition.downcast_ref::<QuantizedProduct>().is_some() {
            let [elements, scale, zero] = [0, 1, 2].map(|place| floats_of(self.operand(env, place)?));
            let (elements, scale, zero) = (elements?, first(&scale?)?, first(&zero?)?);
            return self.integer_product(env, Left::Floats { elements: &elements, scale, zero }, &shape, output);
        }
        if let Some(op) = self.definition.downcast_ref::<Recurrence>().filter(|_| output.dtype() == DType::F32) {
            return self.recurrence(env, op, &shape, output);
        }
        let mut views = Vec::with_capacity(self.kernel.operands.len());
        for place in 0..self.kernel.operands.len() {
            let view = self.operand(env, place)?;
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
}

fn dense<'a>(view: &'a View<'a>) -> Result<Dense<'a>, CpuError> {
    Ok(match view.elements {
        Elements::F32(elements) => Dense::F32(rows(elements, view)?),
        Elements::I64(elements) => Dense::I64(rows(elements, view)?),
        Elements::I32(elements) => Dense::I32(rows(elements, view)?),
        Elements::Bool(_) => Dense::I32(Cow::Owned(converted(view, |start, out| view.elements.ints(start, out))?)),
        Elements::HalfFormat(..) | Elements::I8(_) | Elements::Rows(_) => {
            Dense::F32(Cow::Owned(converted(view, |start, out| view.elements.floats(start, out))?))
        }
    })
}

fn integers_of<'a>(view: &'a View<'a>) -> Result<Cow<'a, [i32]>, CpuError> {
    match dense(view)? {
        Dense::I32(values) => Ok(values),
        _ => Err(no_integers()),
    }
}

fn floats_of<'a>(view: &'a View<'a>) -> Result<Cow<'a, [f32]>, CpuError> {
    match dense(view)? {
        Dense::F32(values) => Ok(values),
        _ => Err(CpuError::Unsupported { kernel: "custom", reason: "it accepts floats".to_owned() }),
    }
}

/// The element of a scalar tensor.
fn first(scalar: &[f32]) -> Result<f32, CpuError> {
    scalar.first().copied().ok_or(CpuError::Count { what: "elements of a scalar", expected: 1, actual: 0 })
}

fn no_integers() -> CpuError {
    CpuError::Unsupported { kernel: IntegerProduct::NAME, reason: "it accepts and returns I32".to_owned() }
}

/// Number of rows, elements per row, and row stride in elements.
fn layout(view: &View<'_>) -> (usize, usize, usize) {
    let (width, outer) = view.shape.split_last().map_or((1, &[][..]), |(&width, outer)| (width, outer));
    let pitch = outer.len().checked_sub(1).and_then(|axis| view.strides.get(axis)).copied().unwrap_or(width);
    (outer.iter().product(), width, pitch)
}

/// The elements without row padding.
fn rows<'a, T: Copy>(elements: &'a [T], view: &View<'_>) -> Result<Cow<'a, [T]>, CpuError> {
    let (count, width, pitch) = layout(view);
    if elements.len() == count * width {
        return Ok(Cow::Borrowed(elements));
    }
    let mut dense = vec![];
    reserve(&mut dense, count * width)?;
    dense.extend(elements.chunks(pitch.max(1)).take(count).flat_map(|row| row.iter().take(width)));
    Ok(Cow::Owned(dense))
}

/// The unpadded elements in their arithmetic type. `row` copies a row.
fn converted<T: Copy + Default>(view: &View<'_>, row: impl Fn(usize, &mut [T])) -> Result<Vec<T>, CpuError> {
    let (count, width, pitch) = layout(view);
    let mut values: Vec<T> = zeros(count * width)?;
    values.chunks_mut(width.max(1)).enumerate().for_each(|(n, out)| row(n * pitch, out));
    Ok(values)
}
