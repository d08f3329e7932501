use super::{Elements, Elementwise, Op};
use crate::limits::check_rows;
use crate::pointwise::ExprId;
use crate::{DType, Dim, HostTensor, Number, Scalar, Type, TypeError};
use serde_json::{Value, json};
use std::hash::{Hash, Hasher};

/// A value bound by name for each run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Input {
    /// The name.
    pub name: String,
    /// The type.
    pub ty: Type,
}

/// A value bound by name when a plan is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// The name, a state-dict name.
    pub name: String,
    /// The type.
    pub ty: Type,
}

/// A value that is part of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// The value.
    pub tensor: HostTensor,
}

/// `0, 1, 2, ...`: an `I64[len]` that kernels compute from their coordinates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iota {
    /// The number of entries.
    pub len: Dim,
}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.tensor.bytes());
    }
}

/// The type of a bound value, if its rows can be stored.
fn bound(ty: &Type) -> Result<Vec<Type>, TypeError> {
    let expected = || format!("rows of a multiple of {} elements", ty.dtype.format().multiple);
    check_rows(ty.dtype, &ty.shape).map_err(|_| TypeError::new("the type", expected(), ty))?;
    Ok(vec![ty.clone()])
}

impl Op for Input {
    fn name(&self) -> &str {
        "input"
    }

    fn attributes(&self) -> Value {
        json!({ "name": self.name, "type": self.ty })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        super::arity::<0>(inputs)?;
        bound(&self.ty)
    }
}

impl Op for Parameter {
    fn name(&self) -> &str {
        "parameter"
    }

    fn attributes(&self) -> Value {
        json!({ "name": self.name, "type": self.ty })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        super::arity::<0>(inputs)?;
        bound(&self.ty)
    }
}

impl Op for Constant {
    fn name(&self) -> &str {
        "constant"
    }

    fn weight(&self) -> usize {
        0
    }

    fn attributes(&self) -> Value {
        json!({
            "dtype": self.tensor.dtype(),
            "shape": self.tensor.shape(),
            "bytes": self.tensor.bytes(),
        })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        super::arity::<0>(inputs)?;
        let shape = self.tensor.shape().iter().map(|&n| n.into()).collect();
        Ok(vec![Type::device(self.tensor.dtype(), shape)])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        if self.tensor.shape().is_empty() { Some(self) } else { None }
    }
}

impl Elementwise for Constant {
    fn element(&self, at: &mut dyn Elements, _: &[ExprId]) -> ExprId {
        if self.tensor.dtype().is_float() {
            let value = self.tensor.to_f32().first().copied().unwrap_or(0.0);
            return at.dag().float(value);
        }
        let value = self.tensor.to_i64().first().copied().unwrap_or(0);
        let scalar = self.tensor.dtype().scalar();
        at.dag().constant(scalar, value)
    }
}

impl Op for Iota {
    fn name(&self) -> &str {
        "iota"
    }

    fn weight(&self) -> usize {
        0
    }

    fn attributes(&self) -> Value {
        json!(self.len.to_string())
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        super::arity::<0>(inputs)?;
        Ok(vec![Type::device(DType::I64, vec![self.len.clone()])])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        size(&mut self.len);
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for Iota {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        at.dag().cast(Scalar::I64, coords[0])
    }
}

impl Constant {
    /// A scalar.
    ///
    /// # Errors
    /// [`TypeError`] if an integer type cannot represent the number.
    pub fn scalar(dtype: DType, value: impl Into<Number>) -> Result<Self, TypeError> {
        Ok(Self { tensor: value.into().tensor(dtype)? })
    }
}
