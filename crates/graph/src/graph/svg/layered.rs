//! Layered layout: nodes in ranks, few crossings, straight wires.

use std::collections::HashMap;

/// A box to be placed.
pub(super) struct Cell {
    pub width: f64,
    pub height: f64,
    /// True if wires end at the positions of their links. Otherwise they share the top edge.
    pub ports: bool,
}

/// Constraints on the place of a cell in the layout.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pin {
    Free,
    First,
    Last,
}

/// A wire from the bottom of a cell to the top of a later one. Distances are from their centers.
pub(super) struct Link {
    pub from: usize,
    pub port: u32,
    pub from_dx: f64,
    pub to: usize,
    pub to_dx: f64,
}

/// A wire between neighbouring ranks: down from `from` to `leave`, a curve to `enter`, down to `to`.
pub(super) struct Wire {
    pub from: [f64; 2],
    pub leave: f64,
    pub enter: f64,
    pub to: [f64; 2],
    pub arrow: bool,
}

pub(super) struct Placement {
    /// Upper left corners of the cells.
    pub corners: Vec<[f64; 2]>,
    pub wires: Vec<Wire>,
    pub width: f64,
    pub height: f64,
}

const COLUMN_GAP: f64 = 14.0;
const WIRE_WIDTH: f64 = 4.0;
const ORDER_SWEEPS: usize = 10;
/// Limits the time for large graphs.
const STRAIGHTEN_SLOTS: usize = 600_000;

/// Ranks by longest path, sources close to their readers. Links lead from lower to higher cells.
pub(super) fn ranks(pins: &[Pin], links: &[(usize, usize)]) -> Vec<usize> {
    let count = pins.len();
    let (mut before, mut after) = (vec![vec![]; count], vec![vec![]; count]);
    for &(from, to) in links {
        before[to].push(from);
        after[from].push(to);
    }
    let per_rank = ((count as f64).sqrt() * 1.5).ceil().max(8.0) as usize;
    let first = usize::from(pins.contains(&Pin::First));
    let mut ranks = vec![0; count];
    let mut filled = vec![0; 2 * count + 2];
    for cell in (0..count).filter(|&cell| pins[cell] == Pin::Free) {
        let mut rank = before[cell].iter().map(|&producer| ranks[producer] + 1).max().unwrap_or(0).max(first);
        while filled[rank] >= per_rank {
            rank += 1;
        }
        filled[rank] += 1;
        ranks[cell] = rank;
    }
    let last = ranks.iter().max().map_or(0, |rank| rank + 1);
    for cell in (0..count).filter(|&cell| pins[cell] == Pin::Last) {
        ranks[cell] = last;
    }
    let floating = floating(&before, &after);
    let sinks = |cell: usize| before[cell].iter().filter(|&&producer| !floating[producer]).count() <= after[cell].len();
    for cell in (0..count).rev().filter(|&cell| pins[cell] == Pin::Free && sinks(cell)) {
        let Some(reader) = after[cell].iter().map(|&reader| ranks[reader]).min() else { continue };
        let lowest = (ranks[cell] + 1..reader).rev().find(|&rank| filled[rank] < per_rank);
        if let Some(rank) = lowest {
            filled[ranks[cell]] -= 1;
            filled[rank] += 1;
            ranks[cell] = rank;
        }
    }
    close_gaps(ranks)
}

/// Cells that can move down together with all their producers.
fn floating(before: &[Vec<usize>], after: &[Vec<usize>]) -> Vec<bool> {
    let mut floating = vec![false; before.len()];
    for cell in 0..before.len() {
        let alone = before[cell].is_empty() || after[cell].len() == 1;
        floating[cell] = alone && before[cell].iter().all(|&producer| floating[producer]);
    }
    floating
}

fn close_gaps(mut ranks: Vec<usize>) -> Vec<usize> {
    let mut used = ranks.clone();
    used.sort_unstable();
    used.dedup();
    for rank in &mut ranks {
        *rank = used.binary_search(rank).unwrap_or(*rank);
    }
    ranks
}

/// Places cells with known ranks.
pub(super) fn place(cells: &[Cell], ranks: &[usize], links: &[Link]) -> Placement {
    let mut layers = Layers::new(cells, ranks, links);
    layers.order();
    layers.straighten();
    layers.placement(cells)
}

/// A cell, or a wire that crosses a rank.
struct Slot {
    rank: usize,
    width: f64,
    x: f64,
    passage: bool,
    above: Vec<usize>,
    below: Vec<usize>,
}

struct Segment {
    from: usize,
    from_dx: f64,
    to: usize,
    to_dx: f64,
}

struct Layers {
    slots: Vec<Slot>,
    segments: Vec<Segment>,
    rows: Vec<Vec<usize>>,
}

impl Layers {
    fn new(cells: &[Cell], ranks: &[usize], links: &[Link]) -> Self {
        let slot = |rank, width, passage| Slot { rank, width, x: 0.0, passage, above: vec![], below: vec![] };
        let slots = cells.iter().zip(ranks).map(|(cell, &rank)| slot(rank, cell.width, false)).collect();
        let mut layers = Self { slots, segments: vec![], rows: vec![] };
        let mut passages: HashMap<(usize, u32, usize), usize> = HashMap::new();
        for link in links {
            let (mut from, mut from_dx) = (link.from, link.from_dx);
            for rank in ranks[link.from] + 1..ranks[link.to] {
                let next = *passages.entry((link.from, link.port, rank)).or_insert_with(|| {
                    layers.slots.push(slot(rank, WIRE_WIDTH, true));
                    let to = layers.slots.len() - 1;
                    layers.connect(Segment { from, from_dx, to, to_dx: 0.0 });
                    to
                });
                (from, from_dx) = (next, 0.0);
            }
            layers.connect(Segment { from, from_dx, to: link.to, to_dx: link.to_dx });
        }
        let height = ranks.iter().max().map_or(0, |rank| rank + 1);
        layers.rows = vec![vec![]; height];
        for (index, slot) in layers.slots.iter().enumerate() {
            layers.rows[slot.rank].push(index);
        }
        layers
    }

    fn connect(&mut self, segment: Segment) {
        let index = self.segments.len();
        self.slots[segment.from].below.push(index);
        self.slots[segment.to].above.push(index);
        self.segments.push(segment);
    }

    /// Sorts the rows by the mean position of their neighbours, down and up, and keeps the best.
    fn order(&mut self) {
        let mut best = (usize::MAX, self.rows.clone());
        for sweep in 0..ORDER_SWEEPS {
            let down = sweep % 2 == 0;
            let mut positions = self.positions();
            for step in 1..self.rows.len() {
                let row = if down { step } else { self.rows.len() - 1 - step };
                let mut keyed: Vec<(f64, usize)> = self.rows[row]
                    .iter()
                    .map(|&slot| (self.barycenter(slot, down, &positions).unwrap_or(positions[slot]), slot))
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                let count = keyed.len() as f64;
                for (position, &(_, slot)) in keyed.iter().enumerate() {
                    positions[slot] = (position as f64 + 0.5) / count;
                }
                self.rows[row] = keyed.into_iter().map(|(_, slot)| slot).collect();
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.rows.clone());
            }
            if crossings == 0 {
                break;
            }
        }
        self.rows = best.1;
    }

    /// Positions of the slots in their rows, as fractions of the row.
    fn positions(&self) -> Vec<f64> {
        let mut positions = vec![0.0; self.slots.len()];
        for row in &self.rows {
            for (position, &slot) in row.iter().enumerate() {
                positions[slot] = (position as f64 + 0.5) / row.len() as f64;
            }
        }
        positions
    }

    fn barycenter(&self, slot: usize, from_above: bool, positions: &[f64]) -> Option<f64> {
        let wires = if from_above { &self.slots[slot].above } else { &self.slots[slot].below };
        let sum: f64 = wires
            .iter()
            .map(|&wire| {
                let segment = &self.segments[wire];
                let (end, dx) = if from_above { (segment.from, segment.from_dx) } else { (segment.to, segment.to_dx) };
                let row = self.rows[self.slots[end].rank].len() as f64;
                positions[end] + dx / (self.slots[end].width.max(1.0) * row)
            })
            .sum();
        if wires.is_empty() { None } else { Some(sum / wires.len() as f64) }
    }

    fn crossings(&self) -> usize {
        let positions = self.positions();
        let end = |slot: usize, dx: f64| {
            let row = self.rows[self.slots[slot].rank].len() as f64;
            positions[slot] + dx / (self.slots[slot].width.max(1.0) * row)
        };
        let crossings_below = |row: &Vec<usize>| {
            let mut ends: Vec<(f64, f64)> = row
                .iter()
                .flat_map(|&slot| &self.slots[slot].below)
                .map(|&wire| &self.segments[wire])
                .map(|segment| (end(segment.from, segment.from_dx), end(segment.to, segment.to_dx)))
                .collect();
            ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            inversions(&ends.into_iter().map(|(_, lower)| lower).collect::<Vec<_>>())
        };
        self.rows.iter().map(crossings_below).sum()
    }

    /// Moves slots toward their neighbours within the order of their rows.
    fn straighten(&mut self) {
        for row in 0..self.rows.len() {
            self.align(row, &|_, _| (0.0, 1.0));
        }
        let sweeps = (STRAIGHTEN_SLOTS / self.slots.len().max(1)).clamp(8, 120);
        for sweep in 0..sweeps {
            let both = sweep > sweeps / 3;
            let down = sweep % 2 == 0;
            for step in 0..self.rows.len() {
                let row = if down { step } else { self.rows.len() - 1 - step };
                self.align(row, &|layers, slot| layers.wish(slot, down || both, !down || both));
            }
        }
    }

    /// The preferred position of a slot, with a weight. Almost straight wires have the largest weights, so that bends
    /// gather in few places.
    fn wish(&self, slot: usize, above: bool, below: bool) -> (f64, f64) {
        let this = &self.slots[slot];
        let (mut sum, mut total) = (0.0, 0.0);
        let mut pull = |other: usize, dx: f64| {
            let place = self.slots[other].x + dx;
            let strength = if this.passage && self.slots[other].passage { 4.0 } else { 1.0 };
            let weight = strength / ((place - this.x).abs() + 8.0);
            sum += place * weight;
            total += weight;
        };
        for segment in this.above.iter().filter(|_| above).map(|&wire| &self.segments[wire]) {
            pull(segment.from, segment.from_dx - segment.to_dx);
        }
        for segment in this.below.iter().filter(|_| below).map(|&wire| &self.segments[wire]) {
            pull(segment.to, segment.to_dx - segment.from_dx);
        }
        if total > 0.0 { (sum / total, total) } else { (this.x, 1e-3) }
    }

    /// Moves the slots of a row as close to their preferred positions as their widths allow, by least squares.
    fn align(&mut self, row: usize, wish: &dyn Fn(&Self, usize) -> (f64, f64)) {
        let mut offset = 0.0;
        let mut offsets = Vec::with_capacity(self.rows[row].len());
        // Slots that touch move as one: (weighted sum of wishes, weight, slots).
        let mut blocks: Vec<(f64, f64, usize)> = vec![];
        let mut previous = 0.0;
        for (position, &slot) in self.rows[row].iter().enumerate() {
            let width = self.slots[slot].width;
            if position > 0 {
                offset += (previous + width) / 2.0 + COLUMN_GAP;
            }
            previous = width;
            offsets.push(offset);
            let (x, weight) = wish(self, slot);
            let mut block = ((x - offset) * weight, weight, 1);
            while let Some(left) = blocks.pop_if(|left| left.0 / left.1 >= block.0 / block.1) {
                block = (left.0 + block.0, left.1 + block.1, left.2 + block.2);
            }
            blocks.push(block);
        }
        let places = blocks.iter().flat_map(|&(sum, weight, count)| std::iter::repeat_n(sum / weight, count));
        for ((&slot, offset), place) in self.rows[row].iter().zip(offsets).zip(places) {
            self.slots[slot].x = place + offset;
        }
    }

    fn placement(&self, cells: &[Cell]) -> Placement {
        let left = self.slots.iter().map(|slot| slot.x - slot.width / 2.0).fold(f64::MAX, f64::min);
        let right = self.slots.iter().map(|slot| slot.x + slot.width / 2.0).fold(f64::MIN, f64::max);
        let rows = self.row_spans(cells);
        let corners: Vec<[f64; 2]> = cells
            .iter()
            .zip(&self.slots)
            .map(|(cell, slot)| {
                let (top, bottom) = rows[slot.rank];
                [slot.x - slot.width / 2.0 - left, (top + bottom - cell.height) / 2.0]
            })
            .collect();
        let shares = self.shares(cells);
        let wires = self.segments.iter().zip(shares).map(|(segment, share)| {
            let ((top, leave), (enter, _)) = (rows[self.slots[segment.from].rank], rows[self.slots[segment.to].rank]);
            let start = cells.get(segment.from).map_or(top, |cell| corners[segment.from][1] + cell.height);
            let end = cells.get(segment.to).map_or(enter, |_| corners[segment.to][1]);
            Wire {
                from: [self.slots[segment.from].x + segment.from_dx - left, start],
                leave,
                enter,
                to: [self.slots[segment.to].x + segment.to_dx + share - left, end],
                arrow: !self.slots[segment.to].passage,
            }
        });
        Placement {
            wires: wires.collect(),
            corners,
            width: (right - left).max(0.0),
            height: rows.last().map_or(0.0, |&(_, bottom)| bottom),
        }
    }

    /// Top and bottom of the rows; the space is larger if wires lead far to the side.
    fn row_spans(&self, cells: &[Cell]) -> Vec<(f64, f64)> {
        let mut heights = vec![0.0f64; self.rows.len()];
        for (cell, slot) in cells.iter().zip(&self.slots) {
            heights[slot.rank] = heights[slot.rank].max(cell.height);
        }
        let mut gaps = vec![0.0f64; self.rows.len()];
        for segment in &self.segments {
            let (from, to) = (&self.slots[segment.from], &self.slots[segment.to]);
            let reach = (from.x + segment.from_dx - to.x - segment.to_dx).abs();
            gaps[to.rank] = gaps[to.rank].max((12.0 + reach * 0.08).clamp(14.0, 64.0));
        }
        let mut y = 0.0;
        let spans = heights.iter().zip(&gaps).enumerate().map(|(row, (height, gap))| {
            let top = if row == 0 { 0.0 } else { y + gap };
            y = top + height;
            (top, y)
        });
        spans.collect()
    }

    /// The distance of every wire's end from the center of its cell, in the order of the wires.
    fn shares(&self, cells: &[Cell]) -> Vec<f64> {
        let mut shares = vec![0.0; self.segments.len()];
        for (cell, slot) in cells.iter().zip(&self.slots).filter(|(cell, _)| !cell.ports) {
            let mut wires = slot.above.clone();
            let start = |wire: usize| self.slots[self.segments[wire].from].x + self.segments[wire].from_dx;
            wires.sort_by(|&a, &b| start(a).total_cmp(&start(b)));
            let step = (cell.width * 0.7 / wires.len() as f64).min(16.0);
            for (position, &wire) in wires.iter().enumerate() {
                shares[wire] = (position as f64 - (wires.len() as f64 - 1.0) / 2.0) * step;
            }
        }
        shares
    }
}

/// The number of pairs that are out of order.
fn inversions(values: &[f64]) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    let mut counts = vec![0usize; sorted.len() + 1];
    let mut inversions = 0;
    for (seen, value) in values.iter().enumerate() {
        let rank = sorted.partition_point(|other| other <= value);
        let (mut index, mut not_greater) = (rank, 0);
        while index > 0 {
            not_greater += counts[index];
            index &= index - 1;
        }
        inversions += seen - not_greater;
        index = rank;
        while index < counts.len() {
            counts[index] += 1;
            index += index & index.wrapping_neg();
        }
    }
    inversions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inversions_are_counted() {
        assert_eq!(inversions(&[1.0, 2.0, 2.0, 3.0]), 0);
        assert_eq!(inversions(&[3.0, 2.0, 1.0, 1.0]), 5);
    }

    #[test]
    fn sources_stay_close_to_their_readers() {
        let pins = [Pin::Free; 5];
        assert_eq!(ranks(&pins, &[(0, 1), (1, 2), (2, 4), (3, 4)]), [0, 1, 2, 2, 3]);
    }

    #[test]
    fn cells_of_a_rank_do_not_overlap_and_wires_lead_down() {
        let cells: Vec<Cell> =
            (0..40).map(|n| Cell { width: 20.0 + n as f64, height: 10.0 + n as f64, ports: false }).collect();
        let ends: Vec<(usize, usize)> = (1..40).map(|n| (n * 7 % n.max(1) / 2 + n / 3, n)).collect();
        let ranks = ranks(&[Pin::Free; 40], &ends);
        let links: Vec<Link> =
            ends.iter().map(|&(from, to)| Link { from, port: 0, from_dx: 0.0, to, to_dx: 0.0 }).collect();
        let placement = place(&cells, &ranks, &links);
        for (a, b) in (0..40).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let ([ax, ay], [bx, by]) = (placement.corners[a], placement.corners[b]);
            let apart_x = ax + cells[a].width <= bx || bx + cells[b].width <= ax;
            let apart_y = ay + cells[a].height <= by || by + cells[b].height <= ay;
            assert!(apart_x || apart_y, "cells {a} and {b} overlap");
        }
        assert!(placement.wires.iter().all(|wire| wire.from[1] < wire.leave + 1e-6 && wire.enter < wire.to[1] + 1e-6));
    }
}
