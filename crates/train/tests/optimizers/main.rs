//! Compares optimizers with f64 loops written from their definitions.
#![allow(clippy::unwrap_used, clippy::panic)]

mod dense;
mod tables;
mod trial;

use rewire_graph::{DType, Scope, Tensor};
use rewire_train::{Direction, Optimizer, Rule, WeightDecay};
use trial::{Trial, dense_optimizer};

#[test]
fn a_missing_moment_is_an_error_of_the_trace() {
    let scope = Scope::new();
    let [rate, x, g] = ["rate", "x", "g"].map(|name| scope.input(name, DType::F32, [1]));
    let optimizer = dense_optimizer(r#"{ "adagrad_optimizer": { "lr": 0.1 } }"#).build().unwrap();
    let updated = optimizer.update(&rate, &[], &x, &g, &[]);
    let error = scope.finish(&[("x'", updated.parameter)]).unwrap_err().to_string();
    assert!(error.contains("1 moments") && error.contains("moments"), "{error}");
}

#[test]
fn a_gradient_of_another_shape_is_an_error_of_the_trace() {
    let scope = Scope::new();
    let [rate, g] = ["rate", "g"].map(|name| scope.input(name, DType::F32, [1]));
    let x = scope.input("x", DType::F32, [4]);
    let optimizer = dense_optimizer(r#"{ "sgd_optimizer": { "lr": 0.1 } }"#).build().unwrap();
    let updated = optimizer.update(&rate, &[], &x, &g, &[]);
    assert!(scope.finish(&[("x'", updated.parameter)]).unwrap_err().to_string().contains("gradient"));
}

#[test]
fn scalars_stay_scalars() {
    for config in
        [r#"{ "adamw_optimizer": { "lr": 0.1 } }"#, r#"{ "rmsprop_optimizer": { "lr": 0.1, "momentum": 0.5 } }"#]
    {
        let optimizer = dense_optimizer(config).build().unwrap();
        Trial { optimizer, shape: vec![], steps: 2, seed: 3 }.run();
    }
}

/// `step = g / (1 + |g|)`
#[derive(Debug)]
struct Own;

impl Rule for Own {
    fn direction(&self, _: &[Tensor], gradient: &Tensor, _: &[Tensor]) -> Option<Direction> {
        Some(Direction { step: gradient / (gradient.abs() + 1.0), moments: vec![] })
    }
}

#[test]
fn rules_of_ones_own_take_decay_and_limits() {
    let optimizer = Optimizer::new(Own).with_weight_decay(WeightDecay::Coupled(0.25)).with_max_gradient(0.5);
    Trial { optimizer, shape: vec![2, 3], steps: 5, seed: 11 }.compare(|w, g, rate, _, _| {
        for (w, g) in w.iter_mut().zip(g) {
            let g = g.clamp(-0.5, 0.5) + 0.25 * *w;
            *w -= rate * g / (1.0 + g.abs());
        }
    });
}
