//! Matmuls of int8 matrices, and of floats that are rounded to bytes.

use super::custom::{Custom, Shader, View, ViewMut};
use super::{Op, arity};
use crate::{DType, Dim, Layout, Type, TypeError};
use serde::{Deserialize, Serialize};

/// Exact matmul of signed bytes: `[M, K]` with the transpose of `[N, K]`.
///
/// Operands: `left` `[M, K]` of integers from -128 to 127, `right` `[N, W]` of words with four bytes each, the first
/// byte lowest; bytes from `K` on are 0. The result is `[M, N]` of `I32`, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IntegerProduct;

/// Exact matmul of floats, rounded to unsigned bytes of one scale, with signed bytes.
///
/// Operands: `left` `[M, K]` of floats; a float `scale`; a float `zero`, a whole number from 0 to 255; `right` as in
/// [`IntegerProduct`]. The result is `[M, N]` of `I32`, modulo 2^32: the product of `q - zero` with `right`, where `q`
/// is `round(left / scale) + zero`, ties to even, at least 0 and at most 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuantizedProduct;

/// Bytes of a word.
const BYTES: usize = 4;

/// Rows and columns of the tile of a workgroup.
const TILE: usize = 32;

/// Tiles of rows for which workgroups are dispatched; with more rows each workgroup computes several tiles.
const ROWS: u32 = 4;

impl IntegerProduct {
    /// Its name in plans.
    pub const NAME: &str = "integer_product";

    /// Packs rows of bytes into words; each row is padded with zeros.
    pub fn words(bytes: &[i8], depth: usize) -> Vec<i32> {
        let word = |chunk: &[i8]| {
            let mut bytes = [0; BYTES];
            bytes.iter_mut().zip(chunk).for_each(|(to, &from)| *to = from as u8);
            i32::from_le_bytes(bytes)
        };
        bytes.chunks(depth.max(1)).flat_map(|row| row.chunks(BYTES).map(word)).collect()
    }
}

impl QuantizedProduct {
    /// Its name in plans.
    pub const NAME: &str = "quantized_product";
}

impl Op for IntegerProduct {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [left, right] = arity(inputs)?;
        if left.dtype != DType::I32 {
            return Err(TypeError::new("left", "of I32", &left));
        }
        product(&left, &right)
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Op for QuantizedProduct {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [left, scale, zero, right] = arity(inputs)?;
        if !left.dtype.is_float() {
            return Err(TypeError::new("left", "of floats", &left));
        }
        for (argument, ty) in [("scale", &scale), ("zero", &zero)] {
            if ty.rank() != 0 || !ty.dtype.is_float() || ty.layout != Layout::Device {
                return Err(TypeError::new(argument, "a float on the device", ty));
            }
        }
        product(&left, &right)
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

/// The type of a product.
fn product(left: &Type, right: &Type) -> Result<Vec<Type>, TypeError> {
    for (argument, ty) in [("left", left), ("right", right)] {
        if ty.rank() != 2 || ty.layout != Layout::Device {
            return Err(TypeError::new(argument, "a matrix on the device", ty));
        }
    }
    match (left.extent(1), right.extent(1)) {
        (Some(depth), Some(words)) if right.dtype == DType::I32 && depth.div_ceil(BYTES) == words => {}
        _ => return Err(TypeError::new("right", format!("an I32 for four columns of {left}"), right)),
    }
    Ok(vec![Type::device(DType::I32, vec![left.shape[0].clone(), right.shape[0].clone()])])
}

/// The GPU form, given its operands and the WGSL that reads four bytes of `left` and completes a sum.
fn shader(operands: &[&str], left: &str, result: &Type) -> Shader {
    let columns = result.extent(1).map_or_else(|| result.shape[1].clone(), |n| Dim::from(n.div_ceil(TILE)));
    Shader {
        operands: operands.iter().map(|&name| name.to_owned()).collect(),
        result: "product".to_owned(),
        wgsl: [left, include_str!("../../shaders/integer_product.wgsl")].join("\n"),
        threads: 64,
        extents: vec![result.shape[0].clone(), columns],
        tile: ROWS,
    }
}

impl Custom for IntegerProduct {
    fn shader(&self, _operands: &[&Type], result: &Type) -> Shader {
        shader(&["left", "right"], include_str!("../../shaders/integer_left_bytes.wgsl"), result)
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        let [left, right] = operands else { return Err(format!("{} operands", operands.len())) };
        multiply(left.shape, left.integers(), right, result)
    }
}

impl Custom for QuantizedProduct {
    fn shader(&self, _operands: &[&Type], result: &Type) -> Shader {
        let names = ["left", "scale", "zero", "right"];
        shader(&names, include_str!("../../shaders/integer_left_floats.wgsl"), result)
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        let [left, scale, zero, right] = operands else { return Err(format!("{} operands", operands.len())) };
        let (&[scale], &[zero]) = (scale.floats(), zero.floats()) else { return Err("no scale".to_owned()) };
        // NaN is 0.
        let byte = |x: f32| if x > 0.0 { x.min(255.0) } else { 0.0 };
        let quantized = |&x: &f32| (byte((x / scale).round_ties_even() + zero) - zero) as i32;
        let whole: Vec<i32> = left.floats().iter().map(quantized).collect();
        multiply(left.shape, &whole, right, result)
    }
}

/// The product of integers with bytes.
fn multiply(shape: &[usize], left: &[i32], right: &View<'_>, result: &mut ViewMut<'_>) -> Result<(), String> {
    let (&[_, depth], &[columns, words]) = (shape, right.shape) else {
        return Err("operands of other axes".to_owned());
    };
    let (rows, right) = (left.chunks(depth.max(1)), right.integers());
    for (row, sums) in rows.zip(result.integers().chunks_mut(columns.max(1))) {
        for (sum, words) in sums.iter_mut().zip(right.chunks(words.max(1))) {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| i32::from(byte as i8));
            *sum = row.iter().zip(bytes).fold(0, |sum, (&a, b)| a.wrapping_mul(b).wrapping_add(sum));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::IntegerProduct;
    use crate::op::Registry;
    use crate::op::custom::Operator;
    use std::sync::Arc;

    #[test]
    fn plans_find_it_without_a_registry() {
        let found = Registry::new().operator(&Operator::new(Arc::new(IntegerProduct))).unwrap();
        assert!(found.definition().unwrap().downcast_ref::<IntegerProduct>().is_some());
    }

    #[test]
    fn rows_fill_whole_words() {
        assert_eq!(IntegerProduct::words(&[1, -1, 2, 3, 4, -128], 3), [0x02_ff01, 0x80_0403_u32 as i32]);
        assert_eq!(IntegerProduct::words(&[-1, -2, -3, -4, 5], 5), [-0x0302_0101, 5]);
    }
}
