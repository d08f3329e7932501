//! Singular value decompositions of small matrices.

use super::custom::{Custom, Shader, View, ViewMut};
use super::{Op, arity};
use crate::{DType, Layout, Type, TypeError};
use serde::{Deserialize, Serialize};

/// Rotates the columns of matrices until they are orthogonal: one-sided Jacobi (Hestenes, 1958).
///
/// Operand: `A`, `[B, M, N]` of `F32`. The result is `[B, M + N, N]`: the orthogonal columns `A V`, whose lengths are the
/// singular values, in no order, and the orthogonal matrix `V` below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OrthogonalColumns;

/// Sweeps over all pairs of columns. Convergence is quadratic.
const SWEEPS: usize = 10;

impl OrthogonalColumns {
    /// Its name in plans.
    pub const NAME: &str = "orthogonal_columns";

    /// Maximum rows and columns of a matrix: a thread keeps it in its registers.
    pub const MOST: usize = 16;
}

impl Op for OrthogonalColumns {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        let (rows, columns) = match (x.rank(), x.dtype, x.extent(1), x.extent(2)) {
            (3, DType::F32, Some(rows @ 1..=Self::MOST), Some(columns @ 1..=Self::MOST)) => (rows, columns),
            _ => return Err(TypeError::new("x", format!("F32 matrices of at most {} rows", Self::MOST), &x)),
        };
        if x.layout != Layout::Device {
            return Err(TypeError::new("x", "on the device", &x));
        }
        Ok(vec![Type::device(DType::F32, vec![x.shape[0].clone(), (rows + columns).into(), columns.into()])])
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Custom for OrthogonalColumns {
    fn shader(&self, operands: &[&Type], result: &Type) -> Shader {
        let (rows, columns) = (operands[0].constant_extent(1), operands[0].constant_extent(2));
        let constants = format!("const ROWS = {rows};\nconst COLUMNS = {columns};\nconst SWEEPS = {SWEEPS};\n");
        Shader {
            operands: vec!["x".to_owned()],
            result: "y".to_owned(),
            wgsl: constants + include_str!("../../shaders/orthogonal_columns.wgsl"),
            threads: 64,
            extents: vec![result.shape[0].clone()],
            tile: 64,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        let [x] = operands else { return Err(format!("{} operands", operands.len())) };
        let &[_, rows, columns] = x.shape else { return Err("an operand of other axes".to_owned()) };
        let matrices = x.floats().chunks_exact((rows * columns).max(1));
        for (x, y) in matrices.zip(result.floats().chunks_exact_mut(((rows + columns) * columns).max(1))) {
            let unit = (0..columns * columns).map(|n| f64::from(u8::from(n / columns == n % columns)));
            let mut both: Vec<f64> = x.iter().map(|&x| f64::from(x)).chain(unit).collect();
            for _ in 0..SWEEPS {
                for (p, q) in (0..columns).flat_map(|q| (0..q).map(move |p| (p, q))) {
                    rotate(&mut both, rows, columns, [p, q]);
                }
            }
            y.iter_mut().zip(both).for_each(|(y, x)| *y = x as f32);
        }
        Ok(())
    }
}

/// Makes two columns orthogonal.
fn rotate(both: &mut [f64], rows: usize, columns: usize, [p, q]: [usize; 2]) {
    let dot = |a: usize, b: usize| (0..rows).map(|row| both[row * columns + a] * both[row * columns + b]).sum::<f64>();
    let (left, right, cross) = (dot(p, p), dot(q, q), dot(p, q));
    if cross == 0.0 {
        return;
    }
    let ratio = (right - left) / (2.0 * cross);
    let tangent = ratio.signum() / (ratio.abs() + ratio.hypot(1.0));
    let cosine = tangent.hypot(1.0).recip();
    for row in both.chunks_exact_mut(columns) {
        let (a, b) = (row[p], row[q]);
        row[p] = cosine * (a - tangent * b);
        row[q] = cosine * (tangent * a + b);
    }
}
