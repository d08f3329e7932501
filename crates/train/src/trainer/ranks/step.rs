//! A step of all ranks.

use super::Ranks;
use super::exchange::{Merge, Sums, tensor};
use super::tables::RowGradients;
use crate::step::{ResidentTable, gradient, names};
use crate::trainer::{Prepared, StepReport, TrainError, Trainer};
use rewire_distributed::{CollectiveError, all_gather_of};
use rewire_graph::{HostTensor, TensorSizeError};
use rewire_runtime::{Inputs, Outputs, RunError, RunValue};
use std::time::Instant;

impl Trainer {
    /// Runs one step together with all ranks, and returns its report.
    pub(in crate::trainer) fn step_of_ranks(
        &mut self,
        ranks: &mut Ranks,
        step: &Prepared,
    ) -> Result<StepReport, TrainError> {
        let (rates, begun) = (self.rates(step.epoch), Instant::now());
        let shares = ranks.shares(step)?;
        let (results, looked_up) = self.gradients_of_rank(ranks, step, &shares)?;
        // Meanwhile, a device computes the gradients.
        let merge = |table: &ResidentTable| {
            let rows = step.rows(self.lookups.get(table.lookup));
            Merge::new(&rows, &table.merged, ranks.group.as_ref())
        };
        let merges = ranks.resident.iter().map(merge).collect::<Result<_, _>>()?;
        let looked_up_at = begun.elapsed();
        let sums = ranks.exchange((&mut self.session, &results), looked_up, merges)?;
        let reported = self.reported.iter().cloned().zip(sums.reported.iter().map(|value| f64::from(*value)));
        let outputs = reported.collect();
        let exchanged_at = begun.elapsed();
        let is_finite = ranks.update(&rates, self.config.is_last(self.steps, 0), sums)?;
        self.steps += 1;
        tracing::debug!(step = self.steps, ?looked_up_at, ?exchanged_at, ended_at = ?begun.elapsed(), "a step of ranks");
        Ok(self.report_with(outputs, &rates, !is_finite))
    }

    /// Runs the batches of this rank. Returns the results of the last one, which are sums over the batches, and the rows looked up
    /// in tables on the host.
    fn gradients_of_rank(
        &mut self,
        ranks: &mut Ranks,
        step: &Prepared,
        shares: &[f32],
    ) -> Result<(Outputs, Vec<RowGradients>), TrainError> {
        let mut common = ranks.parameters(self.config.grad_scaler.is_some())?;
        let held = ranks.held.iter().map(|(name, held)| (name.clone(), RunValue::Host(held.clone())));
        common.extend(held);
        let mut looked_up = vec![];
        for table in &ranks.tables {
            let lookup = self.lookups.get(table.lookup);
            let rows = step.rows(lookup);
            let (values, asked) = table.look_up(&rows, ranks.group.as_ref())?;
            let values = tensor(table.shape(rows.len()), values)?;
            common.push((names::rows(&table.name), RunValue::Host(values)));
            let own = RowGradients { rows, asked, values: vec![] };
            looked_up.push(lookup.map_or_else(RowGradients::default, |lookup| own.trained(lookup)));
        }
        let (rank, count) = (ranks.group.rank(), ranks.group.ranks());
        let exchanged = if self.session.gpu().is_some() { ranks.outputs() } else { vec![] };
        let mut results = Outputs::default();
        for (number, (chunk, inputs)) in step.chunks.iter().zip(&step.batches).enumerate() {
            let mut inputs = inputs.clone();
            inputs.extend(common.iter().cloned());
            inputs.extend(ranks.carried(&results));
            inputs.insert(names::SHARE, HostTensor::vector(&[shares.get(*chunk).copied().unwrap_or(0.0)]));
            let seed = self.seed(chunk * count + rank, step.chunk_count * count);
            inputs.insert("seed", HostTensor::i64([], &[seed])?);
            // The sums over all batches are the results of the last one.
            exchanged.iter().for_each(|name| match number + 1 == step.batches.len() {
                true => inputs.send(name),
                false => inputs.keep_on_device(name),
            });
            self.fit(&inputs)?;
            results = self.run(&inputs)?;
        }
        Ok((results, looked_up))
    }
}

impl Ranks {
    /// The dense parameters, the resident tables, and the loss scale if `is_scaled`: inputs of all batches of a step.
    fn parameters(&self, is_scaled: bool) -> Result<Vec<(String, RunValue)>, RunError> {
        let names = self.dense.iter().chain(self.resident.iter().map(|table| &table.name)).map(String::as_str);
        let names = names.chain(is_scaled.then_some(names::SCALE));
        names.map(|name| Ok((name.to_owned(), self.update.state_value(name)?))).collect()
    }

    /// The results of a batch that the next one reads; zeros for the first batch.
    fn carried(&self, results: &Outputs) -> Vec<(String, RunValue)> {
        if results.iter().next().is_none() {
            return self.zeros.clone();
        }
        let kept = self.kept.iter().map(|name| (name.clone(), names::kept(name)));
        let sums = self.outputs().into_iter().filter(|_| !self.zeros.is_empty()).map(|name| (name.clone(), name));
        let carried = kept.chain(sums).filter_map(|(to, name)| Some((to, results.value(&name)?.clone())));
        carried.collect()
    }

    /// The weight of this rank's batch in each chunk: its fraction of the chunk's examples, divided by the number of chunks.
    fn shares(&self, step: &Prepared) -> Result<Vec<f32>, TrainError> {
        let mut own = vec![0.0; step.chunk_count];
        for (chunk, batch) in step.chunks.iter().zip(&step.batches) {
            let examples = self.examples.as_ref().and_then(|name| batch.get(name)?.shape().first().copied());
            own.iter_mut().skip(*chunk).take(1).for_each(|own| *own = examples.unwrap_or(1) as f64);
        }
        let all = all_gather_of(self.group.as_ref(), &own)?;
        if let Some(rank) = all.iter().position(|other| other.len() != own.len()) {
            let (expected, actual) = ((own.len() * size_of::<f64>()).to_string(), all[rank].len() * size_of::<f64>());
            return Err(CollectiveError::Length { rank, expected, actual }.into());
        }
        let share = |(chunk, own): (usize, f64)| {
            let total: f64 = all.iter().filter_map(|other| other.get(chunk)).sum();
            if total > 0.0 { (own / total / step.chunk_count as f64) as f32 } else { 0.0 }
        };
        Ok(own.into_iter().enumerate().map(share).collect())
    }

    /// Updates parameters and the rows on this rank. Returns false if a gradient was not finite; nothing changes then.
    fn update(&mut self, rates: &[(String, f64)], is_last: bool, sums: Sums) -> Result<bool, TrainError> {
        let mut inputs = Inputs::new();
        for (kind, rate) in rates {
            inputs.insert(names::rate(kind), HostTensor::vector(&[*rate as f32]));
        }
        inputs.insert(names::LAST, HostTensor::vector(&[if is_last { 1.0f32 } else { 0.0 }]));
        inputs.extend(sums.inputs);
        let mut updated = vec![];
        for (table, RowGradients { rows, values, .. }) in self.tables.iter().zip(sums.rows) {
            inputs.insert(gradient(&table.name), tensor(table.shape(rows.len()), values)?);
            let before: Result<Vec<HostTensor>, TensorSizeError> = table.before(&rows, self.group.as_ref());
            for (column, rows) in table.columns.iter().zip(before?) {
                inputs.insert(names::before(&column.state), rows);
            }
            updated.push(rows);
        }
        let results = self.update.run(&inputs)?;
        for (table, rows) in self.tables.iter_mut().zip(&updated) {
            for column in 0..table.columns.len() {
                let after = results.get(&names::after(&table.columns[column].state)).map(HostTensor::to_f32);
                debug_assert!(after.is_some(), "rows of `{}` are missing", table.name);
                table.replace(column, rows, &after.unwrap_or_default(), self.group.as_ref())?;
            }
        }
        Ok(results.get(names::FINITE).is_none_or(|finite| finite.to_f32() != [0.0]))
    }
}
