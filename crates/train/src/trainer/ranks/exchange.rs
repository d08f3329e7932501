//! The exchange of gradients: one thread downloads them, a second one adds those of all ranks, and a third one uploads the sums.

use super::Ranks;
use super::tables::RowGradients;
use crate::step::{Lookup, names};
use crate::trainer::TrainError;
use rewire_distributed::{CollectiveError, Collectives, all_gather_of};
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_runtime::{DeviceTensor, Outputs, RunError, RunValue, Session};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ScopedJoinHandle};

/// Sums over all ranks, weighted by the shares of batches.
pub(super) struct Sums {
    /// Reported outputs.
    pub reported: Vec<f32>,
    /// Inputs of the update: sums of blocks, and row gradients of resident tables.
    pub inputs: Vec<(String, RunValue)>,
    /// Row gradients of tables on the host, for rows on this rank.
    pub rows: Vec<RowGradients>,
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

/// The results of a rank's batches, by position, as they arrive.
struct Arrivals {
    receiver: Receiver<(usize, Vec<f32>)>,
    early: BTreeMap<usize, Vec<f32>>,
}

impl Arrivals {
    /// Waits for a result; `None` if it does not arrive, because there is no batch or a download failed.
    fn next(&mut self, position: usize) -> Option<Vec<f32>> {
        while !self.early.contains_key(&position) {
            self.early.extend([self.receiver.recv().ok()?]);
        }
        self.early.remove(&position)
    }
}

impl Ranks {
    /// The outputs of a batch that ranks exchange, in the order of the exchange.
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
        let (names, ranks) = (self.outputs(), &*self);
        let (read, added, placed) = thread::scope(|scope| {
            let arrivals = Arrivals { receiver, early: BTreeMap::new() };
            let adding = scope.spawn(move || ranks.added(arrivals, looked_up, merges, &to_place));
            let sums = to_be_placed.into_iter().map(|sum| ranks.uploaded(sum));
            let placing = scope.spawn(move || sums.collect::<Result<Vec<_>, RunError>>());
            let read = read_each(session, results, &names, |position, bytes| {
                drop(sender.send((position, bytemuck::pod_collect_to_vec(bytes))));
            });
            drop(sender);
            (read, joined(adding), joined(placing))
        });
        read?;
        let ((mut sums, means), placed) = (added?, placed?);
        sums.inputs.extend(placed);
        self.held.extend(means);
        Ok(sums)
    }

    /// An input of the update, on the device if there is one.
    fn uploaded(&self, (name, sum): (String, HostTensor)) -> Result<(String, RunValue), RunError> {
        let Some(memory) = self.memory.get(&name) else { return Ok((name, self.placed(sum)?)) };
        self.update.overwrite(memory, &sum)?;
        Ok((name, RunValue::Device(memory.clone())))
    }

    /// Adds results over all ranks as they arrive, and passes large inputs of the update to `to_place`. Also returns the means of states
    /// that the model sets.
    fn added(
        &self,
        mut arrivals: Arrivals,
        looked_up: Vec<RowGradients>,
        merges: Vec<Merge>,
        to_place: &Sender<(String, HostTensor)>,
    ) -> Result<(Sums, Vec<(String, HostTensor)>), TrainError> {
        let group = self.group.as_ref();
        // If the other thread has failed, its error is returned.
        let place = |name: String, sum: HostTensor| drop(to_place.send((name, sum)));
        let mut sums = Sums { reported: vec![], inputs: vec![], rows: vec![] };
        let mut position = 0;
        let mut next = || (arrivals.next(position), position += 1).0;
        for (table, own) in self.tables.iter().zip(looked_up) {
            let values = next().unwrap_or_default();
            sums.rows.push(table.sum(&own.with(values, table.width()), group)?);
        }
        for (table, merge) in self.resident.iter().zip(merges) {
            let mut own = next().unwrap_or_default();
            own.truncate(merge.counts.get(group.rank()).map_or(0, |count| count * table.width));
            let gathered = gathered(&own, &merge.counts, table.width, group)?;
            place(names::gathered(&table.name), gathered);
            sums.inputs.extend(merge.inputs);
        }
        let kept: Vec<Option<Vec<f32>>> = self.kept.iter().map(|_| next()).collect();
        let means = self.means(kept)?;
        for (position, block) in self.blocks.iter().enumerate() {
            let mut values = next().unwrap_or_else(|| vec![0.0; block.len]);
            group.all_reduce(&mut values)?;
            if position == 0 {
                sums.reported = values[..self.reported.min(values.len())].to_vec();
            }
            place(names::sum(&names::block(position)), tensor(vec![block.len], values)?);
        }
        Ok((sums, means))
    }

    /// The means over all ranks of states that the model sets; without a batch, those of the previous step.
    fn means(&self, kept: Vec<Option<Vec<f32>>>) -> Result<Vec<(String, HostTensor)>, TrainError> {
        let share = 1.0 / self.group.ranks() as f32;
        let held: Vec<_> = self.kept.iter().filter_map(|name| self.held.get_key_value(name)).collect();
        let values = held.iter().zip(kept).map(|((_, before), after)| after.unwrap_or_else(|| before.to_f32()));
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

/// Passes the elements of results to `take`, with the positions of their names.
fn read_each(
    session: &mut Session,
    results: &Outputs,
    names: &[String],
    mut take: impl FnMut(usize, &[u8]),
) -> Result<(), RunError> {
    let mut on_device: Vec<(usize, DeviceTensor)> = vec![];
    for (position, name) in names.iter().enumerate() {
        match results.value(name) {
            Some(RunValue::Host(tensor)) => take(position, tensor.bytes()),
            Some(RunValue::Device(tensor)) => on_device.push((position, tensor.clone())),
            None => {}
        }
    }
    if on_device.is_empty() {
        return Ok(());
    }
    let (positions, tensors): (Vec<usize>, Vec<DeviceTensor>) = on_device.into_iter().unzip();
    session.read_each(&tensors, |at, bytes| take(positions[at], bytes))
}

/// The row gradients of all ranks, `[rows, width]`; rank `r` has `counts[r]` rows.
fn gathered(own: &[f32], counts: &[usize], width: usize, group: &dyn Collectives) -> Result<HostTensor, TrainError> {
    let parts = group.all_gather(bytemuck::cast_slice(own))?;
    for (rank, (part, count)) in parts.iter().zip(counts).enumerate() {
        let (expected, actual) = (count * width * size_of::<f32>(), part.len());
        if actual != expected {
            return Err(CollectiveError::Length { rank, expected: expected.to_string(), actual }.into());
        }
    }
    Ok(HostTensor::from_bytes(DType::F32, vec![counts.iter().sum(), width], parts.concat())?)
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|cause| resume_unwind(cause))
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
