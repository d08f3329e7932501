use super::pointwise::{broadcast, load_broadcast};
use super::{Elements, Elementwise, Gradient, GradientError, Op};
use crate::limits::MAX_ARGUMENTS;
use crate::pointwise::{ExprId, Function, ScalarFunction};
use crate::{DType, Tensor, Type, TypeError};
use serde_json::Value;
use std::sync::Arc;

/// A user-defined function of floats, applied element by element. Its operands broadcast like in numpy.
///
/// All passes keep it as one operator with the function's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// A `ScalarFunction`.
    function: Arc<Function>,
}

impl Call {
    /// The operator that applies a function.
    pub fn new(function: impl ScalarFunction) -> Self {
        Self { function: Arc::new(Function::new(Arc::new(function))) }
    }

    /// The function.
    pub fn function(&self) -> &Function {
        &self.function
    }
}

impl Op for Call {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn weight(&self) -> usize {
        8
    }

    fn attributes(&self) -> Value {
        self.function.attributes().clone()
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let arguments = self.function.arguments();
        if !(1..=MAX_ARGUMENTS).contains(&arguments) {
            return Err(TypeError::new("arguments", format!("1 to {MAX_ARGUMENTS}"), arguments));
        }
        if inputs.len() != arguments {
            return Err(TypeError::new("operands", format!("{arguments} values"), inputs.len()));
        }
        for (position, ty) in inputs.iter().enumerate() {
            if !ty.dtype.is_float() {
                return Err(TypeError::new(format!("operand {position}"), "of floats", ty));
            }
        }
        let (shape, layout) = broadcast(inputs)?;
        Ok(vec![Type { dtype: DType::F32, shape, layout }])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let gradients = match self.function.definition() {
            Some(function) => function.gradient(at.operands, at.result, at.of),
            None => return Err(GradientError::Unbound),
        };
        let gradients = gradients.ok_or(GradientError::Function)?;
        if gradients.len() != at.operands.len() {
            return Err(GradientError::Count { given: gradients.len(), arguments: at.operands.len() });
        }
        Ok(gradients.into_iter().enumerate().map(|(operand, g)| Some(at.summed(operand, &g?))).collect())
    }
}

impl Elementwise for Call {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let arguments = (0..at.operands()).map(|operand| load_broadcast(at, operand, coords)).collect();
        at.dag().call(&self.function, arguments)
    }
}
