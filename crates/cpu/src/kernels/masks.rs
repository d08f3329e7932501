//! Attention masks: the visible keys of blocks of rows, and the masked pairs among them.

use super::arch::Arch;
use super::coords::Coords;
use super::error::CpuError;
use super::lanes::{Grid, Lanes, Row, tile_rows};
use super::machine::{RowInputs, Vm};
use super::operand::Env;
use super::program::Program;
use super::scratch::reserve;
use super::visible::{Block, VisibleTiles, range};
use pulp::{Simd, WithSimd};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Dag, Expr, ExprId, Interval, Intervals};
use rewire_graph_rewrite::plan::Body;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of keys processed at once.
const SPAN: usize = 512;
/// Rows of a block whose visible keys are bounded together, a multiple of the rows of register tiles.
pub(super) const GROUP: usize = 12;
/// Approximate maximum number of mask values to cache for later heads.
const KEPT: usize = 1 << 18;
/// Maximum number of blocks to cache, since they are searched.
const BLOCKS: usize = 512;

/// The coordinates of pairs of rows and keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairAxes {
    pub count: usize,
    /// Number of leading coordinates for the sample.
    pub samples: usize,
    pub head: Option<u8>,
    pub row: usize,
    pub key: usize,
}

/// An optional mask of pairs.
#[derive(Clone, Debug)]
pub(super) struct PairMask {
    mask: Option<Mask>,
    axes: PairAxes,
}

#[derive(Clone, Debug)]
struct Mask {
    dag: Dag,
    program: Program,
    bounds: Intervals,
    /// The loads through which alone a sample matters; `None` if it also matters otherwise.
    of_sample: Option<Vec<Intervals>>,
    head_matters: bool,
}

/// Adjacent keys. If `masked`, some pairs of these keys are hidden.
#[derive(Clone, Debug)]
pub(super) struct KeyTile {
    pub keys: Range<usize>,
    masked: bool,
    /// Offset of the first row's mask values, if `masked`.
    mask: usize,
    /// Row stride of the mask values.
    stride: usize,
    /// For each group of rows, from its first visible key to its last one. Empty if all keys count.
    seen: Vec<Range<usize>>,
}

/// The visible keys of a block, in spans.
pub(super) type Spans = Arc<Vec<Vec<KeyTile>>>;

/// A mask bound to a run. Caches the visible keys of blocks: successive samples share them if the mask reads the same for
/// each, and heads unless the mask depends on them.
pub(super) struct MaskMachine<'a> {
    mask: Option<(&'a Mask, Vm<'a>)>,
    axes: PairAxes,
    env: &'a Env<'a>,
    /// Extents of the axes of samples.
    samples: Vec<usize>,
    known: Vec<Interval>,
    /// The last sample, and what the mask reads of it.
    sample: Option<(usize, Vec<u64>)>,
    /// Cache key: what the mask reads of the sample, and the head if the mask depends on it, else 0.
    of: Option<(Vec<u64>, usize)>,
    blocks: Vec<KnownBlock>,
    /// Mask values of all masked tiles, by row and key; 0 is hidden.
    values: Vec<i32>,
    arch: Arch,
}

/// The visible keys of a block's rows.
struct KnownBlock {
    row: usize,
    rows: usize,
    /// Number of keys of the sample.
    keys: usize,
    /// The end of the visible keys.
    end: usize,
    spans: Spans,
}

impl KnownBlock {
    /// True if the same keys are visible to the rows of `block`: it has as many keys, or only fewer hidden ones.
    fn is(&self, block: Block) -> bool {
        (self.row, self.rows) == (block.row, block.rows) && (self.end..=self.keys).contains(&block.keys)
    }
}

impl PairMask {
    pub(super) fn new(body: &Body, mask: Option<ExprId>, axes: PairAxes) -> Result<Self, CpuError> {
        let compiled = |mask: ExprId| {
            let (dag, key) = (&body.dag, axes.key as u8);
            if dag.scalar(mask) != Scalar::Bool {
                let reason = "its mask is not a bool".to_owned();
                return Err(CpuError::Unsupported { kernel: "pairs", reason });
            }
            Ok(Mask {
                program: Program::compile(dag, &body.operands, &[mask], key, &|_, _| None)?,
                bounds: Intervals::along(dag, mask, key),
                of_sample: loads_of_sample(dag, mask, axes.samples),
                head_matters: axes.head.is_some_and(|head| dag.coords(mask) >> head & 1 == 1),
                dag: dag.clone(),
            })
        };
        Ok(Self { mask: mask.map(compiled).transpose()?, axes })
    }

    pub(super) fn machine<'a>(&'a self, env: &'a Env<'a>, samples: Vec<usize>) -> Result<MaskMachine<'a>, CpuError> {
        let machine = |mask: &'a Mask| Ok::<_, CpuError>((mask, Vm::new(&mask.program, env)?));
        Ok(MaskMachine {
            mask: self.mask.as_ref().map(machine).transpose()?,
            axes: self.axes,
            env,
            samples,
            known: vec![],
            sample: None,
            of: None,
            blocks: vec![],
            values: vec![],
            arch: Arch::chosen(),
        })
    }
}

impl MaskMachine<'_> {
    /// Sets the coordinates of a block's sample and head, and returns its visible keys.
    pub(super) fn enter(&mut self, coords: &mut Coords, block: Block) -> Result<Spans, CpuError> {
        coords.set_row(block.sample, &self.samples);
        if let Some(head) = self.axes.head {
            coords.set(head.into(), block.head);
        }
        let head_matters = self.mask.as_ref().is_some_and(|(mask, _)| mask.head_matters);
        let head = if head_matters { block.head } else { 0 };
        let read = self.read_of(block.sample);
        let is_same = self.of.as_ref().is_some_and(|(known, of)| (known, *of) == (&read, head));
        if !is_same || self.values.len() > KEPT || self.blocks.len() > BLOCKS {
            self.of = Some((read, head));
            self.blocks.clear();
            self.values.clear();
        }
        if let Some(known) = self.blocks.iter().find(|known| known.is(block)) {
            return Ok(Arc::clone(&known.spans));
        }
        let mut spans = spans(&self.tiles(block));
        coords.count(self.axes.row, block.row);
        let inputs = RowInputs { rows: block.rows, coords: coords.all(), ..RowInputs::default() };
        if let Some((_, machine)) = &mut self.mask {
            for tile in spans.iter_mut().flatten().filter(|tile| tile.masked) {
                (tile.mask, tile.stride) = (self.values.len(), tile.keys.len());
                evaluate(machine, inputs, &tile.keys, &mut self.values)?;
                let groups = self.values.get(tile.mask..).unwrap_or(&[]).chunks(GROUP * tile.stride);
                tile.seen = groups.map(|group| seen_keys(group, &tile.keys)).collect();
            }
        }
        let spans = Arc::new(spans);
        let end = spans.last().and_then(|span| span.last()).map_or(0, |tile| tile.keys.end);
        let Block { row, rows, keys, .. } = block;
        self.blocks.push(KnownBlock { row, rows, keys, end, spans: Arc::clone(&spans) });
        Ok(spans)
    }

    /// What the mask reads of a sample.
    fn read_of(&mut self, sample: usize) -> Vec<u64> {
        if let Some((last, read)) = &self.sample
            && *last == sample
        {
            return read.clone();
        }
        let read = match self.mask.as_ref().map(|(mask, _)| (mask, &mask.of_sample)) {
            None => vec![],
            Some((_, None)) => vec![sample as u64],
            Some((mask, Some(loads))) => {
                let mut coords = vec![Interval::UNKNOWN; self.axes.count];
                self.place(&mut coords, sample);
                let mut value = |load: &Intervals| {
                    let bounds = load.evaluate(&mask.dag, self.env, &coords, &mut self.known);
                    (bounds.low == bounds.high).then_some(bounds.low.to_bits())
                };
                loads.iter().map(&mut value).collect::<Option<_>>().unwrap_or_else(|| vec![sample as u64])
            }
        };
        self.sample = Some((sample, read.clone()));
        read
    }

    /// Sets the coordinates of a sample.
    fn place(&self, coords: &mut [Interval], mut sample: usize) {
        for (axis, &extent) in self.samples.iter().enumerate().rev() {
            (coords[axis], sample) = (Interval::point((sample % extent.max(1)) as f64), sample / extent.max(1));
        }
    }

    /// The visible tiles of a block. Adjacent tiles of the same kind are merged.
    fn tiles(&mut self, block: Block) -> Vec<KeyTile> {
        let tile = |(keys, masked)| KeyTile { keys, masked, mask: 0, stride: 0, seen: vec![] };
        let Some((mask, _)) = &self.mask else {
            return Some(tile((0..block.keys, false))).filter(|_| block.keys > 0).into_iter().collect();
        };
        let mut coords = vec![Interval::UNKNOWN; self.axes.count];
        self.place(&mut coords, block.sample);
        let head = self.axes.head.map(|head| (head.into(), Interval::point(block.head as f64)));
        for (axis, values) in [(self.axes.row, range(block.row, block.rows))].into_iter().chain(head) {
            coords[axis] = values;
        }
        let visible_tiles = VisibleTiles { dag: &mask.dag, env: self.env, mask: &mask.bounds, key: self.axes.key };
        visible_tiles.ranges(coords, block.keys, &mut self.known).into_iter().map(tile).collect()
    }

    /// Writes `nothing` for the hidden pairs of a span. The rows of `out` begin at key `origin`.
    pub(super) fn hide(
        &self,
        span: &[KeyTile],
        nothing: f32,
        (out, stride, rows): (&mut [f32], usize, usize),
        origin: usize,
    ) {
        for tile in span.iter().filter(|tile| tile.masked) {
            let mask = Lanes::Strided(self.values.get(tile.mask..).unwrap_or(&[]), tile.stride);
            let out = out.get_mut(tile.keys.start - origin..).unwrap_or(&mut []);
            let grid = Grid { rows, points: tile.keys.len() };
            self.arch.dispatch(Hide { mask, nothing, out, stride, grid });
        }
    }

    /// For each key of a span, true if it is visible to `row` of the block.
    pub(super) fn kept<'s>(&'s self, span: &'s [KeyTile], row: usize) -> impl Iterator<Item = bool> + 's {
        let kept = move |tile: &KeyTile, n| {
            !tile.masked || self.values.get(tile.mask + row * tile.stride + n).is_some_and(|&kept| kept != 0)
        };
        span.iter().flat_map(move |tile| (0..tile.keys.len()).map(move |n| kept(tile, n)))
    }
}

/// The loads through which alone a mask depends on the sample; `None` if it also depends on it otherwise.
fn loads_of_sample(dag: &Dag, mask: ExprId, samples: usize) -> Option<Vec<Intervals>> {
    let axes = (1 << samples) - 1;
    let (mut found, mut seen, mut rest) = (vec![], HashSet::new(), vec![mask]);
    while let Some(id) = rest.pop() {
        if dag.coords(id) & axes == 0 || !seen.insert(id) {
            continue;
        }
        match dag.expr(id) {
            Expr::Load { .. } if dag.coords(id) & !axes == 0 => found.push(Intervals::new(dag, id)),
            Expr::Coord(_) => return None,
            expr => rest.extend(expr.operands()),
        }
    }
    Some(found)
}

/// From the first key that some row sees to the last one. `mask` has the rows' values for `keys`.
fn seen_keys(mask: &[i32], keys: &Range<usize>) -> Range<usize> {
    let mut seen = vec![0; keys.len()];
    for row in mask.chunks(keys.len().max(1)) {
        seen.iter_mut().zip(row).for_each(|(seen, kept)| *seen |= kept);
    }
    let first = seen.iter().position(|&kept| kept != 0).unwrap_or(0);
    let end = seen.iter().rposition(|&kept| kept != 0).map_or(first, |last| last + 1);
    keys.start + first..keys.start + end
}

/// The groups of `rows` rows of a block that see keys of a span, and these keys.
pub(super) fn groups(span: &[KeyTile], rows: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    (0..rows).step_by(GROUP).enumerate().filter_map(move |(group, row)| {
        let seen = span.iter().map(|tile| tile.seen.get(group).unwrap_or(&tile.keys));
        let keys = seen.filter(|keys| !keys.is_empty()).cloned().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        Some((row..rows.min(row + GROUP), keys?))
    })
}

/// Splits tiles at multiples of [`SPAN`] keys, so that the bits of a sum do not depend on the other rows of the block.
fn spans(tiles: &[KeyTile]) -> Vec<Vec<KeyTile>> {
    let mut spans: Vec<Vec<KeyTile>> = vec![];
    for tile in tiles {
        let mut start = tile.keys.start;
        while start < tile.keys.end {
            let end = tile.keys.end.min(start / SPAN * SPAN + SPAN);
            let part = KeyTile { keys: start..end, ..tile.clone() };
            match spans.last_mut().and_then(|span| Some((span.last()?.keys.end, span))) {
                Some((last, span)) if (last - 1) / SPAN == start / SPAN => {
                    let between = KeyTile { keys: last..start, masked: true, ..tile.clone() };
                    span.extend((last < start).then_some(between));
                    span.push(part);
                }
                _ => spans.push(vec![part]),
            }
            start = end;
        }
    }
    spans
}

/// Appends the mask values of `keys`, row by row.
fn evaluate(
    machine: &mut Vm<'_>,
    inputs: RowInputs<'_>,
    keys: &Range<usize>,
    mask: &mut Vec<i32>,
) -> Result<(), CpuError> {
    reserve(mask, inputs.rows * keys.len())?;
    let size = tile_rows(keys.len());
    machine.rows(inputs);
    for start in (0..inputs.rows).step_by(size) {
        let part = inputs.part(start, size);
        machine.tile(part, keys.start, keys.len());
        let (values, grid) = (machine.ints(0), machine.grid());
        for row in 0..grid.rows {
            match values.row(row, grid.points) {
                Row::Same(value) => mask.resize(mask.len() + grid.points, value),
                Row::Each(values) => mask.extend_from_slice(values),
            }
        }
    }
    Ok(())
}

/// Replaces scores of hidden pairs.
struct Hide<'a> {
    mask: Lanes<'a, i32>,
    nothing: f32,
    out: &'a mut [f32],
    stride: usize,
    grid: Grid,
}

impl WithSimd for Hide<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let points = self.grid.points;
        for (row, out) in self.out.chunks_mut(self.stride).take(self.grid.rows).enumerate() {
            let Some(out) = out.get_mut(..points) else { return };
            match self.mask.row(row, points) {
                Row::Same(0) => out.fill(self.nothing),
                Row::Same(_) => {}
                Row::Each(mask) => {
                    // The compiler would use masked stores for a select, which are slow on some processors.
                    for (out, &mask) in out.iter_mut().zip(mask) {
                        let kept = mask.wrapping_neg() as u32;
                        *out = f32::from_bits(out.to_bits() & kept | self.nothing.to_bits() & !kept);
                    }
                }
            }
        }
    }
}
