//! Maps the groups of a pipeline to the inputs of its modules.

use super::message::Hstu;
use super::{Group, Groups};
use crate::modules::{ConfigError, Sequence};
use rewire_graph::{Ragged, Tensor};

/// The groups of a pipeline by name, and the order of their sequences.
pub(super) struct Inputs<'a> {
    pub groups: &'a Groups,
    /// False if sequences start with their latest event. The modules read these in reverse order.
    pub ascending: bool,
}

impl Inputs<'_> {
    /// Contextual features `[B, sum of widths]`, and the number and width of their tokens.
    pub fn contextual(&self, concat: bool) -> Result<(Option<Tensor>, (usize, usize)), ConfigError> {
        let Some(Group::Dense { values, widths }) = self.groups.get("contextual") else { return Ok((None, (0, 0))) };
        let Some(&width) = widths.first() else { return Ok((None, (0, 0))) };
        if concat {
            return Ok((Some(values.clone()), (1, values.width())));
        }
        if let Some(other) = widths.iter().find(|other| **other != width) {
            let expected = format!("of features of {width} columns each, or `concat_contextual_features: true`");
            return Err(ConfigError::new("feature_groups.contextual", expected, format!("one of {other}")));
        }
        Ok((Some(values.clone()), (widths.len(), width)))
    }

    /// The time of the request `[B]`; `None` if no group has it.
    pub fn query_time(&self) -> Option<Tensor> {
        match self.groups.get("query_time") {
            Some(Group::Dense { values, .. }) => Some(values.reshape(&[values.dim(0)])),
            _ => None,
        }
    }

    /// The history sequence of a pipeline.
    pub fn history(&self, hstu: &Hstu) -> Result<Sequence, ConfigError> {
        let group = hstu.channel();
        let (embeddings, rows) = self.rows(group)?;
        let encoder = hstu.input_preprocessor.action_encoder().map(|encoder| encoder.encoder());
        let column = |name: &str| self.column(&format!("{group}_{name}"), &rows);
        let actions = encoder.map(|_| column("action")).transpose()?;
        let watchtimes = encoder.filter(|encoder| encoder.reads_watchtimes());
        let watchtimes = watchtimes.map(|_| column("watchtime")).transpose()?;
        let timestamps = column("timestamp")?;
        Ok(self.ordered(Sequence { embeddings, rows, timestamps, actions, watchtimes }))
    }

    /// The candidate sequence.
    pub fn candidates(&self) -> Result<Sequence, ConfigError> {
        let (embeddings, rows) = self.rows("candidate")?;
        let timestamps = self.column("candidate_timestamp", &rows)?;
        Ok(self.ordered(Sequence { embeddings, rows, timestamps, actions: None, watchtimes: None }))
    }

    /// The values `[total, W]` of a sequence group, with their ragged rows.
    pub fn rows(&self, group: &str) -> Result<(Tensor, Ragged), ConfigError> {
        match self.groups.get(group) {
            Some(Group::Jagged { values, rows }) => Ok((values.clone(), rows.clone())),
            found => {
                let actual = if found.is_some() { "a group of another type" } else { "no group" };
                Err(ConfigError::new(format!("feature_groups.{group}"), "a JAGGED_SEQUENCE group", actual))
            }
        }
    }

    /// The values `[total]` of a group with one column, one value per row of `rows`. The run fails if the numbers of rows differ.
    fn column(&self, group: &str, rows: &Ragged) -> Result<Tensor, ConfigError> {
        let (values, own) = self.rows(group)?;
        if values.width() != 1 {
            let key = format!("feature_groups.{group}");
            return Err(ConfigError::new(key, "a group of one column", format!("{} columns", values.width())));
        }
        let beside = if own.lengths.value() == rows.lengths.value() {
            values
        } else {
            let lengths = own.lengths.at_most(&rows.lengths, group);
            values.jagged_head(&Ragged::from_lengths(&lengths), rows)
        };
        Ok(beside.reshape(std::slice::from_ref(&rows.total)))
    }

    fn ordered(&self, sequence: Sequence) -> Sequence {
        if self.ascending {
            return sequence;
        }
        let order = reversed(&sequence.rows);
        let of = |x: &Tensor| x.gather(&order);
        Sequence {
            embeddings: of(&sequence.embeddings),
            timestamps: of(&sequence.timestamps),
            actions: sequence.actions.as_ref().map(of),
            watchtimes: sequence.watchtimes.as_ref().map(of),
            rows: sequence.rows,
        }
    }

    /// Restores candidate rows from the modules' order to the order of the input.
    pub fn restored(&self, x: &Tensor, rows: &Ragged) -> Tensor {
        if self.ascending { x.clone() } else { x.gather(&reversed(rows)) }
    }
}

/// Indices that reverse the rows of every sample, `[total]`.
fn reversed(rows: &Ragged) -> Tensor {
    (rows.sample_end() - rows.position()) - 1.0
}
