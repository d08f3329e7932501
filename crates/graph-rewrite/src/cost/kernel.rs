use super::domain::{Domain, Expressions};
use super::{Count, Sizes};
use crate::plan::{Attention, Body, Custom, Kernel, Map, Matmul, Output, Place, Reduce, Reduction};
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
        match kernel {
            Kernel::Map(kernel) => map(kernel, sizes),
            Kernel::Reduce(kernel) => reduce(kernel, sizes),
            Kernel::Matmul(kernel) => matmul(kernel, sizes),
            Kernel::Attention(kernel) => attention(kernel, sizes),
            Kernel::Custom(kernel) => custom(kernel, sizes),
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

fn map(kernel: &Map, sizes: &Sizes) -> Count {
    let domain = Domain::dense(kernel.extents.iter().map(|dim| sizes.extent(dim)).collect());
    let mut expressions = Expressions::default();
    expressions.add(&kernel.body, &roots(&kernel.outputs), &domain);
    let count = Count { written: written(&kernel.outputs, &domain), ..Count::default() };
    finish(count, &expressions, &kernel.body, sizes)
}

fn reduce(kernel: &Reduce, sizes: &Sizes) -> Count {
    let extents: Vec<u64> = kernel.extents.iter().map(|dim| sizes.extent(dim)).collect();
    let rows = Domain::dense(extents.split_last().map_or(vec![], |(_, rows)| rows.to_vec()));
    let points = Domain::dense(extents);
    let mut expressions = Expressions::default();
    for reduction in &kernel.reductions {
        expressions.add(&kernel.body, &[reduction.value], &points);
        expressions.scalar = expressions.scalar.saturating_add(points.all());
    }
    expressions.add(&kernel.body, &roots(&kernel.outputs), &points);
    expressions.add(&kernel.body, &roots(&kernel.row_outputs), &rows);
    let written = written(&kernel.outputs, &points).saturating_add(written(&kernel.row_outputs, &rows));
    finish(Count { written, ..Count::default() }, &expressions, &kernel.body, sizes)
}

fn matmul(kernel: &Matmul, sizes: &Sizes) -> Count {
    let batch: Vec<u64> = kernel.batch.iter().map(|dim| sizes.extent(dim)).collect();
    let entries = batch.iter().copied().fold(1, u64::saturating_mul);
    let rows = sizes.rows(&kernel.m, entries);
    let (total, longest) = (rows.iter().sum::<u64>(), rows.iter().copied().max().unwrap_or(0));
    let (n, k) = (sizes.extent(&kernel.n), sizes.extent(&kernel.k));
    let axis = batch.len();
    let joint =
        if matches!(kernel.m, crate::plan::RowRange::Ragged { .. }) { vec![(1 << axis, total)] } else { vec![] };
    let domain = |row: u64, last: u64| Domain::dense([batch.as_slice(), &[row, last]].concat());
    // Rows of one sample, with the sample or without, are all rows.
    let ragged = |last: u64| {
        let with_sample = joint.iter().map(|&(row, total)| (row | ((1 << axis) - 1), total)).chain(joint.clone());
        Domain { joint: with_sample.collect(), ..domain(longest, last) }
    };
    let column_tiles = n.div_ceil(TILE).max(1);
    let row_tiles = rows.iter().map(|rows| rows.div_ceil(TILE)).max().unwrap_or(0).max(1);
    let mut expressions = Expressions::default();
    for Reduction { extent, value, .. } in &kernel.stats {
        let points = ragged(sizes.extent(extent)).times(column_tiles);
        expressions.add(&kernel.body, &[*value], &points);
        expressions.scalar = expressions.scalar.saturating_add(points.all().saturating_mul(column_tiles));
    }
    expressions.add(&kernel.body, &[kernel.a], &ragged(k).times(column_tiles));
    expressions.add(&kernel.body, &[kernel.b], &domain(k, n).times(row_tiles));
    let results = ragged(n);
    expressions.add(&kernel.body, &roots(&kernel.outputs), &results);
    let products = [2, n, k].into_iter().fold(total, u64::saturating_mul);
    let half_products = if is_half(&kernel.body, &[kernel.a, kernel.b]) { products } else { 0 };
    let count = Count { products, half_products, written: written(&kernel.outputs, &results), ..Count::default() };
    finish(count, &expressions, &kernel.body, sizes)
}

fn attention(kernel: &Attention, sizes: &Sizes) -> Count {
    let samples = sizes.extent(&kernel.samples);
    let [rows, keys] = [&kernel.rows, &kernel.keys].map(|range| sizes.rows(range, samples));
    let heads = kernel.heads as u64;
    let (qk, v) = (kernel.qk_width as u64, kernel.v_width as u64);
    let pairs = pairs(kernel, sizes, &rows, &keys);
    let [all_rows, all_keys] = [&rows, &keys].map(|counts| counts.iter().sum::<u64>());
    let by_row = |total: u64, last: u64| Domain {
        extents: vec![samples, heads, total, last],
        joint: vec![(0b101, total), (0b100, total)],
        times: 1,
    };
    let query_tiles = rows.iter().map(|rows| rows.div_ceil(QUERIES)).max().unwrap_or(0).max(1);
    let mut expressions = Expressions::default();
    expressions.add(&kernel.body, &[kernel.q], &by_row(all_rows, qk));
    // A causal tile reads the keys before it, half of them on average; so does what follows another mask, about.
    let again = if kernel.mask.is_some() { query_tiles.div_ceil(2) } else { query_tiles };
    expressions.add(&kernel.body, &[kernel.k], &by_row(all_keys, qk).times(again));
    expressions.add(&kernel.body, &[kernel.v], &by_row(all_keys, v).times(again));
    let weights = Domain {
        extents: vec![samples, heads, all_rows, all_keys],
        joint: vec![
            (0b1101, pairs),
            (0b1100, pairs),
            (0b101, all_rows),
            (0b100, all_rows),
            (0b1001, all_keys),
            (0b1000, all_keys),
        ],
        times: 1,
    };
    expressions.add(&kernel.body, &[kernel.score], &weights);
    let results = by_row(all_rows, v);
    expressions.add(&kernel.body, &roots(&kernel.outputs), &results);
    let products = [2, heads, qk.saturating_add(v)].into_iter().fold(pairs, u64::saturating_mul);
    let half_products = if is_half(&kernel.body, &[kernel.q, kernel.k, kernel.v]) { products } else { 0 };
    let count = Count { products, half_products, written: written(&kernel.outputs, &results), ..Count::default() };
    finish(count, &expressions, &kernel.body, sizes)
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

fn written(outputs: &[Output], domain: &Domain) -> u64 {
    let bytes = |output: &Output| {
        let last = domain.extents.last().copied().unwrap_or(1).max(1);
        let columns = output.columns.map_or(last, |(start, end)| (end - start) as u64);
        output.dtype.format().bytes((domain.all() / last).saturating_mul(columns))
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
fn pairs(kernel: &Attention, sizes: &Sizes, rows: &[u64], keys: &[u64]) -> u64 {
    let all = |(rows, keys): (&u64, &u64)| rows.saturating_mul(*keys);
    let Some(mask) = kernel.mask else { return rows.iter().zip(keys).map(all).sum() };
    let leaves = HostValues { body: &kernel.body, sizes };
    let mut visible =
        Visible { kernel, bounds: Bounds::new(&kernel.body.dag, mask), leaves, sample: 0, leaf: 0, known: vec![] };
    let of_sample = |(sample, (&rows, &keys)): (usize, (&u64, &u64))| {
        (visible.sample, visible.leaf) = (sample, rows.max(keys).div_ceil(MASK_TILES).max(1));
        visible.halves((0, rows), (0, keys)) / 2
    };
    rows.iter().zip(keys).enumerate().map(of_sample).sum()
}

struct Visible<'a> {
    kernel: &'a Attention,
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
        let coords = [Interval::point(self.sample as f64), heads, range(rows), range(keys)];
        match self.bounds.evaluate(&self.kernel.body.dag, &self.leaves, &coords, &mut self.known).truth() {
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
