use rewire::rank::{Ranked, User};

/// What was ranked, as columns: the candidates of all users back to back, those of each best first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// The users.
    pub users: Vec<User>,
    /// Where the candidates of each user begin, and the end of the last; one more than users.
    pub offsets: Vec<u32>,
    /// By candidate, the value of the first candidate feature.
    pub items: Vec<i64>,
    /// By candidate, its position in the request.
    pub positions: Vec<u32>,
    /// By candidate, the probability of the first task.
    pub scores: Vec<f64>,
    /// By candidate, one a task.
    pub logits: Vec<f32>,
    /// By user, events left out because the history was too long.
    pub dropped_events: Vec<u32>,
}

impl Scores {
    /// The columns of what was ranked.
    pub fn of(ranked: Vec<Ranked>) -> Self {
        let mut all = Self { offsets: vec![0], ..Self::default() };
        for Ranked { user, candidates, dropped_events, .. } in ranked {
            for candidate in candidates {
                all.items.push(candidate.item);
                all.positions.push(word(candidate.position));
                all.scores.push(candidate.score);
                all.logits.extend(candidate.logits);
            }
            all.users.push(user);
            all.offsets.push(word(all.items.len()));
            all.dropped_events.push(word(dropped_events));
        }
        all
    }
}

/// A count, of which there are fewer than addresses of a browser's memory.
fn word(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::rank::Candidate;

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
        let scores = Scores::of(all);
        assert_eq!(scores.offsets, [0, 2, 2, 3]);
        assert_eq!((scores.items, scores.positions), (vec![7, 5, 9], vec![1, 0, 0]));
        assert_eq!(scores.logits, [7.0, 1.0, 5.0, 1.0, 9.0, 1.0]);
        assert_eq!((scores.users.len(), scores.scores.len(), scores.dropped_events), (3, 3, vec![3; 3]));
        assert_eq!(Scores::of(vec![]).offsets, [0]);
    }
}
