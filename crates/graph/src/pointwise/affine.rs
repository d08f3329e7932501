//! Integer linear combinations, and indices of that form.

use super::dag::{Dag, Expr, ExprId};
use super::functions::BinaryOp;
use crate::{Dim, Scalar};

/// An integer linear combination of unknowns, plus a constant. Arithmetic is exact; it returns `None` beyond 128 bits.
///
/// ```
/// use rewire_graph::pointwise::Affine;
/// let (x, y) = (Affine::unknown('x'), Affine::unknown('y'));
/// let sum = x.plus(&y, 3).unwrap().shifted(-2).unwrap();
/// assert_eq!((sum.multiple_of(&'y'), sum.offset()), (3, -2));
/// assert_eq!(sum.plus(&y, -3).unwrap().minus(&x).unwrap().as_constant(), Some(-2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Affine<A> {
    /// Ascending by unknown, without zero multiples.
    terms: Vec<(A, i128)>,
    constant: i128,
}

impl<A> Default for Affine<A> {
    fn default() -> Self {
        Self { terms: vec![], constant: 0 }
    }
}

impl<A: Clone + Ord> Affine<A> {
    /// A number.
    pub fn constant(constant: i128) -> Self {
        Self { terms: vec![], constant }
    }

    /// One unknown.
    pub fn unknown(unknown: A) -> Self {
        Self { terms: vec![(unknown, 1)], constant: 0 }
    }

    /// The number, if the combination is constant.
    pub fn as_constant(&self) -> Option<i128> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The unknown, if the combination is exactly that.
    pub fn as_unknown(&self) -> Option<A> {
        match self.terms.as_slice() {
            [(unknown, 1)] if self.constant == 0 => Some(unknown.clone()),
            _ => None,
        }
    }

    /// The constant part.
    pub fn offset(&self) -> i128 {
        self.constant
    }

    /// The unknowns, ascending, with their multiples.
    pub fn terms(&self) -> impl DoubleEndedIterator<Item = (A, i128)> + ExactSizeIterator + '_ {
        self.terms.iter().cloned()
    }

    /// The multiple of an unknown.
    pub fn multiple_of(&self, unknown: &A) -> i128 {
        let found = self.terms.binary_search_by(|(other, _)| other.cmp(unknown));
        found.map_or(0, |at| self.terms[at].1)
    }

    /// `self * own + other * factor`.
    fn combined(&self, own: i128, other: &Self, factor: i128) -> Option<Self> {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut left, mut right) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let (unknown, multiple) = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(a), b) if b.is_none_or(|b| a.0 < b.0) => {
                    let multiple = a.1.checked_mul(own)?;
                    (&left.next()?.0, multiple)
                }
                (Some(a), Some(b)) if a.0 == b.0 => {
                    let multiple = a.1.checked_mul(own)?.checked_add(b.1.checked_mul(factor)?)?;
                    (&left.next().and(right.next())?.0, multiple)
                }
                (_, Some(b)) => {
                    let multiple = b.1.checked_mul(factor)?;
                    (&right.next()?.0, multiple)
                }
                (Some(_), None) => break,
            };
            if multiple != 0 {
                terms.push((unknown.clone(), multiple));
            }
        }
        let constant = self.constant.checked_mul(own)?.checked_add(other.constant.checked_mul(factor)?)?;
        Some(Self { terms, constant })
    }

    /// `self + other * factor`.
    pub fn plus(&self, other: &Self, factor: i128) -> Option<Self> {
        self.combined(1, other, factor)
    }

    /// `self - other`.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(other, -1)
    }

    /// `self * factor`.
    pub fn times(&self, factor: i128) -> Option<Self> {
        Self::default().plus(self, factor)
    }

    /// `self + constant`.
    pub fn shifted(&self, constant: i128) -> Option<Self> {
        Some(Self { terms: self.terms.clone(), constant: self.constant.checked_add(constant)? })
    }

    /// `self / divisor` and the rest, for a positive divisor: the rest has the multiples that `divisor` does not
    /// divide, and the remainder of the constant, from 0 up to the divisor.
    pub fn divided(&self, divisor: i128) -> (Self, Self) {
        let (whole, left) = self.terms().partition::<Vec<_>, _>(|(_, multiple)| multiple % divisor == 0);
        let terms = whole.into_iter().map(|(unknown, multiple)| (unknown, multiple / divisor)).collect();
        let quotient = Self { terms, constant: self.constant.div_euclid(divisor) };
        (quotient, Self { terms: left, constant: self.constant.rem_euclid(divisor) })
    }

    /// A combination without `unknown` that is negative wherever this one is, provided `bound` is not negative; `None`
    /// if the unknown does not cancel.
    pub fn without(&self, unknown: &A, bound: &Self) -> Option<Self> {
        let (own, other) = (self.multiple_of(unknown), bound.multiple_of(unknown));
        if own == 0 || other == 0 || (own < 0) != (other < 0) {
            return None;
        }
        let common = gcd(own.unsigned_abs(), other.unsigned_abs()) as i128;
        let (scale, multiple) = (other.checked_abs()? / common, own.checked_abs()? / common);
        // A multiple of an integer by `scale` that is above `-scale` is that of one that is not negative.
        let rest = self.combined(scale, bound, -multiple)?.shifted(scale - 1)?;
        Some(rest.reduced())
    }

    /// Divided by the greatest common divisor of the multiples, rounded down: negative exactly if the combination is.
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

impl Dag {
    /// An `I32` as a linear combination of expressions that are not sums themselves, modulo 2^32. If the expression has
    /// [bounds](Dag::range), the combination is exact.
    pub fn affine(&self, id: ExprId) -> Affine<ExprId> {
        let mut sum = Affine::default();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            let (unknown, multiple) = match *self.expr(id) {
                _ if self.scalar(id) != Scalar::I32 => (id, 1),
                Expr::Int(_, constant) => {
                    sum.constant += i128::from(constant);
                    continue;
                }
                Expr::Binary(BinaryOp::Add, a, b) => {
                    stack.extend([b, a]);
                    continue;
                }
                Expr::Binary(BinaryOp::Mul, a, b) => match (self.expr(a), self.expr(b)) {
                    (&Expr::Int(_, factor), _) => (b, factor),
                    (_, &Expr::Int(_, factor)) => (a, factor),
                    _ => (id, 1),
                },
                _ => (id, 1),
            };
            match sum.terms.binary_search_by_key(&unknown, |(other, _)| *other) {
                Ok(at) => sum.terms[at].1 += i128::from(multiple),
                Err(at) => sum.terms.insert(at, (unknown, multiple.into())),
            }
        }
        sum.terms.retain(|(_, multiple)| *multiple != 0);
        sum
    }

    /// The address of a load or store.
    pub fn access<'a>(&'a self, index: &'a [ExprId]) -> Access<'a> {
        Access { dag: self, index }
    }
}

/// The address of a load or store: one index per dimension of a tensor, each an expression of the coordinates.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    dag: &'a Dag,
    index: &'a [ExprId],
}

impl Access<'_> {
    /// True if any index depends on coordinate `axis`.
    pub fn moves(self, axis: u8) -> bool {
        self.depends(self.index, axis)
    }

    /// True if the last index, the column, depends on coordinate `axis`.
    pub fn columns_move(self, axis: u8) -> bool {
        self.index.last().is_some_and(|last| self.depends(std::slice::from_ref(last), axis))
    }

    /// True if an index before the last one depends on coordinate `axis`.
    pub fn rows_move(self, axis: u8) -> bool {
        self.index.split_last().is_some_and(|(_, outer)| self.depends(outer, axis))
    }

    /// True if the last indices are exactly these coordinates.
    pub fn ends_with(self, coords: &[u8]) -> bool {
        let first = self.index.len().checked_sub(coords.len());
        let mut pairs = first.and_then(|first| self.index.get(first..)).into_iter().flatten().zip(coords);
        first.is_some() && pairs.all(|(&id, &axis)| *self.dag.expr(id) == Expr::Coord(axis))
    }

    /// The change of the last index per step of coordinate `axis`; `None` if it is not constant.
    pub fn stride(self, axis: u8) -> Option<i128> {
        let column = self.dag.affine(*self.index.last()?);
        self.dag.along(&column, axis).map(|(stride, _)| stride)
    }

    /// The flat position of the accessed element in a tensor with these extents and without padding. Only the first
    /// extent may be symbolic.
    pub fn place(self, widths: &[Dim]) -> Option<Affine<ExprId>> {
        let (&first, rest) = self.index.split_first()?;
        let (_, widths) = widths.split_first()?;
        let place = rest.iter().zip(widths).try_fold(self.dag.affine(first), |place, (&index, width)| {
            let width = i128::try_from(width.as_const()?).ok()?;
            self.dag.rejoined(place.times(width)?.plus(&self.dag.affine(index), 1)?)
        });
        place.filter(|_| rest.len() == widths.len())
    }

    fn depends(self, index: &[ExprId], axis: u8) -> bool {
        index.iter().any(|&id| self.dag.coords(id).checked_shr(axis.into()).unwrap_or(0) & 1 == 1)
    }
}

impl Dag {
    /// The multiple of coordinate `axis` in a combination, and the rest; `None` if the rest depends on the coordinate
    /// too.
    pub fn along(&self, sum: &Affine<ExprId>, axis: u8) -> Option<(i128, Affine<ExprId>)> {
        let is_coord = |id: ExprId| *self.expr(id) == Expr::Coord(axis);
        let (own, terms) = sum.terms().partition::<Vec<_>, _>(|(id, _)| is_coord(*id));
        let stride = own.iter().map(|(_, multiple)| multiple).sum();
        let moves = |(id, _): &(ExprId, i128)| self.coords(*id).checked_shr(axis.into()).unwrap_or(0) & 1 == 1;
        (!terms.iter().any(moves)).then_some((stride, Affine { terms, constant: sum.constant }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_add_up_and_cancel() {
        let [a, b] = ['a', 'b'].map(Affine::unknown);
        let sum = a.times(3).unwrap().plus(&b, -2).unwrap().shifted(7).unwrap();
        assert_eq!(sum.plus(&b, 2).unwrap().minus(&a.times(3).unwrap()).unwrap(), Affine::constant(7));
        assert_eq!(sum.terms().next_back(), Some(('b', -2)));
        // 3 a - 2 b + 7 with 5 - 4 b >= 0 is at least (6 a + 14 - 5) / 2, which is negative where 6 a + 10 is.
        let bound = b.times(-4).unwrap().shifted(5).unwrap();
        assert_eq!(sum.without(&'b', &bound).unwrap(), a.shifted(1).unwrap());
        assert!(sum.without(&'b', &b).is_none());
        assert!(a.times(i128::MAX).unwrap().times(2).is_none());
    }

    #[test]
    fn a_quotient_leaves_what_is_no_multiple() {
        let [a, b] = ['a', 'b'].map(Affine::unknown);
        let sum = a.times(8).unwrap().plus(&b, 3).unwrap().shifted(-3).unwrap();
        let (quotient, rest) = sum.divided(4);
        assert_eq!(quotient, a.times(2).unwrap().shifted(-1).unwrap());
        assert_eq!(rest, b.times(3).unwrap().shifted(1).unwrap());
    }

    #[test]
    fn heads_of_a_row_lie_one_after_the_other() {
        let mut dag = Dag::new();
        let (row, column) = (dag.coord(0, None), dag.coord(1, Some(300)));
        let (start, width) = (dag.int(50), dag.int(25));
        let shifted = dag.binary(BinaryOp::Sub, column, start);
        let index = [BinaryOp::Div, BinaryOp::Mod].map(|op| dag.binary(op, shifted, width));
        let place = dag.access(&index).place(&[10.into(), 25.into()]).unwrap();
        assert_eq!(dag.along(&place, 1), Some((1, Affine::constant(-50))));
        assert_eq!(dag.access(&index).stride(1), None, "columns of a head begin at each");
        let index = [row, index[0], index[1]];
        let access = dag.access(&index);
        assert!(access.moves(0) && !access.columns_move(0) && access.rows_move(1) && access.columns_move(1));
        assert!(access.place(&[10.into(), 25.into()]).is_none());
        assert!(dag.access(&[row, column]).ends_with(&[0, 1]) && !dag.access(&[column]).ends_with(&[0, 1]));
    }
}
