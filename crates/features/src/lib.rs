//! Features of TorchEasyRec pipelines: maps encoded columns (`fg_mode: FG_NONE`) to groups of embeddings.
//!
//! [`Features::parse`] parses `feature_configs` and `feature_groups`. [`Features::trace`] traces a group: DEEP and WIDE groups as
//! pooled bags, SEQUENCE groups as queries and jagged steps, JAGGED_SEQUENCE groups as jagged steps. [`Features::encode`]
//! converts [`Column`]s to inputs of the traced graph. [`LabelColumn`] reads labels and weights.
//!
//! # Inputs of a graph
//!
//! `B` is the batch size. All groups that use a feature share its inputs.
//!
//! | feature | input | type |
//! |---|---|---|
//! | ids | `<feature>.lengths` | integers `[B]`, read on the host: ids of every row |
//! | | `<feature>.values` | U32 `[ids]`; for tables that [grow](Growing), [`Features::encode`] returns raw ids, I64 |
//! | | `<feature>.weights` | F32 `[ids]`, of weighted features |
//! | floats | `<feature>.values` | F32 `[B, value_dim]` |
//! | sequence of ids | `<feature>.lengths` | integers `[B]`, read on the host: steps of every row |
//! | | `<feature>.key_lengths` | integers `[steps]`, read on the host: ids of every step, unless `value_dim` is 1 |
//! | | `<feature>.values` | U32 `[ids]` |
//! | sequence of floats | `<feature>.lengths` | integers `[B]`, read on the host: steps of every row |
//! | | `<feature>.values` | F32 `[steps, value_dim]` |
//!
//! All features of a JAGGED_SEQUENCE group have the same lengths: they share one `lengths` input, named after the alphabetically
//! first feature.
#![forbid(unsafe_code)]

mod cells;
mod column;
mod encode;
mod feature;
mod group;
mod growing;
mod label;
mod message;
mod problem;
mod table;
mod vocabulary;

pub use cells::{MixedCells, OwnedCell};
pub use column::{Cell, Column, Data, Offsets, Validity, rows_of};
pub use encode::{EncodeError, NegativeRow};
pub use feature::{DenseEmbedding, Feature, FeatureValues, Pooling, SequenceForm};
pub use group::{Group, Part, SequenceSteps};
pub use growing::{DefaultRow, Growing, Origin};
pub use label::{LabelColumn, LabelValues};
pub use message::{GroupConfig, GroupType, SequenceGroupConfig, read};
pub use problem::{Problem, Problems};
pub use table::Features;
pub use vocabulary::{size_vocabularies, vocabulary_files};
