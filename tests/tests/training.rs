//! Long trainings use no more memory than short ones, and they converge.

use rewire::train::{Objective, TrainConfig, Trainer, loss};
use rewire_graph::{DType, HostTensor, Mode, Scope};
use rewire_hstu::modules::MlpConfig;
use rewire_runtime::{Inputs, Kernel};
use rewire_tests::backend::options;
use rewire_tests::case::parameter;
use rewire_tests::noise::Noise;
use std::collections::BTreeMap;

/// Steps after which memory is looked at.
const STEPS: [u64; 2] = [100, 1000];
/// Bytes by which a process may grow between them: drivers and allocators keep pages for themselves.
const SLACK: u64 = 2 << 20;

/// Users and items, of whose tables a logit is made by a small network.
fn objective() -> Objective {
    let scope = Scope::new();
    let pairs = scope.size("pairs");
    let [user, item] = ["user", "item"].map(|name| {
        let ids = scope.input(name, DType::U32, [&pairs]);
        scope.parameter(&format!("{name}.weight"), DType::F32, [500, 12]).gather(&ids)
    });
    let weight = |name: &str, shape: [usize; 2]| scope.parameter(name, DType::F32, shape);
    let hidden = scope.concat(&[&user, &item], 1).matmul(&weight("hidden", [24, 25])).silu();
    let hidden = hidden.layer_norm(
        &scope.parameter("scale", DType::F32, [25]),
        &scope.parameter("shift", DType::F32, [25]),
        1e-5,
    );
    let logit = hidden.matmul(&weight("out", [25, 1])).reshape([&pairs]);
    let label = scope.input("label", DType::F32, [&pairs]);
    let mean = loss::mean(&scope, &loss::binary_cross_entropy(&logit, &label), None);
    Objective::new(scope.finish(&[("loss", mean)]).unwrap(), "loss").tables(["user.weight", "item.weight"])
}

fn batch(seed: u64) -> Inputs {
    let count = 1 + (seed % 7) as usize * 5;
    let mut noise = Noise::new(seed, "batch");
    let [user, item] = [0, 1].map(|_| noise.integers(DType::U32, &[count], 0, 500));
    let label: Vec<f32> = (0..count).map(|_| noise.below(0, 2) as f32).collect();
    Inputs::new().with("user", user).with("item", item).with("label", HostTensor::vector(&label))
}

/// Resident memory of the process in bytes; 0 if the system does not report it.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

#[test]
fn a_thousand_steps_take_the_memory_of_a_hundred() {
    let config = r#"{ "batch_size": 4, "steps": 1000, "dense_optimizer": { "adam_optimizer": { "lr": 0.01 } },
        "sparse_optimizer": { "rowwise_adagrad_optimizer": { "lr": 0.05 } }, "ema": { "decay": 0.9 },
        "grad_clipping": { "clipping_type": "norm", "max_gradient": 1.0 } }"#;
    let config = TrainConfig::from_json(config).unwrap();
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(options) = options(kernel) else { continue };
        let shape = |name: &str| match name {
            "hidden" => vec![24, 25],
            "out" => vec![25, 1],
            "scale" | "shift" => vec![25],
            _ => vec![500, 12],
        };
        let begin = |name: &str| Some(parameter(name, DType::F32, &shape(name), 1));
        let mut trainer = Trainer::new(&objective(), &config, begin, options).unwrap();
        let mut preparer = trainer.preparer();
        let mut seen = vec![];
        for step in 1..=STEPS[1] {
            let reports = trainer.submit(preparer.prepare(vec![batch(step)]).unwrap()).unwrap();
            assert!(reports.iter().all(|report| report.loss.is_finite()));
            if STEPS.contains(&step) {
                trainer.reports().unwrap();
                let report = trainer.report();
                seen.push((resident(), report.device_bytes, report.host_bytes));
            }
        }
        println!("{kernel}: {seen:?}");
        let [(early, device, host), (late, later_device, later_host)] = seen[..] else { panic!("{seen:?}") };
        assert_eq!((device, host), (later_device, later_host), "{kernel}");
        assert!(late < early + SLACK, "{kernel}: {early} to {late}");
    }
}

#[test]
fn batch_norms_learn_statistics_scale_and_shift() {
    let config = serde_json::json!({ "hidden_units": [7, 1], "use_bn": true, "activation": "nn.Tanh" });
    let config: MlpConfig = serde_json::from_value(config).unwrap();
    let scope = Scope::new().with_mode(Mode::Train);
    let x = scope.input("x", DType::F32, (scope.size("rows"), 5));
    let error = (config.forward(&scope, &x) - 0.75).square();
    let objective = Objective::new(scope.finish(&[("loss", error.sum(1).mean(0))]).unwrap(), "loss");
    let shapes: BTreeMap<String, Vec<usize>> =
        objective.graph().parameters().into_iter().map(|own| (own.name, own.shape)).collect();
    // Running statistics are states, no parameters. Variances are above 0 in `parameter` where names end with `var`.
    let statistics = |name: &str| if name.starts_with("mlp.0.") { vec![7] } else { vec![1] };
    let begin = |name: &str| {
        let shape = shapes.get(name).cloned().unwrap_or_else(|| statistics(name));
        Some(parameter(name, DType::F32, &shape, 1))
    };
    let training = r#"{ "batch_size": 4, "steps": 9, "dense_optimizer": { "adam_optimizer": { "lr": 0.05, "weight_decay": 0.01 } },
        "sparse_optimizer": { "sgd_optimizer": { "lr": 0.05 } } }"#;
    let training = TrainConfig::from_json(training).unwrap();
    let mut trainer = Trainer::new(&objective, &training, begin, options(Kernel::Cpu).unwrap()).unwrap();
    let mut preparer = trainer.preparer();
    for _ in 0..9 {
        let batch = Inputs::new().with("x", Noise::new(2, "x").floats(DType::F32, &[4, 5], 1.0));
        trainer.step(preparer.prepare(vec![batch]).unwrap()).unwrap();
    }
    let after = trainer.parameters().unwrap();
    assert_eq!(after.len(), 10);
    for (name, tensor) in after {
        assert!(tensor != begin(&name).unwrap(), "{name}");
    }
}
