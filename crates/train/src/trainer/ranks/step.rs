//! A step of all ranks.

use super::Ranks;
use super::tables::RowGradients;
use crate::step::{gradient, names};
use crate::trainer::{Prepared, StepReport, TrainError, Trainer};
use rewire_distributed::{CollectiveError, all_gather_of};
use rewire_graph::{HostTensor, TensorSizeError};
use rewire_runtime::{Inputs, Outputs};

/// Sums over batches, weighted by their shares of the step.
struct Sums {
    /// Gradients of dense parameters, then reported values, concatenated.
    dense: Vec<f32>,
    /// Row gradients of each table.
    rows: Vec<RowGradients>,
}

impl Trainer {
    /// Runs one step together with all ranks, and returns its report.
    pub(in crate::trainer) fn step_of_ranks(
        &mut self,
        ranks: &mut Ranks,
        step: &Prepared,
    ) -> Result<StepReport, TrainError> {
        let rates = self.rates(step.epoch);
        let shares = ranks.shares(step)?;
        let sums = self.gradients_of_rank(ranks, step, &shares)?;
        let sums = ranks.summed(sums)?;
        let is_finite = ranks.update(&rates, self.config.is_last(self.steps, 0), &sums)?;
        self.steps += 1;
        let values = sums.dense.iter().skip(ranks.elements()).map(|value| f64::from(*value));
        let outputs = self.reported.iter().cloned().zip(values).collect();
        Ok(self.report_with(outputs, &rates, !is_finite))
    }

    /// Runs the batches of this rank, and sums their results.
    fn gradients_of_rank(&mut self, ranks: &mut Ranks, step: &Prepared, shares: &[f32]) -> Result<Sums, TrainError> {
        let dense = vec![0.0; ranks.elements() + self.reported.len()];
        let mut sums = Sums { dense, rows: vec![] };
        let mut common = ranks.parameters(self.config.grad_scaler.is_some())?;
        for table in &ranks.tables {
            let rows = step.rows(self.lookups.get(table.lookup));
            let (values, asked) = table.look_up(&rows, ranks.group.as_ref())?;
            common.push((names::rows(&table.name), HostTensor::f32(table.shape(rows.len()), &values)?));
            sums.rows.push(RowGradients { rows, asked, values: vec![0.0; values.len()] });
        }
        let (rank, count) = (ranks.group.rank(), ranks.group.ranks());
        for (chunk, inputs) in step.chunks.iter().zip(&step.batches) {
            let mut inputs = inputs.clone();
            for (name, tensor) in common.iter().map(|(name, tensor)| (name, tensor)).chain(&ranks.held) {
                inputs.insert(name, tensor.clone());
            }
            let seed = self.seed(chunk * count + rank, step.chunk_count * count);
            inputs.insert("seed", HostTensor::i64([], &[seed])?);
            self.fit(&inputs)?;
            let results = self.session.run(&inputs)?;
            let share = shares.get(*chunk).copied().unwrap_or(0.0);
            self.add(ranks, &mut sums, &results, share);
        }
        for (table, sum) in ranks.tables.iter().zip(&mut sums.rows) {
            let untrained = self.lookups.get(table.lookup).and_then(|lookup| lookup.untrained);
            let trained_of = |rows: &[u32]| {
                rows.partition_point(|row| untrained.is_none_or(|untrained| (*row as usize) < untrained))
            };
            let trained = trained_of(&sum.rows);
            sum.values.truncate(sum.values.len() / sum.rows.len().max(1) * trained);
            sum.rows.truncate(trained);
            for asked in &mut sum.asked {
                asked.truncate(trained_of(asked));
            }
        }
        Ok(sums)
    }

    /// Adds the results of a batch to `sums`, times its `share`.
    fn add(&self, ranks: &mut Ranks, sums: &mut Sums, results: &Outputs, share: f32) {
        let values = |name: &str| results.get(name).map(HostTensor::to_f32).unwrap_or_default();
        let dense = ranks.dense.iter().map(|dense| dense.gradient.as_str());
        let mut rest = sums.dense.as_mut_slice();
        for name in dense.chain(self.reported.iter().map(String::as_str)) {
            let values = values(name);
            let (own, others) = rest.split_at_mut(values.len().min(rest.len()));
            own.iter_mut().zip(values).for_each(|(sum, value)| *sum += share * value);
            rest = others;
        }
        debug_assert!(rest.is_empty(), "an output is missing");
        for (table, sum) in ranks.tables.iter().zip(&mut sums.rows) {
            let values = values(&gradient(&table.name));
            debug_assert_eq!(values.len(), sum.values.len(), "rows of `{}` are missing", table.name);
            sum.values.iter_mut().zip(values).for_each(|(sum, value)| *sum += share * value);
        }
        for name in &ranks.kept {
            ranks.held.extend(results.get(&names::kept(name)).map(|tensor| (name.clone(), tensor.clone())));
        }
    }
}

impl Ranks {
    /// Number of elements of the dense parameters.
    fn elements(&self) -> usize {
        self.dense.iter().map(|dense| dense.shape.iter().product::<usize>()).sum()
    }

    /// The dense parameters, and the loss scale if `is_scaled`: inputs of all batches of a step.
    fn parameters(&self, is_scaled: bool) -> Result<Vec<(String, HostTensor)>, TrainError> {
        let names = self.dense.iter().map(|dense| dense.name.as_str());
        let names = names.chain(is_scaled.then_some(names::SCALE));
        names.map(|name| Ok((name.to_owned(), self.update.state(name)?))).collect()
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

    /// The sums over all ranks; for tables, only for rows on this rank. Averages states that the model sets over the ranks.
    fn summed(&mut self, Sums { mut dense, rows }: Sums) -> Result<Sums, TrainError> {
        let count = dense.len();
        let share = 1.0 / self.group.ranks() as f32;
        let kept = self.kept.iter().filter_map(|name| self.held.get(name));
        dense.extend(kept.flat_map(HostTensor::to_f32).map(|value| value * share));
        self.group.all_reduce(&mut dense)?;
        let mut means = dense.split_off(count);
        for name in &self.kept {
            let Some(tensor) = self.held.get_mut(name) else { continue };
            let rest = means.split_off(tensor.len());
            *tensor = HostTensor::f32(tensor.shape(), &means)?;
            means = rest;
        }
        let tables = self.tables.iter().zip(&rows);
        let rows = tables.map(|(table, own)| table.sum(own, self.group.as_ref())).collect::<Result<_, _>>()?;
        Ok(Sums { dense, rows })
    }

    /// Updates parameters and the rows on this rank. Returns false if a gradient was not finite; nothing changes then.
    fn update(&mut self, rates: &[(String, f64)], is_last: bool, sums: &Sums) -> Result<bool, TrainError> {
        let mut inputs = Inputs::new();
        for (kind, rate) in rates {
            inputs.insert(names::rate(kind), HostTensor::vector(&[*rate as f32]));
        }
        inputs.insert(names::LAST, HostTensor::vector(&[if is_last { 1.0f32 } else { 0.0 }]));
        let mut rest = sums.dense.as_slice();
        for dense in &self.dense {
            let (own, others) = rest.split_at(dense.shape.iter().product());
            inputs.insert(&dense.gradient, HostTensor::f32(dense.shape.clone(), own)?);
            rest = others;
        }
        for (table, sum) in self.tables.iter().zip(&sums.rows) {
            inputs.insert(gradient(&table.name), HostTensor::f32(table.shape(sum.rows.len()), &sum.values)?);
            let before: Result<Vec<HostTensor>, TensorSizeError> = table.before(&sum.rows, self.group.as_ref());
            for (column, rows) in table.columns.iter().zip(before?) {
                inputs.insert(names::before(&column.state), rows);
            }
        }
        let results = self.update.run(&inputs)?;
        for (table, sum) in self.tables.iter_mut().zip(&sums.rows) {
            for column in 0..table.columns.len() {
                let after = results.get(&names::after(&table.columns[column].state)).map(HostTensor::to_f32);
                debug_assert!(after.is_some(), "rows of `{}` are missing", table.name);
                table.replace(column, &sum.rows, &after.unwrap_or_default(), self.group.as_ref())?;
            }
        }
        Ok(results.get(names::FINITE).is_none_or(|finite| finite.to_f32() != [0.0]))
    }
}
