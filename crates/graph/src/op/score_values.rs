//! Values of pairs of queries and keys that depend on the sample, the query or the key.

use super::ReduceOp;
use super::attention::{ScoreKind, divided, offsets};
use super::gather::nearest;
use super::jagged::global;
use super::{Elements, Elementwise, Gradient, GradientError, Op, Requirement, arity, rank, same_size};
use crate::pointwise::ExprId;
use crate::{DType, Dim, Layout, Tensor, Type, TypeError};
use serde_json::{Value, json};

/// The position of the query or key within its sample, for every pair; an `I32`.
///
/// Operands: host offsets `[B + 1]` of rows and of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScoreIndex {
    /// `Row` or `Key`.
    pub kind: ScoreKind,
    /// Number of heads.
    pub heads: usize,
    /// All rows.
    pub rows: Dim,
    /// All keys.
    pub keys: Dim,
}

/// Broadcasts a value per sample, query or key to all pairs.
///
/// Operands: values, host offsets `[B + 1]` of rows and of keys. Values are `[n]`, or `[H, n]` for one per head, where
/// `n` is the number of samples, rows or keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScoreBroadcast {
    /// The granularity of the values.
    pub kind: ScoreKind,
    /// Number of heads.
    pub heads: usize,
    /// All rows.
    pub rows: Dim,
    /// All keys.
    pub keys: Dim,
}

/// A value of a table for every pair: `out[b, h, i, j] = table[index[b, h, i, j], h]`. An index outside the table is
/// clamped to the nearest row.
///
/// Operands: `table` `[V, H]` and `index`, an integer per pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScoreGather;

impl Op for ScoreIndex {
    fn name(&self) -> &str {
        match self.kind {
            ScoreKind::Key => "key_index",
            _ => "row_index",
        }
    }

    fn attributes(&self) -> Value {
        json!({ "heads": self.heads, "rows": self.rows.to_string(), "keys": self.keys.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [rows, keys] = arity(inputs)?;
        if self.kind == ScoreKind::Sample {
            return Err(TypeError::new("kind", "row or key", self.kind.name()));
        }
        let shape = vec![offsets(&rows, &keys)?, self.heads.into(), self.rows.clone(), self.keys.clone()];
        Ok(vec![Type { dtype: DType::I32, shape, layout: Layout::Scores }])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        [&mut self.rows, &mut self.keys].into_iter().for_each(size);
    }

    fn requires(&self, _: &[&Type]) -> Vec<Requirement> {
        divided(0, &self.rows, &self.keys)
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for ScoreIndex {
    fn element(&self, _: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        if self.kind == ScoreKind::Row { coords[2] } else { coords[3] }
    }
}

impl Op for ScoreBroadcast {
    fn name(&self) -> &str {
        match self.kind {
            ScoreKind::Sample => "score_per_sample",
            ScoreKind::Row => "score_per_row",
            ScoreKind::Key => "score_per_key",
        }
    }

    fn attributes(&self) -> Value {
        json!({ "heads": self.heads, "rows": self.rows.to_string(), "keys": self.keys.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [values, rows, keys] = arity(inputs)?;
        let batch = offsets(&rows, &keys)?;
        let count = match self.kind {
            ScoreKind::Sample => &batch,
            ScoreKind::Row => &self.rows,
            ScoreKind::Key => &self.keys,
        };
        match values.shape.as_slice() {
            [n] => same_size("values", self.kind.name(), n, count)?,
            [heads, n] => {
                same_size("values", "heads", heads, &self.heads.into())?;
                same_size("values", self.kind.name(), n, count)?;
            }
            _ => return Err(TypeError::new("values", "[n] or [H, n]", values)),
        }
        let shape = vec![batch, self.heads.into(), self.rows.clone(), self.keys.clone()];
        Ok(vec![Type { dtype: values.dtype, shape, layout: Layout::Scores }])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        [&mut self.rows, &mut self.keys].into_iter().for_each(size);
    }

    fn requires(&self, _: &[&Type]) -> Vec<Requirement> {
        divided(1, &self.rows, &self.keys)
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let Some([rows, keys]) = at.pairs else { return Err(GradientError::Undivided) };
        let (values, sums) = (at.operand(0), at.of.reduce_scores(ReduceOp::Sum, self.kind, rows, keys));
        let sums = if values.rank() == 1 { sums.sum(0).reshape(values.shape()) } else { sums };
        Ok(vec![Some(sums), None, None])
    }
}

impl Elementwise for ScoreBroadcast {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let position = match self.kind {
            ScoreKind::Sample => coords[0],
            ScoreKind::Row => global(at, 1, coords[0], coords[2]),
            ScoreKind::Key => global(at, 2, coords[0], coords[3]),
        };
        if at.ty(0).rank() == 1 { at.load(0, &[position]) } else { at.load(0, &[coords[1], position]) }
    }
}

impl Op for ScoreGather {
    fn name(&self) -> &str {
        "score_gather"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [table, index] = arity(inputs)?;
        rank("table", &table, 2)?;
        if table.layout != Layout::Device || table.extent(0) == Some(0) {
            return Err(TypeError::new("table", "a device tensor with at least one row", table));
        }
        if index.layout != Layout::Scores || !matches!(index.dtype, DType::I32 | DType::I64 | DType::U32) {
            return Err(TypeError::new("index", "one integer per pair", index));
        }
        same_size("table", "heads", &table.shape[1], &index.shape[1])?;
        let dtype = if table.dtype.format().is_written() { table.dtype } else { DType::F32 };
        Ok(vec![Type { dtype, ..index }])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for ScoreGather {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let rows = at.ty(0).shape[0].clone();
        let row = nearest(at, coords, &rows);
        at.load(0, &[row, coords[1]])
    }
}
