use crate::RunError;
use rewire_graph::{HostTensor, TensorSizeError};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// What a model takes its parameters from, by name: a map, pairs, `()` for none, the weights of a file, or a function.
///
/// ```
/// use rewire_graph::{DType, HostTensor, Scope};
/// use rewire_graph_rewrite::{lower, optimize};
/// use rewire_runtime::{Kernel, Model, ModelOptions};
/// use std::collections::HashMap;
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, [2, 3]);
/// let weight = scope.parameter("weight", DType::F32, [3, 4]);
/// let plan = lower(&optimize(scope.finish(&[("y", x.matmul(&weight))])?)?.0)?;
/// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
///
/// let weight = HostTensor::f32([3, 4], &[0.5; 12])?;
/// Model::load(plan.clone(), [("weight", weight.clone())], options.clone())?;
/// Model::load(plan.clone(), &HashMap::from([("weight".to_owned(), weight)]), options.clone())?;
/// Model::load(plan, |_: &str| HostTensor::f32([3, 4], &[0.5; 12]).ok(), options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Parameters: Send {
    /// The parameter of a name; `None` if it is not there.
    ///
    /// # Errors
    /// [`TensorSizeError::Memory`] if there is no memory for it.
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError>;

    /// The parameter of a name with its last two dimensions exchanged, for plans that hold it by column
    /// ([`rewire_graph_rewrite::plan::Plan::by_column`]); as it is stored, where that is so.
    ///
    /// # Errors
    /// As [`Parameters::parameter`].
    fn columns(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        self.parameter(name)?.map(HostTensor::transposed).transpose()
    }

    /// What the memory of the tensors rests on, if it is not memory of their own: files that are mapped.
    fn backing(&self) -> Vec<Arc<dyn Backing>> {
        vec![]
    }
}

/// What the memory of parameters rests on.
pub trait Backing: fmt::Debug + Send + Sync {
    /// Checks that the memory is as it was, before a run reads it.
    ///
    /// # Errors
    /// [`RunError::FileChanged`].
    fn check(&self) -> Result<(), RunError>;
}

impl<F: Fn(&str) -> Option<HostTensor> + Send> Parameters for F {
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self(name))
    }
}

impl Parameters for &HashMap<String, HostTensor> {
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self.get(name).cloned())
    }
}

impl Parameters for &BTreeMap<String, HostTensor> {
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self.get(name).cloned())
    }
}

impl<const N: usize> Parameters for [(&str, HostTensor); N] {
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self.iter().find(|(own, _)| *own == name).map(|(_, tensor)| tensor.clone()))
    }
}

impl Parameters for () {
    fn parameter(&self, _: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(None)
    }
}
