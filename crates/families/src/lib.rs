//! Model families of TorchEasyRec pipelines, traced from their configurations.
//!
//! [`trace`] makes a graph of a whole `EasyRecConfig`. Its inputs are those of [`rewire_features`], its parameters have the names of the
//! reference's state dict without the leading `model.`, its outputs those of the reference's predictions. [`trace_losses`] adds the
//! losses of the configuration and inputs for labels.
//!
//! # Where the reference surprises
//!
//! Predictions follow the reference as it trains, evaluates and predicts, where that is not what a configuration suggests too:
//!
//! - A pooled and an unpooled table of one name are two tables. SEQUENCE groups read unpooled ones for their queries as well.
//! - Weights of ids count in sums and means; a mean divides by the number of ids, not by their weights. (The reference's export ignores them.)
//! - Encoded columns are taken as they are: `sequence_length`, `boundaries` and vocabularies size tables and truncate or map nothing.
//! - Numbers are `F32`, times since the epoch among them, which then have steps of 128 seconds.
//! - `aggregation_dim` of mask blocks counts only where `reduction_ratio` is 0, as that is 1 by default.
//! - Units of `time_duration_period_units` are counted in F32, which miscounts those shorter than 128 seconds.
//! - Sequences of a SEQUENCE group are cut or padded to the first one of the group row by row; the reference pads to the batch's longest, which
//!   makes a row depend on its batch where the lengths in a row differ.
//! - The logits of wide columns are added to every class.
//! - `mind` has `log2` of the number of steps as capsules, unless `const_caps_num` is set, and carries on routing logits after their softmax.
//!   Where `routing_init_method` is `normal`, the default, the reference draws routing logits at random in every batch, in evaluation too;
//!   here they are drawn once by the place of a step in its history, so that predictions can be repeated and do not depend on a batch.
//! - `rocket_launching` predicts by its light branch alone.
#![forbid(unsafe_code)]

mod hstu;
mod losses;
mod models;
mod modules;
mod trace;

pub use hstu::{HISTORIES, TracedCached, trace_cached};
pub use losses::{LOSS, Matching, SIMILARITY, TOTAL, Task, TracedLosses, trace_losses};
pub use trace::{Channel, Histories, Interface, Output, OutputRows, TraceError, Traced, trace};
