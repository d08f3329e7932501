//! Scalar parameters are trained like others, with all options of a step.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, HostTensor, Scope};
use rewire_runtime::{Inputs, Kernel, ModelOptions};
use rewire_train::{Objective, TrainConfig, Trainer};

/// The parameter after 40 steps that fit `1.5 slope = 2`.
fn slope(keys: &str) -> f64 {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [scope.size("rows")]);
    let loss = (x * scope.parameter("slope", DType::F32, ()) - 2.0).square().mean(0);
    let objective = Objective::new(scope.finish(&[("loss", loss)]).unwrap(), "loss");
    let config = format!(
        r#"{{ "batch_size": 2, "steps": 40, {keys} "dense_optimizer": {{ "adam_optimizer": {{ "lr": 0.1 }} }},
            "sparse_optimizer": {{ "sgd_optimizer": {{ "lr": 0.1 }} }} }}"#
    );
    let config = TrainConfig::from_json(&config).unwrap();
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let mut trainer = Trainer::new(&objective, &config, |_: &str| HostTensor::f32([], &[0.5]).ok(), options).unwrap();
    let batch = Inputs::new().with("x", HostTensor::vector(&[1.5f32, 1.5]));
    let batches = vec![batch; config.gradient_accumulation_steps.get()];
    let mut preparer = trainer.preparer();
    for _ in 0..40 {
        trainer.step(preparer.prepare(batches.clone()).unwrap()).unwrap();
    }
    let slope = &trainer.parameters().unwrap()["slope"];
    assert_eq!(slope.shape(), [0usize; 0]);
    slope.to_f64()[0]
}

#[test]
fn they_learn() {
    let plain = slope("");
    assert!((plain - 4.0 / 3.0).abs() < 0.1, "{plain}");
    for keys in [
        r#""ema": { "decay": 0.9 },"#,
        r#""gradient_accumulation_steps": 3,"#,
        r#""grad_scaler": { "init_scale": 1024 },"#,
        r#""grad_scaler": {}, "gradient_accumulation_steps": 2, "ema": { "decay": 0.5 },"#,
    ] {
        let other = slope(keys);
        assert!((other - plain).abs() < 1e-5, "{keys}: {other} instead of {plain}");
    }
}
