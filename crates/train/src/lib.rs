//! Training: configurations, learning rates, optimizers, losses, and a [`Trainer`] of any graph with a loss.
//!
//! An optimizer is arithmetic on symbolic tensors, like a model: it is fused into kernels and runs wherever models run.
//!
//! ```
//! use rewire_graph::{DType, HostTensor, Scope, interpret};
//! use rewire_train::TrainConfig;
//! use std::collections::HashMap;
//!
//! let config = TrainConfig::from_json(
//!     r#"{ "batch_size": 32, "steps": 100,
//!          "dense_optimizer": { "sgd_optimizer": { "lr": 0.5 } },
//!          "sparse_optimizer": { "adagrad_optimizer": { "lr": 0.1 }, "constant_learning_rate": {} } }"#,
//! )?;
//! let optimizer = config.dense_optimizer.build()?;
//!
//! // One step of x -= rate * 2 x; the gradient 2 x is an input.
//! let scope = Scope::new();
//! let [rate, x, gradient] = ["rate", "x", "gradient"].map(|name| scope.input(name, DType::F32, [1]));
//! let updated = optimizer.update(&rate, &[], &x, &gradient, &[]);
//! let graph = scope.finish(&[("x'", updated.parameter)])?;
//!
//! let inputs = [("rate", config.dense_optimizer.rate(0, 0)), ("x", 3.0), ("gradient", 2.0 * 3.0)];
//! let inputs = inputs.map(|(name, value)| (name.to_owned(), HostTensor::vector(&[value as f32])));
//! let outputs = interpret(&graph, &HashMap::from(inputs), &HashMap::new())?;
//! assert_eq!(outputs["x'"].to_f64(), [0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod clip;
pub mod config;
mod growing;
mod objective;
mod optimizer;
mod random;
mod scaler;
mod schedule;
mod step;
mod trainer;

pub use clip::global_norm;
pub use config::{ConfigError, TrainConfig};
pub use growing::{GrowingTables, InitialRows};
pub use objective::Objective;
pub use optimizer::{Direction, Moment, Optimizer, Rule, Updated, WeightDecay};
pub use random::Random;
pub use rewire_distributed as distributed;
pub use rewire_losses as loss;
pub use rewire_metrics as metrics;
pub use rewire_tables as tables;
pub use scaler::LossScale;
pub use schedule::{CosineAnnealing, CosineAnnealingWarmRestarts, ExponentialDecay, ManualStep, Schedule};
pub use step::StepError;
pub use trainer::{
    Changes, Data, DataError, Event, Fitted, Held, InitialValues, ParameterMoment, Position, Prepared, Preparer, Share,
    StepReport, TrainError, Trainer, fit,
};
