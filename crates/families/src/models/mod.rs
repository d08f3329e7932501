//! The model families: each maps the groups of a pipeline to its predictions.

mod crosses;
mod matching;
mod mind;
mod multi_task;
mod pepnet;
mod rank;
mod rocket;
mod sequences;

use crate::losses::{Extras, whole};
use crate::modules::{beside, encode};
use crate::trace::problem;
use rewire_features::{Features, Group, Part, Problem, Problems, SequenceSteps, read};
use rewire_graph::{DType, Dim, HostTensor, Mode, Scope, Tensor, TypeError};
use rewire_hstu::modules::linear;
use rewire_hstu::pipeline::prediction;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use matching::{SHORTEST, Similarity};

/// The module that contains the tables of most models.
const EMBEDDINGS: &str = "embedding_group";

/// The temperature of variational dropout's random logits.
const CONCRETE_TEMPERATURE: f64 = 0.1;

/// Predictions by name.
pub(crate) type Predictions = Vec<(String, Tensor)>;

/// A model of a configuration.
#[derive(Clone, Copy)]
pub(crate) struct Model<'a> {
    pub scope: &'a Scope,
    pub features: &'a Features,
    /// `model_config`
    pub config: &'a Value,
    /// The key of the model in `model_config`.
    pub kind: &'a str,
    /// The message of the model.
    pub message: &'a Value,
    /// The prefix of input names.
    pub prefix: &'a str,
    /// Prefix of item input names, for match models.
    pub items: &'a str,
    /// Collects losses and buffers of modules; `None` to skip them.
    pub extra: Option<&'a Extras>,
}

/// A DEEP or WIDE group.
pub(crate) struct Dense {
    /// The columns of every feature, followed by those of every encoder.
    pub parts: Vec<Tensor>,
    /// All columns, `[B, W]`.
    pub values: Tensor,
}

/// The predictions of a model.
pub(crate) fn predictions(model: &Model<'_>) -> Result<Predictions, Problems> {
    match model.kind {
        "wide_and_deep" => rank::wide_and_deep(model),
        "deepfm" => rank::deepfm(model),
        "dlrm" => rank::dlrm(model),
        "mask_net" => rank::mask_net(model),
        "wukong" => rank::wukong(model),
        "xdeepfm" => rank::xdeepfm(model),
        "rocket_launching" => rocket::rocket_launching(model),
        "dcn_v1" => crosses::dcn_v1(model),
        "dcn_v2" => crosses::dcn_v2(model),
        "multi_tower" | "multi_tower_din" => sequences::multi_tower(model),
        "tdm" => sequences::tdm(model),
        "simple_multi_task" => multi_task::simple(model),
        "mmoe" => multi_task::mmoe(model),
        "ple" => multi_task::ple(model),
        "dbmtl" | "dc2vr" => multi_task::dbmtl(model),
        "pepnet" => pepnet::pepnet(model),
        "dssm" | "dssm_v2" | "dat" => matching::two_towers(model),
        "mind" => mind::mind(model),
        other => {
            Err(Problems(vec![Problem::new(model.pointer(), format!("`{other}` is not a model that is supported"))]))
        }
    }
}

impl<'a> Model<'a> {
    pub fn pointer(&self) -> String {
        format!("/model_config/{}", self.kind)
    }

    /// True for match models, whose predictions are embeddings.
    pub fn is_match(&self) -> bool {
        matches!(self.kind, "dssm" | "dssm_v2" | "dat" | "mind" | "hstu_match")
    }

    /// Parses the message of the model.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Problems> {
        let mut problems = Problems::default();
        let message = read(self.message, &self.pointer(), &mut problems);
        problems.none_or(())?;
        message.ok_or_else(Problems::default)
    }

    /// An invalid key of the model.
    pub fn problem(&self, key: &str, reason: impl Into<String>) -> Problems {
        Problems(vec![Problem::new(format!("{}{key}", self.pointer()), reason)])
    }

    /// The same model reading the inputs of items.
    pub fn of_items(&self) -> Self {
        Self { prefix: self.items, ..*self }
    }

    /// A repeated message of `model_config`; empty if the key is missing.
    pub fn list(&self, key: &str) -> Vec<Value> {
        self.config.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    }

    pub fn num_class(&self) -> usize {
        let count = self.config.get("num_class").and_then(Value::as_u64);
        count.and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
    }

    /// The name of the first group.
    pub fn first_group(&self) -> Result<&'a str, Problems> {
        let first = self.features.groups.first();
        let missing = || Problems(vec![Problem::new("/model_config/feature_groups", "must have at least one group")]);
        first.map(|group| group.group_name.as_str()).ok_or_else(missing)
    }

    /// A DEEP or WIDE group, with the tables of the model's default module.
    pub fn dense(&self, name: &str) -> Result<Dense, Problems> {
        self.dense_in(self.scope, name)
    }

    /// A DEEP or WIDE group, with tables in the `embedding_group` of the scope's module.
    pub fn dense_in(&self, scope: &Scope, name: &str) -> Result<Dense, Problems> {
        let group = scope
            .module(EMBEDDINGS, |scope| self.features.trace_of(scope, self.prefix, name))
            .map_err(|p| Problems(vec![p]))?;
        let parts = match group {
            Group::Dense { parts, sequences, encoders } => {
                let mut parts: Vec<Tensor> = parts.into_iter().map(|part| part.values).collect();
                for (index, (pointer, encoder)) in encoders.iter().enumerate() {
                    let module = format!("{EMBEDDINGS}._group_name_to_seq_encoders.{name}.{index}");
                    let windows = encoder.pointer("/multi_window_din_encoder/windows_len").and_then(Value::as_array);
                    let windows: Vec<i64> = windows.into_iter().flatten().filter_map(Value::as_i64).collect();
                    parts.push(scope.module(&module, |scope| {
                        self.note_windows(scope, &windows)?;
                        encode(scope, pointer, encoder, &sequences)
                    })?);
                }
                parts
            }
            _ => return Err(self.of_type(name, "DEEP or WIDE")),
        };
        let parts = self.dropped(name, parts)?;
        Ok(Dense { values: beside(self.scope, &parts), parts })
    }

    /// Records the window buffers of the module at the current scope. Does nothing if there are no windows.
    pub fn note_windows(&self, scope: &Scope, lengths: &[i64]) -> Result<(), Problems> {
        match self.extra.filter(|_| !lengths.is_empty()) {
            Some(extra) => {
                extra.add_windows(scope.path(), lengths).map_err(|error| self.problem("", error.to_string()))
            }
            None => Ok(()),
        }
    }

    fn of_type(&self, name: &str, expected: &str) -> Problems {
        Problems(vec![Problem::new("/model_config/feature_groups", format!("`{name}` must be of type {expected}"))])
    }

    /// Variational dropout of features. At inference each feature is multiplied by its keep probability; in training by one random factor
    /// per row that is mostly near 0 or 1 (Maddison et al., The Concrete Distribution, 2017).
    fn dropped(&self, name: &str, parts: Vec<Tensor>) -> Result<Vec<Tensor>, Problems> {
        let Some(options) = self.config.get("variational_dropout").filter(|_| parts.len() > 1) else {
            return Ok(parts);
        };
        if options.get("embedding_wise_variational_dropout").and_then(Value::as_bool) == Some(true) {
            let key = "/model_config/variational_dropout/embedding_wise_variational_dropout";
            return Err(Problems(vec![Problem::new(
                key,
                "dropout of single columns is not supported, expected false",
            )]));
        }
        let p = self.scope.weight(&format!("group_variational_dropouts.{name}.feature_p"), [parts.len()]);
        let probabilities = (-&p).sigmoid();
        if let (Some(extra), Some(part)) = (self.extra, parts.first()) {
            let lambda = options.get("regularization_lambda").and_then(Value::as_f64).unwrap_or(0.01);
            let rows = self.scope.host_size(part.dim(0)).maximum(1).cast(DType::F32);
            let loss = probabilities.sum(0).reshape(()) * lambda / rows;
            extra.add(format!("{name}_feature_p_loss"), loss, whole);
            let widths: Vec<i32> = parts.iter().map(|part| part.width() as i32).collect();
            let path = format!("group_variational_dropouts.{name}.feature_dim_repeat");
            extra.add_buffer(path, HostTensor::vector(&widths));
        }
        let stays = match self.scope.mode() {
            Mode::Eval => probabilities.reshape([1, parts.len()]),
            Mode::Train => {
                let batch = parts.first().map(|part| part.dim(0)).unwrap_or_default();
                let u = uniform(self.scope, [batch, parts.len().into()]);
                ((u.log() - (1.0 - u).log() + p) * -CONCRETE_TEMPERATURE.recip()).sigmoid()
            }
        };
        Ok(parts.iter().enumerate().map(|(index, part)| part * stays.slice(1, index, 1)).collect())
    }

    /// A SEQUENCE group, with tables in the `embedding_group` of the scope's module.
    pub fn sequence_in(&self, scope: &Scope, name: &str) -> Result<SequenceSteps, Problems> {
        match scope.module(EMBEDDINGS, |scope| self.features.trace(scope, name)) {
            Ok(Group::Sequence(steps)) => Ok(steps),
            Ok(Group::Jagged { values, rows }) => Ok(SequenceSteps { query: Vec::<Part>::new(), steps: values, rows }),
            Ok(Group::Dense { .. }) => Err(self.of_type(name, "SEQUENCE")),
            Err(problem) => Err(Problems(vec![problem])),
        }
    }

    /// Predictions from the input of the last linear layer `name`.
    pub fn output(&self, name: &str, x: &Tensor) -> Result<Predictions, Problems> {
        self.predict(&linear(self.scope, name, x, self.num_class()), "")
    }

    /// Predictions from logits, as determined by the model's losses.
    pub fn predict(&self, logits: &Tensor, suffix: &str) -> Result<Predictions, Problems> {
        let losses = self.config.get("losses").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        named(logits, suffix, losses, "/model_config")
    }
}

/// Number of binary digits of a number from [`uniform`].
const DIGITS: usize = 16;

/// Uniform random numbers in the open interval (0, 1). Their binary digits are the result of dropout on ones.
fn uniform(scope: &Scope, shape: [Dim; 2]) -> Tensor {
    let [rows, columns] = shape;
    let drawn = scope.scalar(DType::F32, 1.0).broadcast([rows.clone(), columns.clone(), DIGITS.into()]);
    // Dropout with probability 0.5 scales the remaining ones to 2.
    let places: Vec<f32> = (0..DIGITS).map(|digit| 0.25 / (1u32 << digit) as f32).collect();
    let places = match HostTensor::f32([1, 1, DIGITS], &places) {
        Ok(places) => scope.constant(places),
        Err(error) => return scope.fail("uniform", TypeError::new("digits", "fewer", error)),
    };
    let half_of_the_last = 0.5f64.powi(DIGITS as i32 + 1);
    ((scope.dropout(&drawn, 0.5) * places).sum(2) + half_of_the_last).reshape([rows, columns])
}

/// Predictions from logits, as determined by `losses`, whose message is at `pointer`.
pub(crate) fn named(logits: &Tensor, suffix: &str, losses: &[Value], pointer: &str) -> Result<Predictions, Problems> {
    if losses.is_empty() {
        let problem =
            Problem::new(format!("{pointer}/losses"), "must have at least one loss, which determines the predictions");
        return Err(Problems(vec![problem]));
    }
    prediction(logits, suffix, losses).map_err(|error| Problems(vec![problem(pointer, error)]))
}
