//! Symbolic integers: polynomials of sizes, and of functions such as quotient, minimum and maximum of other polynomials.

use std::collections::BTreeMap;

/// A variable of polynomials: its index in [`super::Sizes`].
pub(crate) type AtomId = u32;

/// A product of variables, in ascending order.
pub(crate) type Monomial = Vec<AtomId>;

/// A polynomial with integer coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Size {
    terms: BTreeMap<Monomial, i64>,
}

impl Size {
    pub fn atom(id: AtomId) -> Self {
        Self { terms: BTreeMap::from([(vec![id], 1)]) }
    }

    /// A polynomial with a single monomial.
    pub fn monomial(monomial: &Monomial) -> Self {
        Self { terms: BTreeMap::from([(monomial.clone(), 1)]) }
    }

    pub fn as_const(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&vec![]).copied(),
            _ => None,
        }
    }

    /// The value of a non-negative constant; `None` otherwise.
    pub fn as_extent(&self) -> Option<usize> {
        self.as_const().and_then(|value| usize::try_from(value).ok())
    }

    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, i64)> {
        self.terms.iter().map(|(monomial, &factor)| (monomial, factor))
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        for (monomial, factor) in other.terms() {
            let entry = sum.terms.entry(monomial.clone()).or_insert(0);
            *entry = entry.saturating_add(factor);
        }
        sum.normalized()
    }

    pub fn minus(&self, other: &Self) -> Self {
        self.plus(&other.times(&Self::from(-1)))
    }

    pub fn times(&self, other: &Self) -> Self {
        let mut product = Self::default();
        for (a, x) in self.terms() {
            for (b, y) in other.terms() {
                let mut monomial = [a.as_slice(), b].concat();
                monomial.sort_unstable();
                let entry = product.terms.entry(monomial).or_insert(0);
                *entry = entry.saturating_add(x.saturating_mul(y));
            }
        }
        product.normalized()
    }

    /// The product of several sizes.
    pub fn product<'a>(sizes: impl IntoIterator<Item = &'a Self>) -> Self {
        sizes.into_iter().fold(Self::from(1), |product, size| product.times(size))
    }

    fn normalized(mut self) -> Self {
        self.terms.retain(|_, factor| *factor != 0);
        self
    }

    /// The exact quotient; `None` unless the divisor is a single term that divides every term.
    pub fn divided(&self, divisor: &Self) -> Option<Self> {
        let mut terms = divisor.terms();
        let (Some((by, factor)), None) = (terms.next(), terms.next()) else {
            return (self == divisor).then(|| Self::from(1));
        };
        let mut quotient = Self::default();
        for (monomial, multiple) in self.terms() {
            let mut rest = monomial.clone();
            for atom in by {
                let place = rest.iter().position(|other| other == atom)?;
                rest.remove(place);
            }
            if multiple.checked_rem(factor)? != 0 {
                return None;
            }
            quotient.terms.insert(rest, multiple / factor);
        }
        Some(quotient)
    }

    /// `(q, r)` with `self = divisor * q + r`, where the coefficients of `r` are in `0..divisor`.
    pub fn split(&self, divisor: i64) -> (Self, Self) {
        let part = |of: fn(i64, i64) -> i64| {
            let terms = self.terms.iter().map(|(monomial, &factor)| (monomial.clone(), of(factor, divisor))).collect();
            Self { terms }.normalized()
        };
        (part(i64::div_euclid), part(i64::rem_euclid))
    }
}

impl From<i64> for Size {
    fn from(value: i64) -> Self {
        Self { terms: BTreeMap::from([(vec![], value)]) }.normalized()
    }
}

impl From<usize> for Size {
    fn from(value: usize) -> Self {
        Self::from(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<i32> for Size {
    fn from(value: i32) -> Self {
        Self::from(i64::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn polynomials_are_canonical() {
        let (a, b) = (Size::atom(0), Size::atom(1));
        let left = a.plus(&b).times(&a.minus(&b));
        let right = a.times(&a).minus(&b.times(&b));
        assert_eq!(left, right);
        assert_eq!(a.times(&b).times(&Size::from(6)).divided(&b.times(&Size::from(3))), Some(a.times(&Size::from(2))));
        assert_eq!(a.plus(&Size::from(1)).divided(&Size::from(2)), None);
        assert_eq!(a.minus(&a).as_const(), Some(0));
    }

    #[test]
    fn quotients_round_down() {
        let (quotient, rest) = Size::atom(0).times(&Size::from(5)).minus(&Size::from(1)).split(2);
        assert_eq!(quotient, Size::atom(0).times(&Size::from(2)).minus(&Size::from(1)));
        assert_eq!(rest, Size::atom(0).plus(&Size::from(1)));
    }
}
