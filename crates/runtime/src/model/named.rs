use crate::RunError;
use rewire_graph::{HostTensor, TensorSizeError};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// The source of a model's parameters, by name: a map, pairs, `()` for none, the weights of a file, or a function.
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
    /// The parameter with a name; `None` if it does not exist.
    ///
    /// # Errors
    /// [`TensorSizeError::Memory`] if memory for it cannot be allocated.
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError>;

    /// The parameter with its last two dimensions swapped, for plans that store it by column
    /// ([`rewire_graph_rewrite::plan::Plan::by_column`]). A source that stores it by column returns it unchanged.
    ///
    /// # Errors
    /// As [`Parameters::parameter`].
    fn columns(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        self.parameter(name)?.map(HostTensor::transposed).transpose()
    }

    /// The owners of the tensors' memory, if it is not their own: mapped files.
    fn backing(&self) -> Vec<Arc<dyn Backing>> {
        vec![]
    }
}

/// Memory that backs parameters, such as a mapped file.
pub trait Backing: fmt::Debug + Send + Sync {
    /// Checks before a run that the memory is unchanged.
    ///
    /// # Errors
    /// [`RunError::FileChanged`].
    fn check(&self) -> Result<(), RunError>;

    /// Prepares for reads of single rows of a part of the memory. Ignored for memory of others.
    fn read_by_rows(&self, _part: &[u8]) {}

    /// Starts to read a part of the memory, without waiting for it. Ignored for memory of others.
    fn read_ahead(&self, _part: &[u8]) {}
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
