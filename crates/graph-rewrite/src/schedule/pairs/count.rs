use super::{Bound, PairReduction, f16};
use crate::count::{Count, Domain, Sizes, Tally, bits};
use crate::schedule::Analysis;
use rewire_graph::Scalar;
use rewire_graph::nest::Body;
use rewire_graph::op::ReduceOp;
use rewire_graph::pointwise::{ExprId, Interval, Intervals, ReadBounds, Tri};

/// Rows of a sample per workgroup.
const OWNERS: u64 = 32;
/// Pairs of a sample are counted in at most this many rows of tiles.
const MASK_TILES: u64 = 64;

impl Analysis for Bound<'_, PairReduction> {
    /// Every tile of rows reads the columns once. Computation on a pair counts once in each pass.
    fn count(&self, sizes: &Sizes) -> Count {
        let samples = sizes.product(&self.samples);
        let [owners, others] = [&self.owners, &self.others].map(|range| sizes.rows(range, samples));
        let pairs = pairs(self, sizes, &owners, &others);
        let [all_owners, all_others] = [&owners, &others].map(|counts| counts.iter().sum::<u64>());
        let heads = self.heads as u64;
        let outer = bits(&(0..self.samples.len() as u8).collect::<Vec<_>>());
        // The number of points over some axes besides samples and heads, summed over all samples.
        let over = |joint: &[(u32, u64)], last: Option<(u8, usize)>| {
            let mut extents = vec![1; self.nest.axes.len()];
            extents.iter_mut().zip(&self.samples).for_each(|(extent, dim)| *extent = sizes.extent(dim));
            self.head.into_iter().for_each(|head| extents[usize::from(head)] = heads);
            last.into_iter().for_each(|(axis, width)| extents[usize::from(axis)] = width as u64);
            let with_sample = joint.iter().flat_map(|&(axes, total)| [(axes | outer, total), (axes, total)]);
            Domain { extents, joint: with_sample.collect(), times: 1 }
        };
        let (owner, other) = ((bits(&[self.owner]), all_owners), (bits(&[self.other]), all_others));
        let both = (owner.0 | other.0, pairs);
        let tiles = owners.iter().map(|rows| rows.div_ceil(OWNERS)).max().unwrap_or(0).max(1);
        // A causal tile reads the columns before it, half of them on average; other masks are assumed to behave
        // similarly.
        let again = if self.mask.is_some() { tiles.div_ceil(2) } else { tiles };
        let mut tally = Tally::new(self.nest, sizes);
        let mut widths = 0;
        for dot in &self.dots {
            let column = Some((dot.depth, dot.width));
            tally.add(&[dot.owner], &over(&[owner], column));
            tally.add(&[dot.other], &over(&[other], column).times(again));
            widths += dot.width as u64 * self.passes.len() as u64;
        }
        for sum in self.sums() {
            if let Some(element) = sum.element {
                let rows = over(&[other], Some((element.column, element.width))).times(again);
                tally.add(&[element.value], &rows);
                widths += element.width as u64;
            }
            tally.add(&[sum.weight], &over(&[both, owner, other], None));
        }
        for output in &self.nest.outputs {
            let column = self.column_of(output);
            let width = column.and_then(|column| self.width(column)).unwrap_or(1);
            let results = over(&[owner], column.map(|column| (column, width)));
            tally.write(std::slice::from_ref(output), &results, width as u64);
        }
        tally.products([2, heads, widths].into_iter().fold(pairs, u64::saturating_mul), self.allows_f16_operands());
        tally.finish()
    }

    fn has_products(&self) -> bool {
        true
    }

    fn allows_f16_operands(&self) -> bool {
        let dots = self.dots.iter().flat_map(|dot| [(dot.owner, dot.depth), (dot.other, dot.depth)]);
        let elements = self.sums().filter_map(|sum| sum.element.map(|element| (element.value, element.column)));
        let factors: Vec<(ExprId, u8)> = dots.chain(elements).collect();
        let weighs_rows = self.sums().all(|sum| sum.element.is_some() && sum.op == ReduceOp::Sum);
        let one_pass = self.passes.len() == 1 && !self.dots.is_empty() && weighs_rows;
        one_pass && f16::suit(&self.nest.body, &factors, &[])
    }
}

/// Evaluates the host values that a mask reads; other operands are unknown.
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

/// Number of pairs that the mask includes, in all samples for one head. A tile that is partially included, such as on
/// the diagonal of a causal mask, counts half.
fn pairs(kernel: &Bound<'_, PairReduction>, sizes: &Sizes, owners: &[u64], others: &[u64]) -> u64 {
    let all = |(owners, others): (&u64, &u64)| owners.saturating_mul(*others);
    let Some(mask) = kernel.mask else { return owners.iter().zip(others).map(all).sum() };
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
    let count = owners.len().min(others.len()) as u64;
    let mut samples = owners.iter().zip(others);
    if sizes.samples_are_alike() {
        let any = Interval::new(0.0, count.saturating_sub(1) as f64);
        return samples.next().map_or(0, |first| of_sample(any, first).saturating_mul(count));
    }
    samples.enumerate().map(|(sample, counts)| of_sample(Interval::point(sample as f64), counts)).sum()
}

struct Visible<'a> {
    kernel: &'a Bound<'a, PairReduction>,
    bounds: Intervals,
    reads: HostValues<'a>,
    sample: Interval,
    /// Edge of a tile that is not split further.
    finest: u64,
    known: Vec<Interval>,
}

impl Visible<'_> {
    /// Twice the number of included pairs in a tile.
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
        for (axis, values) in
            [(self.kernel.owner, range(rows)), (self.kernel.other, range(keys))].into_iter().chain(places)
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
