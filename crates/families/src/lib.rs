//! Model families of TorchEasyRec pipelines, traced from their configurations.
//!
//! [`trace`] builds the graph of a whole `EasyRecConfig`. Inputs are named as in [`rewire_features`], parameters as in TorchEasyRec's
//! state dict without the leading `model.`, outputs as in TorchEasyRec's predictions. [`trace_losses`] adds the losses of the
//! configuration and inputs for labels. Here and below, "the reference" is TorchEasyRec.
//!
//! # Where the reference surprises
//!
//! Predictions match the reference's actual behaviour in training, evaluation and prediction, even if a configuration suggests
//! something else:
//!
//! - A pooled and an unpooled table with the same name are two tables. The queries of SEQUENCE groups also use unpooled tables.
//! - Id weights apply to both sums and means; a mean divides by the number of ids, not by the sum of their weights. (The reference's
//!   export ignores weights.)
//! - Encoded columns are used as they are: `sequence_length`, `boundaries` and vocabularies determine table sizes, but do not
//!   truncate or map values.
//! - Numbers are `F32`. This includes seconds since the epoch, which therefore have a resolution of 128 seconds.
//! - `aggregation_dim` of mask blocks only applies if `reduction_ratio` is 0, because its default is 1.
//! - Units of `time_duration_period_units` are counted in F32, which is inaccurate for units below 128 seconds.
//! - Sequences of a SEQUENCE group are truncated or padded, row by row, to the length of the group's first sequence. The reference pads
//!   to the longest sequence of the batch, so its results depend on the batch if the lengths within a row differ.
//! - The logits of wide columns are added to every class.
//! - `mind` uses `log2` of the number of steps as the number of capsules, unless `const_caps_num` is set, and feeds the softmax of the
//!   routing logits into the next iteration. With `routing_init_method` `normal`, the default, the reference draws random routing
//!   logits for every batch, even in evaluation. Here they are drawn once per position in the history, so that predictions are
//!   reproducible and do not depend on the batch.
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
