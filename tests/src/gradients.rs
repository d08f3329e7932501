//! Attention and its gradients, written out as primitives.

use crate::backend::Tensors;
use crate::case::GraphCase;
use crate::noise::Noise;
use rewire_graph::op::{ReduceOp, ScoreKind};
use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor};

/// The map from scores to weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weights {
    /// `silu(s) / divisor`, and 0 where the mask is false.
    Silu {
        /// The divisor.
        divisor: f64,
    },
    /// The softmax over the keys for which the mask is true.
    Softmax,
}

/// Attention of `q` `[rows, H, A]` to `k` `[keys, H, A]` and `v` `[keys, H, V]` of its sample.
#[derive(Clone, Debug)]
pub struct Attention {
    /// The map from scores to weights.
    pub weights: Weights,
    /// The scale of scores.
    pub alpha: f64,
    /// The division of queries into samples.
    pub rows: Ragged,
    /// The division of keys into samples.
    pub keys: Ragged,
    /// One bool per pair.
    pub mask: Option<Tensor>,
}

impl Attention {
    fn scores(&self, [q, k, _]: [&Tensor; 3]) -> Tensor {
        &q.scores(k, &self.rows, &self.keys) * self.alpha
    }

    fn masked(&self, scope: &Scope, x: Tensor) -> Tensor {
        self.mask.as_ref().map_or_else(|| x.clone(), |mask| mask.select(&x, &scope.scalar(DType::F32, 0.0)))
    }

    fn weights(&self, scope: &Scope, scores: &Tensor) -> Tensor {
        match self.weights {
            Weights::Silu { divisor } => self.masked(scope, &scores.silu() * (1.0 / divisor)),
            Weights::Softmax => scores.softmax_scores(self.mask.as_ref(), &self.rows, &self.keys),
        }
    }

    /// The result, `[rows, H, V]`, of `[q, k, v]`.
    pub fn forward(&self, scope: &Scope, qkv: [&Tensor; 3]) -> Tensor {
        self.weights(scope, &self.scores(qkv)).weighted_sum(qkv[2], &self.rows, &self.keys)
    }

    /// The gradients of `[q, k, v]`, given that of the result.
    pub fn backward(&self, scope: &Scope, qkv: [&Tensor; 3], dout: &Tensor) -> [Tensor; 3] {
        let (rows, keys) = (&self.rows, &self.keys);
        let scores = self.scores(qkv);
        let weights = self.weights(scope, &scores);
        let dweights = dout.scores(qkv[2], rows, keys);
        let dscores = match self.weights {
            Weights::Silu { divisor } => {
                let sigmoid = scores.sigmoid();
                let slope = &sigmoid * &(&(&scores * &(&(&sigmoid * -1.0) + 1.0)) + 1.0);
                self.masked(scope, &(&dweights * &slope) * (1.0 / divisor))
            }
            Weights::Softmax => {
                let heads = qkv[0].ty().extent(1).unwrap();
                let mean = (&weights * &dweights).reduce_scores(ReduceOp::Sum, ScoreKind::Row, rows, keys);
                &weights * &(&dweights - &rows.per_row(keys, heads, &mean))
            }
        };
        let dproducts = &dscores * self.alpha;
        let dq = dproducts.weighted_sum(qkv[1], rows, keys);
        let dk = dproducts.weighted_sum_by_key(qkv[0], rows, keys);
        [dq, dk, weights.weighted_sum_by_key(dout, rows, keys)]
    }
}

/// A shape of attention.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Queries and keys of every sample.
    pub lengths: Vec<(usize, usize)>,
    /// Number of heads.
    pub heads: usize,
    /// Width of queries and keys.
    pub width: usize,
    /// Width of values.
    pub value_width: usize,
    /// True if a query only attends to keys up to its own position.
    pub causal: bool,
}

/// A traced attention.
#[derive(Debug)]
pub struct Traced {
    /// The scope.
    pub scope: Scope,
    /// The attention.
    pub attention: Attention,
    /// Queries, keys and values.
    pub qkv: [Tensor; 3],
    /// The gradient of the result.
    pub dout: Tensor,
}

impl Shape {
    /// Inputs `q`, `k`, `v` and `dout` of the shape, divided by `rows` and `keys`.
    pub fn trace(&self, weights: Weights) -> Traced {
        let scope = Scope::new();
        let batch = scope.size("batch");
        let (rows, keys) = (scope.lengths("rows", &batch), scope.lengths("keys", &batch));
        let mask = self.causal.then(|| rows.row_index(&keys, self.heads).ge(&rows.key_index(&keys, self.heads)));
        let [q, k, v, dout] = self.tensors().map(|(name, by_key, width)| {
            let total: &Dim = if by_key { &keys.total } else { &rows.total };
            scope.input(name, DType::F32, &[total.clone(), self.heads.into(), width.into()])
        });
        let alpha = 1.0 / (self.width as f64).sqrt();
        Traced { scope, attention: Attention { weights, alpha, rows, keys, mask }, qkv: [q, k, v], dout }
    }

    /// Name, true for one row per key, and width of every input.
    fn tensors(&self) -> [(&'static str, bool, usize); 4] {
        let (width, value_width) = (self.width, self.value_width);
        [("q", false, width), ("k", true, width), ("v", true, value_width), ("dout", false, value_width)]
    }

    /// Random inputs.
    pub fn inputs(&self, seed: u64) -> Tensors {
        let (rows, keys): (Vec<i64>, Vec<i64>) =
            self.lengths.iter().map(|&(rows, keys)| (rows as i64, keys as i64)).unzip();
        let tensors = self.tensors().map(|(name, by_key, width)| {
            let total: i64 = if by_key { &keys } else { &rows }.iter().sum();
            let shape = [total as usize, self.heads, width];
            (name.to_owned(), Noise::new(seed, name).floats(DType::F32, &shape, 1.0))
        });
        let lengths = [("rows", &rows), ("keys", &keys)];
        let lengths = lengths.map(|(name, lengths)| (name.to_owned(), HostTensor::lengths(lengths)));
        tensors.into_iter().chain(lengths).collect()
    }

    /// The gradients `dq`, `dk` and `dv` of attention of random inputs, from its inputs and the gradient `dout` of its result.
    pub fn gradients(&self, weights: Weights, seed: u64) -> GraphCase {
        let Traced { scope, attention, qkv, dout } = self.trace(weights);
        let gradients = attention.backward(&scope, qkv.each_ref(), &dout);
        let outputs: Vec<_> = ["dq", "dk", "dv"].into_iter().zip(gradients).collect();
        GraphCase { graph: scope.finish(&outputs).unwrap(), inputs: self.inputs(seed), parameters: Tensors::new() }
    }
}
