use super::io::{Inputs, Value};
use super::validate::ragged;
use crate::RunError;
use crate::memory::Layout;
use rewire_graph::limits::MAX_POINTS;
use rewire_graph::pointwise::Expr;
use rewire_graph::{DType, Dim, HostTensor};
use rewire_graph_rewrite::plan::{Binding, HostSlot, Plan, ShapeValues, Source, Step};
use std::collections::BTreeSet;

/// The sizes of a run: what the shape program computed, and the layout of every tensor.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub values: ShapeValues,
    /// By buffer.
    pub layouts: Vec<Layout>,
    /// By declared input, what the sizes follow from.
    sources: Vec<Given>,
}

/// What of an input takes part in sizes.
#[derive(Clone, Debug)]
struct Given {
    shape: Vec<usize>,
    /// The values of one that the shape program reads.
    host: Option<HostTensor>,
}

/// An input as the plan declares it. `dtype` is `None` for integers that the shape program reads.
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

    /// The values of all inputs, in order, of the declared types and numbers of dimensions.
    pub fn find<'a>(declared: &[Self], inputs: &'a Inputs) -> Result<Vec<&'a Value>, RunError> {
        let checked = |input: &Self| {
            let value = find(input, inputs)?;
            check_kind(input, value)?;
            Ok(value)
        };
        declared.iter().map(checked).collect()
    }
}

impl Sizes {
    /// Tensors that depend on no input.
    pub fn fixed(layouts: Vec<Layout>) -> Self {
        Self { values: ShapeValues::default(), layouts, sources: Vec::new() }
    }

    /// Checks the inputs of a run and computes its sizes. `given` has a value for each of `declared`; `offsets` are the
    /// host vectors that cut rows into samples.
    pub fn new(
        plan: &Plan,
        offsets: &BTreeSet<HostSlot>,
        declared: &[Declared],
        given: &[&Value],
    ) -> Result<Self, RunError> {
        let inputs = || declared.iter().zip(given);
        let host = inputs().filter_map(|(input, value)| match (input.slot, value) {
            (Some(slot), Value::Host(tensor)) => Some((slot, tensor.to_i64())),
            _ => None,
        });
        let extent = |name: &str, axis: usize| {
            let (_, value) = inputs().find(|(input, _)| input.name == name)?;
            value.shape().get(axis).copied()
        };
        let values = plan.shapes.run(host, extent)?;
        for (input, value) in inputs() {
            check_shape(input, value, &values)?;
        }
        for &slot in offsets {
            check_offsets(slot, slot_of(&values, slot))?;
        }
        for step in &plan.steps {
            check_points(step, &values)?;
        }
        let layouts = plan.buffers.iter().map(|buffer| {
            let shape = evaluate(&buffer.shape, &values).ok_or_else(|| RunError::Size {
                what: format!("a {} tensor", buffer.dtype),
                size: display(&buffer.shape),
            })?;
            Ok(Layout::new(buffer.dtype, shape))
        });
        let layouts = layouts.collect::<Result<_, RunError>>()?;
        let sources = inputs().map(|(input, value)| Given {
            shape: value.shape().to_vec(),
            host: match value {
                Value::Host(tensor) if input.slot.is_some() => Some(tensor.clone()),
                _ => None,
            },
        });
        Ok(Self { sources: sources.collect(), layouts, values })
    }

    /// True if they are also the sizes of a run with these inputs.
    pub fn fit(&self, given: &[&Value]) -> bool {
        let same = |(source, value): (&Given, &&Value)| match (&source.host, value) {
            (Some(known), Value::Host(tensor)) => known == tensor,
            (Some(_), Value::Device(_)) => false,
            (None, value) => source.shape == value.shape(),
        };
        self.sources.len() == given.len() && self.sources.iter().zip(given).all(same)
    }

    /// The value of a host slot; a scalar has one entry.
    pub fn slot(&self, slot: HostSlot) -> &[i64] {
        slot_of(&self.values, slot)
    }

    /// The value of a size, which a kernel takes as an `i32`.
    pub fn dim(&self, dim: &Dim) -> Result<i32, RunError> {
        dim.evaluate(|symbol| self.values.symbols.get(&symbol).copied())
            .and_then(|value| i32::try_from(value).ok())
            .ok_or_else(|| RunError::Size { what: "a kernel".into(), size: dim.to_string() })
    }
}

/// Host vectors of a plan that kernels use as offsets of samples.
pub(crate) fn offsets(plan: &Plan) -> BTreeSet<HostSlot> {
    let mut slots = BTreeSet::new();
    for step in &plan.steps {
        let dag = &step.kernel.body().dag;
        let samples = dag.ids().filter_map(|id| match dag.expr(id) {
            Expr::Sample { offsets, .. } => Some(*offsets),
            _ => None,
        });
        for position in samples.chain(ragged(&step.kernel)) {
            if let Some(Binding::Host(slot)) = step.reads.get(usize::from(position)) {
                slots.insert(*slot);
            }
        }
    }
    slots
}

fn slot_of(values: &ShapeValues, slot: HostSlot) -> &[i64] {
    values.slots.get(slot.0 as usize).map(Vec::as_slice).unwrap_or_default()
}

fn find<'a>(input: &Declared, inputs: &'a Inputs) -> Result<&'a Value, RunError> {
    inputs.get(&input.name).ok_or_else(|| RunError::MissingInput {
        name: input.name.clone(),
        dtype: input.dtype.unwrap_or(DType::I64),
        shape: display(&input.shape),
    })
}

fn check_kind(input: &Declared, value: &Value) -> Result<(), RunError> {
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
        let (expected, actual) = (display(&input.shape), value.shape().to_vec());
        return Err(RunError::InputShape { name: name(), expected, actual });
    }
    match (value, input.dtype) {
        (Value::Device(_), None) => {
            Err(RunError::InputPlace { name: name(), reason: "sizes depend on it, so it must be a host tensor".into() })
        }
        (Value::Host(tensor), Some(DType::U32)) => check_words(&name(), tensor, i32::MAX as u32),
        (Value::Host(tensor), Some(DType::Bool)) => check_words(&name(), tensor, 1),
        _ => Ok(()),
    }
}

fn check_words(name: &str, tensor: &HostTensor, limit: u32) -> Result<(), RunError> {
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

fn check_shape(input: &Declared, value: &Value, values: &ShapeValues) -> Result<(), RunError> {
    let sizes = input.shape.iter().map(|dim| dim.evaluate(|symbol| values.symbols.get(&symbol).copied()));
    if sizes.eq(value.shape().iter().copied().map(Some)) {
        return Ok(());
    }
    let expected = evaluate(&input.shape, values);
    let declared = display(&input.shape);
    Err(RunError::InputShape {
        name: input.name.clone(),
        expected: expected.map_or(declared.clone(), |shape| match format!("{shape:?}") {
            shape if shape == declared => shape,
            shape => format!("{shape} = {declared}"),
        }),
        actual: value.shape().to_vec(),
    })
}

fn check_offsets(slot: HostSlot, values: &[i64]) -> Result<(), RunError> {
    let wrong = |expected: String, value: i64| {
        let what = format!("offsets of samples (host slot {})", slot.0);
        Err(RunError::HostValue { what, expected, value })
    };
    let mut previous = 0;
    match values.first() {
        Some(0) => {}
        first => return wrong("0 as the first entry".to_owned(), first.copied().unwrap_or(-1)),
    }
    for &value in values {
        if value < previous {
            return wrong(format!("at least {previous}"), value);
        }
        previous = value;
    }
    Ok(())
}

/// Errors where a loop has more points than its indices count.
fn check_points(step: &Step, values: &ShapeValues) -> Result<(), RunError> {
    let points = step.kernel.points(|dim| dim.evaluate(|symbol| values.symbols.get(&symbol).copied()));
    points.map(drop).ok_or_else(|| RunError::Size {
        what: format!("the loop of step {} (`{}`)", step.name, step.path),
        size: format!("of more than {MAX_POINTS} points"),
    })
}

fn evaluate(shape: &[Dim], values: &ShapeValues) -> Option<Vec<usize>> {
    shape.iter().map(|dim| dim.evaluate(|symbol| values.symbols.get(&symbol).copied())).collect()
}

fn display(shape: &[Dim]) -> String {
    let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}
