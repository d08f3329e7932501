use super::Batch;
use super::batch::Group;
use std::ops::Range;

/// The column with the times of events, and of the request.
pub(super) const TIME: &str = "timestamp";

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
    /// The events that are kept, by their places in order of time. Those before are left out.
    pub kept: Range<usize>,
    /// Positions of all events in order of time, where they are not given in it.
    pub order: Option<Vec<usize>>,
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
    /// Lays a request of a batch out.
    pub fn lay_out(&self, batch: &Batch, request: usize) -> Layout {
        let free = self.rows.saturating_sub(self.contextual);
        let clock = clock(batch, request);
        let least = if clock.is_some() { 2 } else { 1 };
        let room = self.candidate_room.clamp(least, free.max(least));
        let events = batch.events(request);
        let kept = events.min(free.saturating_sub(room) / self.rows_per_event.max(1));
        let step = free.saturating_sub(kept * self.rows_per_event).max(least);
        Layout {
            kept: events - kept..events,
            order: order_of_time(batch, request),
            parts: split(batch.candidates(request), step, clock),
        }
    }

    /// Lays a request out whose history is kept apart: all candidates are in one part.
    pub fn lay_out_apart(&self, batch: &Batch, request: usize) -> Layout {
        let free = self.rows.saturating_sub(self.contextual).saturating_sub(self.candidate_room.max(1));
        let (events, candidates) = (batch.events(request), batch.candidates(request));
        let kept = events.min(free / self.rows_per_event.max(1));
        let all = Part { scored: 0..candidates, clock: None };
        Layout {
            kept: events - kept..events,
            order: order_of_time(batch, request),
            parts: if candidates > 0 { vec![all] } else { vec![] },
        }
    }

    /// Rows of the history of a layout, with its contextual rows.
    pub fn history_rows(&self, layout: &Layout) -> usize {
        self.contextual + layout.events() * self.rows_per_event
    }

    /// Rows of the sequence with these candidates.
    pub fn rows_of(&self, layout: &Layout, part: &Part) -> usize {
        self.history_rows(layout) + part.len()
    }
}

impl Layout {
    /// Number of events that are kept.
    pub fn events(&self) -> usize {
        self.kept.len()
    }

    /// Positions of the events that are kept, oldest first.
    pub fn events_in_order(&self) -> impl Iterator<Item = usize> {
        let order = self.order.as_deref();
        self.kept.clone().filter_map(move |place| order.map_or(Some(place), |order| order.get(place).copied()))
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
fn clock(batch: &Batch, request: usize) -> Option<usize> {
    let column = batch.schema().position(Group::Candidates, TIME)?;
    let times = batch.rows().candidates.row(column, request)?;
    let last = times.last()?;
    times.iter().any(|time| time != last).then(|| times.len() - 1)
}

/// Positions of the events by time, equal times as given, where that differs from the order given.
fn order_of_time(batch: &Batch, request: usize) -> Option<Vec<usize>> {
    let column = batch.schema().position(Group::History, TIME)?;
    let times = batch.rows().history.row(column, request).filter(|times| !times.is_sorted())?;
    let mut events: Vec<usize> = (0..times.len()).collect();
    events.sort_by_key(|&event| times.get(event));
    Some(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Request;
    use crate::rank::testing::{batch, request};

    const CAPACITY: Capacity = Capacity { rows: 12, contextual: 2, rows_per_event: 1, candidate_room: 1 };

    fn parts(ranges: &[(usize, usize)]) -> Vec<Part> {
        ranges.iter().map(|&(start, end)| Part { scored: start..end, clock: None }).collect()
    }

    fn lay_out(capacity: Capacity, request: Request) -> Layout {
        capacity.lay_out(&batch(&[self::request(1, 1), request]), 1)
    }

    #[test]
    fn what_fits_is_one_sequence() {
        let layout = lay_out(CAPACITY, request(7, 3));
        let expected = Layout { kept: 0..7, order: None, parts: parts(&[(0, 3)]) };
        assert_eq!(layout, expected);
        assert_eq!(CAPACITY.rows_of(&layout, &layout.parts[0]), 12);
    }

    #[test]
    fn candidates_that_do_not_fit_are_split() {
        let layout = lay_out(CAPACITY, request(7, 8));
        assert_eq!(layout.kept, 0..7);
        assert_eq!(layout.parts, parts(&[(0, 3), (3, 6), (6, 8)]));
    }

    #[test]
    fn a_long_history_keeps_its_newest_events() {
        let layout = lay_out(CAPACITY, request(20, 2));
        assert_eq!(layout.kept, 11..20);
        assert_eq!(layout.parts, parts(&[(0, 1), (1, 2)]));
    }

    #[test]
    fn events_may_take_two_rows() {
        let capacity = Capacity { rows_per_event: 2, ..CAPACITY };
        let layout = lay_out(capacity, request(20, 3));
        assert_eq!(layout.kept, 16..20);
        assert_eq!(layout.parts, parts(&[(0, 2), (2, 3)]));
        assert_eq!(capacity.rows_of(&layout, &layout.parts[0]), 12);
    }

    #[test]
    fn room_may_be_kept_for_candidates() {
        let capacity = Capacity { candidate_room: 4, ..CAPACITY };
        let layout = lay_out(capacity, request(20, 9));
        assert_eq!(layout.events(), 6);
        assert_eq!(layout.parts, parts(&[(0, 4), (4, 8), (8, 9)]));
        let layout = lay_out(Capacity { candidate_room: 100, ..CAPACITY }, request(20, 9));
        assert_eq!((layout.events(), layout.parts), (0, parts(&[(0, 9)])));
    }

    #[test]
    fn every_part_ends_with_the_time_of_the_request() {
        let mut request = request(7, 8);
        request.candidates.insert("timestamp".into(), vec![5, 5, 5, 5, 5, 5, 5, 6]);
        let layout = lay_out(CAPACITY, request.clone());
        let clocked = |scored| Part { scored, clock: Some(7) };
        assert_eq!(layout.parts[..3], [clocked(0..2), clocked(2..4), clocked(4..6)]);
        assert_eq!(layout.parts[3..], parts(&[(6, 8)]));
        assert_eq!(layout.parts[0].positions().collect::<Vec<_>>(), [0, 1, 7]);
        request.candidates.insert("timestamp".into(), vec![6; 8]);
        assert_eq!(lay_out(CAPACITY, request.clone()).parts, parts(&[(0, 3), (3, 6), (6, 8)]));
    }

    #[test]
    fn a_clock_takes_a_row_of_a_long_history() {
        let mut request = request(20, 3);
        request.candidates.insert("timestamp".into(), vec![1, 2, 3]);
        let layout = lay_out(CAPACITY, request.clone());
        assert_eq!(layout.events(), 8);
        assert_eq!(layout.parts, [Part { scored: 0..1, clock: Some(2) }, Part { scored: 1..3, clock: None }]);
        assert!(layout.parts.iter().all(|part| CAPACITY.rows_of(&layout, part) <= 12));
    }

    #[test]
    fn events_are_put_in_order_of_time() {
        let mut request = request(4, 1);
        request.history.insert("timestamp".into(), vec![5, 3, 5, 1]);
        let layout = lay_out(CAPACITY, request.clone());
        assert_eq!(layout.order, Some(vec![3, 1, 0, 2]));
        let times = &request.history["timestamp"];
        assert_eq!(layout.events_in_order().map(|event| times[event]).collect::<Vec<_>>(), [1, 3, 5, 5]);
    }

    #[test]
    fn nothing_needs_no_sequence() {
        assert_eq!(lay_out(CAPACITY, request(3, 0)).parts, []);
        assert_eq!(lay_out(CAPACITY, request(0, 1)).parts, parts(&[(0, 1)]));
    }
}
