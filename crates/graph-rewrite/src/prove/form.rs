//! Linear forms over unknown integers.

use rewire_graph::pointwise::ExprId;
use rewire_graph::{Dim, Symbol};
use std::collections::HashMap;

use crate::plan::HostSlot;

/// An unknown integer, by its number in [`Atoms`]. Those of kinds that are bounded by others come after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Atom {
    rank: u8,
    number: u32,
}

/// What an unknown stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Meaning {
    /// A symbolic size.
    Symbol(Symbol),
    /// The last entry of offsets.
    End(HostSlot),
    /// A scalar of the shape program.
    Scalar(HostSlot),
    /// The entry after that at an index, less that one, of offsets.
    Length(HostSlot, Form),
    /// The entry of a host vector at an index.
    Entry(HostSlot, Form),
    /// An expression that is no sum.
    Value(ExprId),
    /// A coordinate of the loop.
    Coord(u8),
    /// A form divided by a positive constant, rounded down.
    Quotient(Form, i128),
}

impl Atom {
    /// True for what is the value of an expression, not only part of one.
    pub fn is_value(self) -> bool {
        self.rank >= VALUE
    }
}

/// The rank of the values of expressions.
const VALUE: u8 = 5;

impl Meaning {
    /// Unknowns are bounded by those of lower ranks.
    fn rank(&self) -> u8 {
        match self {
            Self::Symbol(_) => 0,
            Self::End(_) => 1,
            Self::Scalar(_) => 2,
            Self::Length(..) => 3,
            Self::Entry(..) => 4,
            Self::Value(_) => VALUE,
            Self::Coord(_) => VALUE + 1,
            Self::Quotient(..) => VALUE + 2,
        }
    }
}

/// The unknowns of a proof.
#[derive(Debug, Default)]
pub(super) struct Atoms {
    known: HashMap<Meaning, Atom>,
}

impl Atoms {
    /// The unknown with a meaning, and whether it is new.
    pub fn intern(&mut self, meaning: Meaning) -> (Atom, bool) {
        let next = Atom { rank: meaning.rank(), number: self.known.len() as u32 };
        let count = self.known.len();
        let atom = *self.known.entry(meaning).or_insert(next);
        (atom, self.known.len() > count)
    }

    /// What an unknown stands for.
    pub fn meaning(&self, atom: Atom) -> Option<&Meaning> {
        self.known.iter().find(|(_, known)| **known == atom).map(|(meaning, _)| meaning)
    }

    /// A form of sizes alone as a size.
    pub fn size(&self, form: &Form) -> Option<Dim> {
        let constant = Dim::from(1) * i64::try_from(form.offset()).ok()?;
        form.terms().try_fold(constant, |sum, (atom, multiple)| match self.meaning(atom)? {
            Meaning::Symbol(symbol) => Some(sum + Dim::symbol(*symbol) * i64::try_from(multiple).ok()?),
            _ => None,
        })
    }

    /// The form that is one unknown.
    pub fn form(&mut self, meaning: Meaning) -> Form {
        Form::atom(self.intern(meaning).0)
    }

    /// A size as a form.
    pub fn dim(&mut self, dim: &Dim) -> Form {
        let constant = Form::constant(dim.constant().into());
        dim.terms().fold(constant, |sum, (symbol, factor)| {
            let symbol = self.form(Meaning::Symbol(symbol));
            // Factors are 64-bit and distinct symbols do not add up, so that nothing overflows.
            sum.plus(&symbol, factor.into()).unwrap_or(sum)
        })
    }
}

/// A sum of integer multiples of unknowns and a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Form {
    /// Ascending, without zeros.
    terms: Vec<(Atom, i128)>,
    constant: i128,
}

impl Form {
    /// A number.
    pub fn constant(constant: i128) -> Self {
        Self { terms: vec![], constant }
    }

    /// One unknown.
    pub fn atom(atom: Atom) -> Self {
        Self { terms: vec![(atom, 1)], constant: 0 }
    }

    /// The number, where no unknown takes part.
    pub fn as_constant(&self) -> Option<i128> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The unknown, where the form is no more than that.
    pub fn as_atom(&self) -> Option<Atom> {
        match self.terms.as_slice() {
            [(atom, 1)] if self.constant == 0 => Some(*atom),
            _ => None,
        }
    }

    /// The constant part.
    pub fn offset(&self) -> i128 {
        self.constant
    }

    /// The unknown of the highest rank, and its multiple.
    pub fn leading(&self) -> Option<(Atom, i128)> {
        self.terms.last().copied()
    }

    /// The number of unknowns.
    pub fn unknowns(&self) -> usize {
        self.terms.len()
    }

    /// The unknowns with their multiples.
    pub fn terms(&self) -> impl Iterator<Item = (Atom, i128)> + '_ {
        self.terms.iter().copied()
    }

    /// The unknowns.
    pub fn atoms(&self) -> impl DoubleEndedIterator<Item = Atom> + '_ {
        self.terms.iter().map(|(atom, _)| *atom)
    }

    /// The multiple of an unknown.
    pub fn multiple_of(&self, atom: Atom) -> i128 {
        let found = self.terms.binary_search_by_key(&atom, |(atom, _)| *atom);
        found.map_or(0, |at| self.terms[at].1)
    }

    /// `self * own + other * factor`; `None` on overflow.
    fn combined(&self, own: i128, other: &Self, factor: i128) -> Option<Self> {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut left, mut right) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let (atom, multiple) = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(a), b) if b.is_none_or(|b| a.0 < b.0) => {
                    let multiple = a.1.checked_mul(own)?;
                    (left.next()?.0, multiple)
                }
                (Some(a), Some(b)) if a.0 == b.0 => {
                    let multiple = a.1.checked_mul(own)?.checked_add(b.1.checked_mul(factor)?)?;
                    (left.next().and(right.next())?.0, multiple)
                }
                (_, Some(b)) => {
                    let multiple = b.1.checked_mul(factor)?;
                    (right.next()?.0, multiple)
                }
                (Some(_), None) => break,
            };
            if multiple != 0 {
                terms.push((atom, multiple));
            }
        }
        let constant = self.constant.checked_mul(own)?.checked_add(other.constant.checked_mul(factor)?)?;
        Some(Self { terms, constant })
    }

    /// `self + other * factor`; `None` on overflow.
    pub fn plus(&self, other: &Self, factor: i128) -> Option<Self> {
        self.combined(1, other, factor)
    }

    /// `self - other`; `None` on overflow.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(other, -1)
    }

    /// `self * factor`; `None` on overflow.
    pub fn times(&self, factor: i128) -> Option<Self> {
        Self::default().plus(self, factor)
    }

    /// `self + constant`; `None` on overflow.
    pub fn shifted(&self, constant: i128) -> Option<Self> {
        Some(Self { terms: self.terms.clone(), constant: self.constant.checked_add(constant)? })
    }

    /// A form without `atom` that is negative wherever this one is, if `bound` is not; `None` where they do not cancel.
    pub fn without(&self, atom: Atom, bound: &Self) -> Option<Self> {
        let (own, other) = (self.multiple_of(atom), bound.multiple_of(atom));
        if own == 0 || other == 0 || (own < 0) != (other < 0) {
            return None;
        }
        let common = gcd(own.unsigned_abs(), other.unsigned_abs()) as i128;
        let (scale, multiple) = (other.checked_abs()? / common, own.checked_abs()? / common);
        // A multiple of an integer by `scale` that is above `-scale` is that of one that is not negative.
        let rest = self.combined(scale, bound, -multiple)?.shifted(scale - 1)?;
        Some(rest.reduced())
    }

    /// Divided by what all multiples have in common, rounded down: negative exactly where the form is.
    fn reduced(mut self) -> Self {
        let common = self.terms.iter().fold(0, |common, (_, multiple)| gcd(common, multiple.unsigned_abs())) as i128;
        if common > 1 {
            self.terms.iter_mut().for_each(|(_, multiple)| *multiple /= common);
            self.constant = self.constant.div_euclid(common);
        }
        self
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_add_up_and_cancel() {
        let mut atoms = Atoms::default();
        let [a, b] = [0, 1].map(|n| atoms.form(Meaning::Coord(n)));
        let sum = a.times(3).unwrap().plus(&b, -2).unwrap().shifted(7).unwrap();
        assert_eq!(sum.plus(&b, 2).unwrap().minus(&a.times(3).unwrap()).unwrap(), Form::constant(7));
        let (atom, multiple) = sum.leading().unwrap();
        assert_eq!((multiple, sum.multiple_of(atom)), (-2, -2));
        // 3 a - 2 b + 7 with 5 - 4 b >= 0 is at least (6 a + 14 - 5) / 2, which is negative where 6 a + 10 is.
        let bound = b.times(-4).unwrap().shifted(5).unwrap();
        assert_eq!(sum.without(atom, &bound).unwrap(), a.shifted(1).unwrap());
        assert!(sum.without(atom, &b).is_none());
        assert!(a.times(i128::MAX).unwrap().times(2).is_none());
    }

    #[test]
    fn a_size_is_a_form_of_its_symbols() {
        let mut atoms = Atoms::default();
        let dim = Dim::symbol(Symbol(4)) * 3 + 5.into();
        let symbol = atoms.form(Meaning::Symbol(Symbol(4)));
        assert_eq!(atoms.dim(&dim), symbol.times(3).unwrap().shifted(5).unwrap());
    }
}
