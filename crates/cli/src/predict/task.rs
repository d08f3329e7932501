//! The computation for every request.

use super::frame::{Data, Frame};
use crate::rank::Fitted;
use crate::requests::{Cell, Value};
use crate::spread;
use rewire::rank::{Batch, RankError, Schema, Spread, User};
use rewire::runtime::Report;

/// A model that computes rows from requests.
pub trait Task: Send + Sync {
    /// Its input schema.
    fn schema(&self) -> &Schema;

    /// An empty batch.
    fn batch(&self) -> Batch;

    /// Describes where it runs.
    fn report(&self) -> Report;

    /// The maximum number of rows of a sequence.
    fn max_seq_len(&self) -> usize;

    /// The columns before the copied ones, without rows.
    fn columns(&self) -> Vec<(String, Data)>;

    /// The rows of a batch, in its order.
    fn compute(&self, batch: &Batch) -> Result<Rows, RankError>;
}

/// The result for a batch.
pub struct Rows {
    pub frame: Frame,
    /// Rows of each request.
    pub counts: Vec<usize>,
    pub fitted: Fitted,
}

impl<T: Task> Task for Spread<T> {
    fn schema(&self) -> &Schema {
        self.first().schema()
    }

    fn batch(&self) -> Batch {
        self.first().batch()
    }

    fn report(&self) -> Report {
        spread::report(self, Task::report)
    }

    fn max_seq_len(&self) -> usize {
        self.first().max_seq_len()
    }

    fn columns(&self) -> Vec<(String, Data)> {
        self.first().columns()
    }

    fn compute(&self, batch: &Batch) -> Result<Rows, RankError> {
        self.run(|task| task.compute(batch))
    }
}

/// The values of copied columns for the rows of each request: its candidates, if there is a value for each.
pub fn by_row(carried: Vec<Vec<Cell>>, counts: &[usize]) -> impl Iterator<Item = Data> {
    carried.into_iter().map(move |cells| {
        let mut values = Vec::with_capacity(counts.iter().sum());
        for (cell, &count) in cells.into_iter().zip(counts) {
            match cell {
                Cell::One(value) => values.extend(std::iter::repeat_n(value, count)),
                Cell::Each(mut each) => {
                    each.resize(count, Value::Null);
                    values.extend(each);
                }
            }
        }
        Data::Values(values)
    })
}

/// The value of a user in a table.
pub fn value_of(user: &User) -> Value {
    match user {
        User::Name(name) => Value::Text(name.clone()),
        User::Number(number) => Value::Integer(*number),
    }
}
