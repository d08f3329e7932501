use crate::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A user-defined function of floats, with a WGSL form and a CPU form.
///
/// Applied by [`crate::op::Call`], it is a node of the pointwise DAG like built-in functions, so it fuses into the
/// prologue or epilogue of any kernel.
///
/// ```
/// use rewire_graph::op::Call;
/// use rewire_graph::pointwise::ScalarFunction;
/// use rewire_graph::{DType, HostTensor, Scope, interpret};
/// use serde_json::{Value, json};
/// use std::collections::HashMap;
///
/// #[derive(Debug)]
/// struct Softsign {
///     scale: f32,
/// }
///
/// impl ScalarFunction for Softsign {
///     fn name(&self) -> &str {
///         "softsign"
///     }
///
///     fn attributes(&self) -> Value {
///         json!({ "scale": self.scale })
///     }
///
///     fn arguments(&self) -> usize {
///         1
///     }
///
///     fn wgsl(&self) -> String {
///         format!("fn softsign(x: f32) -> f32 {{ return x / ({:?}f + abs(x)); }}", self.scale)
///     }
///
///     fn evaluate(&self, x: &[f32]) -> f32 {
///         x[0] / (self.scale + x[0].abs())
///     }
/// }
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[2.into()]);
/// let y = scope.apply(Call::new(Softsign { scale: 2.0 }), &[&x]);
/// let graph = scope.finish(&[("y", y)])?;
/// let inputs = HashMap::from([("x".to_owned(), HostTensor::f32(vec![2], &[2.0, -6.0])?)]);
/// assert_eq!(interpret(&graph, &inputs, &HashMap::new())?["y"].to_f64(), [0.5, -0.75]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ScalarFunction: Debug + Send + Sync + 'static {
    /// The name, which is also that of the function in the WGSL.
    fn name(&self) -> &str;

    /// All attributes in canonical form. Name and attributes identify the function, and [`crate::op::Registry`]
    /// restores it from them.
    fn attributes(&self) -> Value {
        Value::Null
    }

    /// Number of arguments, 1 to [`crate::limits::MAX_ARGUMENTS`].
    fn arguments(&self) -> usize;

    /// WGSL declarations of the function, which accepts and returns `f32`, and of all functions, structures and
    /// constants that it uses.
    fn wgsl(&self) -> String;

    /// The function for finite arguments, of which there are [`ScalarFunction::arguments`].
    fn evaluate(&self, arguments: &[f32]) -> f32;

    /// The gradients of the arguments, given the result and its gradient, all elementwise and broadcast to each other;
    /// `None` for an argument without one. Returns `None` for a function without a derivative.
    fn gradient(&self, _arguments: &[Tensor], _result: &Tensor, _gradient: &Tensor) -> Option<Vec<Option<Tensor>>> {
        None
    }

    /// The function at several points: each slice in `arguments` is as long as `out`.
    fn evaluate_lanes(&self, arguments: &[&[f32]], out: &mut [f32]) {
        let mut point = vec![0.0; arguments.len()];
        for (n, out) in out.iter_mut().enumerate() {
            for (value, lanes) in point.iter_mut().zip(arguments) {
                *value = lanes.get(n).copied().unwrap_or_default();
            }
            *out = self.evaluate(&point);
        }
    }
}

/// A [`ScalarFunction`] as part of expressions. Its name, attributes and WGSL are stored with a plan; its CPU form is
/// not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Function {
    name: String,
    attributes: Value,
    arguments: usize,
    wgsl: String,
    #[serde(skip)]
    definition: Option<Arc<dyn ScalarFunction>>,
}

impl Function {
    /// A function with its CPU form.
    pub fn new(definition: Arc<dyn ScalarFunction>) -> Self {
        Self {
            name: definition.name().to_owned(),
            attributes: definition.attributes(),
            arguments: definition.arguments(),
            wgsl: definition.wgsl(),
            definition: Some(definition),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All attributes.
    pub fn attributes(&self) -> &Value {
        &self.attributes
    }

    /// Number of arguments.
    pub fn arguments(&self) -> usize {
        self.arguments
    }

    /// Declarations in WGSL.
    pub fn wgsl(&self) -> &str {
        &self.wgsl
    }

    /// The CPU form; `None` in a plan read from a file, until [`crate::op::Registry`] restores it.
    pub fn definition(&self) -> Option<&Arc<dyn ScalarFunction>> {
        self.definition.as_ref()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.arguments, &self.wgsl, &self.attributes)
            == (&other.name, other.arguments, &other.wgsl, &other.attributes)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.arguments, &self.wgsl).hash(state);
    }
}
