use super::jagged::{extent_of, global, locate, samples};
use super::{
    Accumulated, Accumulator, EvaluateError, Gradient, GradientError, Op, ReduceOp, Requirement, Span, arity, axes,
    rank, same_size,
};
use crate::interpret::Array;
use crate::pointwise::{BinaryOp, ExprId, UnaryOp};
use crate::{DType, Dim, Layout, Tensor, Type, TypeError};
use serde_json::{Value, json};

/// Dot products of every query with every key of its sample, `[samples, heads, rows, keys]` ragged.
///
/// Operands: `q` `[total rows, H, A]`, `k` `[total keys, H, A]`, host offsets `[B + 1]` of rows and of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scores;

/// For every query, the sum of the values of its sample's keys, weighted by scores; or for every key, the sum over its
/// sample's queries.
///
/// Operands: scores, `v` `[total keys, H, V]`, host offsets `[B + 1]` of rows and of keys.
/// The result is `[total rows, H, V]`. By key, `v` is `[total rows, H, V]` and the result `[total keys, H, V]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedSum {
    /// `Row` for a sum per query, `Key` for a sum per key.
    pub kind: ScoreKind,
}

/// The softmax of each query's scores: `e^(s_j - max s) / sum e^(s - max s)` over the keys of its sample that are kept.
/// It is 0 for other keys, and 0 everywhere if no key is kept.
///
/// Operands: scores, a bool per pair or one for all pairs, host offsets `[B + 1]` of rows and of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScoreSoftmax;

/// The granularity of a value of pairs of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScoreKind {
    /// One per sample.
    Sample,
    /// One per query.
    Row,
    /// One per key.
    Key,
}

/// A reduction of scores over the pairs of each sample, query or key: scores to `[H, n]`, where `n` is the number of
/// samples, rows or keys.
///
/// Operands: scores, host offsets `[B + 1]` of rows and of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScoreReduce {
    /// The reduction.
    pub op: ReduceOp,
    /// The granularity of the result.
    pub kind: ScoreKind,
}

impl ScoreKind {
    /// The axis of scores with this granularity.
    fn axis(self) -> usize {
        match self {
            Self::Sample => 0,
            Self::Row => 2,
            Self::Key => 3,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Row => "row",
            Self::Key => "key",
        }
    }
}

pub(super) fn offsets(rows: &Type, keys: &Type) -> Result<Dim, TypeError> {
    super::jagged::host_vectors(&[("row_offsets", rows, 1), ("key_offsets", keys, 1)])
}

/// Requires the two operands from `operand` on to be the offsets of rows and of keys.
pub(super) fn divided(operand: usize, rows: &Dim, keys: &Dim) -> Vec<Requirement> {
    vec![Requirement::offsets(operand, rows), Requirement::offsets(operand + 1, keys)]
}

fn heads_of(argument: &str, ty: &Type) -> Result<(), TypeError> {
    rank(argument, ty, 3)?;
    if ty.dtype.is_float() && ty.layout == Layout::Device && ty.extent(1).is_some() && ty.extent(2).is_some() {
        Ok(())
    } else {
        Err(TypeError::new(argument, "floats [rows, H, width] with constant H and width", ty))
    }
}

fn floats_of(scores: &Type) -> Result<(), TypeError> {
    if scores.layout == Layout::Scores && scores.dtype.is_float() {
        Ok(())
    } else {
        Err(TypeError::new("scores", "scores of floats", scores))
    }
}

impl Op for Scores {
    fn name(&self) -> &str {
        "scores"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [q, k, rows, keys] = arity(inputs)?;
        heads_of("q", &q)?;
        heads_of("k", &k)?;
        same_size("k", "heads", &k.shape[1], &q.shape[1])?;
        same_size("k", "width", &k.shape[2], &q.shape[2])?;
        let batch = offsets(&rows, &keys)?;
        let shape = vec![batch, q.shape[1].clone(), q.shape[0].clone(), k.shape[0].clone()];
        Ok(vec![Type { dtype: DType::F32, shape, layout: Layout::Scores }])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        divided(2, &extent_of(inputs, 0, 0), &extent_of(inputs, 1, 0))
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let (q, k) = (operands[0], operands[1]);
        let (rows, keys) = (samples(operands[2], q.shape[0])?, samples(operands[3], k.shape[0])?);
        let (heads, width) = (q.shape[1], q.shape[2]);
        let mut values = vec![0.0; shape.iter().product()];
        for (b, (rows, keys)) in rows.into_iter().zip(keys).enumerate() {
            for h in 0..heads {
                for (i, row) in rows.clone().enumerate() {
                    for (j, key) in keys.clone().enumerate() {
                        let (query, key) = ((row * heads + h) * width, (key * heads + h) * width);
                        values[((b * heads + h) * shape[2] + i) * shape[3] + j] =
                            (0..width).map(|d| q.float(query + d) * k.float(key + d)).sum();
                    }
                }
            }
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let Some([rows, keys]) = at.pairs else { return Err(GradientError::Undivided) };
        let q = at.of.weighted_sum(at.operand(1), rows, keys);
        Ok(vec![Some(q), Some(at.of.weighted_sum_by_key(at.operand(0), rows, keys)), None, None])
    }
}

impl Accumulated for Scores {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let (sample, head) = (coords[0], coords[1]);
        let (query, key) = (global(at, 2, sample, coords[2]), global(at, 3, sample, coords[3]));
        let width = at.ty(0).shape[2].clone();
        at.accumulate(ReduceOp::Sum, Span::Dense(width), coords, &mut |at, column| {
            vec![at.load(0, &[query, head, column]), at.load(1, &[key, head, column])]
        })
    }
}

impl Op for WeightedSum {
    fn name(&self) -> &str {
        match self.kind {
            ScoreKind::Key => "weighted_sum_by_key",
            _ => "weighted_sum",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [scores, v, rows, keys] = arity(inputs)?;
        floats_of(&scores)?;
        heads_of("v", &v)?;
        offsets(&rows, &keys)?;
        let summed = match self.kind {
            ScoreKind::Row => ScoreKind::Key,
            ScoreKind::Key => ScoreKind::Row,
            ScoreKind::Sample => return Err(TypeError::new("kind", "row or key", self.kind.name())),
        };
        same_size("v", "heads", &v.shape[1], &scores.shape[1])?;
        same_size("v", "rows", &v.shape[0], &scores.shape[summed.axis()])?;
        let shape = vec![scores.shape[self.kind.axis()].clone(), v.shape[1].clone(), v.shape[2].clone()];
        Ok(vec![Type::device(DType::F32, shape)])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        divided(2, &extent_of(inputs, 0, 2), &extent_of(inputs, 0, 3))
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let (weights, v) = (operands[0], operands[1]);
        let by_key = self.kind == ScoreKind::Key;
        let [counted, summed] = if by_key { [3, 2] } else { [2, 3] };
        let (targets, sources) = (samples(operands[counted], shape[0])?, samples(operands[summed], v.shape[0])?);
        let (heads, width, keys) = (v.shape[1], v.shape[2], weights.shape[3]);
        let mut values = vec![0.0; shape.iter().product()];
        for (b, (targets, sources)) in targets.into_iter().zip(sources).enumerate() {
            for h in 0..heads {
                let first = (b * heads + h) * weights.shape[2] * keys;
                for (t, target) in targets.clone().enumerate() {
                    for d in 0..width {
                        let weighted = |(s, source): (usize, usize)| {
                            let (row, key) = if by_key { (s, t) } else { (t, s) };
                            weights.float(first + row * keys + key) * v.float((source * heads + h) * width + d)
                        };
                        values[(target * heads + h) * width + d] = sources.clone().enumerate().map(weighted).sum();
                    }
                }
            }
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let Some([rows, keys]) = at.pairs else { return Err(GradientError::Undivided) };
        let (weights, v) = (at.operand(0), at.operand(1));
        let (scores, v) = match self.kind {
            ScoreKind::Key => (v.scores(at.of, rows, keys), weights.weighted_sum(at.of, rows, keys)),
            _ => (at.of.scores(v, rows, keys), weights.weighted_sum_by_key(at.of, rows, keys)),
        };
        Ok(vec![Some(scores), Some(v), None, None])
    }
}

impl Accumulated for WeightedSum {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let (head, column) = (coords[1], coords[2]);
        let (own, other) = if self.kind == ScoreKind::Key { (3, 2) } else { (2, 3) };
        let (sample, of) = locate(at, own, coords[0]);
        at.accumulate(ReduceOp::Sum, Span::Ragged { offsets: other, sample }, coords, &mut |at, n| {
            let (row, key) = if self.kind == ScoreKind::Key { (n, of) } else { (of, n) };
            let weight = at.load(0, &[sample, head, row, key]);
            let n = global(at, other, sample, n);
            vec![weight, at.load(1, &[n, head, column])]
        })
    }

    fn samples(&self) -> Option<(usize, usize)> {
        Some((0, if self.kind == ScoreKind::Key { 3 } else { 2 }))
    }

    fn pairs(&self) -> Option<ScoreKind> {
        Some(self.kind)
    }
}

impl Op for ScoreReduce {
    fn name(&self) -> &str {
        match self.op {
            ReduceOp::Sum => "score_sum",
            ReduceOp::Max => "score_max",
            ReduceOp::Min => "score_min",
        }
    }

    fn attributes(&self) -> Value {
        json!({ "kind": self.kind.name() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [scores, rows, keys] = arity(inputs)?;
        floats_of(&scores)?;
        offsets(&rows, &keys)?;
        let shape = vec![scores.shape[1].clone(), scores.shape[self.kind.axis()].clone()];
        Ok(vec![Type::device(DType::F32, shape)])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        divided(1, &extent_of(inputs, 0, 2), &extent_of(inputs, 0, 3))
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let scores = operands[0];
        let (heads, count) = (shape[0], shape[1]);
        let total = |kind| if self.kind == kind { count } else { usize::MAX };
        let rows = samples(operands[1], total(ScoreKind::Row))?;
        let keys = samples(operands[2], total(ScoreKind::Key))?;
        let mut values = vec![f64::from(self.op.start()); heads * count];
        for (b, (rows, keys)) in rows.into_iter().zip(keys).enumerate() {
            for h in 0..heads {
                for (i, row) in rows.clone().enumerate() {
                    for (j, key) in keys.clone().enumerate() {
                        let place = match self.kind {
                            ScoreKind::Sample => b,
                            ScoreKind::Row => row,
                            ScoreKind::Key => key,
                        };
                        let score = scores.float(((b * heads + h) * scores.shape[2] + i) * scores.shape[3] + j);
                        let value = &mut values[h * count + place];
                        *value = self.op.combine().evaluate(*value, score);
                    }
                }
            }
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let Some([rows, keys]) = at.pairs else { return Err(GradientError::Undivided) };
        let scores = at.operand(0);
        let heads = scores.ty().constant_extent(1);
        let repeat = |y: &Tensor| rows.spread(self.kind, keys, heads, y);
        let sum = |hits: &Tensor| hits.reduce_scores(ReduceOp::Sum, self.kind, rows, keys);
        Ok(vec![Some(at.combined(self.op, scores, repeat, sum)), None, None])
    }
}

impl Accumulated for ScoreReduce {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let (head, of) = (coords[0], coords[1]);
        let over =
            |at: &mut dyn Accumulator, operand: usize, point: &[ExprId], pair: &dyn Fn(ExprId) -> [ExprId; 2]| {
                let sample = point[0];
                at.accumulate(self.op, Span::Ragged { offsets: operand, sample }, point, &mut |at, other| {
                    let [row, key] = pair(other);
                    vec![at.load(0, &[sample, head, row, key])]
                })
            };
        match self.kind {
            ScoreKind::Row => {
                let (sample, row) = locate(at, 1, of);
                over(at, 2, &[sample, head, row], &|key| [row, key])
            }
            ScoreKind::Key => {
                let (sample, key) = locate(at, 2, of);
                over(at, 1, &[sample, head, key], &|row| [row, key])
            }
            ScoreKind::Sample => {
                at.accumulate(self.op, Span::Ragged { offsets: 1, sample: of }, coords, &mut |at, row| {
                    vec![over(at, 2, &[of, head, row], &|key| [row, key])]
                })
            }
        }
    }

    fn samples(&self) -> Option<(usize, usize)> {
        match self.kind {
            ScoreKind::Sample => None,
            ScoreKind::Row => Some((1, 1)),
            ScoreKind::Key => Some((1, 2)),
        }
    }

    fn pairs(&self) -> Option<ScoreKind> {
        Some(self.kind)
    }
}

impl Op for ScoreSoftmax {
    fn name(&self) -> &str {
        "score_softmax"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [scores, keep, rows, keys] = arity(inputs)?;
        floats_of(&scores)?;
        if keep.dtype != DType::Bool
            || (keep.rank() > 0 && (keep.layout, &keep.shape) != (Layout::Scores, &scores.shape))
        {
            return Err(TypeError::new("keep", format!("a bool, or one for each pair of {scores}"), keep));
        }
        offsets(&rows, &keys)?;
        Ok(vec![Type { dtype: DType::F32, ..scores }])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        divided(2, &extent_of(inputs, 0, 2), &extent_of(inputs, 0, 3))
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let (scores, keep) = (operands[0], operands[1]);
        let counts: Vec<usize> =
            operands[3].integers().windows(2).map(|pair| (pair[1] - pair[0]).max(0) as usize).collect();
        let per_sample = shape[1] * shape[2];
        let mut values = vec![0.0; shape.iter().product()];
        for (row, weights) in values.chunks_mut(shape[3].max(1)).enumerate() {
            let first = row * shape[3];
            let keys = counts.get(row / per_sample.max(1)).copied().unwrap_or(0).min(shape[3]);
            let counts = |key: &usize| keep.integer(if keep.shape.is_empty() { 0 } else { first + key }) != 0;
            let kept: Vec<usize> = (0..keys).filter(counts).collect();
            let largest = kept.iter().fold(f64::NEG_INFINITY, |most, key| most.max(scores.float(first + key)));
            let total: f64 = kept.iter().map(|key| (scores.float(first + key) - largest).exp()).sum();
            for key in kept {
                weights[key] = (scores.float(first + key) - largest).exp() / total;
            }
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let Some([rows, keys]) = at.pairs else { return Err(GradientError::Undivided) };
        let (weights, heads) = (at.result, at.result.ty().constant_extent(1));
        let mean = (weights * at.of).reduce_scores(ReduceOp::Sum, ScoreKind::Row, rows, keys);
        Ok(vec![Some(weights * (at.of - rows.per_row(keys, heads, &mean))), None, None, None])
    }
}

impl Accumulated for ScoreSoftmax {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let [sample, head, row, key] = axes(coords);
        let kept = |at: &mut dyn Accumulator, key: ExprId| {
            if at.ty(1).rank() == 0 { at.load(1, &[]) } else { at.load(1, &[sample, head, row, key]) }
        };
        let span = Span::Ragged { offsets: 3, sample };
        let largest = at.accumulate(ReduceOp::Max, span.clone(), &[sample, head, row], &mut |at, key| {
            let (keep, score) = (kept(at, key), at.load(0, &[sample, head, row, key]));
            let least = at.dag().float(f32::NEG_INFINITY);
            vec![at.dag().select(keep, score, least)]
        });
        let weight = |at: &mut dyn Accumulator, key: ExprId| {
            let score = at.load(0, &[sample, head, row, key]);
            let shifted = at.dag().binary(BinaryOp::Sub, score, largest);
            at.dag().unary(UnaryOp::Exp, shifted)
        };
        let total = at.accumulate(ReduceOp::Sum, span, &[sample, head, row], &mut |at, key| {
            let (keep, weight, zero) = (kept(at, key), weight(at, key), at.dag().float(0.0));
            vec![at.dag().select(keep, weight, zero)]
        });
        let (keep, weight, zero) = (kept(at, key), weight(at, key), at.dag().float(0.0));
        let share = at.dag().binary(BinaryOp::Div, weight, total);
        at.dag().select(keep, share, zero)
    }
}
