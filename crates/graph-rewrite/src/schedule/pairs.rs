use super::attention::QUERIES;
use super::{Analysis, Bound, halves};
use crate::cost::{Count, Domain, Sizes, Tally, bits};
use crate::lower::Refusal;
use crate::plan::{Accumulation, Extent, Nest, ReduceOp};
use rewire_graph::Dim;
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId};

/// Sums over pairs of two ragged axes, for every row of one of them, its owner, and every head. Elements are made of dot products of
/// an owner and another row, which every tile of pairs computes once for all sums.
///
/// Axes of results are the samples, the owners, the heads, and an axis of columns for each different width of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    /// Number of samples.
    pub samples: Dim,
    /// Number of heads.
    pub heads: usize,
    /// The coordinate of heads.
    pub head: u8,
    /// The coordinate of owners.
    pub owner: u8,
    /// Owners of a sample.
    pub owners: Extent,
    /// The coordinate of what sums run over.
    pub other: u8,
    /// The others of a sample.
    pub others: Extent,
    /// Dot products, each `Value(n)` of what follows.
    pub dots: Vec<Dot>,
    /// Sums over the others, in passes: one reads sums of earlier passes alone.
    pub passes: Vec<Vec<PairSum>>,
    /// What must hold of a pair for any sum to count it; nothing if `None`.
    pub mask: Option<ExprId>,
}

/// A dot product of every pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// Its position among the values.
    pub value: u8,
    /// The coordinate that is summed, and its extent.
    pub depth: u8,
    /// The extent of the sum.
    pub width: usize,
    /// The factor of the owner.
    pub owner: ExprId,
    /// The factor of the other row.
    pub other: ExprId,
}

/// A sum, or another combination, over the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairSum {
    /// Its position among the values.
    pub value: u8,
    /// How elements are combined.
    pub op: ReduceOp,
    /// The weight of a pair.
    pub weight: ExprId,
    /// What is weighted, a row of the others: without it the weights themselves are combined.
    pub element: Option<Element>,
}

/// Rows of the others that a sum weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// The element.
    pub value: ExprId,
    /// The coordinate of its columns.
    pub column: u8,
    /// The number of its columns.
    pub width: usize,
}

impl Pairs {
    /// Takes nests whose sums run over one ragged axis, or over the columns of rows of it and of the owners.
    ///
    /// # Errors
    /// [`Refusal`] for another nest.
    pub fn of(nest: &Nest) -> Result<Self, Refusal> {
        let form = || Refusal::from("it is no sum over pairs of the rows of two ragged axes");
        let extent = |axis: u8| nest.axes.get(usize::from(axis)).map(|axis| &axis.extent);
        let (sample, owner) = (0u8, 1u8);
        let (Some(Extent::Dense(samples)), Some(owners @ Extent::Ragged { .. })) = (extent(sample), extent(owner))
        else {
            return Err(form());
        };
        let is_ragged = |sum: &&Accumulation| matches!(extent(sum.axis), Some(Extent::Ragged { .. }));
        let other = nest.accumulations.iter().find(is_ragged).ok_or_else(form)?.axis;
        let others = extent(other).ok_or_else(form)?;
        let head = 2u8;
        let heads = extent(head).filter(|_| nest.rank() > 2).and_then(|extent| extent.dense()?.as_const());
        let heads = heads.ok_or("pairs have no constant number of heads")?;
        let (samples, owners, others) = (samples.clone(), owners.clone(), others.clone());
        let mut pairs =
            Self { samples, heads, head, owner, owners, other, others, dots: vec![], passes: vec![], mask: None };
        for (value, sum) in (0u8..).zip(&nest.accumulations) {
            match sum.axis == other {
                true => {
                    let sum = Bound { nest, schedule: &pairs }.sum(value, sum)?;
                    pairs.add_sum(sum, nest.body.dag.values(sum.weight));
                }
                false => pairs.dots.push(Bound { nest, schedule: &pairs }.dot(value, sum)?),
            }
        }
        pairs.mask = Bound { nest, schedule: &pairs }.common_mask();
        Bound { nest, schedule: &pairs }.check()?;
        Ok(pairs)
    }

    /// Adds a sum whose weight reads the sums that have a bit in `read`: to the pass after theirs.
    fn add_sum(&mut self, sum: PairSum, read: u32) {
        let pass = self.passes.iter().rposition(|pass| pass.iter().any(|sum| read >> sum.value & 1 == 1));
        let pass = pass.map_or(0, |earlier| earlier + 1);
        if pass == self.passes.len() {
            self.passes.push(vec![]);
        }
        self.passes[pass].push(sum);
    }

    /// All sums, in order of passes.
    pub fn sums(&self) -> impl Iterator<Item = &PairSum> {
        self.passes.iter().flatten()
    }
}

impl Bound<'_, Pairs> {
    fn coords(&self, id: ExprId) -> u32 {
        self.nest.body.dag.coords(id)
    }

    fn depends(&self, id: ExprId, axis: u8) -> bool {
        self.coords(id) >> axis & 1 == 1
    }

    /// The width of an axis of columns, if it is one.
    pub fn width(&self, axis: u8) -> Option<usize> {
        self.nest.axes.get(usize::from(axis))?.extent.dense()?.as_const()
    }

    fn dot(&self, value: u8, sum: &Accumulation) -> Result<Dot, Refusal> {
        let width = self.width(sum.axis).ok_or("the width of a dot product of pairs is no constant")?;
        let &[a, b] = sum.factors.as_slice() else {
            return Err("pairs are made of other sums than dot products".into());
        };
        let (owner, other) = if self.depends(a, self.other) { (b, a) } else { (a, b) };
        let apart = !self.depends(owner, self.other) && !self.depends(other, self.owner);
        if !apart || self.nest.body.dag.values(owner) | self.nest.body.dag.values(other) != 0 {
            return Err("a factor of a dot product depends on more than its row".into());
        }
        Ok(Dot { value, depth: sum.axis, width, owner, other })
    }

    fn sum(&self, value: u8, sum: &Accumulation) -> Result<PairSum, Refusal> {
        let (weight, element) = match *sum.factors.as_slice() {
            [weight] => (weight, None),
            [weight, element] => (weight, Some(self.element(element, sum.op)?)),
            _ => return Err("a sum over pairs has more than two factors".into()),
        };
        if self.columns().any(|column| self.depends(weight, column)) {
            return Err("the weight of a pair depends on the column".into());
        }
        Ok(PairSum { value, op: sum.op, weight, element })
    }

    fn element(&self, value: ExprId, op: ReduceOp) -> Result<Element, Refusal> {
        // One column is read at 0.
        let single = || self.columns().find(|&column| self.width(column) == Some(1));
        let column = self.columns().find(|&column| self.depends(value, column)).or_else(single);
        let column = column.ok_or("what pairs weigh has no columns")?;
        let width = self.width(column).ok_or("the width of a sum over pairs is no constant")?;
        if self.depends(value, self.owner) || self.nest.body.dag.values(value) != 0 {
            return Err("what pairs weigh depends on more than its row".into());
        }
        if op != ReduceOp::Sum {
            return Err("weighted rows of pairs are combined otherwise than by a sum".into());
        }
        Ok(Element { value, column, width })
    }

    /// The axes of columns of results.
    fn columns(&self) -> impl Iterator<Item = u8> + use<> {
        self.head + 1..self.nest.rank() as u8
    }

    /// The column that an output has, if it has one.
    pub fn column_of(&self, output: &crate::plan::Output) -> Option<u8> {
        let own = self.columns().find(|&column| output.roots().any(|id| self.depends(id, column)));
        let read = output.roots().fold(0, |bits, id| bits | self.nest.body.dag.values(id));
        own.or_else(|| {
            let sum = self.sums().find(|sum| read >> sum.value & 1 == 1)?;
            sum.element.map(|element| element.column)
        })
    }

    /// The mask that hides pairs from all sums.
    fn common_mask(&self) -> Option<ExprId> {
        let dag = &self.nest.body.dag;
        let mut masks = self.sums().map(|sum| self.mask_of(sum));
        let first = masks.next()??;
        let plain = dag.values(first) == 0 && masks.all(|mask| mask == Some(first));
        plain.then_some(first)
    }

    /// The mask without which a pair does not count for a sum: that of its weight, or of a factor of it.
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

    fn check(&self) -> Result<(), Refusal> {
        if self.passes.is_empty() {
            return Err("it has no sum over pairs".into());
        }
        let dots = self.dots.iter().fold(0, |bits, dot| bits | 1u32 << dot.value);
        for output in &self.nest.outputs {
            let values = output.roots().fold(0, |bits, id| bits | self.nest.body.dag.values(id));
            let column = self.column_of(output);
            let strays = self.sums().any(|sum| {
                values >> sum.value & 1 == 1 && sum.element.is_some_and(|element| Some(element.column) != column)
            });
            if values & dots != 0 || strays {
                return Err("an output reads pairs, or columns of two widths".into());
            }
            if output.columns.is_some() {
                return Err("an output is a part of the columns of a sum over pairs".into());
            }
        }
        // A sum of columns is read in the columns, and by no weight.
        let wide = self.sums().filter(|sum| sum.element.is_some()).fold(0, |bits, sum| bits | 1u32 << sum.value);
        let read = self.sums().fold(0, |bits, sum| bits | self.nest.body.dag.values(sum.weight));
        if read & wide != 0 {
            return Err("the weight of a pair reads a sum of columns".into());
        }
        Ok(())
    }
}

impl Analysis for Bound<'_, Pairs> {
    /// Every tile of owners reads the others once; what is made of a pair counts once for it, in each pass.
    fn count(&self, sizes: &Sizes) -> Count {
        let samples = sizes.extent(&self.samples);
        let [owners, others] = [&self.owners, &self.others].map(|range| sizes.rows(range, samples));
        let all = |(owners, others): (&u64, &u64)| owners.saturating_mul(*others);
        let pairs: u64 = owners.iter().zip(&others).map(all).sum();
        let [all_owners, all_others] = [&owners, &others].map(|counts| counts.iter().sum::<u64>());
        let heads = self.heads as u64;
        let over = |joint: &[(u32, u64)], last: Option<(u8, usize)>| {
            let mut extents = vec![1; self.nest.axes.len()];
            extents[usize::from(self.head)] = heads;
            last.into_iter().for_each(|(axis, width)| extents[usize::from(axis)] = width as u64);
            let with_sample = joint.iter().flat_map(|&(axes, total)| [(axes | 1, total), (axes, total)]);
            Domain { extents, joint: with_sample.collect(), times: 1 }
        };
        let (owner, other) = ((bits(&[self.owner]), all_owners), (bits(&[self.other]), all_others));
        let both = (owner.0 | other.0, pairs);
        let again = owners.iter().map(|rows| rows.div_ceil(QUERIES)).max().unwrap_or(0).max(1);
        let mut tally = Tally::new(self.nest, sizes);
        let mut widths = 0;
        for dot in &self.dots {
            let column = Some((dot.depth, dot.width));
            tally.add(&[dot.owner], &over(&[owner], column));
            tally.add(&[dot.other], &over(&[other], column).times(again));
            widths += dot.width as u64 * self.passes.len() as u64;
        }
        for sum in self.sums() {
            tally.add(&[sum.weight], &over(&[both, owner, other], None));
            if let Some(element) = sum.element {
                let rows = over(&[other], Some((element.column, element.width))).times(again);
                tally.add(&[element.value], &rows);
                widths += element.width as u64;
            }
        }
        for output in &self.nest.outputs {
            let column = self.column_of(output);
            let width = column.and_then(|column| self.width(column)).unwrap_or(1);
            let results = over(&[owner], column.map(|column| (column, width)));
            tally.write(std::slice::from_ref(output), &results, width as u64);
        }
        tally.products([2, heads, widths].into_iter().fold(pairs, u64::saturating_mul), self.takes_halves());
        tally.finish()
    }

    fn takes_halves(&self) -> bool {
        let plain = |sum: &PairSum| sum.element.is_some() && sum.op == ReduceOp::Sum;
        let dots = self.dots.iter().flat_map(|dot| [(dot.owner, dot.depth), (dot.other, dot.depth)]);
        let elements = self.sums().filter_map(|sum| sum.element.map(|element| (element.value, element.column)));
        let factors: Vec<(ExprId, u8)> = dots.chain(elements).collect();
        let one_pass = self.passes.len() == 1 && !self.dots.is_empty() && self.sums().all(plain);
        one_pass && halves::suit(&self.nest.body, &factors, &[])
    }
}
