use super::Shapes;
use crate::RunError;
use crate::memory::Lease;
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A tensor in a buffer of the session's device.
///
/// Elements are row major; the last dimension is padded to a multiple of four. A scalar is one such row.
///
/// The result of a run is memory of its session. Later runs do not write it while the tensor or a clone of it exists;
/// afterwards they reuse it for their own results.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceTensor {
    memory: Arc<Lease>,
    /// Element type.
    pub dtype: DType,
    /// Logical shape.
    pub shape: Vec<usize>,
}

impl DeviceTensor {
    /// A tensor in the app's own buffer. Inputs of a run require `STORAGE` usage.
    pub fn new(buffer: wgpu::Buffer, dtype: DType, shape: Vec<usize>) -> Self {
        Self::leased(Lease::foreign(buffer), dtype, shape)
    }

    pub(crate) fn leased(memory: Lease, dtype: DType, shape: Vec<usize>) -> Self {
        Self { memory: Arc::new(memory), dtype, shape }
    }

    /// The buffer. It can be larger than the tensor.
    pub fn buffer(&self) -> &wgpu::Buffer {
        self.memory.buffer()
    }

    pub(crate) fn memory(&self) -> &Lease {
        &self.memory
    }
}

/// A tensor on the host or on the device.
#[derive(Clone, Debug, PartialEq)]
pub enum RunValue {
    /// On the host.
    Host(HostTensor),
    /// On the session's device.
    Device(DeviceTensor),
}

impl RunValue {
    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Host(tensor) => tensor.dtype(),
            Self::Device(tensor) => tensor.dtype,
        }
    }

    /// Logical shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Host(tensor) => tensor.shape(),
            Self::Device(tensor) => &tensor.shape,
        }
    }
}

/// The inputs of a run, by name. Names that the plan does not have are ignored.
///
/// ```
/// use rewire_graph::HostTensor;
/// use rewire_runtime::Inputs;
/// let inputs = Inputs::new().with("lengths", HostTensor::lengths(&[3, 0, 5]));
/// assert!(inputs.get("lengths").is_some());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    values: BTreeMap<String, RunValue>,
    on_device: BTreeSet<String>,
    sent: BTreeSet<String>,
    /// The shapes of states.
    states: Shapes,
}

impl Inputs {
    /// No inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host tensor.
    pub fn with(mut self, name: impl Into<String>, tensor: HostTensor) -> Self {
        self.insert(name, tensor);
        self
    }

    /// Adds a host tensor.
    pub fn insert(&mut self, name: impl Into<String>, tensor: HostTensor) {
        self.values.insert(name.into(), RunValue::Host(tensor));
    }

    /// Adds a tensor that is already on the session's device.
    pub fn insert_device(&mut self, name: impl Into<String>, tensor: DeviceTensor) {
        self.values.insert(name.into(), RunValue::Device(tensor));
    }

    /// Keeps an output on the device, in memory that no later run writes while the tensor exists.
    pub fn keep_on_device(&mut self, output: impl Into<String>) {
        self.on_device.insert(output.into());
    }

    /// Keeps an output on the device, and copies it to the host as soon as the device has computed it, while the run
    /// continues: [`Session::read_each`](crate::Session::read_each) returns it.
    pub fn send(&mut self, output: impl Into<String>) {
        let output = output.into();
        self.sent.insert(output.clone());
        self.on_device.insert(output);
    }

    /// The value with a name.
    pub fn get(&self, name: &str) -> Option<&RunValue> {
        self.values.get(name)
    }

    /// The names that have values, in ascending order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// True if all of them still exist after the loss of a device.
    pub(crate) fn outlive_a_device(&self) -> bool {
        self.values.values().all(|value| matches!(value, RunValue::Host(_)))
    }

    /// Records the shape of a state in the run.
    pub(crate) fn hold(&mut self, state: &str, shape: &[usize]) {
        self.states.insert(state.to_owned(), shape.to_vec());
    }

    /// The shapes of states.
    pub(crate) fn states(&self) -> &Shapes {
        &self.states
    }

    /// Outputs that stay on the device.
    pub(crate) fn on_device(&self) -> &BTreeSet<String> {
        &self.on_device
    }
}

impl<N: Into<String>> FromIterator<(N, HostTensor)> for Inputs {
    fn from_iter<I: IntoIterator<Item = (N, HostTensor)>>(pairs: I) -> Self {
        pairs.into_iter().fold(Self::new(), |inputs, (name, tensor)| inputs.with(name, tensor))
    }
}

impl<N: Into<String>> Extend<(N, RunValue)> for Inputs {
    fn extend<I: IntoIterator<Item = (N, RunValue)>>(&mut self, values: I) {
        self.values.extend(values.into_iter().map(|(name, value)| (name.into(), value)));
    }
}

/// The results of a run, in the order of the plan's outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    values: Vec<(String, RunValue)>,
}

impl Outputs {
    pub(crate) fn new(values: Vec<(String, RunValue)>) -> Self {
        Self { values }
    }

    /// The host tensor with a name; `None` if the output does not exist or stays on the device.
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        match self.value(name)? {
            RunValue::Host(tensor) => Some(tensor),
            RunValue::Device(_) => None,
        }
    }

    /// The value with a name.
    pub fn value(&self, name: &str) -> Option<&RunValue> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Removes and returns the value with a name.
    pub(crate) fn take(&mut self, name: &str) -> Option<RunValue> {
        let position = self.values.iter().position(|(known, _)| known == name)?;
        Some(self.values.remove(position).1)
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RunValue)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl IntoIterator for Outputs {
    type Item = (String, RunValue);
    type IntoIter = std::vec::IntoIter<(String, RunValue)>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}

/// Tensors that are results of a run, by index. If a tensor is an output twice, it can be in both maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    pub on_device: Vec<BufferId>,
    pub on_host: Vec<BufferId>,
    /// Outputs on the device that are also copied to the host.
    pub sent: Vec<(String, BufferId)>,
}

impl Wanted {
    /// The indices of the results that the inputs of a run request; fails if they name an output that does not exist.
    pub fn new(plan: &Plan, inputs: &Inputs) -> Result<Self, RunError> {
        for name in &inputs.on_device {
            match plan.outputs.iter().find(|output| output.name == *name).map(|output| output.value) {
                Some(Binding::Buffer(_)) => {}
                Some(Binding::Host(_)) => {
                    return Err(RunError::InputPlace {
                        name: name.clone(),
                        reason: "it is computed on the host".into(),
                    });
                }
                None => {
                    let known = plan.outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>().join(", ");
                    return Err(RunError::UnknownName { name: name.clone(), known });
                }
            }
        }
        let mut wanted = Self::default();
        for output in &plan.outputs {
            let Binding::Buffer(id) = output.value else { continue };
            let place = match inputs.on_device.contains(&output.name) {
                true => &mut wanted.on_device,
                false => &mut wanted.on_host,
            };
            place.push(id);
            if inputs.sent.contains(&output.name) {
                wanted.sent.push((output.name.clone(), id));
            }
        }
        Ok(wanted)
    }
}
