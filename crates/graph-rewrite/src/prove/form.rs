//! Linear forms of unknown integers.

use rewire_graph::pointwise::{Affine, ExprId};
use rewire_graph::{Dim, Symbol};
use std::collections::HashMap;

use crate::plan::HostSlot;

/// An unknown integer, by its number in [`Atoms`]. Unknowns that are bounded by others are ordered after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Var {
    rank: u8,
    number: u32,
}

/// The definition of an unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum VarDef {
    /// A symbolic size.
    Symbol(Symbol),
    /// The last entry of offsets.
    End(HostSlot),
    /// A scalar of the shape program.
    Scalar(HostSlot),
    /// The difference between the offsets after an index and at it.
    Length(HostSlot, LinearExpr),
    /// The entry of a host vector at an index.
    Entry(HostSlot, LinearExpr),
    /// An expression that is not a sum.
    Value(ExprId),
    /// A coordinate of the loop.
    Coord(u8),
    /// A form divided by a positive constant, rounded down.
    Quotient(LinearExpr, i128),
}

impl Var {
    /// True for the value of an expression; false for sizes and host values.
    pub fn is_value(self) -> bool {
        self.rank >= VALUE
    }
}

/// The rank of the values of expressions.
const VALUE: u8 = 5;

impl VarDef {
    /// The rank in the order of unknowns: unknowns are bounded by unknowns of lower rank.
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
    known: HashMap<VarDef, Var>,
}

impl Atoms {
    /// The unknown with a definition, and whether it is new.
    pub fn intern(&mut self, meaning: VarDef) -> (Var, bool) {
        let next = Var { rank: meaning.rank(), number: self.known.len() as u32 };
        let count = self.known.len();
        let atom = *self.known.entry(meaning).or_insert(next);
        (atom, self.known.len() > count)
    }

    /// The definition of an unknown.
    pub fn meaning(&self, atom: Var) -> Option<&VarDef> {
        self.known.iter().find(|(_, known)| **known == atom).map(|(meaning, _)| meaning)
    }

    /// A form as a size, if it contains only sizes.
    pub fn size(&self, form: &LinearExpr) -> Option<Dim> {
        let constant = Dim::from(1) * i64::try_from(form.offset()).ok()?;
        form.terms().try_fold(constant, |sum, (atom, multiple)| match self.meaning(atom)? {
            VarDef::Symbol(symbol) => Some(sum + Dim::symbol(*symbol) * i64::try_from(multiple).ok()?),
            _ => None,
        })
    }

    /// A form that consists of one unknown.
    pub fn form(&mut self, meaning: VarDef) -> LinearExpr {
        LinearExpr::unknown(self.intern(meaning).0)
    }

    /// A size as a form.
    pub fn dim(&mut self, dim: &Dim) -> LinearExpr {
        let constant = LinearExpr::constant(dim.constant().into());
        dim.terms().fold(constant, |sum, (symbol, factor)| {
            let symbol = self.form(VarDef::Symbol(symbol));
            // Factors are 64-bit and distinct symbols do not add up, so nothing overflows.
            sum.plus(&symbol, factor.into()).unwrap_or(sum)
        })
    }
}

/// An integer linear combination of unknowns, plus a constant.
pub(super) type LinearExpr = Affine<Var>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_form_of_its_symbols() {
        let mut atoms = Atoms::default();
        let dim = Dim::symbol(Symbol(4)) * 3 + 5.into();
        let symbol = atoms.form(VarDef::Symbol(Symbol(4)));
        assert_eq!(atoms.dim(&dim), symbol.times(3).unwrap().shifted(5).unwrap());
    }
}
