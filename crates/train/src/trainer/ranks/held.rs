use super::Ranks;
use super::tables::{Column, Rows};
use crate::step::KeptMoment;
use crate::trainer::initial::rows_of;
use rewire_graph::{HostTensor, TensorSizeError};
use std::ops::Range;

/// The rows of a table or of one of its moments on a rank.
#[derive(Clone, Debug)]
pub struct Held<'a> {
    /// The table.
    pub parameter: &'a str,
    /// The moment, as in [`ParameterMoment`](crate::ParameterMoment); `None` for the table itself.
    pub moment: Option<&'static str>,
    /// The shape of the whole tensor.
    pub shape: &'a [usize],
    /// The rows on this rank.
    pub rows: Range<usize>,
    column: &'a Column,
}

impl<'a> Held<'a> {
    pub(super) fn new(table: &'a Rows, column: &'a Column, ranks: &Ranks, moments: &'a [KeptMoment]) -> Self {
        let moment = moments.iter().find(|moment| moment.state == column.state);
        let shape = moment.map_or(&column.shape, |moment| &moment.shape);
        let rows = table.held(ranks.group.rank());
        Self { parameter: &table.name, moment: moment.map(|moment| moment.moment), shape, rows, column }
    }

    /// A range of the held rows, with row numbers of the whole table.
    ///
    /// # Errors
    /// [`TensorSizeError`] if there is not enough memory for them.
    pub fn part(&self, rows: Range<usize>) -> Result<HostTensor, TensorSizeError> {
        let own = rows.start.saturating_sub(self.rows.start)..rows.end.min(self.rows.end) - self.rows.start;
        HostTensor::f32(rows_of(self.shape, &own), &self.column.get(own))
    }
}
