use rewire_graph::{DType, HostTensor};
use std::collections::{BTreeMap, BTreeSet};

/// A tensor in a buffer of the session's device.
///
/// Elements lie row major with the last dimension padded to a multiple of four; a scalar is one such row.
/// A buffer that serves as an input needs `STORAGE` usage.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceTensor {
    /// The memory.
    pub buffer: wgpu::Buffer,
    /// Element type.
    pub dtype: DType,
    /// Logical shape.
    pub shape: Vec<usize>,
}

/// A tensor on the host or on the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// On the host.
    Host(HostTensor),
    /// On the session's device.
    Device(DeviceTensor),
}

impl Value {
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

/// What a run reads, by name. Names that the plan does not know are ignored.
///
/// ```
/// use rewire_graph::HostTensor;
/// use rewire_runtime::Inputs;
/// let inputs = Inputs::new().with("lengths", HostTensor::lengths(&[3, 0, 5]));
/// assert!(inputs.get("lengths").is_some());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    values: BTreeMap<String, Value>,
    on_device: BTreeSet<String>,
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
        self.values.insert(name.into(), Value::Host(tensor));
    }

    /// Adds a tensor that is on the session's device already.
    pub fn insert_device(&mut self, name: impl Into<String>, tensor: DeviceTensor) {
        self.values.insert(name.into(), Value::Device(tensor));
    }

    /// Leaves an output on the device, in a buffer of its own.
    pub fn keep_on_device(&mut self, output: impl Into<String>) {
        self.on_device.insert(output.into());
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
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

/// What a run computed, in the order of the plan's outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    values: Vec<(String, Value)>,
}

impl Outputs {
    pub(crate) fn new(values: Vec<(String, Value)>) -> Self {
        Self { values }
    }

    /// The host tensor of a name; `None` if there is no such output or it stays on the device.
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        match self.value(name)? {
            Value::Host(tensor) => Some(tensor),
            Value::Device(_) => None,
        }
    }

    /// The value of a name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}
