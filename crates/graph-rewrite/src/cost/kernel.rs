use super::domain::{Domain, Expressions};
use super::{Count, Sizes};
use crate::plan::{Axis, Body, Custom, Extent, Kernel, Nest, Output, Place};
use crate::schedule::{Attention, Fold, Map, Pairs, Product, Reduced, Reduction, Schedule};
use rewire_graph::pointwise::{Bounds, Expr, ExprId, Interval, Leaves, Tri};
use rewire_graph::{DType, Dim, Scalar};

/// Rows and columns of a result that one workgroup of a product computes.
const TILE: u64 = 64;

/// Queries of a sample that one workgroup of attention computes.
const QUERIES: u64 = 32;

/// Pairs of one sample are counted in this many rows of tiles, at most.
const MASK_TILES: u64 = 64;

impl Count {
    /// The count of a kernel at some sizes.
    ///
    /// A load counts once for every different value of the coordinates that its index depends on, and an operand with no
    /// more bytes than it has, so that a broadcast counts little and a lookup counts the rows it finds. What tiles read or
    /// compute again is counted by the tile sizes that kernels have if nothing else is asked for.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// use rewire_graph_rewrite::cost::{Count, Sizes};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
    /// let weight = scope.parameter("weight", DType::F32, &[8.into(), 16.into()]);
    /// let (graph, _) = rewire_graph_rewrite::optimize(scope.finish(&[("y", x.matmul(&weight))])?)?;
    /// let plan = rewire_graph_rewrite::lower(&graph)?;
    /// let count = Count::of(&plan.steps[0].kernel, &Sizes::uniform(100, 0));
    /// assert_eq!(count.products, 2 * 100 * 8 * 16);
    /// assert_eq!((count.read, count.written), (4 * (100 * 8 + 8 * 16), 4 * 100 * 16));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(kernel: &Kernel, sizes: &Sizes) -> Self {
        let schedule = match kernel {
            Kernel::Nest(nest) => Schedule::of(nest),
            Kernel::Custom(kernel) => return custom(kernel, sizes),
        };
        match schedule {
            Ok(Schedule::Map(kernel)) => map(&kernel, sizes),
            Ok(Schedule::Reduction(kernel)) => reduction(&kernel, sizes),
            Ok(Schedule::Product(kernel)) => product(&kernel, sizes),
            Ok(Schedule::Attention(kernel)) => attention(&kernel, sizes),
            Ok(Schedule::Pairs(kernel)) => pair_sums(&kernel, sizes),
            Ok(Schedule::Fold(kernel)) => fold(&kernel, sizes),
            Err(_) => Self::default(),
        }
    }
}

/// Operands are read and the result is written once, with an operation an element; the rest is the shader's own.
fn custom(kernel: &Custom, sizes: &Sizes) -> Count {
    let bytes = |dtype: DType, shape: &[Dim]| dtype.format().bytes(sizes.product(shape));
    let operands = kernel.body.operands.iter().filter(|operand| operand.place != Place::Host);
    let read = operands.map(|operand| bytes(operand.dtype, &operand.shape)).fold(0, u64::saturating_add);
    let written = bytes(kernel.dtype, &kernel.shape);
    Count { read, written, scalar: sizes.product(&kernel.shape), ..Count::default() }
}

fn map(kernel: &Map<'_>, sizes: &Sizes) -> Count {
    let nest = kernel.nest;
    let domain = points(nest, sizes, nest.rank());
    let mut expressions = Expressions::default();
    expressions.add(&nest.body, &roots(&nest.outputs), &domain);
    let count = Count { written: written(&nest.outputs, &domain), ..Count::default() };
    finish(count, &expressions, &nest.body, sizes)
}

fn reduction(kernel: &Reduction<'_>, sizes: &Sizes) -> Count {
    let nest = kernel.nest;
    let (all, rows) = (points(nest, sizes, nest.rank()), points(nest, sizes, nest.rank() - 1));
    let mut expressions = Expressions::default();
    for reduction in &kernel.reductions {
        expressions.add(&nest.body, &[reduction.value], &all);
        expressions.scalar = expressions.scalar.saturating_add(all.all());
    }
    expressions.add(&nest.body, &roots(&kernel.outputs), &all);
    expressions.add(&nest.body, &roots(&kernel.row_outputs), &rows);
    let written = written(&kernel.outputs, &all).saturating_add(written(&kernel.row_outputs, &rows));
    finish(Count { written, ..Count::default() }, &expressions, &nest.body, sizes)
}

/// The points of the first `rank` axes, which are dense.
fn points(nest: &Nest, sizes: &Sizes, rank: usize) -> Domain {
    let extent = |axis: &Axis| axis.extent.dense().map_or(1, |dim| sizes.extent(dim));
    Domain::dense(nest.axes.iter().take(rank).map(extent).collect())
}

/// A set of coordinates, a bit each.
fn bits(coords: &[u8]) -> u32 {
    coords.iter().fold(0, |bits, coord| bits | 1 << coord)
}

fn product(kernel: &Product<'_>, sizes: &Sizes) -> Count {
    let nest = kernel.nest;
    let batch: Vec<u64> = kernel.batch.iter().map(|dim| sizes.extent(dim)).collect();
    let rows = sizes.rows(kernel.m, batch.iter().copied().fold(1, u64::saturating_mul));
    let (total, longest) = (rows.iter().sum::<u64>(), rows.iter().copied().max().unwrap_or(0));
    let n = sizes.extent(kernel.n);
    let depths = sizes.rows(kernel.k, batch.iter().copied().fold(1, u64::saturating_mul));
    let k = depths.iter().sum::<u64>().div_ceil(depths.len().max(1) as u64);
    let (row, column) = (kernel.row(), kernel.column());
    // The points of some axes besides those of the batch.
    let over = |axes: &[(u8, u64)]| {
        let mut extents = vec![1; nest.axes.len()];
        extents[..batch.len()].copy_from_slice(&batch);
        axes.iter().for_each(|&(axis, extent)| extents[usize::from(axis)] = extent);
        Domain::dense(extents)
    };
    // Rows of one sample, with the sample or without, are all rows.
    let joint = match kernel.m {
        Extent::Ragged { .. } => vec![(bits(&[0, row]), total), (bits(&[row]), total)],
        Extent::Dense(_) => vec![],
    };
    let with_rows = |axis: u8, extent: u64| Domain { joint: joint.clone(), ..over(&[(row, longest), (axis, extent)]) };
    let column_tiles = n.div_ceil(TILE).max(1);
    let row_tiles = rows.iter().map(|rows| rows.div_ceil(TILE)).max().unwrap_or(0).max(1);
    let mut expressions = Expressions::default();
    for Reduced { axis, extent, value, .. } in &kernel.stats {
        let points = with_rows(*axis, sizes.extent(extent)).times(column_tiles);
        expressions.add(&nest.body, &[*value], &points);
        expressions.scalar = expressions.scalar.saturating_add(points.all().saturating_mul(column_tiles));
    }
    expressions.add(&nest.body, &[kernel.a], &with_rows(kernel.depth, k).times(column_tiles));
    expressions.add(&nest.body, &[kernel.b], &over(&[(kernel.depth, k), (column, n)]).times(row_tiles));
    let results = with_rows(column, n);
    expressions.add(&nest.body, &roots(&nest.outputs), &results);
    let products = [2, n, k].into_iter().fold(total, u64::saturating_mul);
    let half_products = if is_half(&nest.body, &[kernel.a, kernel.b]) { products } else { 0 };
    let count =
        Count { products, half_products, written: columns_written(&nest.outputs, &results, n), ..Count::default() };
    finish(count, &expressions, &nest.body, sizes)
}

fn attention(kernel: &Attention<'_>, sizes: &Sizes) -> Count {
    let nest = kernel.nest;
    let samples = sizes.product(&kernel.samples);
    let [rows, keys] = [kernel.rows, kernel.keys].map(|range| sizes.rows(range, samples));
    let heads = kernel.heads as u64;
    let (qk, v) = (kernel.qk_width as u64, kernel.v_width as u64);
    let pairs = pairs(kernel, sizes, &rows, &keys);
    let [all_rows, all_keys] = [&rows, &keys].map(|counts| counts.iter().sum::<u64>());
    let outer = (0..nest.rank() as u8)
        .filter(|axis| ![Some(kernel.row), Some(kernel.column), kernel.head].contains(&Some(*axis)));
    let outer: Vec<u8> = outer.collect();
    // The points of some axes, each of which counts its total over all samples, besides samples and heads.
    let over = |joint: &[(u8, u64)], last: Option<(u8, u64)>| {
        let mut extents = vec![1; nest.axes.len()];
        outer.iter().zip(&kernel.samples).for_each(|(&axis, dim)| extents[usize::from(axis)] = sizes.extent(dim));
        let head = kernel.head.map(|head| (head, heads));
        joint.iter().copied().chain(last).chain(head).for_each(|(axis, extent)| extents[usize::from(axis)] = extent);
        let one = |&(axis, total): &(u8, u64)| [(bits(&outer) | bits(&[axis]), total), (bits(&[axis]), total)];
        Domain { extents, joint: joint.iter().flat_map(one).collect(), times: 1 }
    };
    let query_tiles = rows.iter().map(|rows| rows.div_ceil(QUERIES)).max().unwrap_or(0).max(1);
    let mut expressions = Expressions::default();
    expressions.add(&nest.body, &[kernel.q], &over(&[(kernel.row, all_rows)], Some((kernel.depth, qk))));
    // A causal tile reads the keys before it, half of them on average; so does what follows another mask, about.
    let again = if kernel.mask.is_some() { query_tiles.div_ceil(2) } else { query_tiles };
    let keyed = |last| over(&[(kernel.key, all_keys)], Some(last)).times(again);
    expressions.add(&nest.body, &[kernel.k], &keyed((kernel.depth, qk)));
    expressions.add(&nest.body, &[kernel.v], &keyed((kernel.column, v)));
    let mut weights = over(&[(kernel.row, all_rows), (kernel.key, all_keys)], None);
    let both = bits(&[kernel.row, kernel.key]);
    weights.joint.splice(0..0, [(bits(&outer) | both, pairs), (both, pairs)]);
    expressions.add(&nest.body, &[kernel.score], &weights);
    let results = over(&[(kernel.row, all_rows)], Some((kernel.column, v)));
    expressions.add(&nest.body, &roots(&nest.outputs), &results);
    let products = [2, heads, qk.saturating_add(v)].into_iter().fold(pairs, u64::saturating_mul);
    let half_products = if is_half(&nest.body, &[kernel.q, kernel.k, kernel.v]) { products } else { 0 };
    let count =
        Count { products, half_products, written: columns_written(&nest.outputs, &results, v), ..Count::default() };
    finish(count, &expressions, &nest.body, sizes)
}

/// Every tile of owners reads the others once; what is made of a pair counts once for it, in each pass.
fn pair_sums(kernel: &Pairs<'_>, sizes: &Sizes) -> Count {
    let nest = kernel.nest;
    let samples = sizes.extent(kernel.samples);
    let [owners, others] = [kernel.owners, kernel.others].map(|range| sizes.rows(range, samples));
    let all = |(owners, others): (&u64, &u64)| owners.saturating_mul(*others);
    let pairs: u64 = owners.iter().zip(&others).map(all).sum();
    let [all_owners, all_others] = [&owners, &others].map(|counts| counts.iter().sum::<u64>());
    let heads = kernel.heads as u64;
    let over = |joint: &[(u32, u64)], last: Option<(u8, usize)>| {
        let mut extents = vec![1; nest.axes.len()];
        extents[usize::from(kernel.head)] = heads;
        last.into_iter().for_each(|(axis, width)| extents[usize::from(axis)] = width as u64);
        let with_sample = joint.iter().flat_map(|&(axes, total)| [(axes | 1, total), (axes, total)]);
        Domain { extents, joint: with_sample.collect(), times: 1 }
    };
    let (owner, other) = ((bits(&[kernel.owner]), all_owners), (bits(&[kernel.other]), all_others));
    let both = (owner.0 | other.0, pairs);
    let again = owners.iter().map(|rows| rows.div_ceil(QUERIES)).max().unwrap_or(0).max(1);
    let mut expressions = Expressions::default();
    let (mut widths, mut written_bytes) = (0, 0u64);
    for dot in &kernel.dots {
        let column = Some((dot.depth, dot.width));
        expressions.add(&nest.body, &[dot.owner], &over(&[owner], column));
        expressions.add(&nest.body, &[dot.other], &over(&[other], column).times(again));
        widths += dot.width as u64 * kernel.passes.len() as u64;
    }
    for sum in kernel.sums() {
        expressions.add(&nest.body, &[sum.weight], &over(&[both, owner, other], None));
        if let Some(element) = sum.element {
            let rows = over(&[other], Some((element.column, element.width))).times(again);
            expressions.add(&nest.body, &[element.value], &rows);
            widths += element.width as u64;
        }
    }
    for output in &nest.outputs {
        let column = kernel.column_of(output);
        let width = column.and_then(|column| nest.axes[usize::from(column)].extent.dense()?.as_const()).unwrap_or(1);
        let results = over(&[owner], column.map(|column| (column, width)));
        expressions.add(&nest.body, &roots(std::slice::from_ref(output)), &results);
        written_bytes = written_bytes.saturating_add(output.dtype.format().bytes(results.all()));
    }
    let products = [2, heads, widths].into_iter().fold(pairs, u64::saturating_mul);
    finish(Count { products, written: written_bytes, ..Count::default() }, &expressions, &nest.body, sizes)
}

/// Every row is read once, whichever results it counts for.
fn fold(kernel: &Fold<'_>, sizes: &Sizes) -> Count {
    let nest = kernel.nest;
    let results = points(nest, sizes, nest.rank());
    let samples = results.extents.first().copied().unwrap_or(1);
    let ragged = matches!(kernel.rows, Extent::Ragged { .. });
    let total: u64 =
        if ragged { sizes.rows(kernel.rows, samples).iter().sum() } else { sizes.rows(kernel.rows, 1).iter().sum() };
    let mut extents = results.extents.clone();
    extents.resize(nest.axes.len(), 1);
    extents[usize::from(kernel.row)] = total;
    let row = bits(&[kernel.row]);
    // The first axis of the result is where a row counts.
    let joint = if ragged || kernel.index.is_some() { vec![(row | 1, total), (row, total)] } else { vec![] };
    let rows = Domain { extents, joint, times: 1 };
    let mut expressions = Expressions::default();
    for sum in &kernel.sums {
        let read: Vec<ExprId> = kernel.index.into_iter().chain([sum.value]).collect();
        expressions.add(&nest.body, &read, &rows);
        expressions.scalar = expressions.scalar.saturating_add(rows.all());
    }
    expressions.add(&nest.body, &roots(&nest.outputs), &results);
    let count = Count { written: written(&nest.outputs, &results), ..Count::default() };
    finish(count, &expressions, &nest.body, sizes)
}

/// True if what each of `roots` loads of matrices is stored in half precision.
fn is_half(body: &Body, roots: &[ExprId]) -> bool {
    let stored = |root: &ExprId| {
        let reachable = body.dag.reachable(&[*root]);
        let loads = reachable.into_iter().filter_map(|id| match *body.dag.expr(id) {
            Expr::Load { operand, .. } => body.operands.get(usize::from(operand)),
            _ => None,
        });
        let mut matrices = loads.filter(|operand| operand.shape.len() > 1).map(|operand| operand.dtype).peekable();
        matrices.peek().is_some() && matrices.all(|dtype| dtype == DType::F16)
    };
    roots.iter().all(stored)
}

fn finish(count: Count, expressions: &Expressions, body: &Body, sizes: &Sizes) -> Count {
    let size = |operand: u16| match body.operands.get(usize::from(operand)) {
        Some(operand) if operand.place != Place::Host => operand.dtype.format().bytes(sizes.product(&operand.shape)),
        _ => 0,
    };
    Count { read: expressions.read(size), reread: expressions.reread, scalar: expressions.scalar, ..count }
}

fn roots(outputs: &[Output]) -> Vec<ExprId> {
    outputs.iter().flat_map(|output| output.index.iter().copied().chain([output.value])).collect()
}

/// Bytes that outputs write, whose columns are the last extent of a domain.
fn written(outputs: &[Output], domain: &Domain) -> u64 {
    columns_written(outputs, domain, domain.extents.last().copied().unwrap_or(1))
}

fn columns_written(outputs: &[Output], domain: &Domain, columns: u64) -> u64 {
    let columns = columns.max(1);
    let bytes = |output: &Output| {
        let own = output.columns.map_or(columns, |(start, end)| (end - start) as u64);
        output.dtype.format().bytes((domain.all() / columns).saturating_mul(own))
    };
    outputs.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Values of the shape program that a mask reads; other operands are not looked at.
struct HostValues<'a> {
    body: &'a Body,
    sizes: &'a Sizes,
}

impl Leaves for HostValues<'_> {
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
fn pairs(kernel: &Attention<'_>, sizes: &Sizes, rows: &[u64], keys: &[u64]) -> u64 {
    let all = |(rows, keys): (&u64, &u64)| rows.saturating_mul(*keys);
    let Some(mask) = kernel.mask else { return rows.iter().zip(keys).map(all).sum() };
    let leaves = HostValues { body: &kernel.nest.body, sizes };
    let mut visible =
        Visible { kernel, bounds: Bounds::new(&kernel.nest.body.dag, mask), leaves, sample: 0, leaf: 0, known: vec![] };
    let of_sample = |(sample, (&rows, &keys)): (usize, (&u64, &u64))| {
        (visible.sample, visible.leaf) = (sample, rows.max(keys).div_ceil(MASK_TILES).max(1));
        visible.halves((0, rows), (0, keys)) / 2
    };
    rows.iter().zip(keys).enumerate().map(of_sample).sum()
}

struct Visible<'a> {
    kernel: &'a Attention<'a>,
    bounds: Bounds,
    leaves: HostValues<'a>,
    sample: usize,
    /// Edge of a tile that is not cut further.
    leaf: u64,
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
            coords[0] = Interval::point(self.sample as f64);
        }
        let places = self.kernel.head.map(|head| (head, heads));
        for (axis, values) in [(self.kernel.row, range(rows)), (self.kernel.key, range(keys))].into_iter().chain(places)
        {
            coords[usize::from(axis)] = values;
        }
        match self.bounds.evaluate(&self.kernel.nest.body.dag, &self.leaves, &coords, &mut self.known).truth() {
            Tri::Never => 0,
            Tri::Always => area.saturating_mul(2),
            Tri::Sometimes => {
                let halve = |(start, end): (u64, u64)| {
                    let middle = start.midpoint(end);
                    if end - start > self.leaf { vec![(start, middle), (middle, end)] } else { vec![(start, end)] }
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
