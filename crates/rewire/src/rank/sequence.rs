use super::Request;
use std::ops::Range;

/// Rows of a sequence and what takes them.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// All rows.
    pub rows: usize,
    /// Rows of contextual tokens.
    pub contextual: usize,
    /// Rows of one past event.
    pub rows_per_event: usize,
    /// Rows that a history leaves to candidates.
    pub candidate_room: usize,
}

/// How a request is laid out in sequences.
///
/// All sequences have the same history. What a candidate sees does not depend on the other candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Positions of the events that are kept, oldest first.
    pub events: Vec<usize>,
    /// Events left out, older than those kept.
    pub dropped: usize,
    /// True if the events were not in order of time.
    pub sorted: bool,
    /// Candidates of each sequence.
    pub candidates: Vec<Range<usize>>,
}

impl Capacity {
    /// Lays a checked request out.
    pub fn lay_out(&self, request: &Request) -> Layout {
        let free = self.rows.saturating_sub(self.contextual);
        let room = self.candidate_room.clamp(1, free.max(1));
        let (mut events, sorted) = in_order_of_time(request);
        let kept = events.len().min(free.saturating_sub(room) / self.rows_per_event.max(1));
        let dropped = events.len() - kept;
        events.drain(..dropped);
        let step = free.saturating_sub(kept * self.rows_per_event).max(1);
        let candidates = request.len();
        let chunks = (0..candidates).step_by(step).map(|start| start..candidates.min(start.saturating_add(step)));
        Layout { events, dropped, sorted, candidates: chunks.collect() }
    }

    /// Rows of the sequence with these candidates.
    pub fn rows_of(&self, layout: &Layout, candidates: &Range<usize>) -> usize {
        self.contextual + layout.events.len() * self.rows_per_event + candidates.len()
    }
}

/// Positions of the events by time, equal times as given, and whether that differs from the order given.
fn in_order_of_time(request: &Request) -> (Vec<usize>, bool) {
    let mut events: Vec<usize> = (0..request.events()).collect();
    match request.history.get("timestamp") {
        Some(times) if !times.is_sorted() => {
            events.sort_by_key(|&event| times.get(event));
            (events, true)
        }
        _ => (events, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::request;

    const CAPACITY: Capacity = Capacity { rows: 12, contextual: 2, rows_per_event: 1, candidate_room: 1 };

    #[test]
    fn what_fits_is_one_sequence() {
        let layout = CAPACITY.lay_out(&request(7, 3));
        assert_eq!(layout, Layout { events: (0..7).collect(), dropped: 0, sorted: false, candidates: vec![0..3] });
        assert_eq!(CAPACITY.rows_of(&layout, &(0..3)), 12);
    }

    #[test]
    fn candidates_that_do_not_fit_are_split() {
        let layout = CAPACITY.lay_out(&request(7, 8));
        assert_eq!(layout.dropped, 0);
        assert_eq!(layout.candidates, [0..3, 3..6, 6..8]);
    }

    #[test]
    fn a_long_history_keeps_its_newest_events() {
        let layout = CAPACITY.lay_out(&request(20, 2));
        assert_eq!(layout.events, (11..20).collect::<Vec<_>>());
        assert_eq!(layout.dropped, 11);
        assert_eq!(layout.candidates, [0..1, 1..2]);
    }

    #[test]
    fn events_may_take_two_rows() {
        let capacity = Capacity { rows_per_event: 2, ..CAPACITY };
        let layout = capacity.lay_out(&request(20, 3));
        assert_eq!(layout.events, (16..20).collect::<Vec<_>>());
        assert_eq!(layout.candidates, [0..2, 2..3]);
        assert_eq!(capacity.rows_of(&layout, &(0..2)), 12);
    }

    #[test]
    fn room_may_be_kept_for_candidates() {
        let capacity = Capacity { candidate_room: 4, ..CAPACITY };
        let layout = capacity.lay_out(&request(20, 9));
        assert_eq!(layout.events.len(), 6);
        assert_eq!(layout.candidates, [0..4, 4..8, 8..9]);
        let layout = Capacity { candidate_room: 100, ..CAPACITY }.lay_out(&request(20, 9));
        assert_eq!((layout.events.len(), layout.candidates), (0, vec![0..9]));
    }

    #[test]
    fn events_are_put_in_order_of_time() {
        let mut request = request(4, 1);
        request.history.insert("timestamp".into(), vec![5, 3, 5, 1]);
        let layout = CAPACITY.lay_out(&request);
        assert!(layout.sorted);
        assert_eq!(layout.events, [3, 1, 0, 2]);
    }

    #[test]
    fn nothing_needs_no_sequence() {
        assert_eq!(CAPACITY.lay_out(&request(3, 0)).candidates, []);
        assert_eq!(CAPACITY.lay_out(&request(0, 1)).candidates, [0..1]);
    }
}
