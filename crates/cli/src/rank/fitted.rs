use super::table::count;
use crate::log::say;
use rewire::rank::Ranked;

/// Requests that had to be adjusted to the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fitted {
    pub truncated: u64,
    pub dropped: u64,
    pub split: u64,
    sequences: u64,
    pub sorted: u64,
}

impl Fitted {
    pub fn add(&mut self, ranked: &Ranked) {
        let is_split = ranked.sequences > 1;
        self.join(&Self {
            truncated: u64::from(ranked.dropped_events > 0),
            dropped: ranked.dropped_events as u64,
            split: u64::from(is_split),
            sequences: if is_split { ranked.sequences as u64 } else { 0 },
            sorted: u64::from(ranked.sorted),
        });
    }

    /// From the numbers of dropped events per history.
    pub fn of_dropped(events: &[usize]) -> Self {
        let dropped = events.iter().filter(|events| **events > 0);
        Self { truncated: dropped.clone().count() as u64, dropped: dropped.sum::<usize>() as u64, ..Self::default() }
    }

    pub fn join(&mut self, other: &Self) {
        self.truncated += other.truncated;
        self.dropped += other.dropped;
        self.split += other.split;
        self.sequences += other.sequences;
        self.sorted += other.sorted;
    }

    /// Reports the adjustments on stderr.
    pub fn notes(&self, max_seq_len: usize) {
        if self.truncated > 0 {
            say(format_args!(
                "note: {} did not fit the {max_seq_len} rows of a sequence and kept the newest events, {} dropped",
                histories(self.truncated),
                count(self.dropped, "event")
            ));
        }
        if self.split > 0 {
            say(format_args!(
                "note: the candidates of {} did not fit one sequence and were split over {}, each with its own",
                count(self.split, "user"),
                count(self.sequences, "sequence")
            ));
        }
        if self.sorted > 0 {
            let were = if self.sorted == 1 { "was" } else { "were" };
            let sorted = histories(self.sorted);
            say(format_args!("warning: {sorted} {were} not in order of time and {were} sorted by timestamp"));
        }
    }
}

fn histories(number: u64) -> String {
    if number == 1 { "1 history".into() } else { format!("{number} histories") }
}
