use super::Batch;
use super::batch::Group;
use rewire_graph::Arrange;
use std::ops::Range;

/// The column with the times of events, and of the request.
pub(super) const TIME: &str = "timestamp";

/// The capacity of a sequence in rows, and its division.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// All rows.
    pub rows: usize,
    /// Rows of contextual tokens.
    pub contextual: usize,
    /// Rows of one past event.
    pub rows_per_event: usize,
    /// Rows that a history leaves for candidates.
    pub candidate_room: usize,
}

/// The layout of a request in sequences.
///
/// All sequences have the same history and time. A candidate's inputs do not depend on the other candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The kept events, by position in order of time. Earlier ones are dropped.
    pub kept: Range<usize>,
    /// Positions of all events in order of time, unless they are given in that order.
    pub order: Option<Vec<usize>>,
    /// The candidates of each sequence.
    pub parts: Vec<Range<usize>>,
}

impl Capacity {
    /// Lays out a request of a batch.
    pub fn lay_out(&self, batch: &Batch, request: usize) -> Layout {
        let free = self.rows.saturating_sub(self.contextual);
        let room = self.candidate_room.clamp(1, free.max(1));
        let events = batch.events(request);
        let kept = events.min(free.saturating_sub(room) / self.rows_per_event.max(1));
        let step = free.saturating_sub(kept * self.rows_per_event).max(1);
        let candidates = batch.candidates(request);
        Layout {
            kept: events - kept..events,
            order: order_of_time(batch, request),
            parts: (0..candidates).step_by(step).map(|start| start..candidates.min(start + step)).collect(),
        }
    }

    /// Lays out a request whose history is computed separately: all candidates are in one part.
    pub fn lay_out_apart(&self, batch: &Batch, request: usize) -> Layout {
        let free = self.rows.saturating_sub(self.contextual).saturating_sub(self.candidate_room.max(1));
        let (events, candidates) = (batch.events(request), batch.candidates(request));
        let kept = events.min(free / self.rows_per_event.max(1));
        let all = Some(0..candidates).filter(|all| !all.is_empty());
        Layout { kept: events - kept..events, order: order_of_time(batch, request), parts: all.into_iter().collect() }
    }

    /// Rows of a layout's history, including its contextual rows.
    pub fn history_rows(&self, layout: &Layout) -> usize {
        self.contextual + layout.events() * self.rows_per_event
    }

    /// Rows of the sequence with these candidates.
    pub fn rows_of(&self, layout: &Layout, part: &Range<usize>) -> usize {
        self.history_rows(layout) + part.len()
    }
}

/// The layout of each request of a batch; `is_apart` if histories are computed separately from candidates.
pub(super) fn layouts(batch: &Batch, capacity: &Capacity, is_apart: bool) -> Vec<Layout> {
    let lay_out = if is_apart { Capacity::lay_out_apart } else { Capacity::lay_out };
    (0..batch.len()).map(|request| lay_out(capacity, batch, request)).collect()
}

impl Layout {
    /// Number of kept events.
    pub fn events(&self) -> usize {
        self.kept.len()
    }

    /// Positions of the kept events, oldest first.
    pub fn events_in_order(&self) -> impl Iterator<Item = usize> {
        let order = self.order.as_deref();
        self.kept.clone().filter_map(move |place| order.map_or(Some(place), |order| order.get(place).copied()))
    }
}

/// Positions of the events in order of time (stable), if that differs from the given order.
fn order_of_time(batch: &Batch, request: usize) -> Option<Vec<usize>> {
    let column = batch.schema().position(Group::History, TIME)?;
    let times = batch.rows().history.row(column, request).filter(|times| !times.is_sorted())?;
    let mut events: Vec<usize> = (0..times.len()).collect();
    events.arrange_by_key(|&event| times.get(event));
    Some(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Request;
    use crate::rank::testing::{batch, request};

    const CAPACITY: Capacity = Capacity { rows: 12, contextual: 2, rows_per_event: 1, candidate_room: 1 };

    fn lay_out(capacity: Capacity, request: Request) -> Layout {
        capacity.lay_out(&batch(&[self::request(1, 1), request]), 1)
    }

    #[test]
    fn what_fits_is_one_sequence() {
        let layout = lay_out(CAPACITY, request(7, 3));
        let expected = Layout { kept: 0..7, order: None, parts: std::iter::once(0..3).collect() };
        assert_eq!(layout, expected);
        assert_eq!(CAPACITY.rows_of(&layout, &layout.parts[0]), 12);
    }

    #[test]
    fn candidates_that_do_not_fit_are_split() {
        let layout = lay_out(CAPACITY, request(7, 8));
        assert_eq!(layout.kept, 0..7);
        assert_eq!(layout.parts, [0..3, 3..6, 6..8]);
    }

    #[test]
    fn a_long_history_keeps_its_newest_events() {
        let layout = lay_out(CAPACITY, request(20, 2));
        assert_eq!(layout.kept, 11..20);
        assert_eq!(layout.parts, [0..1, 1..2]);
    }

    #[test]
    fn events_may_take_two_rows() {
        let capacity = Capacity { rows_per_event: 2, ..CAPACITY };
        let layout = lay_out(capacity, request(20, 3));
        assert_eq!(layout.kept, 16..20);
        assert_eq!(layout.parts, [0..2, 2..3]);
        assert_eq!(capacity.rows_of(&layout, &layout.parts[0]), 12);
    }

    #[test]
    fn room_may_be_kept_for_candidates() {
        let capacity = Capacity { candidate_room: 4, ..CAPACITY };
        let layout = lay_out(capacity, request(20, 9));
        assert_eq!(layout.events(), 6);
        assert_eq!(layout.parts, [0..4, 4..8, 8..9]);
        let layout = lay_out(Capacity { candidate_room: 100, ..CAPACITY }, request(20, 9));
        assert_eq!(layout.events(), 0);
        assert_eq!((layout.parts.len(), layout.parts[0].clone()), (1, 0..9));
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
        assert!(lay_out(CAPACITY, request(3, 0)).parts.is_empty());
        let parts = lay_out(CAPACITY, request(0, 1)).parts;
        assert_eq!((parts.len(), parts[0].clone()), (1, 0..1));
    }
}
