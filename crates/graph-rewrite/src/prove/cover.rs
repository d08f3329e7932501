//! The elements of a tensor that a loop writes.
//!
//! Coordinates of a loop take all values in all combinations. So does an index that has them as mixed-radix digits:
//! `8 a + b` with `b` below 8. A coordinate is split into two digits if its quotient and remainder are indices.

use super::form::{Atoms, LinearExpr, Var, VarDef};
use rewire_graph::{Arrange, Dim, Ordered};
use std::collections::{BTreeMap, HashMap};

/// Range of indices in a dimension: start and exclusive end.
pub(super) type Span = [Dim; 2];

/// A coordinate or a part of one: from 0 to below an extent.
#[derive(Debug)]
struct Digit {
    extent: Dim,
    /// If this digit is split: the extent of the lower digit, and the lower and the upper digit.
    cut: Option<(usize, [usize; 2])>,
}

/// A linear combination of digits and sizes.
#[derive(Clone, Debug, Default)]
struct Number {
    digits: BTreeMap<usize, i128>,
    rest: LinearExpr,
}

/// The coordinates of a loop.
#[derive(Debug, Default)]
pub(super) struct MixedRadix {
    all: Vec<Digit>,
    coords: HashMap<Var, Number>,
}

impl MixedRadix {
    /// Adds a coordinate with `extent` values from `first` on.
    pub fn coord(&mut self, coord: Var, first: usize, extent: Dim) {
        let number =
            Number { digits: BTreeMap::from([(self.all.len(), 1)]), rest: LinearExpr::constant(first as i128) };
        self.all.push(Digit { extent, cut: None });
        self.coords.insert(coord, number);
    }

    /// The ranges of the indices, one span per dimension, if they take all values in all combinations; `None` if that
    /// is unknown.
    pub fn spans(&mut self, atoms: &Atoms, index: &[LinearExpr]) -> Option<Vec<Span>> {
        let numbers = index.iter().map(|form| self.number(atoms, form)).collect::<Option<Vec<_>>>()?;
        let numbers = numbers.into_iter().map(|number| self.cut_up(number)).collect::<Option<Vec<_>>>()?;
        let uses = |digit: usize| numbers.iter().filter(|number| number.digits.contains_key(&digit)).count();
        let is_free = |(position, digit): (usize, &Digit)| match uses(position) {
            // If a coordinate has no values, there are no points.
            0 => digit.cut.is_some() || digit.extent.as_const().is_some_and(|extent| extent > 0),
            uses => uses == 1,
        };
        if !self.all.iter().enumerate().all(is_free) {
            return None;
        }
        numbers.iter().map(|number| self.span(atoms, number)).collect()
    }

    fn number(&mut self, atoms: &Atoms, form: &LinearExpr) -> Option<Number> {
        let mut number = Number { rest: LinearExpr::constant(form.offset()), ..Number::default() };
        for (atom, multiple) in form.terms() {
            if let Some(coord) = self.coords.get(&atom) {
                number = number.plus(coord, multiple)?;
                continue;
            }
            match atoms.meaning(atom)? {
                VarDef::Symbol(_) => number.rest = number.rest.plus(&LinearExpr::unknown(atom), multiple)?,
                VarDef::Quotient(dividend, divisor) => {
                    let dividend = self.number(atoms, dividend)?;
                    number = number.plus(&self.quotient(dividend, *divisor)?, multiple)?;
                }
                _ => return None,
            }
        }
        Some(number)
    }

    /// A number divided by a positive constant, rounded down.
    fn quotient(&mut self, mut dividend: Number, divisor: i128) -> Option<Number> {
        let constant = dividend.rest.as_constant()?;
        loop {
            dividend = self.cut_up(dividend)?;
            let below = dividend.digits.iter().filter(|(_, multiple)| *multiple % divisor != 0);
            let below: Vec<(usize, i128)> = below.map(|(digit, multiple)| (*digit, *multiple)).collect();
            let most = below.iter().try_fold(constant.rem_euclid(divisor), |most, &(digit, multiple)| {
                let last = self.all.get(digit)?.extent.as_const()?.saturating_sub(1);
                multiple.checked_mul(last as i128).filter(|_| multiple > 0)?.checked_add(most)
            });
            if most.is_some_and(|most| most < divisor) {
                let whole = dividend.digits.iter().filter(|(_, multiple)| *multiple % divisor == 0);
                let digits = whole.map(|(digit, multiple)| (*digit, multiple / divisor)).ordered_map();
                return Some(Number { digits, rest: LinearExpr::constant(constant.div_euclid(divisor)) });
            }
            let &(digit, multiple) = below.iter().max_by_key(|(_, multiple)| *multiple)?;
            self.cut(digit, Some(divisor).filter(|divisor| divisor % multiple == 0)? / multiple)?;
        }
    }

    /// Splits a digit in two, the lower one below `extent`.
    fn cut(&mut self, digit: usize, extent: i128) -> Option<()> {
        let lower = usize::try_from(extent).ok()?;
        let upper = self.all.get(digit)?.extent.divide(i64::try_from(extent).ok()?)?;
        if upper == 1.into() {
            return None;
        }
        let first = self.all.len();
        self.all.extend([lower.into(), upper].map(|extent| Digit { extent, cut: None }));
        self.all.get_mut(digit)?.cut = Some((lower, [first, first + 1]));
        Some(())
    }

    /// A number in terms of digits that are not split.
    fn cut_up(&self, number: Number) -> Option<Number> {
        let mut whole = Number { rest: number.rest, ..Number::default() };
        let mut open: Vec<(usize, i128)> = number.digits.into_iter().collect();
        while let Some((digit, multiple)) = open.pop() {
            match self.all.get(digit)?.cut {
                Some((extent, [lower, upper])) => {
                    open.extend([(lower, multiple), (upper, multiple.checked_mul(extent as i128)?)]);
                }
                None => {
                    whole =
                        whole.plus(&Number { digits: BTreeMap::from([(digit, multiple)]), ..Number::default() }, 1)?
                }
            }
        }
        Some(whole)
    }

    fn span(&self, atoms: &Atoms, number: &Number) -> Option<Span> {
        let mut digits = vec![];
        for (digit, multiple) in &number.digits {
            let extent = &self.all.get(*digit)?.extent;
            digits.extend((*extent != 1.into()).then_some((*multiple, extent)));
        }
        digits.arrange();
        let mut count = Dim::from(1);
        for (multiple, extent) in digits {
            if count.as_const().is_none_or(|count| count as i128 != multiple) {
                return None;
            }
            count = count.product(extent)?;
        }
        let first = atoms.size(&number.rest)?;
        Some([first.clone(), first + count])
    }
}

impl Number {
    /// `self + other * factor`; `None` on overflow.
    fn plus(mut self, other: &Self, factor: i128) -> Option<Self> {
        for (digit, multiple) in &other.digits {
            let sum = self.digits.entry(*digit).or_default();
            *sum = sum.checked_add(multiple.checked_mul(factor)?)?;
        }
        self.digits.retain(|_, multiple| *multiple != 0);
        self.rest = self.rest.plus(&other.rest, factor)?;
        Some(self)
    }
}

/// True if the written spans `parts` cover the whole tensor.
pub(super) fn covers(shape: &[Dim], parts: &[&[Span]]) -> bool {
    let is_whole = |part: &[Span], axis: usize| part.get(axis) == Some(&[0.into(), shape[axis].clone()]);
    let is_joined = |joined: usize| {
        let beside = parts.iter().filter(|part| (0..shape.len()).all(|axis| axis == joined || is_whole(part, axis)));
        let mut left: Vec<&Span> = beside.filter_map(|part| part.get(joined)).collect();
        let mut end = Dim::from(0);
        while let Some(next) = left.iter().position(|[first, _]| *first == end) {
            end = left.swap_remove(next)[1].clone();
        }
        end == shape[joined]
    };
    parts.iter().any(|part| (0..shape.len()).all(|axis| is_whole(part, axis))) || (0..shape.len()).any(is_joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph::Symbol;

    /// Coordinates of a loop with these extents, and their forms.
    fn loop_over<const N: usize>(atoms: &mut Atoms, extents: [Dim; N]) -> (MixedRadix, [LinearExpr; N]) {
        let mut digits = MixedRadix::default();
        let mut axes = 0..;
        let coords = extents.map(|extent| {
            let form = atoms.form(VarDef::Coord(axes.next().unwrap()));
            digits.coord(form.as_unknown().unwrap(), 0, extent);
            form
        });
        (digits, coords)
    }

    fn quotient(atoms: &mut Atoms, form: &LinearExpr, divisor: i128) -> [LinearExpr; 2] {
        let quotient = atoms.form(VarDef::Quotient(form.clone(), divisor));
        let rest = form.plus(&quotient, -divisor).unwrap();
        [quotient, rest]
    }

    fn whole(extents: &[Dim]) -> Option<Vec<Span>> {
        Some(extents.iter().map(|extent| [0.into(), extent.clone()]).collect())
    }

    #[test]
    fn axes_are_split_joined_and_exchanged() {
        let rows = Dim::symbol(Symbol(0));
        let mut atoms = Atoms::default();
        let (mut digits, [row, column]) = loop_over(&mut atoms, [rows.clone(), 24.into()]);
        let [outer, rest] = quotient(&mut atoms, &column, 12);
        let [middle, inner] = quotient(&mut atoms, &rest, 4);
        let index = [inner, row.clone(), outer, middle];
        assert_eq!(digits.spans(&atoms, &index), whole(&[4.into(), rows.clone(), 2.into(), 3.into()]));

        let (mut digits, [row, column]) = loop_over(&mut atoms, [rows.clone() * 4, 6.into()]);
        let flat = row.times(6).unwrap().plus(&column, 1).unwrap();
        assert_eq!(digits.spans(&atoms, std::slice::from_ref(&flat)), whole(&[rows.clone() * 24]));
        let index = quotient(&mut atoms, &flat, 8);
        assert_eq!(digits.spans(&atoms, &index), None, "6 columns are not parts of 8");
        let index = quotient(&mut atoms, &flat, 12);
        assert_eq!(digits.spans(&atoms, &index), whole(&[rows * 2, 12.into()]));
    }

    #[test]
    fn what_leaves_gaps_is_no_span() {
        let mut atoms = Atoms::default();
        let (mut digits, [a, b]) = loop_over(&mut atoms, [3.into(), 4.into()]);
        let sum = |a: &LinearExpr, factor: i128, b: &LinearExpr| b.plus(a, factor).unwrap();
        assert_eq!(digits.spans(&atoms, &[sum(&a, 4, &b)]), whole(&[12.into()]));
        for gaps in [sum(&a, 5, &b), sum(&b, 2, &a), sum(&a, -4, &b), b.times(2).unwrap()] {
            assert_eq!(digits.spans(&atoms, std::slice::from_ref(&gaps)), None, "{gaps:?}");
        }
        assert_eq!(digits.spans(&atoms, &[a.clone(), a.clone()]), None, "a diagonal");
        let (mut digits, [a, _]) = loop_over(&mut atoms, [3.into(), Dim::symbol(Symbol(0))]);
        assert_eq!(digits.spans(&atoms, &[a]), None, "the loop may have no points");
    }

    #[test]
    fn parts_lie_side_by_side() {
        let (rows, more) = (Dim::symbol(Symbol(0)), Dim::symbol(Symbol(1)));
        let shape = [rows.clone() + more.clone(), 6.into()];
        let part =
            |first: &Dim, end: &Dim, columns: [usize; 2]| vec![[first.clone(), end.clone()], columns.map(Dim::from)];
        let zero = Dim::from(0);
        let [above, below] = [part(&zero, &rows, [0, 6]), part(&rows, &shape[0], [0, 6])];
        assert!(covers(&shape, &[&below, &above]));
        assert!(!covers(&shape, &[&above]) && !covers(&shape, &[&below]) && !covers(&shape, &[]));
        let short = part(&rows, &shape[0], [0, 5]);
        assert!(!covers(&shape, &[&above, &short]));
        let [left, right] = [part(&zero, &shape[0], [0, 2]), part(&zero, &shape[0], [2, 6])];
        assert!(covers(&shape, &[&left, &right]) && !covers(&shape, &[&left, &part(&zero, &shape[0], [3, 6])]));
        assert!(covers(&[], &[&[]]) && !covers(&[], &[]));
    }
}
