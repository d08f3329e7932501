//! Scores of candidates, one row each.

use super::frame::{Data, Frame};
use super::task::{Rows, Task, value_of};
use crate::rank::Fitted;
use rewire::rank::{Batch, RankError, Ranked, Ranker, Schema};
use rewire::runtime::Report;

impl Task for Ranker {
    fn schema(&self) -> &Schema {
        self.schema()
    }

    fn batch(&self) -> Batch {
        self.batch()
    }

    fn report(&self) -> Report {
        self.report()
    }

    fn max_seq_len(&self) -> usize {
        self.max_seq_len()
    }

    /// `user`, `item`, `score` and the logits of tasks.
    fn columns(&self) -> Vec<(String, Data)> {
        let first =
            [("user", Data::Values(vec![])), ("item", Data::Integers(vec![])), ("score", Data::Doubles(vec![]))];
        let first = first.map(|(name, data)| (name.to_owned(), data));
        let logits = self.tasks().iter().map(|task| (format!("logit_{}", task.name), Data::Floats(vec![])));
        first.into_iter().chain(logits).collect()
    }

    fn compute(&self, batch: &Batch) -> Result<Rows, RankError> {
        let ranked = self.rank_batch(batch)?;
        let mut fitted = Fitted::default();
        ranked.iter().for_each(|ranked| fitted.add(ranked));
        let counts = ranked.iter().map(|ranked| ranked.candidates.len()).collect();
        Ok(Rows { frame: frame(ranked, self.tasks().len()), counts, fitted })
    }
}

/// One row per candidate, in the order of the requests.
fn frame(ranked: Vec<Ranked>, tasks: usize) -> Frame {
    let rows = ranked.iter().map(|ranked| ranked.candidates.len()).sum();
    let (mut users, mut items) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let (mut scores, mut logits) = (Vec::with_capacity(rows), vec![Vec::with_capacity(rows); tasks]);
    for Ranked { user, mut candidates, .. } in ranked {
        candidates.sort_by_key(|candidate| candidate.position);
        for candidate in candidates {
            users.push(value_of(&user));
            items.push(candidate.item);
            scores.push(candidate.score);
            logits.iter_mut().zip(candidate.logits).for_each(|(column, logit)| column.push(logit));
        }
    }
    let mut columns = vec![Data::Values(users), Data::Integers(items), Data::Doubles(scores)];
    columns.extend(logits.into_iter().map(Data::Floats));
    Frame { rows, columns }
}
