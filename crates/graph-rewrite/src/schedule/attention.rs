use super::product::summed;
use super::{Analysis, Bound, depends, halves};
use crate::cost::{Count, Domain, Sizes, Tally, bits};
use crate::lower::Refusal;
use crate::plan::{Accumulation, Body, Extent, Nest, Output, ReduceOp};
use rewire_graph::Dim;
use rewire_graph::Scalar;
use rewire_graph::limits::{MAX_WIDTH, check_count};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId, Interval, Intervals, ReadBounds, Tri, UnaryOp};

/// Two products with a pointwise DAG between them, for every sample and head:
/// `out(i, d) = sum over j of [mask(i, j)] * score(i, j, <q_i, k_j>) * v(j, d)`.
///
/// Axes of results are the samples, `i` and the head of ragged rows; of dense ones the samples, a head of a constant extent, if
/// there is one, and `i`. The column `d` is last. A sum runs over `j`, one over the columns of `q` and `k`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Extents of the axes that make up the samples.
    pub samples: Vec<Dim>,
    /// Number of heads.
    pub heads: usize,
    /// Width of `q` and `k`.
    pub qk_width: usize,
    /// Width of `v` and of the result.
    pub v_width: usize,
    /// Queries of a sample.
    pub rows: Extent,
    /// Keys of a sample.
    pub keys: Extent,
    /// The coordinate of heads, if there is one.
    pub head: Option<u8>,
    /// The coordinate of queries.
    pub row: u8,
    /// The coordinate of keys.
    pub key: u8,
    /// The coordinate of columns of `q` and `k`.
    pub depth: u8,
    /// The coordinate of columns of `v` and of the result.
    pub column: u8,
    /// Element of a query.
    pub q: ExprId,
    /// Element of a key.
    pub k: ExprId,
    /// Element of a value.
    pub v: ExprId,
    /// The weight of a pair; `Value(0)` is the dot product.
    pub score: ExprId,
    /// Which pairs count; all if `None`. Others weigh 0, and tiles without any are skipped.
    pub mask: Option<ExprId>,
    /// Weights are `exp(score - max) / sum` over the keys that count, instead of `score`.
    pub softmax: bool,
}

/// Queries of a sample that one workgroup computes.
pub(super) const QUERIES: u64 = 32;
/// Pairs of one sample are counted in this many rows of tiles, at most.
const MASK_TILES: u64 = 64;
/// Columns of values that a kernel keeps in registers at most.
const WIDEST: usize = 256;

impl Attention {
    /// Takes nests of a sum of products whose left factor is made of another sum of products, as it is or as a softmax.
    ///
    /// # Errors
    /// [`Refusal`] for another nest.
    pub fn of(nest: &Nest) -> Result<Self, Refusal> {
        let other =
            || Refusal::from("what lies between two products is neither a function of pairs nor a softmax of rows");
        let (product, statistics, sum) = match nest.accumulations.as_slice() {
            [product, statistics @ .., sum] if matches!(statistics.len(), 0 | 2) => (product, statistics, sum),
            _ => return Err(other()),
        };
        let (&[q, k], &[weight, v]) = (product.factors.as_slice(), sum.factors.as_slice()) else { return Err(other()) };
        let place = Places::of(nest)?;
        let (key, depth) = (sum.axis, product.axis);
        let keys = nest.axes.get(usize::from(key)).filter(|axis| axis.summed).ok_or_else(other)?;
        // A product of transposed rows has its factors the other way around.
        let (q, k) = if depends(nest, [q], 1 << key) { (k, q) } else { (q, k) };
        let dag = &nest.body.dag;
        let (mask, score) = match statistics {
            [largest, total] => softmax(dag, weight, [largest, total], key).ok_or_else(other)?,
            _ => masked(dag, weight, 0.0),
        };
        let attention = Self {
            samples: place.samples,
            heads: place.heads,
            qk_width: constant(summed(nest, product))?,
            v_width: constant(nest.axes.get(usize::from(place.column)).and_then(|axis| axis.extent.dense()))?,
            rows: nest.axes[usize::from(place.row)].extent.clone(),
            keys: keys.extent.clone(),
            head: place.head,
            row: place.row,
            key,
            depth,
            column: place.column,
            q,
            k,
            v,
            score,
            mask,
            softmax: !statistics.is_empty(),
        };
        Bound { nest, schedule: &attention }.check()?;
        Ok(attention)
    }
}

impl Bound<'_, Attention> {
    /// The position of the result among the values.
    pub fn sum(&self) -> u8 {
        self.nest.accumulations.len() as u8 - 1
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.rows.dense().is_some() && self.v_width > WIDEST {
            return Err(format!("its values are wider than {WIDEST}").into());
        }
        check_count("heads", self.heads, MAX_WIDTH)?;
        check_count("columns", self.qk_width.max(self.v_width), MAX_WIDTH)?;
        let bit = |coord: u8| 1u32 << coord;
        let pairs: Vec<ExprId> = [self.score].into_iter().chain(self.mask).collect();
        let strays = depends(self.nest, [self.q], bit(self.key) | bit(self.column))
            || depends(self.nest, [self.k], bit(self.row) | bit(self.column))
            || depends(self.nest, [self.v], bit(self.row) | bit(self.depth))
            || depends(self.nest, pairs, bit(self.column) | bit(self.depth));
        if strays {
            return Err("a factor of attention depends on more than its row and its column".into());
        }
        let dag = &self.nest.body.dag;
        let mut outputs = self.nest.outputs.iter().flat_map(Output::roots);
        let of_result = outputs.all(|id| dag.values(id) & !(1 << self.sum()) == 0);
        let plain = [self.q, self.k, self.v].iter().chain(&self.mask).all(|id| dag.values(*id) == 0);
        if !of_result || !plain || dag.values(self.score) & !1 != 0 {
            return Err("a sum of attention is read elsewhere than in the next one".into());
        }
        Ok(())
    }
}

/// Which axes of results are which.
struct Places {
    samples: Vec<Dim>,
    heads: usize,
    head: Option<u8>,
    row: u8,
    column: u8,
}

impl Places {
    fn of(nest: &Nest) -> Result<Self, Refusal> {
        let rank = nest.rank();
        let extent = |axis: usize| nest.axes.get(axis).and_then(|axis| axis.extent.dense());
        let form = || Refusal::from("attention has other axes than samples, heads, rows and columns");
        let (row, head, outer) = match nest.axes.get(1).map(|axis| &axis.extent) {
            Some(Extent::Ragged { .. }) if rank == 4 => (1, Some(2), 1),
            _ => {
                let row = rank.checked_sub(2).ok_or_else(form)?;
                let head = row.checked_sub(1).filter(|&head| extent(head).is_some_and(|dim| dim.as_const().is_some()));
                (row, head, row - usize::from(head.is_some()))
            }
        };
        let samples = (0..outer).map(|axis| extent(axis).cloned()).collect::<Option<Vec<Dim>>>().ok_or_else(form)?;
        let heads = head.map_or(Some(1), |head| extent(head)?.as_const()).ok_or_else(form)?;
        if row != 1 && extent(row).is_none() {
            return Err(form());
        }
        Ok(Self { samples, heads, head: head.map(|head| head as u8), row: row as u8, column: rank as u8 - 1 })
    }
}

fn constant(dim: Option<&Dim>) -> Result<usize, Refusal> {
    let dim = dim.ok_or("the width of a row of attention is ragged")?;
    dim.as_const().ok_or_else(|| format!("the width {dim} is no constant").into())
}

/// Splits `mask ? score : other`.
fn masked(dag: &Dag, weight: ExprId, other: f32) -> (Option<ExprId>, ExprId) {
    match *dag.expr(weight) {
        Expr::Select(mask, score, hidden) if *dag.expr(hidden) == Expr::Float(other.to_bits()) => (Some(mask), score),
        _ => (None, weight),
    }
}

/// The mask and the score of which `weight` is the softmax, if the two accumulations before it are its largest and its sum.
fn softmax(
    dag: &Dag,
    weight: ExprId,
    [largest, total]: [&Accumulation; 2],
    key: u8,
) -> Option<(Option<ExprId>, ExprId)> {
    let (mask, share) = masked(dag, weight, 0.0);
    let Expr::Binary(BinaryOp::Div, exp, divisor) = *dag.expr(share) else { return None };
    let Expr::Unary(UnaryOp::Exp, shifted) = *dag.expr(exp) else { return None };
    let Expr::Binary(BinaryOp::Sub, score, shift) = *dag.expr(shifted) else { return None };
    let reduces = |sum: &Accumulation, op: ReduceOp, element: (Option<ExprId>, ExprId), hidden: f32| {
        let &[factor] = sum.factors.as_slice() else { return false };
        let same = if element.0.is_none() { factor == element.1 } else { masked(dag, factor, hidden) == element };
        sum.op == op && sum.axis == key && same
    };
    let is = *dag.expr(shift) == Expr::Value(1)
        && *dag.expr(divisor) == Expr::Value(2)
        && reduces(largest, ReduceOp::Max, (mask, score), f32::NEG_INFINITY)
        && reduces(total, ReduceOp::Sum, (mask, exp), 0.0);
    is.then_some((mask, score))
}

impl Analysis for Bound<'_, Attention> {
    fn count(&self, sizes: &Sizes) -> Count {
        let nest = self.nest;
        let samples = sizes.product(&self.samples);
        let [rows, keys] = [&self.rows, &self.keys].map(|range| sizes.rows(range, samples));
        let heads = self.heads as u64;
        let (qk, v) = (self.qk_width as u64, self.v_width as u64);
        let pairs = pairs(self, sizes, &rows, &keys);
        let [all_rows, all_keys] = [&rows, &keys].map(|counts| counts.iter().sum::<u64>());
        let outer = (0..nest.rank() as u8)
            .filter(|axis| ![Some(self.row), Some(self.column), self.head].contains(&Some(*axis)));
        let outer: Vec<u8> = outer.collect();
        // The points of some axes, each of which counts its total over all samples, besides samples and heads.
        let over = |joint: &[(u8, u64)], last: Option<(u8, u64)>| {
            let mut extents = vec![1; nest.axes.len()];
            outer.iter().zip(&self.samples).for_each(|(&axis, dim)| extents[usize::from(axis)] = sizes.extent(dim));
            let head = self.head.map(|head| (head, heads));
            joint
                .iter()
                .copied()
                .chain(last)
                .chain(head)
                .for_each(|(axis, extent)| extents[usize::from(axis)] = extent);
            let one = |&(axis, total): &(u8, u64)| [(bits(&outer) | bits(&[axis]), total), (bits(&[axis]), total)];
            Domain { extents, joint: joint.iter().flat_map(one).collect(), times: 1 }
        };
        let query_tiles = rows.iter().map(|rows| rows.div_ceil(QUERIES)).max().unwrap_or(0).max(1);
        let mut tally = Tally::new(self.nest, sizes);
        tally.add(&[self.q], &over(&[(self.row, all_rows)], Some((self.depth, qk))));
        // A causal tile reads the keys before it, half of them on average; so does what follows another mask, about.
        let again = if self.mask.is_some() { query_tiles.div_ceil(2) } else { query_tiles };
        let keyed = |last| over(&[(self.key, all_keys)], Some(last)).times(again);
        tally.add(&[self.k], &keyed((self.depth, qk)));
        tally.add(&[self.v], &keyed((self.column, v)));
        let mut weights = over(&[(self.row, all_rows), (self.key, all_keys)], None);
        let both = bits(&[self.row, self.key]);
        weights.joint.splice(0..0, [(bits(&outer) | both, pairs), (both, pairs)]);
        tally.add(&[self.score], &weights);
        tally.write(&self.nest.outputs, &over(&[(self.row, all_rows)], Some((self.column, v))), v);
        let products = [2, heads, qk.saturating_add(v)].into_iter().fold(pairs, u64::saturating_mul);
        tally.products(products, self.takes_halves());
        tally.finish()
    }

    fn takes_halves(&self) -> bool {
        let factors = [(self.q, self.depth), (self.k, self.depth), (self.v, self.column)];
        halves::suit(&self.nest.body, &factors, &[])
    }
}

/// Values of the shape program that a mask reads; other operands are not looked at.
struct HostValues<'a> {
    body: &'a Body,
    sizes: &'a Sizes,
}

impl ReadBounds for HostValues<'_> {
    fn size(&self, position: u16) -> Interval {
        let size = self.body.sizes.get(usize::from(position));
        size.map_or(Interval::UNKNOWN, |dim| Interval::point(self.sizes.extent(dim) as f64))
    }

    fn load(&self, operand: u16, _: Scalar, index: &[Interval]) -> Interval {
        let position = match index {
            [] => 0,
            [at] if at.low == at.high && at.low >= 0.0 => at.low as usize,
            _ => return Interval::UNKNOWN,
        };
        let value = self.sizes.host(operand).and_then(|entries| entries.get(position));
        value.map_or(Interval::UNKNOWN, |&value| Interval::point(value as f64))
    }
}

/// Pairs of queries and keys that the mask lets count, of all samples for one head. Tiles that it decides by neither
/// all nor none count half, as they do along the diagonal of a causal mask.
fn pairs(kernel: &Bound<'_, Attention>, sizes: &Sizes, rows: &[u64], keys: &[u64]) -> u64 {
    let all = |(rows, keys): (&u64, &u64)| rows.saturating_mul(*keys);
    let Some(mask) = kernel.mask else { return rows.iter().zip(keys).map(all).sum() };
    let reads = HostValues { body: &kernel.nest.body, sizes };
    let mut visible = Visible {
        kernel,
        bounds: Intervals::new(&kernel.nest.body.dag, mask),
        reads,
        sample: Interval::UNKNOWN,
        finest: 0,
        known: vec![],
    };
    let mut of_sample = |sample: Interval, (&rows, &keys): (&u64, &u64)| {
        (visible.sample, visible.finest) = (sample, rows.max(keys).div_ceil(MASK_TILES).max(1));
        visible.halves((0, rows), (0, keys)) / 2
    };
    let count = rows.len().min(keys.len()) as u64;
    let mut samples = rows.iter().zip(keys);
    if sizes.samples_are_alike() {
        let any = Interval::new(0.0, count.saturating_sub(1) as f64);
        return samples.next().map_or(0, |first| of_sample(any, first).saturating_mul(count));
    }
    samples.enumerate().map(|(sample, counts)| of_sample(Interval::point(sample as f64), counts)).sum()
}

struct Visible<'a> {
    kernel: &'a Bound<'a, Attention>,
    bounds: Intervals,
    reads: HostValues<'a>,
    sample: Interval,
    /// Edge of a tile that is not cut further.
    finest: u64,
    known: Vec<Interval>,
}

impl Visible<'_> {
    /// Twice the pairs in a tile that count.
    fn halves(&mut self, rows: (u64, u64), keys: (u64, u64)) -> u64 {
        let area = (rows.1 - rows.0).saturating_mul(keys.1 - keys.0);
        if area == 0 {
            return 0;
        }
        let range = |(start, end): (u64, u64)| Interval::new(start as f64, (end - 1) as f64);
        let heads = Interval::new(0.0, self.kernel.heads.saturating_sub(1) as f64);
        let mut coords = vec![Interval::UNKNOWN; self.kernel.nest.axes.len()];
        if self.kernel.samples.len() == 1 {
            coords[0] = self.sample;
        }
        let places = self.kernel.head.map(|head| (head, heads));
        for (axis, values) in [(self.kernel.row, range(rows)), (self.kernel.key, range(keys))].into_iter().chain(places)
        {
            coords[usize::from(axis)] = values;
        }
        match self.bounds.evaluate(&self.kernel.nest.body.dag, &self.reads, &coords, &mut self.known).truth() {
            Tri::Never => 0,
            Tri::Always => area.saturating_mul(2),
            Tri::Sometimes => {
                let halve = |(start, end): (u64, u64)| {
                    let middle = start.midpoint(end);
                    if end - start > self.finest { vec![(start, middle), (middle, end)] } else { vec![(start, end)] }
                };
                let (rows, keys) = (halve(rows), halve(keys));
                if rows.len() == 1 && keys.len() == 1 {
                    return area;
                }
                let tiles = rows.into_iter().flat_map(|rows| keys.iter().map(move |&keys| (rows, keys)));
                tiles.collect::<Vec<_>>().into_iter().map(|(rows, keys)| self.halves(rows, keys)).sum()
            }
        }
    }
}
