use super::{Outputs, ReplayError};
use rewire_graph::op::Dropout;
use rewire_graph::{DType, Dim, Graph, Ragged, Scope, Tensor};
use rewire_hstu::modules::Mode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A case during tracing.
pub(super) struct CaseTracer<'a> {
    pub scope: Scope,
    op: &'a str,
    attrs: Value,
    tensors: &'a BTreeMap<String, (DType, Vec<usize>)>,
    /// For each number of samples, the symbolic size that represents it.
    samples: RefCell<BTreeMap<usize, Dim>>,
}

impl<'a> CaseTracer<'a> {
    pub fn new(op: &'a str, attrs: &'a Value, tensors: &'a BTreeMap<String, (DType, Vec<usize>)>) -> Self {
        let given = tensors.iter().filter(|(name, _)| name.starts_with("in.") || name.starts_with("param."));
        let narrow = given.map(|(_, (dtype, _))| *dtype).find(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        let learns = attrs.get("mode").and_then(Value::as_str) == Some("train")
            || attrs.get("training").and_then(Value::as_bool) == Some(true);
        let mode = if learns { Mode::Train } else { Mode::Eval };
        let scope = Scope::new().without_places().with_weights(narrow.unwrap_or(DType::F32)).with_mode(mode);
        Self { scope, op, attrs: without_nulls(attrs), tensors, samples: RefCell::default() }
    }

    pub fn finish(self, outputs: Outputs) -> Result<Graph, ReplayError> {
        let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
        let graph = self.scope.clone().finish(&named)?;
        let draws = |id| graph.op::<Dropout>(id).is_some();
        if graph.ids().any(draws) { Err(self.unsupported_dropout()) } else { Ok(graph) }
    }

    /// The attributes of a functional operator. Unknown ones are ignored.
    pub fn attributes<T: DeserializeOwned>(&self) -> Result<T, ReplayError> {
        Ok(T::deserialize(&self.attrs)?)
    }

    /// The constructor arguments of a module.
    pub fn init<T: DeserializeOwned>(&self) -> Result<T, ReplayError> {
        Ok(T::deserialize(self.part("init"))?)
    }

    /// The call arguments of a module, without tensors.
    pub fn call<T: DeserializeOwned>(&self) -> Result<T, ReplayError> {
        Ok(T::deserialize(self.part("call"))?)
    }

    pub fn part(&self, key: &str) -> &Value {
        self.attrs.get(key).unwrap_or(&Value::Null)
    }

    /// The error for active dropout: cases do not store its random numbers.
    pub fn unsupported_dropout(&self) -> ReplayError {
        ReplayError::Unsupported { op: format!("{} with dropout", self.op) }
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(&format!("in.{name}"))
    }

    fn entry(&self, name: &str) -> Result<(DType, &'a [usize]), ReplayError> {
        let stored = format!("in.{name}");
        match self.tensors.get(&stored) {
            Some((dtype, shape)) => Ok((*dtype, shape)),
            None => Err(ReplayError::Missing { name: stored }),
        }
    }

    pub fn extent(&self, name: &str, axis: usize) -> Result<usize, ReplayError> {
        let (_, shape) = self.entry(name)?;
        shape.get(axis).copied().ok_or_else(|| self.wrong_shape(name, format!("of more than {axis} dimensions")))
    }

    pub fn rank(&self, name: &str) -> Result<usize, ReplayError> {
        Ok(self.entry(name)?.1.len())
    }

    pub fn wrong_shape(&self, name: &str, expected: String) -> ReplayError {
        let actual = self.entry(name).map(|(_, shape)| shape.to_vec()).unwrap_or_default();
        ReplayError::Shape { name: format!("in.{name}"), expected, actual }
    }

    /// An input with the leading extents `leading`; its other extents are constant.
    pub fn input(&self, name: &str, leading: &[Dim]) -> Result<Tensor, ReplayError> {
        let (dtype, shape) = self.entry(name)?;
        if shape.len() < leading.len() {
            return Err(self.wrong_shape(name, format!("of at least {} dimensions", leading.len())));
        }
        let constants = shape.iter().skip(leading.len()).map(|&extent| extent.into());
        let dims: Vec<Dim> = leading.iter().cloned().chain(constants).collect();
        Ok(self.scope.input(name, dtype, &dims))
    }

    /// An input `[rows]` or `[rows, 1]`, reshaped to `[rows]`.
    pub fn column(&self, name: &str, rows: &Dim) -> Result<Tensor, ReplayError> {
        let rows = std::slice::from_ref(rows);
        Ok(self.input(name, rows)?.reshape(rows))
    }

    pub fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, ReplayError>,
    ) -> Result<Option<T>, ReplayError> {
        if self.has(name) { read(name).map(Some) } else { Ok(None) }
    }

    /// Ragged rows from the offsets `[B + 1]` of an input.
    pub fn offsets(&self, name: &str) -> Result<Ragged, ReplayError> {
        let Some(samples) = self.extent(name, 0)?.checked_sub(1) else {
            return Err(self.wrong_shape(name, "of at least one entry".to_owned()));
        };
        let one = Dim::from(1);
        let batch = self.batch(samples, || self.scope.size(&format!("{name} entries")) - one.clone());
        Ok(Ragged::from_offsets(&self.scope.host_input(name, &[batch + one])))
    }

    /// Ragged rows from the lengths `[B]` of an input.
    pub fn lengths(&self, name: &str) -> Result<Ragged, ReplayError> {
        let samples = self.extent(name, 0)?;
        let batch = self.batch(samples, || self.scope.size("samples"));
        Ok(self.scope.lengths(name, &batch))
    }

    /// An input with one number per sample, `[B]`.
    pub fn counts(&self, name: &str, rows: &Ragged) -> Result<Tensor, ReplayError> {
        self.extent(name, 0)?;
        Ok(self.scope.counts(name, &rows.batch))
    }

    pub fn num_targets(&self, rows: &Ragged) -> Result<Option<Tensor>, ReplayError> {
        self.optional("num_targets", |name| self.counts(name, rows))
    }

    fn batch(&self, samples: usize, new: impl FnOnce() -> Dim) -> Dim {
        self.samples.borrow_mut().entry(samples).or_insert_with(new).clone()
    }
}

/// Removes attributes that are null, which means absent.
fn without_nulls(attrs: &Value) -> Value {
    match attrs {
        Value::Object(entries) => {
            let given = entries.iter().filter(|(_, value)| !value.is_null());
            Value::Object(given.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(entries) => Value::Array(entries.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// A single output.
pub(super) fn out(tensor: Tensor) -> Outputs {
    vec![("out".to_owned(), tensor)]
}

/// A length; `None` if it is negative.
pub(super) fn length(value: i64) -> Option<usize> {
    usize::try_from(value).ok()
}
