use rewire_graph::{DType, HostTensor, Ragged, Scope, Tensor, TypeError};
use serde::Deserialize;

/// Extracts a user's interests as capsules, by dynamic routing of the steps of a history.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapsuleConfig {
    #[serde(default = "max_k")]
    pub max_k: usize,
    pub max_seq_len: i64,
    pub high_dim: usize,
    #[serde(default = "num_iters")]
    pub num_iters: usize,
    #[serde(default = "scale")]
    routing_logits_scale: f64,
    #[serde(default = "one")]
    routing_logits_stddev: f64,
    #[serde(default = "one")]
    squash_pow: f64,
    #[serde(default)]
    const_caps_num: bool,
    #[serde(default)]
    pub routing_init_method: Init,
}

/// Initialization of the routing logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Init {
    #[default]
    Normal,
    Zeros,
}

fn max_k() -> usize {
    5
}

fn num_iters() -> usize {
    3
}

fn scale() -> f64 {
    20.0
}

fn one() -> f64 {
    1.0
}

/// The minimum norm; shorter vectors are divided by it.
const SHORTEST: f64 = 1e-7;

/// Pseudorandom bits for an index: the output of the generator SplitMix64.
fn mixed(index: u64) -> u64 {
    let state = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl CapsuleConfig {
    /// Maps steps `[steps, C]` to capsules `[B, K, high_dim]` and a mask of active capsules `[B, K]`. For a history of `n` steps, capsule
    /// `k` is active if `k = 0`, `2^k < n`, or `const_caps_num` is set.
    pub fn forward(&self, scope: &Scope, steps: &Tensor, rows: &Ragged) -> (Tensor, Tensor) {
        let kept = Ragged::from_lengths(&rows.lengths.minimum(self.max_seq_len));
        let steps = steps.jagged_head(rows, &kept);
        let matrix = scope.weight("bilinear_matrix", [steps.width(), self.high_dim]);
        let low = steps.matmul(&matrix);
        let directions = low.unit_rows(1e-12);
        let counts = kept.lengths.cast(DType::F32).reshape([kept.batch.clone(), 1.into()]);
        let on = self.on(scope, &counts);
        let on_steps = self.on(scope, &counts.jagged_broadcast(&kept));
        let off = scope.scalar(DType::F32, f64::NEG_INFINITY);
        let mut routing = match self.routing_init_method {
            Init::Zeros => scope.scalar(DType::F32, 0.0).broadcast([kept.total.clone(), self.max_k.into()]),
            Init::Normal => self.draw(scope).gather(&kept.position()),
        };
        let mut capsules = None;
        for iteration in 0..self.num_iters {
            routing = (on_steps.select(&routing, &off) * self.routing_logits_scale).softmax(1);
            let high = routing.jagged_jagged_matmul(&low, &kept);
            if iteration + 1 < self.num_iters {
                routing = &routing + directions.jagged_matmul(&high.transpose(1, 2), &kept);
            }
            capsules = Some(high);
        }
        match capsules {
            Some(capsules) => (self.squash(&capsules), on),
            None => (scope.fail("capsules", TypeError::new("num_iters", "at least 1", 0)), on),
        }
    }

    /// Normally distributed numbers by position in the history, `[max_seq_len, max_k]`. They are the same in every trace; the reference
    /// draws new ones for every batch.
    fn draw(&self, scope: &Scope) -> Tensor {
        let steps = usize::try_from(self.max_seq_len).unwrap_or(0).max(1);
        let uniform = |index: u64| (mixed(index) >> 11) as f64 / (1_u64 << 53) as f64;
        let normal = |index: u64| {
            // Box-Muller transform of two uniform numbers, the first above 0.
            let (radius, angle) = (1.0 - uniform(2 * index), uniform(2 * index + 1));
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos() * self.routing_logits_stddev
        };
        let count = (steps * self.max_k) as u64;
        match HostTensor::f32([steps, self.max_k], &(0..count).map(|index| normal(index) as f32).collect::<Vec<_>>()) {
            Ok(drawn) => scope.constant(drawn),
            Err(error) => scope.fail("capsules", TypeError::new("max_seq_len", "a shorter history", error)),
        }
    }

    /// The mask of active capsules `[R, K]` for rows with these numbers of steps `[R, 1]`.
    fn on(&self, scope: &Scope, counts: &Tensor) -> Tensor {
        let least = |k: usize| if k == 0 || self.const_caps_num { -1.0 } else { 2f32.powi(k as i32) };
        let least: Vec<f32> = (0..self.max_k).map(least).collect();
        match HostTensor::f32([1, self.max_k], &least) {
            Ok(least) => counts.gt(scope.constant(least)),
            Err(error) => scope.fail("capsules", TypeError::new("max_k", "fewer capsules", error)),
        }
    }

    fn squash(&self, capsules: &Tensor) -> Tensor {
        let square = capsules.square().sum(2).maximum(SHORTEST * SHORTEST);
        let factor = (&square / (&square + 1.0)).pow(self.squash_pow) * square.rsqrt();
        capsules * factor
    }
}
