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
    /// One a sequence.
    pub parts: Vec<Part>,
}

/// Candidates of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Those that are scored in it.
    pub scored: Range<usize>,
    /// One that only tells the time. Models count time back from the last row of a sequence, so each must end
    /// with the time that the request ends with.
    pub clock: Option<usize>,
}

impl Capacity {
    /// Lays a checked request out.
    pub fn lay_out(&self, request: &Request) -> Layout {
        let free = self.rows.saturating_sub(self.contextual);
        let clock = clock(request);
        let least = if clock.is_some() { 2 } else { 1 };
        let room = self.candidate_room.clamp(least, free.max(least));
        let (mut events, sorted) = in_order_of_time(request);
        let kept = events.len().min(free.saturating_sub(room) / self.rows_per_event.max(1));
        let dropped = events.len() - kept;
        events.drain(..dropped);
        let step = free.saturating_sub(kept * self.rows_per_event).max(least);
        Layout { events, dropped, sorted, parts: split(request.len(), step, clock) }
    }

    /// Rows of the sequence with these candidates.
    pub fn rows_of(&self, layout: &Layout, part: &Part) -> usize {
        self.contextual + layout.events.len() * self.rows_per_event + part.len()
    }
}

impl Part {
    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.scored.len() + usize::from(self.clock.is_some())
    }

    /// Positions of all candidates, those that are scored first.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.scored.clone().chain(self.clock)
    }
}

/// Parts of at most `step` candidates, each with the clock unless it has it anyway.
fn split(candidates: usize, step: usize, clock: Option<usize>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < candidates {
        let whole = candidates - start <= step;
        let end = if whole { candidates } else { start + step - usize::from(clock.is_some()) };
        parts.push(Part { scored: start..end, clock: clock.filter(|_| !whole) });
        start = end;
    }
    parts
}

/// The last candidate, if others have other times.
fn clock(request: &Request) -> Option<usize> {
    let times = request.candidates.get("timestamp")?;
    let last = times.last()?;
    times.iter().any(|time| time != last).then(|| times.len() - 1)
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

    fn parts(ranges: &[(usize, usize)]) -> Vec<Part> {
        ranges.iter().map(|&(start, end)| Part { scored: start..end, clock: None }).collect()
    }

    #[test]
    fn what_fits_is_one_sequence() {
        let layout = CAPACITY.lay_out(&request(7, 3));
        let expected = Layout { events: (0..7).collect(), dropped: 0, sorted: false, parts: parts(&[(0, 3)]) };
        assert_eq!(layout, expected);
        assert_eq!(CAPACITY.rows_of(&layout, &layout.parts[0]), 12);
    }

    #[test]
    fn candidates_that_do_not_fit_are_split() {
        let layout = CAPACITY.lay_out(&request(7, 8));
        assert_eq!(layout.dropped, 0);
        assert_eq!(layout.parts, parts(&[(0, 3), (3, 6), (6, 8)]));
    }

    #[test]
    fn a_long_history_keeps_its_newest_events() {
        let layout = CAPACITY.lay_out(&request(20, 2));
        assert_eq!(layout.events, (11..20).collect::<Vec<_>>());
        assert_eq!(layout.dropped, 11);
        assert_eq!(layout.parts, parts(&[(0, 1), (1, 2)]));
    }

    #[test]
    fn events_may_take_two_rows() {
        let capacity = Capacity { rows_per_event: 2, ..CAPACITY };
        let layout = capacity.lay_out(&request(20, 3));
        assert_eq!(layout.events, (16..20).collect::<Vec<_>>());
        assert_eq!(layout.parts, parts(&[(0, 2), (2, 3)]));
        assert_eq!(capacity.rows_of(&layout, &layout.parts[0]), 12);
    }

    #[test]
    fn room_may_be_kept_for_candidates() {
        let capacity = Capacity { candidate_room: 4, ..CAPACITY };
        let layout = capacity.lay_out(&request(20, 9));
        assert_eq!(layout.events.len(), 6);
        assert_eq!(layout.parts, parts(&[(0, 4), (4, 8), (8, 9)]));
        let layout = Capacity { candidate_room: 100, ..CAPACITY }.lay_out(&request(20, 9));
        assert_eq!((layout.events.len(), layout.parts), (0, parts(&[(0, 9)])));
    }

    #[test]
    fn every_part_ends_with_the_time_of_the_request() {
        let mut request = request(7, 8);
        request.candidates.insert("timestamp".into(), vec![5, 5, 5, 5, 5, 5, 5, 6]);
        let layout = CAPACITY.lay_out(&request);
        let clocked = |scored| Part { scored, clock: Some(7) };
        assert_eq!(layout.parts[..3], [clocked(0..2), clocked(2..4), clocked(4..6)]);
        assert_eq!(layout.parts[3..], parts(&[(6, 8)]));
        assert_eq!(layout.parts[0].positions().collect::<Vec<_>>(), [0, 1, 7]);
        request.candidates.insert("timestamp".into(), vec![6; 8]);
        assert_eq!(CAPACITY.lay_out(&request).parts, parts(&[(0, 3), (3, 6), (6, 8)]));
    }

    #[test]
    fn a_clock_takes_a_row_of_a_long_history() {
        let mut request = request(20, 3);
        request.candidates.insert("timestamp".into(), vec![1, 2, 3]);
        let layout = CAPACITY.lay_out(&request);
        assert_eq!(layout.events.len(), 8);
        assert_eq!(layout.parts, [Part { scored: 0..1, clock: Some(2) }, Part { scored: 1..3, clock: None }]);
        assert!(layout.parts.iter().all(|part| CAPACITY.rows_of(&layout, part) <= 12));
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
        assert_eq!(CAPACITY.lay_out(&request(3, 0)).parts, []);
        assert_eq!(CAPACITY.lay_out(&request(0, 1)).parts, parts(&[(0, 1)]));
    }
}
