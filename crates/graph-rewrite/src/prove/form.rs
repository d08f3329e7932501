//! Linear forms over unknown integers.

use rewire_graph::pointwise::{Affine, ExprId};
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
        Form::unknown(self.intern(meaning).0)
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
pub(super) type Form = Affine<Atom>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_form_of_its_symbols() {
        let mut atoms = Atoms::default();
        let dim = Dim::symbol(Symbol(4)) * 3 + 5.into();
        let symbol = atoms.form(Meaning::Symbol(Symbol(4)));
        assert_eq!(atoms.dim(&dim), symbol.times(3).unwrap().shifted(5).unwrap());
    }
}
