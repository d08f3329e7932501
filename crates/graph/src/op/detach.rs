use super::{Elements, Elementwise, Gradient, GradientError, Op, ViewProps, arity};
use crate::pointwise::ExprId;
use crate::{Layout, Tensor, Type, TypeError};

/// The same values; no gradient passes through them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Detach;

impl Op for Detach {
    fn name(&self) -> &str {
        "detach"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        if x.layout == Layout::Host {
            return Err(TypeError::new("x", "a device tensor or scores", x));
        }
        Ok(vec![x])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: true, is_unique: true })
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn gradient(&self, _: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Ok(vec![None])
    }
}

impl Elementwise for Detach {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        at.load(0, coords)
    }
}
