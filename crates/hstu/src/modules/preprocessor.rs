use super::layers::linear;
use super::{
    ActionEncoderConfig, ConfigError, ContentEncoder, ContentEncoderConfig, ContextualMlp, ContextualMlpConfig, Mode,
    count,
};
use crate::ops::concat_2d_jagged;
use rewire_graph::{Ragged, Scope, Tensor, TypeError};
use serde::Deserialize;

/// The preprocessor that builds one sequence from a user's features, as `{kind: options}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputPreprocessorConfig {
    /// History and candidates; each row is the sum of content and action.
    ContextualPreprocessor(ContextualConfig),
    /// History and candidates, with separate rows for content and action.
    ContextualInterleavePreprocessor(ContextualInterleaveConfig),
    /// History only.
    UihPreprocessor(UihConfig),
}

/// Options of the contextual preprocessor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextualConfig {
    /// Maps history and candidates to the same width.
    pub content_encoder: ContentEncoderConfig,
    /// Maps encoded content to rows.
    pub content_mlp: ContextualMlpConfig,
    /// Encodes actions; `None` to ignore them.
    #[serde(default)]
    pub action_encoder: Option<ActionEncoderConfig>,
    /// Maps encoded actions to rows.
    #[serde(default)]
    pub action_mlp: Option<ContextualMlpConfig>,
}

/// Options of the interleaving preprocessor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextualInterleaveConfig {
    /// Maps history and candidates to the same width.
    pub content_encoder: ContentEncoderConfig,
    /// Maps encoded content to rows.
    pub content_mlp: ContextualMlpConfig,
    /// Encodes actions.
    #[serde(default)]
    pub action_encoder: Option<ActionEncoderConfig>,
    /// Maps encoded actions to rows.
    #[serde(default)]
    pub action_mlp: Option<ContextualMlpConfig>,
    /// If false, the module behaves as the contextual preprocessor.
    #[serde(default = "enable_interleaving")]
    pub enable_interleaving: bool,
}

fn enable_interleaving() -> bool {
    true
}

/// Options of the history preprocessor.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UihConfig {
    /// Encodes actions; `None` to ignore them.
    #[serde(default)]
    pub action_encoder: Option<ActionEncoderConfig>,
    /// Maps encoded actions to rows.
    #[serde(default)]
    pub action_mlp: Option<ContextualMlpConfig>,
}

/// A sequence of events or candidates per user.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Rows `[L, D]`.
    pub embeddings: Tensor,
    /// The sample of each row.
    pub rows: Ragged,
    /// Timestamps `[L]`.
    pub timestamps: Tensor,
    /// Action bit masks `[L]`.
    pub actions: Option<Tensor>,
    /// Watch times `[L]`, in seconds.
    pub watchtimes: Option<Tensor>,
}

/// Features of a batch of users.
#[derive(Clone, Debug)]
pub struct Features {
    /// History.
    pub uih: Sequence,
    /// Candidates.
    pub candidates: Option<Sequence>,
    /// Contextual features `[B, C * g]`.
    pub contextual: Option<Tensor>,
}

/// One sequence per user: contextual prefix, history, candidates.
#[derive(Clone, Debug)]
pub struct Preprocessed {
    /// Rows `[L, E]`.
    pub embeddings: Tensor,
    /// The sample of each row.
    pub rows: Ragged,
    /// Timestamps `[L]`; 0 for contextual rows.
    pub timestamps: Tensor,
    /// Candidate rows of every user.
    pub targets: Ragged,
    /// An upper bound of the lengths, a scalar of the shape program.
    pub max_seq_len: Tensor,
}

/// Builds one sequence from a user's features.
#[derive(Clone, Debug)]
pub struct InputPreprocessor {
    /// Kind and options.
    pub config: InputPreprocessorConfig,
    /// Width of history rows.
    pub uih_embedding_dim: usize,
    /// Width of candidate rows.
    pub target_embedding_dim: usize,
    /// Width of the result's rows.
    pub output_embedding_dim: usize,
    /// Width of a contextual feature.
    pub contextual_feature_dim: usize,
    /// Number of contextual features.
    pub max_contextual_seq_len: usize,
}

/// The encoders of a configuration of any kind.
struct Encoders<'a> {
    content: Option<(&'a ContentEncoderConfig, &'a ContextualMlpConfig)>,
    action: Option<(&'a ActionEncoderConfig, &'a ContextualMlpConfig)>,
    interleaved: bool,
}

impl InputPreprocessorConfig {
    fn encoders(&self) -> Encoders<'_> {
        match self {
            Self::ContextualPreprocessor(c) => Encoders {
                content: Some((&c.content_encoder, &c.content_mlp)),
                action: c.action_encoder.as_ref().zip(c.action_mlp.as_ref()),
                interleaved: false,
            },
            Self::ContextualInterleavePreprocessor(c) => Encoders {
                content: Some((&c.content_encoder, &c.content_mlp)),
                action: c.action_encoder.as_ref().zip(c.action_mlp.as_ref()),
                interleaved: c.enable_interleaving,
            },
            Self::UihPreprocessor(c) => {
                let action = c.action_encoder.as_ref().zip(c.action_mlp.as_ref());
                Encoders { content: None, action, interleaved: false }
            }
        }
    }

    fn given(&self) -> [bool; 2] {
        let (encoder, mlp) = match self {
            Self::ContextualPreprocessor(c) => (&c.action_encoder, &c.action_mlp),
            Self::ContextualInterleavePreprocessor(c) => (&c.action_encoder, &c.action_mlp),
            Self::UihPreprocessor(c) => (&c.action_encoder, &c.action_mlp),
        };
        [encoder.is_some(), mlp.is_some()]
    }

    /// The name of the kind in configurations.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ContextualPreprocessor(_) => "contextual_preprocessor",
            Self::ContextualInterleavePreprocessor(_) => "contextual_interleave_preprocessor",
            Self::UihPreprocessor(_) => "uih_preprocessor",
        }
    }

    /// The action encoder, if there is one.
    pub fn action_encoder(&self) -> Option<&ActionEncoderConfig> {
        self.encoders().action.map(|(encoder, _)| encoder)
    }

    /// True if candidate rows depend on their user's context.
    pub fn targets_read_context(&self) -> bool {
        let encoders = self.encoders();
        let mlps = encoders.content.map(|(_, mlp)| mlp).into_iter().chain(encoders.action.map(|(_, mlp)| mlp));
        mlps.into_iter().any(|mlp| matches!(mlp, ContextualMlpConfig::ParameterizedMlp(_)))
    }

    /// True if candidates are part of the sequence.
    pub fn reads_candidates(&self) -> bool {
        self.encoders().content.is_some()
    }

    /// True if every row of the sequence, including targets, becomes a content row and an action row.
    pub fn doubles_targets(&self, mode: Mode) -> bool {
        self.encoders().interleaved && mode == Mode::Train
    }
}

impl InputPreprocessor {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_encoders().map_err(|error| error.within(self.config.kind()))
    }

    fn check_encoders(&self) -> Result<(), ConfigError> {
        count("contextual_feature_dim", self.contextual_feature_dim)?;
        count("max_contextual_seq_len", self.max_contextual_seq_len)?;
        let encoders = self.config.encoders();
        match self.config.given() {
            [true, false] => return Err(ConfigError::new("action_mlp", "given with `action_encoder`", "nothing")),
            [false, true] => return Err(ConfigError::new("action_encoder", "given with `action_mlp`", "nothing")),
            _ => {}
        }
        if encoders.interleaved && encoders.action.is_none() {
            return Err(ConfigError::new("action_encoder", "given where actions are interleaved", "nothing"));
        }
        if let Some((encoder, mlp)) = encoders.content {
            self.content_encoder(encoder).check().map_err(|error| error.within("content_encoder"))?;
            self.check_mlp("content_mlp", mlp)?;
        }
        if let Some((encoder, mlp)) = encoders.action {
            let within = |error: ConfigError| error.within("action_encoder.simple_action_encoder");
            encoder.encoder().check().map_err(within)?;
            self.check_mlp("action_mlp", mlp)?;
        }
        Ok(())
    }

    fn check_mlp(&self, key: &str, mlp: &ContextualMlpConfig) -> Result<(), ConfigError> {
        mlp.check().map_err(|error| error.within(key))?;
        let contextual = self.max_contextual_seq_len * self.contextual_feature_dim;
        match mlp {
            ContextualMlpConfig::ParameterizedMlp(_) if contextual == 0 => {
                Err(ConfigError::new(key, "`simple_mlp` without contextual features", "`parameterized_mlp`"))
            }
            _ => Ok(()),
        }
    }

    fn content_encoder(&self, config: &ContentEncoderConfig) -> ContentEncoder {
        ContentEncoder {
            config: config.clone(),
            uih_embedding_dim: self.uih_embedding_dim,
            target_embedding_dim: self.target_embedding_dim,
        }
    }

    /// Builds one sequence per user.
    pub fn forward(&self, scope: &Scope, features: &Features) -> Preprocessed {
        let encoders = self.config.encoders();
        let sequence = match (encoders.content, &features.candidates) {
            (Some((encoder, mlp)), Some(candidates)) => {
                self.candidates(scope, features, candidates, (encoder, mlp), &encoders)
            }
            (Some(_), None) => {
                scope.fail(self.config.kind(), TypeError::new("candidates", "a sequence", "none"));
                self.history(scope, features, encoders.action)
            }
            (None, _) => self.history(scope, features, encoders.action),
        };
        self.with_context(scope, sequence, features.contextual.as_ref())
    }

    fn history(
        &self,
        scope: &Scope,
        features: &Features,
        action: Option<(&ActionEncoderConfig, &ContextualMlpConfig)>,
    ) -> Preprocessed {
        let uih = &features.uih;
        let content = linear(scope, "_input_projection", &uih.embeddings, self.output_embedding_dim);
        let embeddings = match action {
            Some((encoder, mlp)) => &content + self.actions(scope, features, encoder, mlp),
            None => content,
        };
        let targets = Ragged::dense(scope, uih.rows.batch.clone(), &scope.host_size(0));
        let timestamps = uih.timestamps.clone();
        Preprocessed { embeddings, rows: uih.rows.clone(), timestamps, targets, max_seq_len: uih.rows.max() }
    }

    fn candidates(
        &self,
        scope: &Scope,
        features: &Features,
        candidates: &Sequence,
        (encoder, mlp): (&ContentEncoderConfig, &ContextualMlpConfig),
        encoders: &Encoders,
    ) -> Preprocessed {
        let (uih, targets) = (&features.uih, &candidates.rows);
        let (encoded, rows) = scope.module("_content_encoder", |scope| {
            let encoder = self.content_encoder(encoder);
            encoder.forward(scope, (&uih.embeddings, &uih.rows), (&candidates.embeddings, targets))
        });
        let content = self.mlp(scope, "_content_embedding_mlp", mlp, &encoded, &rows, features.contextual.as_ref());
        let action = encoders.action.map(|(encoder, mlp)| {
            let (encoded, _) = scope.module("_action_encoder", |scope| {
                let actions = required(scope, "actions", uih.actions.as_ref());
                encoder.encoder().forward(scope, &actions, uih.watchtimes.as_ref(), &uih.rows, targets)
            });
            self.mlp(scope, "_action_embedding_mlp", mlp, &encoded, &rows, features.contextual.as_ref())
        });
        let (timestamps, _) = concat_2d_jagged(&uih.timestamps, &uih.rows, &candidates.timestamps, targets);
        let max_seq_len = &uih.rows.max() + targets.max();
        let plain = Preprocessed { embeddings: content, rows, timestamps, targets: targets.clone(), max_seq_len };
        match action {
            Some(action) if encoders.interleaved => interleave(scope, plain, &action, &uih.rows),
            Some(action) => Preprocessed { embeddings: &plain.embeddings + &action, ..plain },
            None => plain,
        }
    }

    /// The history rows of [`InputPreprocessor::forward`], with the contextual prefix.
    pub fn history_alone(&self, scope: &Scope, features: &Features) -> Preprocessed {
        let (encoders, uih) = (self.config.encoders(), &features.uih);
        let Some((encoder, mlp)) = encoders.content else {
            let sequence = self.history(scope, features, encoders.action);
            return self.with_context(scope, sequence, features.contextual.as_ref());
        };
        let encoded =
            scope.module("_content_encoder", |scope| self.content_encoder(encoder).history(scope, &uih.embeddings));
        let content = self.mlp(scope, "_content_embedding_mlp", mlp, &encoded, &uih.rows, features.contextual.as_ref());
        let targets = Ragged::dense(scope, uih.rows.batch.clone(), &scope.host_size(0));
        let (rows, timestamps, max_seq_len) = (uih.rows.clone(), uih.timestamps.clone(), uih.rows.max());
        let plain = Preprocessed { embeddings: content, rows, timestamps, targets, max_seq_len };
        let action = encoders.action.map(|(encoder, mlp)| self.actions(scope, features, encoder, mlp));
        let sequence = match action {
            Some(action) if encoders.interleaved => interleave_all(scope, plain, &action),
            Some(action) => Preprocessed { embeddings: &plain.embeddings + &action, ..plain },
            None => plain,
        };
        self.with_context(scope, sequence, features.contextual.as_ref())
    }

    /// The candidate rows of [`InputPreprocessor::forward`].
    pub fn targets_alone(&self, scope: &Scope, candidates: &Sequence, contextual: Option<&Tensor>) -> Tensor {
        let (encoders, rows) = (self.config.encoders(), &candidates.rows);
        let Some((encoder, mlp)) = encoders.content else {
            return scope.fail(self.config.kind(), TypeError::new("candidates", "none", "a sequence"));
        };
        let encoded = scope
            .module("_content_encoder", |scope| self.content_encoder(encoder).targets(scope, &candidates.embeddings));
        let content = self.mlp(scope, "_content_embedding_mlp", mlp, &encoded, rows, contextual);
        let Some((encoder, mlp)) = encoders.action.filter(|_| !encoders.interleaved) else { return content };
        let encoder = encoder.encoder();
        let learned = scope.module("_action_encoder", |scope| encoder.target(scope));
        let every = |row: &Tensor| row.broadcast(&[rows.total.clone(), row.dim(1)]);
        let action = match mlp {
            // The result is the same row for all candidates.
            ContextualMlpConfig::SimpleMlp(_) => {
                every(&self.mlp(scope, "_action_embedding_mlp", mlp, &learned, rows, None))
            }
            ContextualMlpConfig::ParameterizedMlp(_) => {
                self.mlp(scope, "_action_embedding_mlp", mlp, &every(&learned), rows, contextual)
            }
        };
        content + action
    }

    /// The action rows of a history.
    fn actions(
        &self,
        scope: &Scope,
        features: &Features,
        encoder: &ActionEncoderConfig,
        mlp: &ContextualMlpConfig,
    ) -> Tensor {
        let uih = &features.uih;
        let rows = scope.module("_action_encoder", |scope| {
            let actions = required(scope, "actions", uih.actions.as_ref());
            encoder.encoder().encode(scope, &actions, uih.watchtimes.as_ref(), &uih.rows)
        });
        self.mlp(scope, "_action_embedding_mlp", mlp, &rows, &uih.rows, features.contextual.as_ref())
    }

    fn mlp(
        &self,
        scope: &Scope,
        name: &str,
        config: &ContextualMlpConfig,
        x: &Tensor,
        rows: &Ragged,
        contextual: Option<&Tensor>,
    ) -> Tensor {
        let mlp = ContextualMlp { config: config.clone(), sequential_output_dim: self.output_embedding_dim };
        scope.module(name, |scope| mlp.forward(scope, x, rows, contextual))
    }

    /// Prepends the contextual prefix to a sequence.
    fn with_context(&self, scope: &Scope, sequence: Preprocessed, feature: Option<&Tensor>) -> Preprocessed {
        let count = self.max_contextual_seq_len;
        if count == 0 {
            return sequence;
        }
        let feature = required(scope, "contextual", feature);
        let batch = sequence.rows.batch.clone();
        let (features, width) = (self.contextual_feature_dim, self.output_embedding_dim);
        let weights = [count.into(), features.into(), width.into()];
        let weights = scope.weight("_batched_contextual_linear_weights", &weights);
        let bias = scope.weight("_batched_contextual_linear_bias", &[count.into(), 1.into(), width.into()]);
        let by_feature = feature.reshape(&[batch.clone(), count.into(), features.into()]).permute(&[1, 0, 2]);
        let by_user = (&by_feature.matmul(&weights) + &bias).permute(&[1, 0, 2]);
        let prefix = Ragged::dense(scope, batch, &scope.host_size(count));
        let embeddings = by_user.reshape(&[prefix.total.clone(), width.into()]);
        let dtype = sequence.timestamps.dtype();
        let times = scope.scalar(dtype, 0.0).broadcast(std::slice::from_ref(&prefix.total));
        let (embeddings, rows) = embeddings.jagged_concat(&prefix, &sequence.embeddings, &sequence.rows);
        let (timestamps, _) = times.jagged_concat(&prefix, &sequence.timestamps, &sequence.rows);
        let max_seq_len = &sequence.max_seq_len + count as f64;
        Preprocessed { embeddings, rows, timestamps, max_seq_len, targets: sequence.targets }
    }
}

fn required(scope: &Scope, name: &str, feature: Option<&Tensor>) -> Tensor {
    feature.cloned().unwrap_or_else(|| scope.fail("preprocessor", TypeError::new(name, "a feature", "none")))
}

/// Splits every history row into a content row and an action row. Targets have a content row only, except in training.
fn interleave(scope: &Scope, plain: Preprocessed, action: &Tensor, uih: &Ragged) -> Preprocessed {
    if scope.mode() == Mode::Train {
        return interleave_all(scope, plain, action);
    }
    let history_rows = doubled(uih);
    let interleaved = |first: &Tensor, second: &Tensor| {
        let [a, b] = [first, second].map(|x| x.jagged_head(&plain.rows, uih));
        let targets = first.jagged_tail(&plain.rows, &plain.targets);
        pairs(scope, &a, &b).jagged_concat(&history_rows, &targets, &plain.targets).0
    };
    Preprocessed {
        embeddings: interleaved(&plain.embeddings, action),
        timestamps: interleaved(&plain.timestamps, &plain.timestamps),
        rows: history_rows.plus(&plain.targets),
        max_seq_len: &plain.max_seq_len + uih.max(),
        targets: plain.targets,
    }
}

/// Splits every row into a content row and an action row.
fn interleave_all(scope: &Scope, plain: Preprocessed, action: &Tensor) -> Preprocessed {
    Preprocessed {
        embeddings: pairs(scope, &plain.embeddings, action),
        timestamps: pairs(scope, &plain.timestamps, &plain.timestamps),
        rows: doubled(&plain.rows),
        targets: doubled(&plain.targets),
        max_seq_len: &plain.max_seq_len * 2.0,
    }
}

fn doubled(rows: &Ragged) -> Ragged {
    Ragged::from_lengths(&(&rows.lengths * 2.0))
}

/// Interleaves the rows of `a` and `b`.
fn pairs(scope: &Scope, a: &Tensor, b: &Tensor) -> Tensor {
    let mut shape = a.shape().to_vec();
    if let Some(rows) = shape.first_mut() {
        *rows = rows.clone() * 2;
    }
    scope.stack(&[a, b], 1).reshape(&shape)
}

impl Preprocessed {
    /// The total number of history and contextual rows.
    pub fn total_uih_len(&self) -> rewire_graph::Dim {
        self.rows.total.clone() - self.targets.total.clone()
    }
}
