//! Stable sorting in little code, for short lists, and lists that are sorted once when a model is loaded. The standard
//! library's sort, and collecting into its ordered maps and sets, add 4 KB of code for each element type and order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Stable sorting of a list by a comparison behind a dynamic call.
pub trait Arrange<T> {
    /// Sorts by a comparison.
    fn arrange_by(&mut self, compare: impl Fn(&T, &T) -> Ordering);

    /// Sorts by a key.
    fn arrange_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.arrange_by(|a, b| key(a).cmp(&key(b)));
    }

    /// Sorts.
    fn arrange(&mut self)
    where
        T: Ord,
    {
        self.arrange_by(T::cmp);
    }
}

impl<T> Arrange<T> for [T] {
    fn arrange_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        if self.len() < 2 {
            return;
        }
        let places = places(self.len(), &|a, b| match (self.get(a), self.get(b)) {
            (Some(a), Some(b)) => compare(a, b),
            _ => Ordering::Equal,
        });
        bring(places, &mut |a, b| self.swap(a, b));
    }
}

/// Ordered maps and sets with few entries, inserted one by one.
pub trait Ordered: Iterator + Sized {
    /// A map; if entries have the same key, the last one is kept.
    fn ordered_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }

    /// A set.
    fn ordered_set(self) -> BTreeSet<Self::Item>
    where
        Self::Item: Ord,
    {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }
}

impl<I: Iterator> Ordered for I {}

/// The sorted position of each of `count` elements.
fn places(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
    let mut places = vec![0; count];
    for (place, element) in order.into_iter().enumerate() {
        places[element] = place;
    }
    places
}

/// Moves elements to their positions, each by at most one swap.
fn bring(mut places: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for at in 0..places.len() {
        while places[at] != at {
            let to = places[at];
            swap(at, to);
            places.swap(at, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_sets_are_those_that_the_standard_library_collects() {
        let entries = || (0..500_usize).map(|n| (n * 7919 % 97, n));
        assert_eq!(entries().ordered_map(), entries().collect());
        assert_eq!(entries().map(|(key, _)| key).ordered_set(), (0..97).collect());
    }

    #[test]
    fn lists_are_sorted_as_the_standard_library_does() {
        for count in [0, 1, 2, 3, 20, 21, 500] {
            let list: Vec<(usize, usize)> = (0..count).map(|n| (n * 7919 % 97 % 13, n)).collect();
            let (mut arranged, mut expected) = (list.clone(), list);
            arranged.arrange_by_key(|&(key, _)| std::cmp::Reverse(key));
            expected.sort_by_key(|&(key, _)| std::cmp::Reverse(key));
            assert_eq!(arranged, expected);
            arranged.arrange();
            expected.sort();
            assert_eq!(arranged, expected);
        }
    }
}
