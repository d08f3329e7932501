use rewire_graph_rewrite::device::Tuning;
use std::time::Duration;

/// Measurements per candidate; the first one is not counted.
const SAMPLES: usize = 9;
/// Measurements after which candidates that are far behind are dropped.
const FEW_SAMPLES: usize = 2;
/// Far behind means this multiple of the shortest time.
const FAR: f64 = 1.5;
/// The fraction of the time that another tuning has to save.
const GAIN: f64 = 0.03;

/// Alternating measurements of a kernel's candidates.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The candidates.
    pub tunings: Vec<Tuning>,
    candidates: Vec<Candidate>,
    turn: usize,
}

#[derive(Debug)]
struct Candidate {
    tuning: Tuning,
    warm: bool,
    times: Vec<Duration>,
}

/// The first candidate and the selected one, with their median times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    pub before: (Tuning, Duration),
    pub after: (Tuning, Duration),
}

impl Trial {
    /// A trial of tunings. The first is selected unless another is clearly faster.
    pub fn new(tunings: Vec<Tuning>) -> Self {
        let candidate = |&tuning: &Tuning| Candidate { tuning, warm: false, times: vec![] };
        Self { candidates: tunings.iter().map(candidate).collect(), tunings, turn: 0 }
    }

    /// The next tuning to run.
    pub fn next(&self) -> Option<Tuning> {
        self.candidates.get(self.turn).map(|candidate| candidate.tuning)
    }

    /// Records the time of the kernel with [`Trial::next`].
    pub fn record(&mut self, time: Duration) {
        let Some(candidate) = self.candidates.get_mut(self.turn) else { return };
        if candidate.warm {
            candidate.times.push(time);
        }
        candidate.warm = true;
        self.turn += 1;
        self.begin_round();
    }

    /// Drops [`Trial::next`], which cannot run.
    pub fn reject(&mut self) {
        if self.turn < self.candidates.len() {
            self.candidates.remove(self.turn);
        }
        self.begin_round();
    }

    /// True if all measurements are done.
    pub fn is_done(&self) -> bool {
        self.turn == 0 && self.candidates.iter().all(|candidate| candidate.times.len() >= SAMPLES)
    }

    /// True if there are enough measurements for a verdict.
    pub fn is_sampled(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.times.len() > FEW_SAMPLES)
    }

    /// The selected tuning: the first, unless another saves enough time. `None` without measurements.
    pub fn verdict(&self) -> Option<Times> {
        let mut medians = self.candidates.iter().filter_map(|c| Some((c.tuning, median(&c.times)?)));
        let before = medians.next()?;
        let best = medians.min_by_key(|(_, time)| *time);
        let enough = before.1.mul_f64(1.0 - GAIN);
        Some(Times { before, after: best.filter(|(_, time)| *time < enough).unwrap_or(before) })
    }

    /// After a whole round, starts again with the first candidate and drops those far behind.
    fn begin_round(&mut self) {
        if self.turn < self.candidates.len() {
            return;
        }
        self.turn = 0;
        let shortest = |candidate: &Candidate| candidate.times.iter().min().copied();
        let Some(best) = self.candidates.iter().filter_map(shortest).min() else { return };
        let mut first = true;
        self.candidates.retain(|candidate| {
            let few = candidate.times.len() < FEW_SAMPLES;
            let near = shortest(candidate).is_none_or(|time| time <= best.mul_f64(FAR));
            std::mem::take(&mut first) || few || near
        });
    }
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph_rewrite::device::{ReductionTile, Tile};

    fn tuning(threads: u32) -> Tuning {
        Tile::Reduction(ReductionTile { threads }).into()
    }

    /// Runs a trial with simulated times in microseconds; the first run of each tuning is slow.
    fn judge(times: &[(u32, u64)]) -> Times {
        let mut trial = Trial::new(times.iter().map(|(rows, _)| tuning(*rows)).collect());
        let mut seen = std::collections::HashSet::new();
        while !trial.is_done() {
            let next = trial.next().unwrap();
            let (_, time) = times.iter().find(|(rows, _)| next == tuning(*rows)).unwrap();
            trial.record(Duration::from_micros(if seen.insert(next) { 5000 } else { *time }));
        }
        trial.verdict().unwrap()
    }

    #[test]
    fn only_a_clear_gain_changes_the_tuning() {
        assert_eq!(judge(&[(64, 100), (32, 98), (16, 120)]).after.0, tuning(64));
        let verdict = judge(&[(64, 100), (32, 90), (16, 80), (4, 400)]);
        assert_eq!(verdict.before, (tuning(64), Duration::from_micros(100)));
        assert_eq!(verdict.after, (tuning(16), Duration::from_micros(80)));
        assert_eq!(judge(&[(64, 100), (32, 10)]).after.0, tuning(32));
    }

    #[test]
    fn candidates_that_cannot_run_are_left_out() {
        let mut trial = Trial::new(vec![tuning(64), tuning(32)]);
        trial.record(Duration::from_micros(3));
        trial.reject();
        assert_eq!(trial.next(), Some(tuning(64)));
        assert_eq!(trial.verdict(), None);
        while !trial.is_done() {
            trial.record(Duration::from_micros(3));
        }
        assert_eq!(trial.verdict().unwrap().after.0, tuning(64));
    }
}
