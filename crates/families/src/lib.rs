//! Model families of TorchEasyRec pipelines, traced from their configurations.
//!
//! [`trace`] builds the graph of a whole `EasyRecConfig`. Its inputs are those of [`rewire_features`], its parameters have the names of
//! the reference's state dict without the leading `model.`, its outputs those of the reference's predictions. [`trace_losses`] adds the
//! losses of the configuration and inputs for labels.
//!
//! # Where the reference surprises
//!
//! Predictions match the behaviour of the reference in training, evaluation and prediction, also where a configuration
//! suggests otherwise:
//!
//! - A pooled and an unpooled table with the same name are two tables. SEQUENCE groups use unpooled ones for their queries as
//!   well.
//! - Weights of ids count in sums and means; a mean is divided by the number of ids, not by their weights. (The reference's export ignores
//!   them.)
//! - Encoded columns are used as they are: `sequence_length`, `boundaries` and vocabularies set the sizes of tables, but do not
//!   truncate or map values.
//! - Numbers are `F32`, including times since the epoch, which then have steps of 128 seconds.
//! - `aggregation_dim` of mask blocks only applies if `reduction_ratio` is 0, because its default is 1.
//! - Units of `time_duration_period_units` are counted in F32, which miscounts those shorter than 128 seconds.
//! - Sequences of a SEQUENCE group are truncated or padded to the first one of the group, row by row. The reference pads to the batch's
//!   longest, so a row depends on its batch if the lengths in a row differ.
//! - The logits of wide columns are added to every class.
//! - `mind` has `log2` of the number of steps as capsules, unless `const_caps_num` is set, and keeps routing logits after their softmax. If
//!   `routing_init_method` is `normal`, the default, the reference draws random routing logits in every batch, also in evaluation. Here
//!   they are drawn once per position in the history, so that predictions are reproducible and do not depend on the batch.
//! - `rocket_launching` predicts only with its light branch.
#![forbid(unsafe_code)]

mod hstu;
mod losses;
mod models;
mod modules;
mod trace;

pub use hstu::{HISTORIES, TracedCached, trace_cached};
pub use losses::{LOSS, Matching, SIMILARITY, TOTAL, Task, TracedLosses, trace_losses};
pub use trace::{Channel, Histories, Interface, Output, OutputRows, TraceError, Traced, trace};
