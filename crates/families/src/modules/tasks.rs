use super::optional_mlp;
use rewire_graph::{DType, HostTensor, Scope, Tensor, TypeError};
use rewire_hstu::modules::{MlpConfig, linear};
use serde::Deserialize;
use serde_json::Value;

/// A task of a multi-task model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskConfig {
    pub tower_name: String,
    #[serde(default)]
    pub losses: Vec<Value>,
    #[serde(default = "one")]
    pub num_class: usize,
    #[serde(default)]
    pub mlp: Option<MlpConfig>,
    /// Earlier tasks whose outputs are inputs of the relation MLP.
    #[serde(default)]
    pub relation_tower_names: Vec<String>,
    #[serde(default)]
    pub relation_mlp: Option<MlpConfig>,
    /// Earlier tasks whose rows intervene in this task.
    #[serde(default)]
    pub intervention_tower_names: Vec<String>,
    #[serde(default)]
    pub low_rank_dim: Option<usize>,
    // The following keys only affect training and evaluation.
    #[serde(default, rename = "dropout_ratio")]
    _dropout_ratio: Value,
    #[serde(default, rename = "label_name")]
    _label_name: Value,
    #[serde(default, rename = "metrics")]
    _metrics: Value,
    #[serde(default, rename = "train_metrics")]
    _train_metrics: Value,
    #[serde(default, rename = "weight")]
    _weight: Value,
    #[serde(default, rename = "task_space_indicator_label")]
    _task_space_indicator_label: Value,
    #[serde(default, rename = "in_task_space_weight")]
    _in_task_space_weight: Value,
    #[serde(default, rename = "out_task_space_weight")]
    _out_task_space_weight: Value,
    #[serde(default, rename = "sample_weight_name")]
    _sample_weight_name: Value,
}

fn one() -> usize {
    1
}

impl TaskConfig {
    /// Maps rows `[B, D]` to logits `[B, num_class]`.
    pub fn tower(&self, scope: &Scope, x: &Tensor) -> Tensor {
        let hidden = optional_mlp(scope, "tower_mlp", self.mlp.as_ref(), x);
        linear(scope, "linear", &hidden, self.num_class)
    }
}

/// The rows of a task after the intervention of other tasks: `own + (own R_b - others R_s) R_b^T`, where the columns of `R_b` and
/// `R_s` are orthonormal.
pub(crate) fn intervene(scope: &Scope, own: &Tensor, others: &Tensor, rank: usize) -> Tensor {
    let base = orthonormal(scope, "base_rotate_layer", own.width(), rank);
    let source = orthonormal(scope, "source_rotate_layer", others.width(), rank);
    own + (own.matmul(&base) - others.matmul(&source)).matmul(&base.transpose(0, 1))
}

/// Maximum width of a task with interventions, whose rotation matrix is square.
const MOST: usize = 1 << 12;

/// A matrix `[n, k]`, n > k, with orthonormal columns in torch's orthogonal parametrization: `P Q`, where `Q` is the product of the
/// Householder reflections stored below the diagonal of `X`, with columns signed by the diagonal.
fn orthonormal(scope: &Scope, name: &str, n: usize, k: usize) -> Tensor {
    let (x, p) = scope.module(&format!("{name}.parametrizations.weight"), |scope| {
        (scope.weight("original", [n, k]), scope.weight("0.base", [n, n]))
    });
    if n <= k || n > MOST {
        let expected = format!("below the width of the task, {n}, which is at most {MOST}");
        return scope.fail("orthogonal", TypeError::new("low_rank_dim", expected, k));
    }
    let matrix = |entry: &dyn Fn(usize, usize) -> bool, columns: usize, first: usize| {
        let values: Vec<f32> = (0..n)
            .flat_map(|row| (first..first + columns).map(move |column| (row, column)))
            .map(|(row, column)| if entry(row, column) { 1.0 } else { 0.0 })
            .collect();
        HostTensor::f32([n, columns], &values)
    };
    let constant = |tensor: Result<HostTensor, _>| match tensor {
        Ok(tensor) => scope.constant(tensor),
        Err(error) => scope.fail("orthogonal", TypeError::new("low_rank_dim", "a smaller matrix", error)),
    };
    let unit = |columns: usize, first: usize| constant(matrix(&|row, column| row == column, columns, first));
    let mut q = unit(k, 0);
    for j in (0..k).rev() {
        let below = constant(matrix(&|row, column| row > column, 1, j));
        let below = x.slice(1, j, 1) * below;
        let scale = scope.scalar(DType::F32, 2.0) / (below.square().sum(0) + 1.0);
        let v = below + unit(1, j);
        q = &q - (&v * &scale).matmul(&v.transpose(0, 1).matmul(&q));
    }
    let signs = (&x * unit(k, 0)).sum(0).trunc();
    p.matmul(&(q * signs))
}
