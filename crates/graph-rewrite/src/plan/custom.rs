use super::{Body, MemorySpace};
use rewire_graph::op::custom::{Operator, Shader};
use rewire_graph::op::{Registry, RegistryError};
use rewire_graph::{DType, Dim, Layout, Type};
use serde::{Deserialize, Serialize};

/// A custom operator with its shader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Custom {
    /// Its distinct operands, without expressions.
    pub body: Body,
    /// The operator.
    pub operator: Operator,
    /// For each operand of the operator, its position among the operands of the body.
    pub operands: Vec<u16>,
    /// Element type of the result in memory.
    pub dtype: DType,
    /// Logical shape of the result.
    pub shape: Vec<Dim>,
    /// The GPU implementation.
    pub shader: Shader,
}

impl Custom {
    /// The type in which a shader reads a value, regardless of storage.
    pub(crate) fn arithmetic(ty: Type) -> Type {
        Type { dtype: if ty.dtype.is_float() { DType::F32 } else { ty.dtype }, ..ty }
    }

    /// Restores the operator's CPU implementation if it has none, and checks that the kernel matches the operator and
    /// its operands.
    pub(super) fn bind(&mut self, registry: &Registry) -> Result<(), RegistryError> {
        if self.operator.definition().is_some() {
            return Ok(());
        }
        let operator = registry.operator(&self.operator)?;
        let operand = |position: &u16| {
            let operand = self.body.operands.get(usize::from(*position))?;
            let layout = if operand.space == MemorySpace::Host { Layout::Host } else { Layout::Device };
            Some(Self::arithmetic(Type { dtype: operand.dtype, shape: operand.shape.clone(), layout }))
        };
        let types: Vec<Type> = self.operands.iter().filter_map(operand).collect();
        let operands: Vec<&Type> = types.iter().collect();
        let result = Self::arithmetic(Type::device(self.dtype, self.shape.clone()));
        let same = operator.definition().is_some_and(|definition| {
            let inferred = definition.types(&operands).unwrap_or_default();
            inferred.into_iter().map(Self::arithmetic).eq([result.clone()])
                && definition.kernels().is_some_and(|forms| forms.shader(&operands, &result) == self.shader)
        });
        if !same {
            return Err(RegistryError::different("operator", self.operator.name(), self.operator.attributes()));
        }
        self.operator = operator;
        Ok(())
    }
}
