//! Stable sorting in little code, for lists that are short or sorted once where a model is loaded. The standard library's has 4 KB for each
//! type and order of it, which apps carry.

use std::cmp::Ordering;

/// Sorting of a list, stable, with the order as a call.
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

/// Where each of `count` elements goes.
fn places(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| compare(a, b));
    let mut places = vec![0; count];
    for (place, element) in order.into_iter().enumerate() {
        places[element] = place;
    }
    places
}

/// Brings elements to their places, each by one swap at most.
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
