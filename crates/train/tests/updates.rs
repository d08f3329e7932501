//! Small dense parameters are updated as one vector, whatever their number.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, HostTensor, Scope};
use rewire_runtime::{Kernel, ModelOptions};
use rewire_train::{Objective, TrainConfig, Trainer};

const WIDTH: usize = 6;

/// Kernels of a step of layers with a matrix and a bias each, of which some learn: all, and those that are no sums.
fn kernels(count: usize, learned: usize, keys: &str) -> (usize, usize) {
    let scope = Scope::new();
    let mut x = scope.input("x", DType::F32, [scope.size("rows"), WIDTH.into()]);
    let mut frozen = vec![];
    for layer in 0..count {
        let [matrix, bias] = ["weight", "bias"].map(|name| format!("{layer}.{name}"));
        let weight = scope.parameter(&matrix, DType::F32, [WIDTH, WIDTH]);
        x = (x.matmul(&weight) + scope.parameter(&bias, DType::F32, [WIDTH])).tanh();
        frozen.extend([matrix, bias].into_iter().filter(|_| layer >= learned));
    }
    let loss = x.square().sum(1).mean(0);
    let objective = Objective::new(scope.finish(&[("loss", loss)]).unwrap(), "loss").frozen(frozen);
    let config = format!(
        r#"{{ "batch_size": 2, "steps": 4, {keys} "dense_optimizer": {{ "adam_optimizer": {{ "lr": 0.1 }} }},
            "sparse_optimizer": {{ "sgd_optimizer": {{ "lr": 0.1 }} }} }}"#
    );
    let begin = |name: &str| {
        let shape = if name.ends_with("bias") { vec![WIDTH] } else { vec![WIDTH, WIDTH] };
        HostTensor::f32(shape.clone(), &vec![0.125; shape.iter().product()]).ok()
    };
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let trainer = Trainer::new(&objective, &TrainConfig::from_json(&config).unwrap(), begin, options).unwrap();
    let steps = &trainer.plan().steps;
    let is_sum = |name: &str| ["reduce", "segment_sum", "matmul", "jagged_jagged_matmul", "addmm"].contains(&name);
    (steps.len(), steps.iter().filter(|step| !is_sum(&step.name)).count())
}

#[test]
fn kernels_grow_by_a_half_a_parameter() {
    let [few, all] = [4, 16].map(|learned| kernels(16, learned, ""));
    let more = 2 * 12;
    assert!(all.1 - few.1 <= more / 2 + 1, "{few:?}, {all:?}: for {more} parameters more");
    // A norm of all gradients takes as many kernels whatever their number.
    for (learned, plain) in [(4, few), (16, all)] {
        let clipped = kernels(16, learned, r#""grad_clipping": { "clipping_type": "norm", "max_gradient": 1.0 },"#);
        assert!(clipped.0 <= plain.0 + 2, "{clipped:?}, {plain:?}");
    }
}
