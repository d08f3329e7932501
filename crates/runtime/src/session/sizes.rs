use super::io::{Inputs, RunValue};
use crate::RunError;
use crate::memory::Layout;
use rewire_graph::limits::MAX_POINTS;
use rewire_graph::{DType, Dim, HostTensor, Symbol, nearest_names};
use rewire_graph_rewrite::plan::{HostSlot, Plan, ShapeProgram, ShapeValues, Source, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The sizes of a run: results of the shape program, and the layout of every tensor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    pub values: ShapeValues,
    /// By buffer.
    pub layouts: Vec<Layout>,
    /// Names of sizes, by symbol.
    names: Arc<[String]>,
    /// By declared input, the part that determines sizes.
    sources: Vec<SizeSource>,
    /// The shapes of states.
    states: Shapes,
}

/// Shapes by name.
pub(crate) type Shapes = BTreeMap<String, Vec<usize>>;

/// The part of an input that determines sizes.
#[derive(Clone, Debug)]
struct SizeSource {
    shape: Vec<usize>,
    /// The values of an input that the shape program reads.
    host: Option<HostTensor>,
}

/// An input as declared by the plan. `dtype` is `None` for integers that the shape program reads.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    name: String,
    dtype: Option<DType>,
    shape: Vec<Dim>,
    slot: Option<HostSlot>,
}

impl Declared {
    /// The inputs of a plan.
    pub fn of(plan: &Plan) -> Vec<Self> {
        let host = plan.host_inputs.iter().map(|input| Self {
            name: input.name.clone(),
            dtype: None,
            shape: input.shape.clone(),
            slot: Some(input.slot),
        });
        let tensors = plan.buffers.iter().filter_map(|buffer| match &buffer.source {
            Source::Input(name) => {
                let (name, dtype, shape) = (name.clone(), Some(buffer.dtype), buffer.shape.clone());
                Some(Self { name, dtype, shape, slot: None })
            }
            _ => None,
        });
        host.chain(tensors).collect()
    }

    /// The values of all inputs, in order, with the declared types and numbers of dimensions.
    pub fn find<'a>(plan: &Plan, declared: &[Self], inputs: &'a Inputs) -> Result<Vec<&'a RunValue>, RunError> {
        let checked = |input: &Self| {
            let value = inputs.get(&input.name).ok_or_else(|| missing(plan, input, declared, inputs))?;
            check_kind(plan, input, value)?;
            Ok(value)
        };
        declared.iter().map(checked).collect()
    }
}

impl Sizes {
    /// Sizes of tensors that do not depend on inputs.
    pub fn fixed(layouts: Vec<Layout>) -> Self {
        Self { layouts, ..Self::default() }
    }

    /// Checks the inputs of a run and computes its sizes. `bound` has a value for each of `declared`; `names` are the
    /// names of sizes, `states` the shape of each state. The memory of the `latest` sizes is reused.
    pub fn new(
        plan: &Plan,
        (declared, names): (&[Declared], &Arc<[String]>),
        bound: &[&RunValue],
        states: &Shapes,
        latest: Option<Arc<Self>>,
    ) -> Result<Self, RunError> {
        let inputs = || declared.iter().zip(bound);
        let named = |name: &str| inputs().find(|(input, _)| input.name == name).map(|(_, &value)| value);
        let shape = |name: &str| named(name).map(RunValue::shape).or_else(|| states.get(name).map(Vec::as_slice));
        let extent = |name: &str, axis: usize| shape(name)?.get(axis).copied();
        let extents = plan.shapes.extents(extent)?;
        for (input, value) in inputs().filter(|(input, _)| input.slot.is_some()) {
            check_shape(plan, (&input.name, &input.shape), value.shape(), &extents)?;
        }
        let host = plan.host_inputs.iter().filter_map(|input| match named(&input.name)? {
            RunValue::Host(tensor) => Some((input, tensor.to_i64())),
            RunValue::Device(_) => None,
        });
        let values = plan.shapes.run(host, extent)?;
        for (input, value) in inputs() {
            check_shape(plan, (&input.name, &input.shape), value.shape(), &values.symbols)?;
        }
        for (name, buffer) in plan.states() {
            let held = states.get(name).map(Vec::as_slice).unwrap_or_default();
            check_shape(plan, (name, &buffer.shape), held, &values.symbols)?;
            if buffer.shape.iter().zip(held).any(|(dim, &extent)| dim.as_const().is_none() && extent == 0) {
                let expected = plan.shapes.expected(&buffer.shape, &BTreeMap::new());
                let expected = format!("{expected}, of at least one row");
                return Err(RunError::InputShape { name: name.to_owned(), expected, actual: held.to_vec() });
            }
        }
        for step in &plan.steps {
            check_points(step, &values)?;
        }
        let spare = latest.and_then(Arc::into_inner).map(|latest| latest.layouts).unwrap_or_default();
        let spare = spare.into_iter().map(|layout| layout.shape).chain(std::iter::repeat_with(Vec::new));
        let layouts = plan.buffers.iter().zip(spare).map(|(buffer, shape)| {
            let shape = evaluate(&buffer.shape, &values.symbols, shape).ok_or_else(|| RunError::Size {
                what: format!("a {} tensor", buffer.dtype),
                size: display(&plan.shapes, &buffer.shape),
            })?;
            Ok(Layout::new(buffer.dtype, shape))
        });
        let layouts = layouts.collect::<Result<_, RunError>>()?;
        let sources = inputs().map(|(input, value)| SizeSource {
            shape: value.shape().to_vec(),
            host: match value {
                RunValue::Host(tensor) if input.slot.is_some() => Some(tensor.clone()),
                _ => None,
            },
        });
        let (sources, names, states) = (sources.collect(), names.clone(), states.clone());
        Ok(Self { sources, names, states, layouts, values })
    }

    /// True if a run with these inputs and state shapes has the same sizes.
    pub fn fit(&self, bound: &[&RunValue], states: &Shapes) -> bool {
        let same = |(source, value): (&SizeSource, &&RunValue)| match (&source.host, value) {
            (Some(known), RunValue::Host(tensor)) => known == tensor,
            (Some(_), RunValue::Device(_)) => false,
            (None, value) => source.shape == value.shape(),
        };
        self.states == *states && self.sources.len() == bound.len() && self.sources.iter().zip(bound).all(same)
    }

    /// The value of a host slot; a scalar has one entry.
    pub fn slot(&self, slot: HostSlot) -> &[i64] {
        slot_of(&self.values, slot)
    }

    /// True if a step writes any elements.
    pub fn has_work(&self, step: &Step) -> bool {
        step.writes.iter().any(|id| self.layouts.get(id.0 as usize).is_none_or(|layout| layout.bytes() > 0))
    }

    /// The value of a size. Kernels store it as an `i32` and count beyond it by up to a tile's width.
    pub fn dim(&self, dim: &Dim) -> Result<i32, RunError> {
        const BEYOND: i32 = 1 << 16;
        dim.evaluate(|symbol| self.values.symbols.get(&symbol).copied())
            .and_then(|value| i32::try_from(value).ok().filter(|&value| value <= i32::MAX - BEYOND))
            .ok_or_else(|| {
                let name = |symbol: Symbol| self.names.get(symbol.0 as usize).map(String::as_str);
                RunError::Size { what: "a kernel".into(), size: dim.display(name) }
            })
    }
}

fn slot_of(values: &ShapeValues, slot: HostSlot) -> &[i64] {
    &values.slots[slot.0 as usize]
}

fn missing(plan: &Plan, input: &Declared, declared: &[Declared], inputs: &Inputs) -> RunError {
    let known = |name: &str| declared.iter().any(|input| input.name == name);
    RunError::MissingInput {
        name: input.name.clone(),
        dtype: input.dtype.unwrap_or(DType::I64),
        shape: display(&plan.shapes, &input.shape),
        unread: nearest_names(&input.name, inputs.names().filter(|name| !known(name)))
            .into_iter()
            .map(str::to_owned)
            .collect(),
    }
}

fn check_kind(plan: &Plan, input: &Declared, value: &RunValue) -> Result<(), RunError> {
    let name = || input.name.clone();
    let fits = match input.dtype {
        Some(dtype) => value.dtype() == dtype,
        None => matches!(value.dtype(), DType::I64 | DType::I32 | DType::U32),
    };
    if !fits {
        let expected = input.dtype.map_or_else(|| "i64".to_owned(), |dtype| dtype.to_string());
        return Err(RunError::InputType { name: name(), expected, actual: value.dtype() });
    }
    if value.shape().len() != input.shape.len() {
        let (expected, actual) = (display(&plan.shapes, &input.shape), value.shape().to_vec());
        return Err(RunError::InputShape { name: name(), expected, actual });
    }
    match (value, input.dtype) {
        (RunValue::Device(_), None) => {
            Err(RunError::InputPlace { name: name(), reason: "sizes depend on it, so it must be a host tensor".into() })
        }
        (RunValue::Host(tensor), Some(DType::U32)) => check_words(&name(), tensor, i32::MAX as u32),
        (RunValue::Host(tensor), Some(DType::Bool)) => check_words(&name(), tensor, 1),
        _ => Ok(()),
    }
}

pub(super) fn check_words(name: &str, tensor: &HostTensor, limit: u32) -> Result<(), RunError> {
    let mut words = tensor.bytes().as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).enumerate();
    match words.find(|(_, word)| *word > limit) {
        Some((element, word)) => Err(RunError::InputValue {
            name: name.to_owned(),
            expected: format!("0 to {limit}"),
            element,
            value: word.into(),
        }),
        None => Ok(()),
    }
}

/// Checks the extents of an input or a state; an extent with unknown symbols passes.
fn check_shape(
    plan: &Plan,
    (name, declared): (&str, &[Dim]),
    actual: &[usize],
    symbols: &BTreeMap<Symbol, i64>,
) -> Result<(), RunError> {
    let known = |dim: &Dim| dim.terms().all(|(symbol, _)| symbols.contains_key(&symbol));
    let fits = |(dim, &extent): (&Dim, &usize)| {
        !known(dim) || dim.evaluate(|symbol| symbols.get(&symbol).copied()) == Some(extent)
    };
    if declared.len() == actual.len() && declared.iter().zip(actual).all(fits) {
        return Ok(());
    }
    let expected = plan.shapes.expected(declared, symbols);
    Err(RunError::InputShape { name: name.to_owned(), expected, actual: actual.to_vec() })
}

/// The extents of a tensor, as kernels count them, in the memory of `extents`; `None` if one is negative or too large.
fn evaluate(shape: &[Dim], symbols: &BTreeMap<Symbol, i64>, mut extents: Vec<usize>) -> Option<Vec<usize>> {
    extents.clear();
    for dim in shape {
        let extent = dim.evaluate(|symbol| symbols.get(&symbol).copied())?;
        extents.push(i32::try_from(extent).is_ok().then_some(extent)?);
    }
    Some(extents)
}

/// Fails if a loop has more points than its index type counts.
fn check_points(step: &Step, values: &ShapeValues) -> Result<(), RunError> {
    let points = step.computation.points(|dim| dim.evaluate(|symbol| values.symbols.get(&symbol).copied()));
    let limit = MAX_POINTS;
    points.map(drop).ok_or_else(|| RunError::Points { step: step.name.clone(), path: step.path.clone(), limit })
}

fn display(program: &ShapeProgram, shape: &[Dim]) -> String {
    let dims: Vec<String> = shape.iter().map(|dim| program.display(dim)).collect();
    format!("[{}]", dims.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_call_sizes_by_their_names() {
        let values =
            ShapeValues { symbols: BTreeMap::from([(Symbol(0), 3), (Symbol(1), 1 << 31)]), ..Default::default() };
        let sizes = Sizes { values, names: ["samples".to_owned(), "rows".to_owned()].into(), ..Sizes::default() };
        let [samples, rows] = [Symbol(0), Symbol(1)].map(Dim::symbol);
        assert_eq!(sizes.dim(&(samples.clone() * 2)).unwrap(), 6);
        let error = sizes.dim(&(samples + rows * 3)).unwrap_err().to_string();
        assert_eq!(error, "a kernel: the size samples+3*rows is negative or too large");
    }
}
