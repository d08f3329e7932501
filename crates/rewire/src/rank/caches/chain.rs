//! Identifies histories by hashes.

use super::table::Chain;
use crate::rank::Batch;
use crate::rank::runs::query_time;
use crate::rank::sequence::Layout;
use rewire_runtime::hash;

/// The hashes of a history: of the user's features and, if the model reads it, the time of the request; then one per event, over it and all
/// earlier events.
pub(super) fn of(batch: &Batch, request: usize, layout: &Layout, reads_time: bool) -> Chain {
    let rows = batch.rows();
    let mut words: Vec<i64> = vec![];
    let features = 0..batch.schema().contextual.len();
    words.extend(features.filter_map(|column| rows.contextual.column(column).get(request)));
    if reads_time {
        words.push(query_time(batch, request));
    }
    let mut last = digest(0, &words);
    let mut chain = vec![last];
    let columns = 0..batch.schema().history.len();
    let lists: Vec<&[i64]> = columns.map(|column| rows.history.row(column, request).unwrap_or_default()).collect();
    for event in layout.events_in_order() {
        words.clear();
        words.extend(lists.iter().filter_map(|list| list.get(event)));
        last = digest(last, &words);
        chain.push(last);
    }
    chain
}

/// The number of a cached history's hashes that match another history: all of the shorter one, or none. If the model cannot append to a
/// cached history, all of both must match.
pub(super) fn common(kept: &[u128], other: &[u128], appends: bool) -> usize {
    let shorter = kept.len().min(other.len());
    let is_same = kept.get(..shorter).and_then(<[u128]>::last) == other.get(..shorter).and_then(<[u128]>::last);
    if is_same && (appends || kept.len() == other.len()) { shorter } else { 0 }
}

/// Hashed in one call: an incremental hasher costs a hundred times as much for so few bytes.
fn digest(before: u128, words: &[i64]) -> u128 {
    let mut bytes = [0; 256];
    let mut rest = before;
    for words in words.chunks(bytes.len() / size_of::<i64>() - 2).chain(words.is_empty().then_some(words)) {
        let (first, others) = bytes.split_at_mut(size_of::<u128>());
        first.copy_from_slice(&rest.to_le_bytes());
        for (place, word) in others.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        let count = size_of::<u128>() + size_of_val(words);
        rest = hash(bytes.get(..count).unwrap_or_default());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_shared_where_a_model_goes_on() {
        let [a, b, c] = [digest(0, &[1]), digest(1, &[2]), digest(2, &[3])];
        assert_eq!(common(&[a, b], &[a, b, c], true), 2);
        assert_eq!(common(&[a, b, c], &[a, b], true), 2);
        assert_eq!(common(&[a, b], &[a, b, c], false), 0);
        assert_eq!(common(&[a, b], &[a, b], false), 2);
        assert_eq!(common(&[a, b], &[a, c], true), 0);
        assert_ne!(digest(0, &[1, 2]), digest(0, &[2, 1]));
        let many: Vec<i64> = (0..99).collect();
        assert_ne!(digest(0, &many), digest(0, &many[..98]));
        assert_ne!(digest(0, &[]), digest(1, &[]));
    }
}
