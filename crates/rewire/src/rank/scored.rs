use super::sequence::Layout;
use super::{Batch, User};

/// A candidate with its scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The value of the first candidate feature.
    pub item: i64,
    /// Position in the request.
    pub position: usize,
    /// Probability of the first task.
    pub score: f64,
    /// One a task, in the order of the model's tasks.
    pub logits: Vec<f32>,
}

/// The candidates of a request, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The user.
    pub user: User,
    /// By score, then by item, then by position.
    pub candidates: Vec<Candidate>,
    /// Events left out because the history was too long; the newest are kept.
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
    /// The requests of a batch, without candidates yet.
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
        self.candidates
            .sort_by(|a, b| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item)).then(a.position.cmp(&b.position)));
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
}
