//! Lookups of rows, some of which are on the device already.

use super::memory::grow;
use super::{FEWER_ROWS, GpuSide};
use crate::GpuError;
use crate::cpu::CpuError;
use crate::memory::Layout;
use crate::model::{ALIGNMENT, DeviceRows, HostTable, Known, Reservations, TableSlots, check_bytes};
use foldhash::fast::RandomState;
use rewire_graph_rewrite::plan::{BufferId, Lookup};
use std::collections::HashMap;

/// Invocations of a workgroup of the kernel that copies rows.
const THREADS: u64 = 256;

/// A lookup of a run.
#[derive(Debug)]
pub(crate) struct LookedUp<'a> {
    pub lookup: Lookup,
    pub table: &'a HostTable,
    /// By id, the row.
    pub rows: Vec<u32>,
}

/// Why rows could not be looked up.
#[derive(Debug)]
pub(crate) enum LookupError {
    Device(GpuError),
    Table(CpuError),
}

impl From<GpuError> for LookupError {
    fn from(error: GpuError) -> Self {
        Self::Device(error)
    }
}

/// Ids of a lookup whose rows fit in a binding.
struct Part<'a> {
    lookup: Lookup,
    table: &'a HostTable,
    /// The first id.
    first: usize,
    /// The different rows.
    rows: Vec<u32>,
    /// By id, the position of its row among them.
    position: Vec<u32>,
    /// Bytes of a row with its padding.
    pitch: usize,
    /// By row, its position among those that are uploaded.
    arrival: Vec<Option<u32>>,
    /// The uploaded rows.
    content: Vec<u8>,
}

/// Bytes in the memory of a device.
#[derive(Clone, Copy)]
enum Place {
    /// Uploaded rows, from an offset.
    Arrived(u64),
    /// The slots of a table.
    Slots(BufferId),
    /// A tensor, from an offset.
    Tensor(BufferId, u64),
}

/// Copies of rows between two places.
struct Moves {
    from: Place,
    to: Place,
    pitch: usize,
    /// Numbers of a row at both.
    pairs: Vec<[u32; 2]>,
}

impl GpuSide {
    /// The lookup whose rows [`GpuSide::look_up`] gathers into a tensor.
    pub fn lookup(&self, rows: BufferId) -> Option<Lookup> {
        self.site.rows.as_ref()?.lookup(rows)
    }

    /// Gathers the rows of lookups, of which those that are not on the device are uploaded.
    pub async fn look_up(&mut self, lookups: Vec<LookedUp<'_>>) -> Result<(), LookupError> {
        let Some(cache) = self.site.rows.clone() else { return Ok(()) };
        let window = self.gpu().target().window_bytes() as usize;
        let parts = lookups.into_iter().flat_map(|lookup| {
            let slots = cache.slots(lookup.lookup.table);
            slots.map(|slots| Part::all(lookup, slots, window)).unwrap_or_default()
        });
        let mut parts: Vec<Part<'_>> = parts.collect();
        if parts.is_empty() {
            return Ok(());
        }
        // Reads from the disk without the lock.
        for part in &mut parts {
            let absent = cache.absent(part.lookup.table, &part.rows);
            part.read(&cache, &absent)?;
        }
        self.make_room_for_rows(&parts).await?;
        let mut reserved = Reservations::new(&cache);
        let gpu = self.gpu().clone();
        let (submitted, error) = gpu.watched(|| self.submit_rows(&cache, &mut parts, &mut reserved));
        if let Some(error) = error.await {
            return Err(gpu.refused("copying rows", error).into());
        }
        submitted.map(|()| reserved.accept())
    }

    /// Allocates memory for all rows and copies, whatever part of them the device has.
    async fn make_room_for_rows(&mut self, parts: &[Part<'_>]) -> Result<(), GpuError> {
        let content: u64 = parts.iter().map(|part| aligned(part.rows.len() * part.pitch)).sum();
        let pairs: u64 = parts.iter().map(Part::pair_bytes).sum();
        let gpu = self.gpu().clone();
        let limit = gpu.limits().max_buffer_size & !3;
        for bytes in [content, pairs] {
            check_bytes(|| "the rows of lookups".to_owned(), bytes, (limit, "max_buffer_size"), FEWER_ROWS)?;
        }
        let allocate = || {
            grow(&mut self.arrived, content, limit, |bytes| gpu.tensor_buffer("uploaded rows", bytes));
            grow(&mut self.pairs, pairs, limit, |bytes| gpu.tensor_buffer("copies of rows", bytes));
        };
        gpu.checked("making room for rows", allocate).await
    }

    /// Submits the copies that gather rows, and those that keep uploaded rows on the device.
    fn submit_rows(
        &self,
        cache: &DeviceRows,
        parts: &mut [Part<'_>],
        reserved: &mut Reservations,
    ) -> Result<(), LookupError> {
        let (mut known, mut moves, mut content) = (cache.lock(), vec![], vec![]);
        for part in parts {
            moves.extend(part.moves(cache, (&mut known, reserved), content.len() as u64)?);
            content.extend_from_slice(&part.content);
            content.resize(content.len().next_multiple_of(ALIGNMENT), 0);
        }
        moves.retain(|moves| !moves.pairs.is_empty());
        let mut pairs = vec![];
        let starts: Vec<usize> = moves.iter().map(|moves| moves.append_to(&mut pairs)).collect();
        if let (Some(arrived), Some(buffer)) = (&self.arrived, &self.pairs) {
            let queue = self.gpu().queue();
            queue.write_buffer(arrived, 0, &content);
            queue.write_buffer(buffer, 0, bytemuck::cast_slice(&pairs));
        }
        let descriptor = wgpu::CommandEncoderDescriptor { label: Some("looking up rows") };
        let mut encoder = self.gpu().device().create_command_encoder(&descriptor);
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&cache.kernel().pipeline.pipeline);
        for (moves, start) in moves.iter().zip(starts) {
            pass.set_bind_group(0, &self.rows_group(cache, moves, start)?, &[]);
            pass.dispatch_workgroups(moves.groups(self.gpu().limits().max_compute_workgroups_per_dimension), 1, 1);
        }
        drop(pass);
        self.gpu().submit([encoder.finish()]);
        Ok(())
    }

    fn rows_group(&self, cache: &DeviceRows, moves: &Moves, start: usize) -> Result<wgpu::BindGroup, GpuError> {
        let unbound = || GpuError::Unbound { step: "looking up rows".into(), what: "a buffer".into() };
        let range = |place: Place| {
            let (buffer, offset) = match place {
                Place::Arrived(offset) => (self.arrived.as_ref(), offset),
                Place::Slots(table) => (cache.slots(table).map(|slots| &slots.buffer), 0),
                Place::Tensor(id, offset) => (self.buffer(id), offset),
            };
            buffer.map(|buffer| (buffer, offset)).ok_or_else(unbound)
        };
        let pairs = (self.pairs.as_ref().ok_or_else(unbound)?, start as u64);
        let window = self.gpu().target().window_bytes();
        let entries = [range(moves.from)?, pairs, range(moves.to)?].map(|(buffer, offset)| {
            let size = std::num::NonZeroU64::new(buffer.size().saturating_sub(offset).min(window));
            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size })
        });
        let entries = [cache.params().as_entire_binding()].into_iter().chain(entries);
        let entries = (0..).zip(entries).map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource });
        let entries: Vec<_> = entries.collect();
        let (label, layout) = (Some("looking up rows"), &cache.kernel().pipeline.layout);
        Ok(self.gpu().device().create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries: &entries }))
    }
}

impl<'a> Part<'a> {
    /// The parts of a lookup.
    fn all(lookup: LookedUp<'a>, slots: &TableSlots, window: usize) -> Vec<Self> {
        let pitch = slots.pitch as usize;
        let most = (window / pitch.max(1) / ALIGNMENT).max(1) * ALIGNMENT;
        let part = |(n, ids): (usize, &[u32])| {
            let (mut known, mut rows) = (HashMap::<u32, u32, RandomState>::default(), vec![]);
            let position = ids.iter().map(|row| {
                *known.entry(*row).or_insert_with(|| {
                    rows.push(*row);
                    rows.len() as u32 - 1
                })
            });
            let position = position.collect();
            let arrival = vec![None; rows.len()];
            let LookedUp { lookup, table, .. } = lookup;
            Self { lookup, table, first: n * most, rows, position, pitch, arrival, content: vec![] }
        };
        lookup.rows.chunks(most).enumerate().map(part).collect()
    }

    /// Reads rows, given by position, from the table.
    fn read(&mut self, cache: &DeviceRows, positions: &[u32]) -> Result<(), LookupError> {
        let Some(slots) = cache.slots(self.lookup.table).filter(|_| !positions.is_empty()) else { return Ok(()) };
        let rows: Vec<u32> = positions.iter().map(|at| self.rows[*at as usize]).collect();
        let copies = self.table.copies(&rows, slots.dtype).map_err(LookupError::Table)?;
        let arrived = (self.content.len() / self.pitch.max(1)) as u32;
        (arrived..).zip(positions).for_each(|(arrived, at)| self.arrival[*at as usize] = Some(arrived));
        self.content.extend_from_slice(&Layout::new(slots.dtype, copies.shape().to_vec()).pad(&copies));
        Ok(())
    }

    /// The copies from slots and from uploaded rows, which begin at an offset, to the tensor, and those of uploaded rows
    /// to slots.
    fn moves(
        &mut self,
        cache: &DeviceRows,
        (known, reserved): (&mut Known, &mut Reservations),
        offset: u64,
    ) -> Result<[Moves; 3], LookupError> {
        let table = self.lookup.table;
        let slot: Vec<Option<u32>> = self.rows.iter().map(|row| cache.find(known, table, *row)).collect();
        // Another run may have taken their slots.
        let left = (0..).zip(&slot).filter(|(at, slot)| slot.is_none() && self.arrival[*at as usize].is_none());
        let left: Vec<u32> = left.map(|(at, _)| at).collect();
        self.read(cache, &left)?;
        let (to, arrived) = (Place::Tensor(self.lookup.rows, (self.first * self.pitch) as u64), Place::Arrived(offset));
        let pitch = self.pitch;
        let mut moves = [(Place::Slots(table), to), (arrived, to), (arrived, Place::Slots(table))]
            .map(|(from, to)| Moves { from, to, pitch, pairs: vec![] });
        let [kept, fresh, keep] = &mut moves;
        for (id, at) in (0..).zip(&self.position) {
            match (slot[*at as usize], self.arrival[*at as usize]) {
                (Some(slot), _) => kept.pairs.push([slot, id]),
                (None, Some(arrived)) => fresh.pairs.push([arrived, id]),
                (None, None) => {}
            }
        }
        for ((row, slot), arrived) in self.rows.iter().zip(&slot).zip(&self.arrival) {
            let (None, Some(arrived)) = (slot, arrived) else { continue };
            keep.pairs.extend(reserved.reserve(known, table, *row).map(|slot| [*arrived, slot]));
        }
        Ok(moves)
    }

    /// Bytes of the pairs of all its copies, at most.
    fn pair_bytes(&self) -> u64 {
        let bytes = |pairs: usize| aligned((pairs + 1) * size_of::<[u32; 2]>());
        2 * bytes(self.position.len()) + bytes(self.rows.len())
    }
}

impl Moves {
    /// Appends the pairs as the kernel reads them; returns their offset in bytes.
    fn append_to(&self, all: &mut Vec<[u32; 2]>) -> usize {
        let (start, each) = (all.len(), size_of::<[u32; 2]>());
        all.push([(self.pitch / 4) as u32, self.pairs.len() as u32]);
        all.extend_from_slice(&self.pairs);
        all.resize(all.len().next_multiple_of(ALIGNMENT / each), [0; 2]);
        start * each
    }

    /// Workgroups, each of which copies words in turns.
    fn groups(&self, limit: u32) -> u32 {
        let words = self.pairs.len() as u64 * self.pitch as u64 / 4;
        u32::try_from(words.div_ceil(THREADS)).unwrap_or(u32::MAX).min(limit)
    }
}

fn aligned(bytes: usize) -> u64 {
    bytes.next_multiple_of(ALIGNMENT) as u64
}
