use super::sequence::Layout;
use super::{Batch, User};
use rewire_graph::Arrange;

/// A candidate with its scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The value of the first candidate feature.
    pub item: i64,
    /// Position in the request.
    pub position: usize,
    /// Probability of the first task.
    pub score: f64,
    /// One logit per task, in the order of the model's tasks.
    pub logits: Vec<f32>,
}

/// The candidates of a request, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The user.
    pub user: User,
    /// Sorted by score, then by item, then by position.
    pub candidates: Vec<Candidate>,
    /// Events dropped because the history was too long; the newest are kept.
    pub dropped_events: usize,
    /// Sequences that the candidates were split over.
    pub sequences: usize,
    /// True if the history was not in order of time and was sorted.
    pub sorted: bool,
}

impl Candidate {
    pub(super) fn new(item: i64, position: usize, logits: Vec<f32>) -> Self {
        Self { item, position, score: sigmoid(logits.first().copied().unwrap_or_default()), logits }
    }
}

impl Ranked {
    /// The requests of a batch, before their candidates are scored.
    pub(super) fn of_batch(batch: &Batch, layouts: &[Layout]) -> Vec<Self> {
        let empty = |(request, (user, layout)): (usize, (&User, &Layout))| Self {
            user: user.clone(),
            candidates: Vec::with_capacity(batch.candidates(request)),
            dropped_events: layout.kept.start,
            sequences: layout.parts.len(),
            sorted: layout.order.is_some(),
        };
        batch.users().iter().zip(layouts).enumerate().map(empty).collect()
    }

    pub(super) fn sort(&mut self) {
        // Positions are unique.
        self.candidates
            .arrange_by(|a, b| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item)).then(a.position.cmp(&b.position)));
    }
}

/// Rankings as columns: the candidates of all requests, concatenated, in ranked order per request.
///
/// ```
/// use rewire::rank::{Candidate, RankedColumns, Ranked};
/// let candidate = Candidate { item: 7, position: 0, score: 0.5, logits: vec![0.0, 1.0] };
/// let ranked = Ranked { user: "u".into(), candidates: vec![candidate], dropped_events: 0, sequences: 1, sorted: false };
/// let columns = RankedColumns::from_iter([ranked]);
/// assert_eq!((columns.offsets, columns.items, columns.logits), (vec![0, 1], vec![7], vec![0.0, 1.0]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RankedColumns {
    /// The users.
    pub users: Vec<User>,
    /// The start of each request's candidates, and the end of the last: one entry more than requests.
    pub offsets: Vec<i64>,
    /// Per candidate, the value of the first candidate feature.
    pub items: Vec<i64>,
    /// Per candidate, its position in the request.
    pub positions: Vec<i64>,
    /// Per candidate, the probability of the first task.
    pub scores: Vec<f64>,
    /// Per candidate, one logit per task.
    pub logits: Vec<f32>,
    /// Per request, the events dropped because the history was too long.
    pub dropped_events: Vec<i64>,
}

impl FromIterator<Ranked> for RankedColumns {
    fn from_iter<I: IntoIterator<Item = Ranked>>(ranked: I) -> Self {
        let mut all = Self {
            users: vec![],
            offsets: vec![0],
            items: vec![],
            positions: vec![],
            scores: vec![],
            logits: vec![],
            dropped_events: vec![],
        };
        for Ranked { user, candidates, dropped_events, .. } in ranked {
            for candidate in candidates {
                all.items.push(candidate.item);
                all.positions.push(candidate.position as i64);
                all.scores.push(candidate.score);
                all.logits.extend(candidate.logits);
            }
            all.users.push(user);
            all.offsets.push(all.items.len() as i64);
            all.dropped_events.push(dropped_events as i64);
        }
        all
    }
}

fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + f64::from(-logit).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_smaller_item() {
        let candidates = [(5, 0.0), (3, 0.0), (9, 1.0), (3, 0.0)];
        let candidates =
            candidates.iter().enumerate().map(|(at, &(item, logit))| Candidate::new(item, at, vec![logit]));
        let mut ranked = Ranked {
            user: "u".into(),
            candidates: candidates.collect(),
            dropped_events: 0,
            sequences: 1,
            sorted: false,
        };
        ranked.sort();
        let order: Vec<_> = ranked.candidates.iter().map(|c| (c.item, c.position)).collect();
        assert_eq!(order, [(9, 2), (3, 1), (3, 3), (5, 0)]);
    }

    #[test]
    fn scores_stay_in_range() {
        assert_eq!(sigmoid(0.0), 0.5);
        assert_eq!((sigmoid(-1e30), sigmoid(1e30)), (0.0, 1.0));
    }

    #[test]
    fn candidates_of_all_users_lie_back_to_back() {
        let candidate = |item, position| Candidate { item, position, score: 0.5, logits: vec![item as f32, 1.0] };
        let ranked = |user: &str, candidates| Ranked {
            user: user.into(),
            candidates,
            dropped_events: 3,
            sequences: 1,
            sorted: false,
        };
        let all = vec![
            ranked("a", vec![candidate(7, 1), candidate(5, 0)]),
            ranked("b", vec![]),
            ranked("c", vec![candidate(9, 0)]),
        ];
        let scores = RankedColumns::from_iter(all);
        assert_eq!(scores.offsets, [0, 2, 2, 3]);
        assert_eq!((scores.items, scores.positions), (vec![7, 5, 9], vec![1, 0, 0]));
        assert_eq!(scores.logits, [7.0, 1.0, 5.0, 1.0, 9.0, 1.0]);
        assert_eq!((scores.users.len(), scores.scores.len(), scores.dropped_events), (3, 3, vec![3; 3]));
        assert_eq!(RankedColumns::from_iter([]).offsets, [0]);
    }
}
