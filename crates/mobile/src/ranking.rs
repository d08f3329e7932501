use rewire::rank::{Ranked, RankedColumns};

/// The candidates of all requests, best first, as columns.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Ranking {
    /// Per request, its user.
    pub users: Vec<String>,
    /// One more than requests: the candidates of a request range from its offset to the next one.
    pub offsets: Vec<i64>,
    /// Per candidate, the value of its first feature.
    pub items: Vec<i64>,
    /// Per candidate, its position in the request.
    pub positions: Vec<i64>,
    /// Per candidate, the probability of the first task.
    pub scores: Vec<f64>,
    /// Per candidate, the logits of all tasks.
    pub logits: Vec<f32>,
    /// Per request, events dropped because the history was too long.
    pub dropped_events: Vec<i64>,
}

impl Ranking {
    pub(crate) fn of(ranked: Vec<Ranked>) -> Self {
        let columns: RankedColumns = ranked.into_iter().collect();
        let RankedColumns { users, offsets, items, positions, scores, logits, dropped_events } = columns;
        let users = users.iter().map(ToString::to_string).collect();
        Self { users, offsets, items, positions, scores, logits, dropped_events }
    }
}
