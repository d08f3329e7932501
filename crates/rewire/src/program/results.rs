use super::Signature;
use rewire_graph::{DType, HostTensor, Ordered};
use rewire_import::{OutputKind, OutputSpec, ScalarType, TypedTensor};
use rewire_runtime::Outputs;
use std::collections::BTreeMap;

/// A result of a program.
#[derive(Clone, Debug)]
pub enum ResultValue {
    /// A tensor.
    Tensor(TypedTensor),
    /// An integer that is not a tensor.
    Integer(i64),
    /// A float that is not a tensor.
    Float(f64),
    /// A bool that is not a tensor.
    Bool(bool),
    /// Nothing.
    None,
}

/// The results of a run, in the order of the program's file.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The outputs. Results without a name in the file are named by position, `output_0`.
    pub outputs: Vec<(String, ResultValue)>,
    /// Buffers and inputs that the run changed.
    pub mutations: Vec<(String, TypedTensor)>,
}

impl Results {
    pub(super) fn new(signature: &Signature, outputs: &Outputs, states: &BTreeMap<String, HostTensor>) -> Self {
        let tensor = |name: &str, ty: ScalarType| {
            let tensor = outputs.get(name).or_else(|| states.get(name))?;
            let tensor = match tensor.dtype() {
                DType::U32 => HostTensor::from_f64(ty.dtype(), tensor.shape().to_vec(), &tensor.to_f64()).ok()?,
                _ => tensor.clone(),
            };
            Some(TypedTensor { ty, tensor })
        };
        let value = |spec: &OutputSpec| match &spec.kind {
            OutputKind::Tensor(name, ty) => tensor(name, *ty).map_or(ResultValue::None, ResultValue::Tensor),
            OutputKind::Size(name) => {
                let size = outputs.get(name).and_then(|size| size.to_i64().first().copied());
                size.map_or(ResultValue::None, ResultValue::Integer)
            }
            OutputKind::Integer(value) => ResultValue::Integer(*value),
            OutputKind::Float(value) => ResultValue::Float(*value),
            OutputKind::Bool(value) => ResultValue::Bool(*value),
            OutputKind::None => ResultValue::None,
        };
        let named = |(place, spec): (usize, &OutputSpec)| {
            let name = if spec.name.is_empty() { format!("output_{place}") } else { spec.name.clone() };
            (name, value(spec))
        };
        let changed = signature.mutations.iter().filter_map(|spec| match &spec.kind {
            OutputKind::Tensor(name, ty) => Some((spec.name.clone(), tensor(name, *ty)?)),
            _ => None,
        });
        let mutations = changed.collect();
        Self { outputs: signature.outputs.iter().enumerate().map(named).collect(), mutations }
    }

    /// All results by name, numbers as tensors without axes. Includes changed tensors, unless a result has the same name.
    pub fn tensors(&self) -> BTreeMap<String, TypedTensor> {
        let number = |ty: ScalarType, value: f64| {
            let tensor = HostTensor::from_f64(ty.dtype(), vec![], &[value]).ok()?;
            Some(TypedTensor { ty, tensor })
        };
        let whole = |value: i64| {
            let tensor = HostTensor::i64(vec![], &[value]).ok()?;
            Some(TypedTensor { ty: ScalarType::of_dtype(DType::I64)?, tensor })
        };
        let mut tensors: BTreeMap<String, TypedTensor> = self.mutations.iter().cloned().ordered_map();
        tensors.extend(self.outputs.iter().filter_map(|(name, value)| {
            let tensor = match value {
                ResultValue::Tensor(tensor) => Some(tensor.clone()),
                ResultValue::Integer(value) => whole(*value),
                ResultValue::Float(value) => number(ScalarType::F32, *value),
                ResultValue::Bool(value) => number(ScalarType::Bool, f64::from(u8::from(*value))),
                ResultValue::None => None,
            };
            Some((name.clone(), tensor?))
        }));
        tensors
    }
}
