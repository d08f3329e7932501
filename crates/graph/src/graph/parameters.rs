use super::Graph;
use crate::op::Parameter;
use crate::{Arrange, DType};

/// A parameter of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// The state-dict name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

impl Graph {
    /// The parameters with constant shapes, in order of their names.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let [b, a] = ["b", "a"].map(|name| scope.parameter(name, DType::F32, [3]));
    /// let graph = scope.finish(&[("y", b + a)])?;
    /// assert_eq!(graph.parameters().iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    /// # Ok::<(), rewire_graph::GraphError>(())
    /// ```
    pub fn parameters(&self) -> Vec<ParameterSpec> {
        let mut specs: Vec<ParameterSpec> = self
            .ids()
            .filter_map(|id| {
                let parameter = self.op::<Parameter>(id)?;
                let shape = parameter.ty.shape.iter().map(|dim| dim.as_const()).collect::<Option<_>>()?;
                Some(ParameterSpec { name: parameter.name.clone(), dtype: parameter.ty.dtype, shape })
            })
            .collect();
        specs.arrange_by(|a, b| a.name.cmp(&b.name));
        specs
    }
}
