//! The bits of floats.

use super::custom::{Custom, Data, Shader, View, ViewMut};
use super::{Op, arity};
use crate::{DType, Layout, Type, TypeError};
use serde::{Deserialize, Serialize};

/// The bits of `F32` as `I32`, or the reverse, of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bits;

impl Bits {
    /// Its name in plans.
    pub const NAME: &str = "bits";
}

impl Op for Bits {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        let result = match x.dtype {
            DType::F32 => DType::I32,
            DType::I32 => DType::F32,
            _ => return Err(TypeError::new("x", "of F32 or I32", &x)),
        };
        if x.rank() != 1 || x.layout != Layout::Device {
            return Err(TypeError::new("x", "a device vector", &x));
        }
        Ok(vec![Type::device(result, x.shape)])
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Custom for Bits {
    fn shader(&self, _operands: &[&Type], result: &Type) -> Shader {
        let ty = if result.dtype == DType::F32 { "f32" } else { "i32" };
        let body = format!("    let n = workgroup * 256 + thread;\n    store_y(n, bitcast<{ty}>(load_x(n)));\n");
        Shader {
            operands: vec!["x".to_owned()],
            result: "y".to_owned(),
            wgsl: format!("fn run(workgroup: i32, thread: i32) {{\n{body}}}\n"),
            threads: 256,
            extents: result.shape.clone(),
            tile: 256,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        match operands.first().map(|x| x.data) {
            Some(Data::F32(x)) => {
                result.integers().iter_mut().zip(x).for_each(|(y, x)| *y = x.to_bits().cast_signed());
            }
            Some(Data::I32(x)) => {
                result.floats().iter_mut().zip(x).for_each(|(y, x)| *y = f32::from_bits(x.cast_unsigned()));
            }
            _ => return Err("an operand of another type".to_owned()),
        }
        Ok(())
    }
}
