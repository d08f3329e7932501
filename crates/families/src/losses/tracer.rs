//! Traces losses from predictions.

use super::SIMILARITY;
use super::extra::{ExtraLoss, Extras};
use super::labels::{LabelInputs, LabelKind, LabelRows};
use super::similarity::MatchMessage;
use super::tasks::{DataColumns, Indicator, Loss, Task, Weighting, tasks};
use crate::models::{Model, Predictions};
use rewire_features::Problems;
use rewire_graph::{DType, Dim, Mode, Tensor};
use rewire_losses as loss;
use serde_json::Value;

/// The losses traced so far, and their inputs.
pub(super) struct Tracer<'a> {
    model: Model<'a>,
    data: DataColumns,
    labels: LabelInputs,
    losses: Predictions,
    /// Sample weights `[B]`, for models with one task.
    weights: Option<Tensor>,
}

impl<'a> Tracer<'a> {
    pub fn new(model: Model<'a>, config: &Value) -> Self {
        let steps = model.features.group("candidate").filter(|_| model.kind.ends_with("_hstu"));
        let rows = match steps.and_then(|group| group.feature_names.first()) {
            Some(feature) => LabelRows::Steps { feature: feature.clone() },
            None => LabelRows::Batch,
        };
        let data = DataColumns::new(config);
        Self { model, data, labels: LabelInputs::new(rows), losses: vec![], weights: None }
    }

    pub fn finish(self) -> (LabelInputs, Predictions) {
        (self.labels, self.losses)
    }

    /// Adds the loss of a match model. Its similarities become an output.
    pub fn of_match(&mut self, message: &MatchMessage, outputs: &mut Predictions) -> Result<(), Problems> {
        let scope = self.model.scope;
        let name = "softmax_cross_entropy";
        let losses = self.model.list("losses");
        if losses.len() != 1 || losses.iter().any(|loss| loss.get(name).is_none()) {
            return Err(self.model.problem("", format!("must have one loss in `/model_config/losses`, `{name}`")));
        }
        let logits = message.logits(&self.model, outputs)?;
        let rows = logits.cross_entropy();
        self.weights = match self.data.sample_weights.first() {
            Some(column) => {
                let weights = self.labels.sample_weight(scope, column, &scope.size("batch"));
                Some(match self.model.kind {
                    "hstu_match" => weights.jagged_broadcast(&LabelInputs::positives(scope)),
                    _ => weights,
                })
            }
            None => None,
        };
        self.losses.push((name.to_owned(), loss::mean(scope, &rows, self.weights.as_ref())));
        if scope.mode() == Mode::Eval {
            outputs.push((SIMILARITY.to_owned(), logits.columns(scope)));
        }
        Ok(())
    }

    /// Adds the losses of all tasks of a ranking model.
    pub fn of_tasks(&mut self, outputs: &mut Predictions) -> Result<Vec<Task>, Problems> {
        let all = tasks(&self.model, &self.data)?;
        let is_training = self.model.scope.mode() == Mode::Train;
        let mut predictions = self.of_domains(outputs)?;
        if !is_training {
            let new = |(name, _): &&(String, Tensor)| outputs.iter().all(|(known, _)| known != name);
            let selected: Predictions = predictions.iter().filter(new).cloned().collect();
            outputs.extend(selected);
        }
        predictions.extend(outputs.iter().cloned());
        for task in all.iter().filter(|task| is_training || !task.is_training_only) {
            self.of_task(task, &predictions)?;
        }
        Ok(all)
    }

    /// The predictions for each row's domain, for models with one tower per domain.
    fn of_domains(&mut self, outputs: &Predictions) -> Result<Predictions, Problems> {
        let message = self.model.message;
        let Some(column) = message.get("domain_input_name").and_then(Value::as_str) else { return Ok(vec![]) };
        let count = message.get("task_domain_num").and_then(Value::as_u64).unwrap_or(1) as usize;
        let scope = self.model.scope;
        let domain = self.labels.label(scope, column, LabelKind::Class(count), &scope.size("batch"));
        let mut selected = vec![];
        for (first, x) in outputs {
            let Some(name) = first.strip_suffix("_0") else { continue };
            let one = std::iter::repeat_n(Dim::from(1), x.rank().saturating_sub(1));
            let domain = domain.reshape(std::iter::once(domain.dim(0)).chain(one).collect::<Vec<_>>());
            let of = |index: usize| outputs.iter().find(|(known, _)| *known == format!("{name}_{index}"));
            let mut all = x.clone();
            for index in 1..count {
                let (_, other) = of(index).ok_or_else(|| self.model.problem("", format!("has no `{name}_{index}`")))?;
                all = domain.equal(index as i64).select(other, &all);
            }
            selected.push((name.to_owned(), all));
        }
        Ok(selected)
    }

    fn of_task(&mut self, task: &Task, predictions: &Predictions) -> Result<(), Problems> {
        let scope = self.model.scope;
        for (term, name) in task.terms.iter().zip(&task.losses) {
            let kind = if matches!(term, Loss::L2(_)) { "y" } else { "logits" };
            let key = format!("{kind}{}", task.suffix);
            let found = predictions.iter().find(|(known, _)| *known == key);
            let (_, x) = found.ok_or_else(|| self.model.problem("", format!("predicts no `{key}`")))?;
            let rows = x.dim(0);
            let label = self.label(task, term.labels(task.num_class), &rows);
            let losses = match term {
                Loss::BinaryCrossEntropy(of) => {
                    loss::binary_cross_entropy(x, &loss::smooth_labels(&label, of.label_smoothing))
                }
                Loss::BinaryFocal(of) => loss::binary_focal(x, &label, of.gamma, of.alpha),
                Loss::L2(_) => loss::squared_error(x, &label),
                Loss::SoftmaxCrossEntropy(of) => loss::cross_entropy(scope, x, &label, of.label_smoothing),
                Loss::Jrc(of) => {
                    let sessions = self.labels.session(scope, &of.session_name, &rows);
                    loss::joint_ranking_calibration(scope, x, &label, &sessions, of.alpha)
                }
            };
            let weights = self.weights(&task.weighting, &rows);
            let mean = loss::mean(scope, &losses, weights.as_ref());
            let weight = task.weighting.weight;
            self.losses.push((name.clone(), if weight == 1.0 { mean } else { mean * weight }));
            self.weights = weights;
        }
        Ok(())
    }

    /// The labels of a task in the type that the loss needs.
    fn label(&mut self, task: &Task, kind: LabelKind, rows: &Dim) -> Tensor {
        let scope = self.model.scope;
        let Some(mask) = task.bitmask else { return self.labels.label(scope, &task.label, kind, rows) };
        let bits = self.labels.label(scope, &task.label, LabelKind::Bits, rows);
        let is_set = bits.and(scope.scalar(DType::I64, mask)).not_equal(0);
        match kind {
            LabelKind::Class(_) | LabelKind::Bits => {
                is_set.select(&scope.scalar(DType::I64, 1), &scope.scalar(DType::I64, 0))
            }
            LabelKind::Probability | LabelKind::Number => is_set.cast(DType::F32),
        }
    }

    /// Sample weights of a task `[rows]`; `None` if all are equal.
    fn weights(&mut self, weighting: &Weighting, rows: &Dim) -> Option<Tensor> {
        let scope = self.model.scope;
        let sample = weighting.sample_weight.as_ref().map(|column| self.labels.sample_weight(scope, column, rows));
        let space = weighting.indicator.as_ref().map(|Indicator { label, inside, outside }| {
            let is_inside = self.labels.label(scope, label, LabelKind::Number, rows).gt(0.0);
            let [inside, outside] = [inside, outside].map(|&weight| scope.scalar(DType::F32, weight));
            is_inside.select(&inside, &outside)
        });
        match (sample, space) {
            (Some(sample), Some(space)) => Some(sample * space),
            (sample, space) => sample.or(space),
        }
    }

    /// Adds the losses that modules collected.
    pub fn of_modules(&mut self, extra: &Extras) {
        for ExtraLoss { name, value, reduce } in extra.take_losses() {
            let reduced = reduce(self.model.scope, &value, self.weights.as_ref());
            self.losses.push((name, reduced));
        }
    }
}
