use super::gradients::{Gradients, gradient};
use super::{Initial, KeptMoment, Lookup, State, StepError, StepGraph, names};
use crate::{LossScale, Moment, Optimizer, TrainConfig};
use rewire_graph::{DType, Dim, Scope, Tensor, Type};
use std::collections::BTreeMap;

/// Maximum number of elements of a small parameter. Launching a kernel for one costs more than its work.
const SMALL: usize = 1024;

/// Maximum number of steps until losses are read.
pub(crate) const LATEST: usize = 16;

/// Adds the optimizers' updates to the graph of `gradients`.
pub(super) fn step(
    mut gradients: Gradients,
    config: &TrainConfig,
    loss: &str,
    reported: Vec<String>,
) -> Result<StepGraph, StepError> {
    let (scope, outputs) = Scope::resume(&gradients.graph);
    let loss = outputs.get(loss).cloned().ok_or(StepError::Nothing)?;
    let mut update =
        Update { scope, outputs, loss, config, states: BTreeMap::new(), moments: vec![], row_sums: BTreeMap::new() };
    let table = |(name, at): (&String, &Option<usize>)| {
        let lookup = gradients.lookups.get((*at)?)?;
        let width = update.outputs.get(&gradient(name))?.shape().get(1..)?.to_vec();
        let shape = std::iter::once(Dim::from(lookup.table_rows)).chain(width).collect();
        Some((name.clone(), Table { shape, lookup: Some(lookup.clone()) }))
    };
    let tables = gradients.parameters.iter().filter_map(table).collect();
    update.apply(&mut gradients.parameters, &tables)?;
    let reported = update.report(reported);
    let Update { scope, mut outputs, states, moments, row_sums, .. } = update;
    let own_states = gradients.graph.states();
    outputs.retain(|name, _| own_states.contains(name) || row_sums.keys().any(|table| names::sum(table) == *name));
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let graph = scope.finish(&named)?;
    let tables = gradients.parameters.into_iter().filter_map(|(name, table)| Some((name, table?))).collect();
    Ok(StepGraph {
        graph,
        indices: gradients.indices,
        lookups: gradients.lookups,
        states,
        moments,
        reported,
        tables,
        row_sums,
    })
}

pub(super) struct Update<'a> {
    pub scope: Scope,
    pub outputs: BTreeMap<String, Tensor>,
    pub loss: Tensor,
    pub config: &'a TrainConfig,
    pub states: BTreeMap<String, State>,
    pub moments: Vec<KeptMoment>,
    pub row_sums: BTreeMap<String, Type>,
}

/// A table that an update changes.
pub(super) struct Table {
    pub shape: Vec<Dim>,
    /// The lookup of the rows to update in place. `None` if rows are inputs and outputs.
    pub lookup: Option<Lookup>,
}

/// The optimizer of a kind of parameters, with its rate and shared states.
struct Kind {
    optimizer: Optimizer,
    rate: Tensor,
    shared: Vec<Tensor>,
}

/// A dense parameter as a range of a vector.
struct Part {
    name: String,
    gradient: Tensor,
    /// Its offset in elements.
    start: usize,
    count: usize,
}

/// Conditions for a step to update states; `None` is true.
#[derive(Clone)]
struct Gate {
    /// True for the last batch of a step.
    last: Option<Tensor>,
    /// True if all gradients are finite.
    finite: Option<Tensor>,
}

impl Gate {
    /// `after` if all conditions hold, else `before`.
    fn choose(gate: Option<&Self>, before: &Tensor, after: &Tensor) -> Tensor {
        let conditions = gate.into_iter().flat_map(|gate| gate.last.iter().chain(&gate.finite));
        let chosen = conditions.fold(after.clone(), |chosen, condition| condition.select(&chosen, before));
        // Conditions are `[1]`, and scalars combined with them become `[1]` as well.
        chosen.reshape(before.shape())
    }
}

impl Update<'_> {
    /// Adds the optimizers' updates of all `parameters`; `tables` has the tables among them.
    pub fn apply(
        &mut self,
        parameters: &mut BTreeMap<String, Option<usize>>,
        tables: &BTreeMap<String, Table>,
    ) -> Result<(), StepError> {
        let vectors = self.joined(parameters);
        let sums = self.sums(parameters);
        let gate = self.gate(&sums);
        let factor = self.unscaled();
        let unscaled = |sum: &Tensor, factor: &Tensor| (sum * factor).reshape(sum.shape());
        let scaled =
            sums.into_iter().map(|(name, sum)| (name, factor.as_ref().map_or(sum.clone(), |by| unscaled(&sum, by))));
        let (dense, sparse): (Vec<_>, Vec<_>) =
            scaled.partition(|(name, _)| parameters.get(name).is_some_and(Option::is_none));
        self.dense(&vectors, &dense, gate.as_ref())?;
        let is_fused = self.config.fused_tables;
        let of_tables =
            gate.as_ref().map(|gate| Gate { last: gate.last.clone().filter(|_| !is_fused), ..gate.clone() });
        self.sparse(&sparse, tables, of_tables.as_ref())?;
        self.scaler(gate.as_ref());
        Ok(())
    }

    /// Declares a state of type `F32`.
    fn state(&mut self, name: &str, shape: &[Dim], initial: Initial) -> Tensor {
        let extents = shape.iter().filter_map(Dim::as_const).collect();
        self.states.insert(name.to_owned(), State { shape: extents, initial });
        self.scope.state(name, DType::F32, shape)
    }

    /// Joins the gradients of small dense parameters to one vector, which is updated at once. Returns the parameters of each vector. Large
    /// parameters are separate, so that their update is fused into the kernel of the gradient.
    fn joined(&mut self, parameters: &mut BTreeMap<String, Option<usize>>) -> BTreeMap<String, Vec<Part>> {
        let mut vectors: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        let kinds = self.config.dense_optimizers();
        let mut lengths = vec![0; kinds.len()];
        for name in parameters.iter().filter(|(_, table)| table.is_none()).map(|(name, _)| name) {
            let Some(own) = self.outputs.remove(&gradient(name)) else { continue };
            let extents: Vec<usize> = own.shape().iter().filter_map(Dim::as_const).collect();
            let count: usize = extents.iter().product();
            let optimizer = self.config.dense_optimizer_of(name);
            let (vector, start) = match (kinds.get(optimizer), lengths.get_mut(optimizer)) {
                (Some((kind, _)), Some(length)) if count <= SMALL => {
                    *length += count;
                    (names::small(kind), *length - count)
                }
                _ => (name.clone(), 0),
            };
            let parts = vectors.entry(vector).or_default();
            parts.push(Part { name: name.clone(), gradient: own, start, count });
        }
        parameters.retain(|_, table| table.is_some());
        for (name, parts) in &vectors {
            let joined = self.joined_vector(parts.iter().map(|part| &part.gradient));
            self.outputs.insert(gradient(name), joined);
            parameters.insert(name.clone(), None);
        }
        vectors
    }

    /// Concatenates all elements of tensors.
    fn joined_vector<'t>(&self, tensors: impl Iterator<Item = &'t Tensor>) -> Tensor {
        let flat: Vec<Tensor> = tensors.filter_map(flat).collect();
        self.scope.concat(&flat.iter().collect::<Vec<_>>(), 0)
    }

    /// The gradients accumulated over the batches of a step so far, by parameter.
    fn sums(&mut self, parameters: &BTreeMap<String, Option<usize>>) -> Vec<(String, Tensor)> {
        let is_summed = self.config.gradient_accumulation_steps.get() > 1;
        let is_fused = self.config.fused_tables;
        let mut sums = vec![];
        for (name, table) in parameters {
            let Some(own) = self.outputs.get(&gradient(name)).cloned() else { continue };
            let sum = match (is_summed, table) {
                (false, _) => own,
                (true, Some(_)) if is_fused => own,
                (true, None) => {
                    let before = match is_fused {
                        true => self.state(&names::sum(name), own.shape(), Initial::Constant(0.0)),
                        // Between steps it is zero.
                        false => self.scope.state(&names::sum(name), DType::F32, own.shape()),
                    };
                    let sum = before + own;
                    let zero = self.scope.scalar(DType::F32, 0.0);
                    let kept = self.last().select(&zero, &sum).reshape(sum.shape());
                    self.scope.set_state(&names::sum(name), &kept);
                    sum
                }
                (true, Some(_)) => {
                    let sum = self.scope.input(&names::sum(name), DType::F32, own.shape()) + own;
                    self.row_sums.insert(name.clone(), sum.ty().clone());
                    self.outputs.insert(names::sum(name), sum.clone());
                    sum
                }
            };
            sums.push((name.clone(), sum));
        }
        sums
    }

    /// True in the last batch of a step.
    fn last(&self) -> Tensor {
        self.scope.input(names::LAST, DType::F32, [1]).gt(0.5)
    }

    fn gate(&mut self, sums: &[(String, Tensor)]) -> Option<Gate> {
        let last = (self.config.gradient_accumulation_steps.get() > 1).then(|| self.last());
        let finite = self.config.grad_scaler.map(|_| {
            let largest = sums.iter().filter_map(|(_, sum)| Some(flat(sum)?.abs().max(0)));
            let all = largest.reduce(|a, b| a.maximum(&b)).unwrap_or_else(|| self.scope.scalar(DType::F32, 0.0));
            let finite = all.le(f64::from(f32::MAX)).reshape([1]);
            self.outputs.insert(names::FINITE.to_owned(), finite.cast(DType::F32));
            finite
        });
        (last.is_some() || finite.is_some()).then_some(Gate { last, finite })
    }

    /// The factor from accumulated, scaled gradients to mean gradients of the loss; `None` if it is 1.
    fn unscaled(&mut self) -> Option<Tensor> {
        let batches = self.config.gradient_accumulation_steps.get() as f64;
        match self.config.grad_scaler {
            Some(scaler) => Some((1.0 / batches) / self.scale(scaler.init_scale)),
            None if batches > 1.0 => Some(self.scope.scalar(DType::F32, 1.0 / batches)),
            None => None,
        }
    }

    /// The scale of the loss.
    fn scale(&mut self, initial: f64) -> Tensor {
        let loss = self.loss.clone();
        self.state(names::SCALE, loss.shape(), Initial::Constant(initial as f32)).reshape([1])
    }

    /// Declares the learning rate and shared states of an optimizer.
    fn kind(&mut self, kind: &str, optimizer: Optimizer, gate: Option<&Gate>) -> Kind {
        let rate = self.scope.input(&names::rate(kind), DType::F32, [1]);
        let shared = self.shared(kind, &optimizer, gate);
        Kind { optimizer, rate, shared }
    }

    /// Declares an optimizer's shared states, and returns them advanced by this step.
    fn shared(&mut self, kind: &str, optimizer: &Optimizer, gate: Option<&Gate>) -> Vec<Tensor> {
        let before: Vec<(String, Tensor)> = optimizer
            .shared()
            .into_iter()
            .map(|kept| {
                let name = names::shared(kept.name, kind);
                let value = self.state(&name, &[1.into()], Initial::Constant(kept.initial));
                (name, value)
            })
            .collect();
        let values: Vec<Tensor> = before.iter().map(|(_, value)| value.clone()).collect();
        let after = optimizer.advance(&values);
        for ((name, before), after) in before.iter().zip(&after) {
            self.scope.set_state(name, &Gate::choose(gate, before, after));
        }
        after
    }

    /// Records the location of a parameter's moment: in the vector that contains the parameter, from `start` on.
    fn keep(&mut self, moment: &Moment, (vector, start): (&str, usize), parameter: &str, shape: Vec<usize>) {
        let (state, parameter, moment) = (names::moment(moment.name, vector), parameter.to_owned(), moment.name);
        self.moments.push(KeptMoment { state, parameter, moment, start, shape });
    }

    /// Declares the state of a moment.
    fn moment(&mut self, moment: Moment, parameter: &str, shape: &[Dim]) -> (String, Tensor) {
        let name = names::moment(moment.name, parameter);
        let shape = shape.split_last().map_or(shape, |(_, rows)| if moment.rows { rows } else { shape });
        let value = self.state(&name, shape, Initial::Constant(moment.initial));
        (name, value)
    }

    /// Declares the state that is 0 in the first step, which sets averages to the parameters, and 1 later.
    fn averages_began(&mut self, gate: Option<&Gate>) -> Tensor {
        let began = self.state(names::AVERAGES_BEGAN, &[1.into()], Initial::Constant(0.0));
        let one = self.scope.scalar(DType::F32, 1.0).broadcast([1]);
        self.scope.set_state(names::AVERAGES_BEGAN, &Gate::choose(gate, &began, &one));
        began
    }

    fn dense(
        &mut self,
        vectors: &BTreeMap<String, Vec<Part>>,
        gradients: &[(String, Tensor)],
        gate: Option<&Gate>,
    ) -> Result<(), StepError> {
        let mut optimizers = vec![];
        for (index, (kind, scheduled)) in self.config.dense_optimizers().into_iter().enumerate() {
            let mut parts = vectors.values().filter_map(|parts| parts.first());
            let is_used = parts.any(|part| self.config.dense_optimizer_of(&part.name) == index);
            optimizers.push(if is_used { Some(self.kind(&kind, scheduled.build()?, gate)) } else { None });
        }
        let plain: Vec<Tensor> = gradients.iter().map(|(_, gradient)| gradient.clone()).collect();
        let began = self.config.ema.map(|_| self.averages_began(gate));
        let clipped = self.config.grad_clipping.apply(&plain);
        for ((vector, _), gradient) in gradients.iter().zip(&clipped) {
            let parts = vectors.get(vector).map_or(&[][..], Vec::as_slice);
            let found = parts.first().map(|part| self.config.dense_optimizer_of(&part.name));
            let Some(Some(Kind { optimizer, rate, shared })) = found.and_then(|index| optimizers.get(index)) else {
                continue;
            };
            let own = parts
                .iter()
                .map(|part| self.state(&part.name, part.gradient.shape(), Initial::Parameter(part.name.clone())));
            let parameters: Vec<Tensor> = own.collect();
            for (moment, part) in
                optimizer.moments().iter().flat_map(|moment| parts.iter().map(move |part| (moment, part)))
            {
                let shape = part.gradient.shape().iter().filter_map(Dim::as_const).collect();
                self.keep(moment, (vector, part.start), &part.name, shape);
            }
            let kept = optimizer.moments().into_iter().map(|moment| self.moment(moment, vector, gradient.shape()));
            let (moments, before): (Vec<String>, Vec<Tensor>) = kept.unzip();
            let whole = || self.joined_vector(parameters.iter());
            let Some(direction) = optimizer.direction(shared, whole, gradient, &before) else { continue };
            for ((name, before), after) in moments.iter().zip(&before).zip(&direction.moments) {
                self.scope.set_state(name, &Gate::choose(gate, before, after));
            }
            for (part, parameter) in parts.iter().zip(&parameters) {
                let step = direction.step.slice(0, part.start, part.count).reshape(parameter.shape());
                let changed = Gate::choose(gate, parameter, &optimizer.moved(rate, parameter, &step));
                self.scope.set_state(&part.name, &changed);
                self.average(&part.name, &changed, began.as_ref(), gate);
            }
        }
        Ok(())
    }

    /// Updates the average of a parameter.
    fn average(&mut self, name: &str, changed: &Tensor, began: Option<&Tensor>, gate: Option<&Gate>) {
        let Some((ema, began)) = self.config.ema.zip(began) else { return };
        let average = self.state(&names::average(name), changed.shape(), Initial::Parameter(name.to_owned()));
        let next = began.gt(0.5).select(&(&average * ema.decay + changed * (1.0 - ema.decay)), changed);
        let next = Gate::choose(gate, &average, &next.reshape(average.shape()));
        self.scope.set_state(&names::average(name), &next);
    }

    fn sparse(
        &mut self,
        sums: &[(String, Tensor)],
        tables: &BTreeMap<String, Table>,
        gate: Option<&Gate>,
    ) -> Result<(), StepError> {
        if sums.is_empty() {
            return Ok(());
        }
        let optimizer = self.config.sparse_optimizer.build()?;
        let Kind { optimizer, rate, shared } = self.kind(names::SPARSE, optimizer, gate);
        for (name, gradient) in sums {
            let Some(Table { shape, lookup }) = tables.get(name) else { continue };
            let rows = lookup.as_ref().map(|lookup| lookup.traced_rows(&self.scope, &gradient.dim(0)));
            for moment in optimizer.moments() {
                let extents: Vec<usize> = shape.iter().filter_map(Dim::as_const).collect();
                let rows = extents.iter().take(1).copied().collect();
                self.keep(&moment, (name, 0), name, if moment.rows { rows } else { extents });
            }
            let own = (name.clone(), shape.clone(), Initial::Parameter(name.clone()));
            let moments = optimizer.moments().into_iter().map(|moment| {
                let rows = shape.split_last().map_or(&shape[..], |(_, rows)| if moment.rows { rows } else { shape });
                (names::moment(moment.name, name), rows.to_vec(), Initial::Constant(moment.initial))
            });
            let states: Vec<_> = std::iter::once(own).chain(moments).collect();
            let read = |(name, shape, initial): &(String, Vec<Dim>, Initial)| match &rows {
                Some(rows) => self.state(name, shape, initial.clone()).gather(rows),
                None => self.handed(name, shape, initial.clone(), &gradient.dim(0)),
            };
            let before: Vec<Tensor> = states.iter().map(read).collect();
            let Some((table, moments)) = before.split_first() else { continue };
            let after = optimizer.update(&rate, &shared, table, gradient, moments);
            let after = std::iter::once(&after.parameter).chain(&after.moments);
            for ((name, _, _), (before, after)) in states.iter().zip(before.iter().zip(after)) {
                let changed = Gate::choose(gate, before, after);
                match &rows {
                    Some(rows) => self.scope.set_state_rows(name, rows, &changed),
                    None => drop(self.outputs.insert(names::after(name), changed)),
                }
            }
        }
        Ok(())
    }

    /// Declares an input with `count` rows of a state, which the caller stores.
    fn handed(&mut self, name: &str, shape: &[Dim], initial: Initial, count: &Dim) -> Tensor {
        let extents = shape.iter().filter_map(Dim::as_const).collect();
        self.states.insert(name.to_owned(), State { shape: extents, initial });
        let rows: Vec<Dim> = std::iter::once(count).chain(&shape[1..]).cloned().collect();
        self.scope.input(&names::before(name), DType::F32, rows)
    }

    /// Writes the reported outputs of a batch to its row of [`names::REPORTED`]. Returns the names of the columns.
    fn report(&mut self, mut reported: Vec<String>) -> Vec<String> {
        reported.extend(self.outputs.contains_key(names::FINITE).then(|| names::FINITE.to_owned()));
        let columns: Vec<Tensor> =
            reported.iter().filter_map(|name| Some(self.outputs.get(name)?.cast(DType::F32).reshape([1, 1]))).collect();
        let row = self.scope.input(names::ROW, DType::U32, [1]);
        self.scope.state(names::REPORTED, DType::F32, [reported_rows(self.config), columns.len()]);
        let values = self.scope.concat(&columns.iter().collect::<Vec<_>>(), 1);
        self.scope.set_state_rows(names::REPORTED, &row, &values);
        reported
    }

    fn scaler(&mut self, gate: Option<&Gate>) {
        let Some((scaler, finite)) = self.config.grad_scaler.zip(gate.and_then(|gate| gate.finite.clone())) else {
            return;
        };
        let scale = self.scale(scaler.init_scale);
        let growth = self.state(names::GROWTH, &[1.into()], Initial::Constant(0.0));
        let after =
            scaler.advance(&finite.cast(DType::F32), &LossScale { scale: scale.clone(), growth: growth.clone() });
        let last = Gate { last: gate.and_then(|gate| gate.last.clone()), finite: None };
        let [scaled, grown] =
            [(&scale, &after.scale), (&growth, &after.growth)].map(|(a, b)| Gate::choose(Some(&last), a, b));
        self.scope.set_state(names::SCALE, &scaled.reshape(self.loss.shape()));
        self.scope.set_state(names::GROWTH, &grown);
    }
}

/// Maximum number of batches whose losses are buffered on the device.
pub(crate) fn reported_rows(config: &TrainConfig) -> usize {
    LATEST.saturating_mul(config.step_batches())
}

/// Flattens a tensor; `None` if its size is not a valid dimension.
pub(super) fn flat(x: &Tensor) -> Option<Tensor> {
    let count = x.shape().iter().try_fold(Dim::from(1), |count, extent| count.product(extent))?;
    Some(x.reshape([count]))
}
