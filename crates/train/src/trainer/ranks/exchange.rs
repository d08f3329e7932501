//! The exchange of gradients: one thread downloads them, a second one adds those of all ranks, and a third one uploads the sums.

use super::Ranks;
use super::tables::RowGradients;
use crate::step::{Lookup, names};
use crate::trainer::TrainError;
use rewire_distributed::{Bytes, CollectiveError, Collectives, all_gather_of};
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_runtime::{DeviceTensor, Outputs, RunError, RunValue, Session};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

/// Sums over all ranks, weighted by the shares of batches.
pub(super) struct Sums {
    /// Reported outputs.
    pub reported: Vec<f32>,
    /// Inputs of the update: sums of blocks, and row gradients of resident tables.
    pub inputs: Vec<(String, RunValue)>,
    /// Row gradients of tables on the host, for rows on this rank.
    pub rows: Vec<RowGradients>,
}

/// Fraction of the rows of gathered gradients for which there is more room.
const ROOM: usize = 8;

/// An input of the update, and new memory for it.
type Placed = ((String, RunValue), Option<(String, DeviceTensor)>);

/// An input of the update in consecutive parts, with the first row of each.
struct Parted {
    name: String,
    shape: Vec<usize>,
    parts: Vec<(usize, RunValue)>,
}

/// The rows that all ranks looked up in a resident table.
pub(super) struct Merge {
    /// The number of rows of each rank.
    counts: Vec<usize>,
    /// Inputs of the [lookup](crate::step::ResidentTable::merged).
    inputs: Vec<(String, RunValue)>,
}

impl Merge {
    /// Sends the ascending `rows` to all ranks, and merges those of all.
    pub fn new(rows: &[u32], lookup: &Lookup, group: &dyn Collectives) -> Result<Self, CollectiveError> {
        let mut all = all_gather_of(group, rows)?;
        all.iter_mut().for_each(|rows| rows.truncate(lookup.trained(rows)));
        let counts = all.iter().map(Vec::len).collect();
        let ids = all.concat();
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        order.sort_by_key(|place| ids[*place as usize]);
        let (mut rows, mut lengths) = (vec![], vec![]);
        for same in order.chunk_by(|a, b| ids[*a as usize] == ids[*b as usize]) {
            rows.push(ids[same[0] as usize]);
            lengths.push(same.len() as i64);
        }
        let inputs = [
            (lookup.rows(), HostTensor::vector(&rows)),
            (lookup.order(), HostTensor::vector(&order)),
            (lookup.lengths(), HostTensor::lengths(&lengths)),
        ];
        Ok(Self { counts, inputs: inputs.map(|(name, tensor)| (name, RunValue::Host(tensor))).to_vec() })
    }
}

/// The results of a rank's batches, by name, as they arrive.
struct Arrivals {
    receiver: Receiver<(String, Bytes)>,
    early: BTreeMap<String, Bytes>,
}

impl Arrivals {
    /// Waits for a result; `None` if it does not arrive, because there is no batch or a download failed.
    fn take(&mut self, name: &str) -> Option<Bytes> {
        while !self.early.contains_key(name) {
            self.early.extend([self.receiver.recv().ok()?]);
        }
        self.early.remove(name)
    }
}

impl Ranks {
    /// The outputs of a batch that ranks exchange.
    pub(super) fn outputs(&self) -> Vec<String> {
        let tables = self.tables.iter().map(|table| &table.name).chain(self.resident.iter().map(|table| &table.name));
        let kept = self.kept.iter().map(|name| names::kept(name));
        let blocks = (0..self.blocks.len()).map(names::block).map(|name| names::sum(&name));
        tables.map(|name| names::sum(name)).chain(kept).chain(blocks).collect()
    }

    /// Adds the results of all ranks. Averages states that the model sets.
    pub(super) fn exchange(
        &mut self,
        (session, results): (&mut Session, &Outputs),
        looked_up: Vec<RowGradients>,
        merges: Vec<Merge>,
    ) -> Result<Sums, TrainError> {
        let ((sender, receiver), (to_place, to_be_placed)) = (channel(), channel());
        let (ranks, begun) = (&*self, Instant::now());
        let (read, added, placed) = thread::scope(|scope| {
            let arrivals = Arrivals { receiver, early: BTreeMap::new() };
            let adding = scope.spawn(move || ranks.added(arrivals, (results, looked_up, merges), &to_place));
            let placing = scope.spawn(move || to_be_placed.into_iter().map(|sum| ranks.placed_parts(sum)).collect());
            let read = ranks.read(session, results, &sender);
            drop(sender);
            let read_at = begun.elapsed();
            let added = joined(adding);
            let added_at = begun.elapsed();
            let placed = joined::<Result<Vec<_>, TrainError>>(placing);
            tracing::debug!(?read_at, ?added_at, placed_at = ?begun.elapsed(), "an exchange");
            (read, added, placed)
        });
        read?;
        let ((mut sums, means), placed) = (added?, placed?);
        let (inputs, gathered): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
        sums.inputs.extend(inputs);
        self.gathered.extend(gathered.into_iter().flatten());
        self.held.extend(means);
        Ok(sums)
    }

    /// Sends the results that ranks exchange to `sender`, in the order in which they are computed.
    fn read(&self, session: &mut Session, results: &Outputs, sender: &Sender<(String, Bytes)>) -> Result<(), RunError> {
        // If the receiver has failed, its error is returned.
        let send = |name: &str, bytes| drop(sender.send((name.to_owned(), bytes)));
        let mut is_on_device = false;
        for name in self.outputs() {
            match results.value(&name) {
                Some(RunValue::Host(tensor)) => send(&name, Bytes::from_owner(Content(tensor.clone()))),
                value => is_on_device |= value.is_some(),
            }
        }
        match is_on_device {
            true => session.read_each(|name, bytes| send(name, self.buffers.copied(bytes))),
            false => Ok(()),
        }
    }

    /// An input of the update, on the device if there is one. Also returns new memory for it.
    fn placed_parts(&self, Parted { name, shape, parts }: Parted) -> Result<Placed, TrainError> {
        if self.update.gpu().is_none() {
            let host =
                parts.iter().filter_map(|(_, part)| if let RunValue::Host(own) = part { Some(own) } else { None });
            let bytes: Vec<&[u8]> = host.map(HostTensor::bytes).collect();
            let whole = HostTensor::from_bytes(DType::F32, shape, bytes.concat())?;
            return Ok(((name, RunValue::Host(whole)), None));
        }
        let known = self.memory.get(&name).or_else(|| self.gathered.get(&name));
        let fits = |memory: &&DeviceTensor| memory.shape.first() >= shape.first();
        let (mut memory, is_new) = match known.filter(fits) {
            Some(memory) => (memory.clone(), false),
            None => {
                let rows = shape.first().map(|rows| rows + rows / ROOM);
                let roomy: Vec<usize> = rows.into_iter().chain(shape.iter().skip(1).copied()).collect();
                (self.update.zeros(DType::F32, &roomy)?, true)
            }
        };
        self.update.overwrite(&memory, &parts)?;
        let new = is_new.then(|| (name.clone(), memory.clone()));
        memory.shape = shape;
        Ok(((name, RunValue::Device(memory)), new))
    }

    /// Adds results over all ranks as they arrive, and passes large inputs of the update to `to_place`. Also returns the means of states
    /// that the model sets.
    fn added(
        &self,
        mut arrivals: Arrivals,
        (results, looked_up, merges): (&Outputs, Vec<RowGradients>, Vec<Merge>),
        to_place: &Sender<Parted>,
    ) -> Result<(Sums, Vec<(String, HostTensor)>), TrainError> {
        let group = self.group.as_ref();
        // If the other thread has failed, its error is returned.
        let place = |name: String, shape, parts| drop(to_place.send(Parted { name, shape, parts }));
        let mut sums = Sums { reported: vec![], inputs: vec![], rows: vec![] };
        for (position, block) in self.blocks.iter().enumerate() {
            let name = names::sum(&names::block(position));
            let own = arrivals.take(&name).unwrap_or_else(|| vec![0; block.len * size_of::<f32>()].into());
            let slices = group.sum(own, &self.buffers)?;
            if position == 0 {
                let values = slices.iter().flat_map(|slice| slice.as_chunks().0);
                sums.reported = values.take(self.reported).map(|value| f32::from_ne_bytes(*value)).collect();
            }
            place(name, vec![block.len], consecutive(&slices, &[])?);
        }
        for (table, own) in self.tables.iter().zip(looked_up) {
            let values = arrivals.take(&names::sum(&table.name)).unwrap_or_default();
            sums.rows.push(table.sum(&own, values, group)?);
        }
        for (table, merge) in self.resident.iter().zip(merges) {
            let name = names::sum(&table.name);
            let mut own = arrivals.take(&name).unwrap_or_default();
            own.truncate(merge.counts.get(group.rank()).map_or(0, |count| count * table.width * size_of::<f32>()));
            let mut parts = gathered(own, &merge.counts, &table.shape, group)?;
            // The rows of this rank are on its device.
            if let (Some((_, part)), Some(RunValue::Device(own))) = (parts.get_mut(group.rank()), results.value(&name))
            {
                let mut own = own.clone();
                own.shape = part.shape().to_vec();
                *part = RunValue::Device(own);
            }
            let shape = [&[merge.counts.iter().sum()], table.shape.as_slice()].concat();
            place(names::gathered(&table.name), shape, parts);
            sums.inputs.extend(merge.inputs);
        }
        let kept: Vec<Option<Bytes>> = self.kept.iter().map(|name| arrivals.take(&names::kept(name))).collect();
        let means = self.means(kept)?;
        Ok((sums, means))
    }

    /// The means over all ranks of states that the model sets; without a batch, those of the previous step.
    fn means(&self, kept: Vec<Option<Bytes>>) -> Result<Vec<(String, HostTensor)>, TrainError> {
        let share = 1.0 / self.group.ranks() as f32;
        let held: Vec<_> = self.kept.iter().filter_map(|name| self.held.get_key_value(name)).collect();
        if held.is_empty() {
            return Ok(vec![]);
        }
        let after = |bytes: Bytes| bytemuck::pod_collect_to_vec(&bytes);
        let values = held.iter().zip(kept).map(|((_, before), kept)| kept.map_or_else(|| before.to_f32(), after));
        let mut all: Vec<f32> = values.flatten().map(|value| value * share).collect();
        self.group.all_reduce(&mut all)?;
        let mut rest = all.as_slice();
        let mean = |(name, before): (&String, &HostTensor)| {
            let (own, others) = rest.split_at(before.len());
            rest = others;
            Ok((name.clone(), HostTensor::f32(before.shape(), own)?))
        };
        held.into_iter().map(mean).collect()
    }
}

/// The row gradients of all ranks; rank `r` has `counts[r]` rows of shape `row`.
fn gathered(
    own: Bytes,
    counts: &[usize],
    row: &[usize],
    group: &dyn Collectives,
) -> Result<Vec<(usize, RunValue)>, TrainError> {
    let parts = group.all_gather(own)?;
    for (rank, (part, count)) in parts.iter().zip(counts).enumerate() {
        let (expected, actual) = (count * row.iter().product::<usize>() * size_of::<f32>(), part.len());
        if actual != expected {
            return Err(CollectiveError::Length { rank, expected: expected.to_string(), actual }.into());
        }
    }
    Ok(consecutive(&parts, row)?)
}

/// Parts with rows of shape `row`, with the first row of each.
fn consecutive(parts: &[Bytes], row: &[usize]) -> Result<Vec<(usize, RunValue)>, TensorSizeError> {
    let mut first = 0;
    let part = |bytes: &Bytes| {
        let rows = bytes.len() / (row.iter().product::<usize>() * size_of::<f32>()).max(1);
        let tensor = HostTensor::from_shared(DType::F32, [&[rows], row].concat(), Arc::new(bytes.clone()))?;
        first += rows;
        Ok((first - rows, RunValue::Host(tensor)))
    };
    parts.iter().map(part).collect()
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|cause| resume_unwind(cause))
}

/// The bytes of a tensor.
struct Content(HostTensor);

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Elements that a tensor shares.
struct Floats(Vec<f32>);

impl AsRef<[u8]> for Floats {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A tensor of these elements, without a copy.
pub(super) fn tensor(shape: Vec<usize>, values: Vec<f32>) -> Result<HostTensor, TensorSizeError> {
    HostTensor::from_shared(DType::F32, shape, Arc::new(Floats(values)))
}
