//! Pair reductions, over pairs of rows of two axes: attention, its softmax, and gradients.

mod count;
mod softmax;

use super::{Bound, depends, f16};
use crate::count::bits;
use crate::error::NotLowerable;
use rewire_graph::Dim;
use rewire_graph::limits::{MAX_WIDTH, check_count};
use rewire_graph::nest::{Accumulation, Extent, Nest, Output};
use rewire_graph::op::ReduceOp;
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId};

/// Pair reductions. For every row of one axis, called owner, and every head:
/// `out(i, d) = sum over j of [mask(i, j)] * weight(i, j, <owner_i, other_j>, ..) * element(j, d)`.
///
/// Weights are computed from dot products of an owner and another row, which every tile of pairs computes once for all
/// sums. For ragged rows, the result axes are the samples, the owners, the heads, and an axis of columns for each
/// distinct width of a result. For dense rows they are the samples, a head of constant extent, if there is one, the
/// owners and the columns.
#[derive(Clone, Debug, PartialEq)]
pub struct PairReduction {
    /// Extents of the axes of the samples.
    pub samples: Vec<Dim>,
    /// Number of heads.
    pub heads: usize,
    /// The coordinate of heads, if there is one.
    pub head: Option<u8>,
    /// The coordinate of owners.
    pub owner: u8,
    /// Number of owners of a sample.
    pub owners: Extent,
    /// The coordinate that is reduced.
    pub other: u8,
    /// Number of other rows of a sample.
    pub others: Extent,
    /// Dot products, each available as `Value(n)` afterwards.
    pub dots: Vec<Dot>,
    /// Reductions over the other rows, in passes: a reduction reads only the results of earlier passes.
    pub passes: Vec<Vec<PairSum>>,
    /// The condition on a pair to be included in any reduction; all pairs if `None`. Tiles without included pairs are
    /// skipped.
    pub mask: Option<ExprId>,
    /// True if weights are `exp(weight - max) / sum` over the included other rows instead of the weight; there is then
    /// one dot product and one sum.
    pub softmax: bool,
}

/// A dot product of every pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// Its position among the values.
    pub value: u8,
    /// The coordinate that is reduced.
    pub depth: u8,
    /// The extent of that coordinate.
    pub width: usize,
    /// The operand of the owner.
    pub owner: ExprId,
    /// The operand of the other row.
    pub other: ExprId,
}

/// A reduction over the other rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairSum {
    /// Its position among the values.
    pub value: u8,
    /// The reduction.
    pub op: ReduceOp,
    /// The weight of an included pair.
    pub weight: ExprId,
    /// The weighted rows; without them the weights themselves are reduced.
    pub element: Option<Element>,
}

/// The weighted elements of the other rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// The element.
    pub value: ExprId,
    /// The coordinate of its columns.
    pub column: u8,
    /// The number of its columns.
    pub width: usize,
}

/// A pair reduction with one dot product and one sum of rows, weighted by a function of the dot product.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'k> {
    /// The dot product of a query and a key.
    pub dot: &'k Dot,
    /// The sum for a query.
    pub sum: &'k PairSum,
    /// The values.
    pub element: Element,
}

/// Largest number of dense value columns that a kernel keeps in registers.
const WIDEST: usize = 256;

impl PairReduction {
    /// Supports nests with reductions over one axis (the other rows), and with dot products of its rows and the owners.
    ///
    /// # Errors
    /// [`NotLowerable`] for another nest.
    pub fn of(nest: &Nest) -> Result<Self, NotLowerable> {
        let mut pairs = Self::without_sums(nest)?;
        for (value, sum) in (0u8..).zip(&nest.accumulations) {
            let bound = Bound { nest, schedule: &pairs };
            match sum.axis == pairs.other {
                true => {
                    let sum = bound.sum(value, sum)?;
                    pairs.add_sum(sum, nest.body.dag.values(sum.weight));
                }
                false => {
                    let dot = bound.dot(value, sum)?;
                    pairs.dots.push(dot);
                }
            }
        }
        Bound { nest, schedule: &pairs }.check()?;
        match softmax::of(nest, &pairs) {
            Some((mask, sum)) => {
                (pairs.softmax, pairs.mask, pairs.passes) = (true, mask, vec![vec![sum]]);
            }
            None => {
                pairs.mask = Bound { nest, schedule: &pairs }.common_mask();
                pairs.passes.iter_mut().flatten().for_each(|sum| sum.weight = unmasked(nest, pairs.mask, sum));
            }
        }
        Bound { nest, schedule: &pairs }.check_attention()?;
        Ok(pairs)
    }

    /// The result axes and the last reduced axis.
    fn without_sums(nest: &Nest) -> Result<Self, NotLowerable> {
        let form =
            || NotLowerable::from("it is not a sum over pairs of rows with axes of samples, heads, rows and columns");
        let rank = nest.rank();
        let extent = |axis: usize| nest.axes.get(axis).map(|axis| &axis.extent);
        let constant = |axis: usize| extent(axis)?.dense()?.as_const();
        let (owner, head, outer) = match extent(1) {
            Some(Extent::Ragged { .. }) if rank > 2 => (1, Some(2), 1),
            _ => {
                let owner = rank.checked_sub(2).ok_or_else(form)?;
                let head = owner.checked_sub(1).filter(|&head| constant(head).is_some());
                (owner, head, owner - usize::from(head.is_some()))
            }
        };
        let samples = (0..outer).map(|axis| extent(axis)?.dense().cloned()).collect::<Option<Vec<Dim>>>();
        let heads = head.map_or(Some(1), constant).ok_or("pairs have no constant number of heads")?;
        let other = nest.accumulations.last().ok_or_else(form)?.axis;
        let others = nest.axes.get(usize::from(other)).filter(|axis| axis.summed).ok_or_else(form)?;
        Ok(Self {
            samples: samples.ok_or_else(form)?,
            heads,
            head: head.map(|head| head as u8),
            owner: owner as u8,
            owners: extent(owner).cloned().ok_or_else(form)?,
            other,
            others: others.extent.clone(),
            dots: vec![],
            passes: vec![],
            mask: None,
            softmax: false,
        })
    }

    /// Adds a reduction whose weight reads the values in the bit mask `read`, to the pass after these values.
    fn add_sum(&mut self, sum: PairSum, read: u32) {
        let pass = self.passes.iter().rposition(|pass| pass.iter().any(|sum| read >> sum.value & 1 == 1));
        let pass = pass.map_or(0, |earlier| earlier + 1);
        if pass == self.passes.len() {
            self.passes.push(vec![]);
        }
        self.passes[pass].push(sum);
    }

    /// All reductions, in order of passes.
    pub fn sums(&self) -> impl Iterator<Item = &PairSum> {
        self.passes.iter().flatten()
    }

    /// The dot product and the sum, if there is exactly one of each.
    pub fn attention(&self) -> Option<Attention<'_>> {
        match (self.dots.as_slice(), self.passes.as_slice()) {
            ([dot], [pass]) => match pass.as_slice() {
                [sum] => sum.element.map(|element| Attention { dot, sum, element }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The weight of an included pair in a reduction.
fn unmasked(nest: &Nest, mask: Option<ExprId>, sum: &PairSum) -> ExprId {
    match *nest.body.dag.expr(sum.weight) {
        Expr::Select(own, weight, _) if Some(own) == mask => weight,
        _ => sum.weight,
    }
}

impl Bound<'_, PairReduction> {
    /// True if an expression depends only on the axes of samples and heads and on `own`.
    fn is_of(&self, id: ExprId, own: &[u8]) -> bool {
        let outer = (0..self.samples.len() as u8).chain(self.head);
        !depends(self.nest, [id], !outer.fold(bits(own), |all, axis| all | bits(&[axis])))
    }

    /// The width of an axis of columns; `None` for other axes.
    pub fn width(&self, axis: u8) -> Option<usize> {
        self.nest.axes.get(usize::from(axis))?.extent.dense()?.as_const()
    }

    fn dot(&self, value: u8, sum: &Accumulation) -> Result<Dot, NotLowerable> {
        let depth = sum.axis;
        let width = self.width(depth).ok_or("the width of a dot product of pairs is not a constant")?;
        let &[a, b] = sum.factors.as_slice() else {
            return Err("pairs have sums other than dot products".into());
        };
        // A matmul of transposed rows has its operands in reverse order.
        let (owner, other) = if depends(self.nest, [a], bits(&[self.other])) { (b, a) } else { (a, b) };
        let apart = self.is_of(owner, &[self.owner, depth]) && self.is_of(other, &[self.other, depth]);
        if !apart || self.nest.body.dag.values(owner) | self.nest.body.dag.values(other) != 0 {
            return Err("a factor of a dot product depends on more than its row and its column".into());
        }
        check_count("columns", width, MAX_WIDTH)?;
        Ok(Dot { value, depth, width, owner, other })
    }

    fn sum(&self, value: u8, sum: &Accumulation) -> Result<PairSum, NotLowerable> {
        let (weight, element) = match *sum.factors.as_slice() {
            [weight] => (weight, None),
            [weight, element] => (weight, Some(self.element(element, sum.op)?)),
            _ => return Err("a sum over pairs has more than two factors".into()),
        };
        if !self.is_of(weight, &[self.owner, self.other]) {
            return Err("the weight of a pair depends on the column".into());
        }
        Ok(PairSum { value, op: sum.op, weight, element })
    }

    fn element(&self, value: ExprId, op: ReduceOp) -> Result<Element, NotLowerable> {
        // The only column of an axis of extent 1 is read at 0.
        let single = || self.columns().find(|&column| self.width(column) == Some(1)).or_else(|| self.columns().next());
        let column = self.columns().find(|&column| depends(self.nest, [value], bits(&[column]))).or_else(single);
        let column = column.ok_or("the weighted rows of pairs have no columns")?;
        let width = self.width(column).ok_or("the width of a sum over pairs is not a constant")?;
        if !self.is_of(value, &[self.other, column]) || self.nest.body.dag.values(value) != 0 {
            return Err("the weighted rows of pairs depend on more than their row and column".into());
        }
        if op != ReduceOp::Sum {
            return Err("weighted rows of pairs are combined otherwise than by a sum".into());
        }
        check_count("columns", width, MAX_WIDTH)?;
        Ok(Element { value, column, width })
    }

    /// The column axes of results.
    fn columns(&self) -> impl Iterator<Item = u8> + use<> {
        self.head.map_or(self.owner, |head| head.max(self.owner)) + 1..self.nest.rank() as u8
    }

    /// The column axis of an output, if any.
    pub fn column_of(&self, output: &Output) -> Option<u8> {
        let own = self.columns().find(|&column| output.roots().any(|id| depends(self.nest, [id], bits(&[column]))));
        let read = output.roots().fold(0, |bits, id| bits | self.nest.body.dag.values(id));
        own.or_else(|| {
            let sum = self.sums().find(|sum| read >> sum.value & 1 == 1)?;
            sum.element.map(|element| element.column)
        })
    }

    /// The mask that excludes pairs from all reductions.
    fn common_mask(&self) -> Option<ExprId> {
        let dag = &self.nest.body.dag;
        let mut masks = self.sums().map(|sum| self.mask_of(sum));
        let first = masks.next()??;
        let plain = dag.values(first) == 0 && masks.all(|mask| mask == Some(first));
        plain.then_some(first)
    }

    /// The mask that excludes pairs from a reduction: the mask of its weight, or of a factor of it.
    fn mask_of(&self, sum: &PairSum) -> Option<ExprId> {
        let dag = &self.nest.body.dag;
        let mut factors = vec![sum.weight];
        while let Some(factor) = factors.pop() {
            match *dag.expr(factor) {
                Expr::Select(mask, _, hidden) if *dag.expr(hidden) == Expr::Float(sum.op.start().to_bits()) => {
                    return Some(mask);
                }
                Expr::Binary(BinaryOp::Mul, a, b) if sum.op == ReduceOp::Sum => factors.extend([a, b]),
                _ => {}
            }
        }
        None
    }

    fn check(&self) -> Result<(), NotLowerable> {
        check_count("heads", self.heads, MAX_WIDTH)?;
        let dag = &self.nest.body.dag;
        let dots = self.dots.iter().fold(0, |bits, dot| bits | 1u32 << dot.value);
        for output in &self.nest.outputs {
            let values = output.roots().fold(0, |bits, id| bits | dag.values(id));
            let column = self.column_of(output);
            let strays = self.sums().any(|sum| {
                values >> sum.value & 1 == 1 && sum.element.is_some_and(|element| Some(element.column) != column)
            });
            if values & dots != 0 || strays {
                return Err("an output reads pairs, or columns of two widths".into());
            }
        }
        // A reduction with columns may only be read at its own columns, and not by a weight.
        let wide = self.sums().filter(|sum| sum.element.is_some()).fold(0, |bits, sum| bits | 1u32 << sum.value);
        let read = self.sums().fold(0, |bits, sum| bits | dag.values(sum.weight));
        if read & wide != 0 {
            return Err("the weight of a pair reads a sum of columns".into());
        }
        Ok(())
    }

    /// Checks that only attention (one dot product and one sum) has dense rows, or outputs with part of the columns.
    fn check_attention(&self) -> Result<(), NotLowerable> {
        let attention = self.attention();
        let is_ragged = |extent: &Extent| matches!(extent, Extent::Ragged { .. });
        let ragged = is_ragged(&self.owners) && is_ragged(&self.others);
        if attention.is_none() && !ragged {
            return Err(
                "the operators between two matmuls are neither a function of pairs nor a softmax of rows".into()
            );
        }
        if attention.is_none() && self.nest.outputs.iter().any(|output| output.columns.is_some()) {
            return Err("an output is a part of the columns of a sum over pairs".into());
        }
        match attention {
            Some(attention) if self.owners.dense().is_some() && attention.element.width > WIDEST => {
                Err(format!("its values are wider than {WIDEST}").into())
            }
            _ => Ok(()),
        }
    }
}
