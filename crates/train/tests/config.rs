//! Valid configurations, and errors of invalid ones.
#![allow(clippy::unwrap_used)]

use rewire_graph::Coded;
use rewire_train::Schedule;
use rewire_train::config::{ClippingType, ConfigError, DenseOptimizer, GradScaler, MixedPrecision, TrainConfig};
use serde_json::{Value, json};

fn minimal() -> Value {
    json!({
        "batch_size": 32,
        "steps": 30,
        "dense_optimizer": { "adam_optimizer": { "lr": 0.002 }, "constant_learning_rate": {} },
        "sparse_optimizer": { "rowwise_adagrad_optimizer": { "lr": 0.02 } },
    })
}

fn parsed(changes: &[(&str, Value)]) -> Result<TrainConfig, ConfigError> {
    let mut config = minimal();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = config.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() { drop(parent.remove(key)) } else { drop(parent.insert(key.to_owned(), value.clone())) }
    }
    TrainConfig::from_json(&config.to_string())
}

#[test]
fn what_is_left_out_has_the_defaults_of_the_reference() {
    let config = parsed(&[]).unwrap();
    assert_eq!((config.batch_size.get(), config.steps.unwrap().get(), config.epochs), (32, 30, None));
    assert_eq!(config.gradient_accumulation_steps.get(), 1);
    assert_eq!(config.grad_clipping.clipping_type, ClippingType::None);
    assert_eq!((config.shuffle_seed, config.mixed_precision, config.grad_scaler, config.ema), (None, None, None, None));
    assert_eq!(config.sparse_optimizer.schedule, Schedule::Constant {});
    assert!(matches!(config.dense_optimizer.optimizer, DenseOptimizer::Adam(adam) if adam.lr == 0.002));
    assert_eq!((config.dense_optimizer.rate(9, 0), config.sparse_optimizer.rate(9, 0)), (0.002, 0.02));
}

#[test]
fn all_keys() {
    let config = parsed(&[
        ("/steps", Value::Null),
        ("/epochs", json!(8)),
        ("/shuffle_seed", json!(7)),
        ("/gradient_accumulation_steps", json!(3)),
        ("/grad_clipping", json!({ "clipping_type": "norm", "max_gradient": 0.5 })),
        ("/mixed_precision", json!("FP16")),
        ("/grad_scaler", json!({ "init_scale": 1024 })),
        ("/ema", json!({ "decay": 0.999 })),
        ("/dense_optimizer/constant_learning_rate", Value::Null),
        ("/dense_optimizer/exponential_decay_learning_rate", json!({ "decay_size": 100, "decay_factor": 0.6 })),
    ])
    .unwrap();
    assert_eq!((config.steps, config.epochs.unwrap().get(), config.shuffle_seed), (None, 8, Some(7)));
    assert_eq!(config.grad_clipping.clipping_type, ClippingType::Norm);
    assert_eq!(config.mixed_precision, Some(MixedPrecision::F16));
    assert_eq!(config.grad_scaler, Some(GradScaler { init_scale: 1024.0, ..GradScaler::default() }));
    assert_eq!(GradScaler::default().growth_interval.get(), 2000);
    assert_eq!(config.ema.unwrap().decay, 0.999);
    assert!((config.dense_optimizer.rate(250, 0) - 0.002 * 0.36).abs() < 1e-15);
}

#[test]
fn errors_name_the_key_what_it_takes_and_what_came() {
    let dense = "/dense_optimizer/adam_optimizer";
    for (changes, parts) in [
        (vec![("/batch_size", json!(0))], vec!["`batch_size`", "nonzero", "0"]),
        (vec![("/batch_size", json!(-1))], vec!["`batch_size`", "-1"]),
        (vec![("/batch_size", Value::Null)], vec!["missing field `batch_size`"]),
        (vec![("/epochs", json!(2))], vec!["`steps`", "`epochs`", "both"]),
        (vec![("/steps", Value::Null)], vec!["`steps`", "`epochs`", "neither"]),
        (vec![("/learning_rate", json!(1))], vec!["`learning_rate`", "unknown field"]),
        (
            vec![("/grad_clipping", json!({ "clipping_type": "l2" }))],
            vec!["`grad_clipping.clipping_type`", "`norm`", "l2"],
        ),
        (
            vec![("/grad_clipping", json!({ "clipping_type": "value", "max_gradient": 0.0 }))],
            vec!["`grad_clipping.max_gradient`", "at least", "got 0"],
        ),
        (vec![(dense, json!({}))], vec!["`dense_optimizer.adam_optimizer`", "missing field `lr`"]),
        (vec![(dense, json!({ "lr": "fast" }))], vec!["`dense_optimizer.adam_optimizer.lr`", "fast"]),
        (vec![(dense, json!({ "lr": -0.1 }))], vec!["`dense_optimizer.adam_optimizer.lr`", "at least 0", "-0.1"]),
        (vec![(dense, json!({ "lr": 1e39 }))], vec!["`dense_optimizer.adam_optimizer.lr`", "f32", "1000000000"]),
        (
            vec![(dense, json!({ "lr": 1, "beta2": 1.0 }))],
            vec!["`dense_optimizer.adam_optimizer.beta2`", "below 1", "got 1"],
        ),
        (vec![(dense, json!({ "lr": 1, "rho": 1 }))], vec!["`dense_optimizer.adam_optimizer.rho`", "unknown field"]),
        (vec![(dense, Value::Null)], vec!["`dense_optimizer`", "expected an optimizer"]),
        (
            vec![("/dense_optimizer/sgd_optimizer", json!({ "lr": 1 }))],
            vec!["`dense_optimizer.sgd_optimizer`", "one optimizer", "`sgd_optimizer`"],
        ),
        (
            vec![("/dense_optimizer/manual_step_learning_rate", json!({}))],
            vec!["`dense_optimizer.manual_step_learning_rate`", "one learning rate", "`manual_step_learning_rate`"],
        ),
        (
            vec![(dense, Value::Null), ("/dense_optimizer/lamb_optimizer", json!({ "lr": 1 }))],
            vec!["`dense_optimizer", "lamb_optimizer", "`adamw_optimizer`"],
        ),
        (
            vec![
                (dense, Value::Null),
                (
                    "/dense_optimizer/sgd_optimizer",
                    json!({ "lr": 1, "nesterov": true, "momentum": 0.5, "dampening": 0.1 }),
                ),
            ],
            vec!["`dense_optimizer.sgd_optimizer.nesterov`", "dampening 0.1"],
        ),
        (
            vec![(
                "/sparse_optimizer/manual_step_learning_rate",
                json!({ "schedule_sizes": [3], "learning_rates": [1, 2] }),
            )],
            vec!["`sparse_optimizer.manual_step_learning_rate.learning_rates`", "1 numbers", "got 2"],
        ),
        (
            vec![(
                "/sparse_optimizer/manual_step_learning_rate",
                json!({ "schedule_sizes": [0], "learning_rates": [1], "warmup": true }),
            )],
            vec!["`sparse_optimizer.manual_step_learning_rate.schedule_sizes`", "above 0", "[0]"],
        ),
        (
            vec![("/sparse_optimizer/cosine_annealing_learning_rate", json!({ "T_max": 0 }))],
            vec!["`sparse_optimizer.cosine_annealing_learning_rate.T_max`", "nonzero"],
        ),
        (
            vec![("/sparse_optimizer/linear_learning_rate", json!({}))],
            vec!["`sparse_optimizer", "linear_learning_rate", "`constant_learning_rate`"],
        ),
        (vec![("/mixed_precision", json!("FP8"))], vec!["`mixed_precision`", "FP8", "`FP16`"]),
        (
            vec![("/grad_scaler", json!({ "backoff_factor": 1.0 }))],
            vec!["`grad_scaler.backoff_factor`", "below 1", "got 1"],
        ),
        (vec![("/ema", json!({ "decay": 1.5 }))], vec!["`ema.decay`", "at most 1", "1.5"]),
    ] {
        let error = parsed(&changes).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{changes:?}: `{part}` is not in: {error}");
        }
    }
}

#[test]
fn optimizers_that_there_are_not_for_tables_say_so() {
    for name in ["lamb", "partial_rowwise_lamb", "lars_sgd", "adadelta", "rmsprop"] {
        let error = parsed(&[("/sparse_optimizer", json!({ format!("{name}_optimizer"): { "lr": 1 } }))]).unwrap_err();
        assert!(matches!(&error, ConfigError::Unsupported { key, .. } if key == "sparse_optimizer"), "{error}");
        assert!(error.to_string().contains("rowwise_adagrad_optimizer"), "{error}");
        assert_eq!(error.code(), "train_config.unsupported");
    }
}

#[test]
fn texts_that_are_no_configuration() {
    for text in ["", "{", "[]", "3", "{} {}", "null"] {
        assert!(TrainConfig::from_json(text).is_err(), "{text}");
    }
    let text = minimal().to_string();
    assert!(matches!(TrainConfig::from_json(&format!("{text} x")), Err(ConfigError::Parse(_))));
}
