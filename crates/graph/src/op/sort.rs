//! Sorting rows by merging runs: each run of an order is sorted, then runs are merged until one is left.

use super::custom::{Custom, Data, Shader, View, ViewMut};
use super::{Op, arity};
use crate::{DType, Layout, Scalar, Type, TypeError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Number of positions of a run that one workgroup sorts.
const RUN: usize = 1 << 10;

/// Number of runs that a pass merges into one.
const WAYS: usize = 16;

/// The columns of a matrix in the order of its elements, within runs of [`SortRuns::LENGTH`] columns.
///
/// Operand: keys `[R, N]`, floats or integers. The result is `[R, N]` of `I32`. Among equal keys, the smaller column
/// comes first; both zeros are equal, NaN is the largest and equal to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SortRuns {
    /// True for the largest key first.
    pub is_descending: bool,
}

/// Merges neighbouring sorted runs of an order, [`MergeRuns::WAYS`] into one.
///
/// Operands: keys `[R, N]`, and their order `[R, N]`, an `I32`, whose runs are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MergeRuns {
    /// True for the largest key first.
    pub is_descending: bool,
    /// Positions of a run; the last one of a row may have fewer.
    pub run: usize,
}

impl SortRuns {
    /// Its name in plans.
    pub const NAME: &str = "sort_runs";

    /// Positions of a run.
    pub const LENGTH: usize = RUN;
}

impl MergeRuns {
    /// Its name in plans.
    pub const NAME: &str = "merge_runs";

    /// Number of runs that become one.
    pub const WAYS: usize = WAYS;
}

fn check_keys(keys: &Type) -> Result<(), TypeError> {
    let is_matrix = keys.rank() == 2 && keys.layout == Layout::Device && keys.dtype != DType::Bool;
    if is_matrix { Ok(()) } else { Err(TypeError::new("keys", "a device matrix of numbers", keys)) }
}

fn order_of(keys: &Type) -> Type {
    Type::device(DType::I32, keys.shape.clone())
}

/// The WGSL of a pass over keys: constants, a function from a column to its key as two words in the order of the keys,
/// and the pass.
fn wgsl(keys: &Type, is_descending: bool, constants: &str, pass: &str) -> String {
    let words = match keys.dtype.scalar() {
        Scalar::I64 => include_str!("../../shaders/sort_key_i64.wgsl"),
        Scalar::F32 => include_str!("../../shaders/sort_key_f32.wgsl"),
        Scalar::I32 | Scalar::Bool => include_str!("../../shaders/sort_key_i32.wgsl"),
    };
    let flip = if is_descending { "~" } else { "" };
    let key = format!("fn key(row: i32, column: i32) -> vec2<u32> {{\n    return {flip}words(row, column);\n}}\n");
    [constants, words, &key, include_str!("../../shaders/sort_before.wgsl"), pass].join("\n")
}

impl Op for SortRuns {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn attributes(&self) -> Value {
        json!({"is_descending": self.is_descending})
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [keys] = arity(inputs)?;
        check_keys(&keys)?;
        Ok(vec![order_of(&keys)])
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Custom for SortRuns {
    fn shader(&self, operands: &[&Type], result: &Type) -> Shader {
        let constants = format!("const RUN = {RUN};\nconst THREADS = 256;\n");
        Shader {
            operands: vec!["keys".to_owned()],
            result: "order".to_owned(),
            wgsl: wgsl(operands[0], self.is_descending, &constants, include_str!("../../shaders/sort_runs.wgsl")),
            threads: 256,
            extents: result.shape.clone(),
            tile: RUN as u32,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        let [keys] = operands else { return Err(format!("{} operands", operands.len())) };
        let columns = keys.shape.last().copied().unwrap_or(0).max(1);
        let mut pairs = vec![];
        for (row, order) in result.integers().chunks_mut(columns).enumerate() {
            let key = |column: usize| ordered(&keys.data, row * columns + column, self.is_descending);
            for (n, run) in order.chunks_mut(RUN).enumerate() {
                let places = n * RUN..n * RUN + run.len();
                arrange(&mut pairs, places.map(|column| (key(column), column as i32)), run);
            }
        }
        Ok(())
    }
}

impl Op for MergeRuns {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn attributes(&self) -> Value {
        json!({"is_descending": self.is_descending, "run": self.run})
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [keys, order] = arity(inputs)?;
        check_keys(&keys)?;
        if order != order_of(&keys) {
            return Err(TypeError::new("order", order_of(&keys).to_string(), &order));
        }
        Ok(vec![order])
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Custom for MergeRuns {
    fn shader(&self, operands: &[&Type], result: &Type) -> Shader {
        let constants = format!("const RUN = {};\nconst WAYS = {WAYS};\nconst THREADS = 256;\n", self.run);
        Shader {
            operands: vec!["keys".to_owned(), "order".to_owned()],
            result: "merged".to_owned(),
            wgsl: wgsl(operands[0], self.is_descending, &constants, include_str!("../../shaders/merge_runs.wgsl")),
            threads: 256,
            extents: result.shape.clone(),
            tile: 256,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        let [keys, order] = operands else { return Err(format!("{} operands", operands.len())) };
        let columns = keys.shape.last().copied().unwrap_or(0).max(1);
        let rows = order.integers().chunks(columns).zip(result.integers().chunks_mut(columns));
        let mut pairs = vec![];
        for (row, (order, merged)) in rows.enumerate() {
            let key = |column: i32| ordered(&keys.data, row * columns + column as usize, self.is_descending);
            let width = self.run.saturating_mul(WAYS);
            for (order, merged) in order.chunks(width).zip(merged.chunks_mut(width)) {
                if order.len() <= self.run {
                    merged.copy_from_slice(order);
                } else {
                    arrange(&mut pairs, order.iter().map(|&column| (key(column), column)), merged);
                }
            }
        }
        Ok(())
    }
}

/// Columns by their keys; equal keys stay in their order. Sorted runs are merged.
fn arrange(pairs: &mut Vec<(u64, i32)>, entries: impl Iterator<Item = (u64, i32)>, columns: &mut [i32]) {
    pairs.clear();
    pairs.extend(entries);
    pairs.sort_by_key(|&(key, _)| key);
    columns.iter_mut().zip(pairs).for_each(|(to, &mut (_, column))| *to = column);
}

/// A key as an integer with the same order.
fn ordered(keys: &Data<'_>, place: usize, is_descending: bool) -> u64 {
    let key = match keys {
        Data::F32(values) => match values[place].to_bits() {
            bits if bits << 1 > 0x7f80_0000 << 1 => u64::MAX,
            bits if bits << 1 == 0 => 1 << 31,
            bits if bits >> 31 == 1 => u64::from(!bits),
            bits => u64::from(bits | 1 << 31),
        },
        Data::I32(values) => u64::from(values[place] as u32 ^ 1 << 31),
        Data::I64(values) => values[place] as u64 ^ 1 << 63,
    };
    if is_descending { !key } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::custom::DataMut;

    /// The order of one row, by passes until a run is as long as the row.
    fn sorted(keys: Data<'_>, columns: usize, is_descending: bool) -> Vec<i32> {
        let shape = [1, columns];
        let keys = View { shape: &shape, data: keys };
        let mut order = vec![0; columns];
        let result = &mut ViewMut { shape: &shape, data: DataMut::I32(&mut order) };
        SortRuns { is_descending }.compute(&[keys], result).unwrap();
        let mut run = RUN;
        while run < columns {
            let mut merged = vec![0; columns];
            let result = &mut ViewMut { shape: &shape, data: DataMut::I32(&mut merged) };
            let order_view = View { shape: &shape, data: Data::I32(&order) };
            MergeRuns { is_descending, run }.compute(&[keys, order_view], result).unwrap();
            (order, run) = (merged, run * WAYS);
        }
        order
    }

    #[test]
    fn rows_are_sorted_as_a_stable_sort_does() {
        for columns in [0, 1, 2, RUN, RUN + 1, RUN * WAYS + 3] {
            let keys: Vec<i64> = (0..columns as i64).map(|n| (n * 7919 % 257 - 128) * (1 << 33)).collect();
            for is_descending in [false, true] {
                let mut expected: Vec<i32> = (0..columns as i32).collect();
                let key = |&column: &i32| if is_descending { -keys[column as usize] } else { keys[column as usize] };
                expected.sort_by_key(key);
                assert_eq!(sorted(Data::I64(&keys), columns, is_descending), expected);
            }
        }
    }

    #[test]
    fn zeros_are_equal_and_nan_is_the_largest() {
        let keys = [f32::NAN, 0.0, -0.0, f32::INFINITY, -f32::NAN, -1.0, f32::NEG_INFINITY];
        assert_eq!(sorted(Data::F32(&keys), keys.len(), false), [6, 5, 1, 2, 3, 0, 4]);
        assert_eq!(sorted(Data::F32(&keys), keys.len(), true), [0, 4, 3, 1, 2, 5, 6]);
        assert_eq!(sorted(Data::I32(&[3, i32::MIN, -1]), 3, false), [1, 2, 0]);
    }
}
