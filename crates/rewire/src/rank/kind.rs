//! The kinds of models.

use super::description::MATCHING;
use super::scorer::{check_buffers, trace_ranking};
use super::{CacheOptions, Config, RankError, parse_config, trace, unread};
use crate::predict::{Imported, is_pipeline};
use crate::weights::Weights;
use rewire_graph::{DType, Graph};
use rewire_hstu::models::ModelError;
use rewire_hstu::models::hstu_match::MatchConfig;
use serde::Deserialize;
use std::collections::HashSet;

/// The configuration of a model.
pub(crate) enum ModelConfig {
    /// A model that computes logits of candidates.
    Ranking(Box<Config>),
    /// A model that computes vectors of users and items.
    Matching(Box<MatchConfig>),
    /// A TorchEasyRec pipeline, which reads tables.
    Imported(Box<Imported>),
    /// A language model continues prompts.
    Language(Box<rewire_decoders::Config>),
}

/// The keys that identify the kind.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    model: String,
    /// The key that identifies Hugging Face configurations.
    model_type: Option<String>,
}

/// True for the text of a matching model's configuration.
pub(super) fn is_matching(text: &str) -> bool {
    serde_json::from_str::<Kind>(text).is_ok_and(|kind| kind.model == MATCHING)
}

/// True for the text of a language model's configuration.
pub(crate) fn is_language(text: &str) -> bool {
    serde_json::from_str::<Kind>(text).is_ok_and(|kind| kind.model_type.is_some())
}

/// The configuration of a language model, from the text of a model's configuration and its name in errors.
pub(crate) fn config_of_decoder(named: Option<(String, &str)>) -> Result<rewire_decoders::Config, RankError> {
    let (name, text) = named.ok_or_else(|| RankError::NotLanguage { name: "the model".to_owned() })?;
    match is_language(text) {
        true => parse_language(&name, text),
        false => Err(RankError::NotLanguage { name }),
    }
}

fn parse_language(name: &str, text: &str) -> Result<rewire_decoders::Config, RankError> {
    let bad = |source| RankError::Decoder { name: name.to_owned(), source: Box::new(source) };
    rewire_decoders::Config::from_json(text).map_err(bad)
}

fn trace_language(config: &rewire_decoders::Config, dtype: DType) -> Result<Graph, RankError> {
    let bad = |source| RankError::Decoder { name: "the model".to_owned(), source: Box::new(source) };
    config.trace(dtype).map_err(bad)
}

/// The graph of a model from the text of its `config.json`, which errors call `name`.
///
/// # Errors
/// [`RankError`] names the invalid key.
pub fn trace_text(name: &str, config: &str) -> Result<Graph, RankError> {
    match ModelConfig::parse(name, config)? {
        ModelConfig::Ranking(config) => trace(&config).map_err(untraced),
        ModelConfig::Matching(config) => config.trace().map_err(untraced),
        ModelConfig::Imported(config) => Ok(config.graph().clone()),
        ModelConfig::Language(config) => trace_language(&config, DType::F32),
    }
}

impl ModelConfig {
    /// Parses the text of a `config.json`; errors refer to it as `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, RankError> {
        let text = text.trim_start_matches('\u{feff}');
        if is_pipeline(text) {
            return Ok(Self::Imported(Box::new(Imported::parse(name, text)?)));
        }
        if is_language(text) {
            return Ok(Self::Language(Box::new(parse_language(name, text)?)));
        }
        if !is_matching(text) {
            return Ok(Self::Ranking(Box::new(parse_config(name, text)?)));
        }
        let bad = |source| RankError::Config { name: name.to_owned(), source: Box::new(source) };
        Ok(Self::Matching(Box::new(MatchConfig::from_json(text).map_err(bad)?)))
    }

    /// The parameters that are embedding tables.
    pub fn tables(&self) -> HashSet<String> {
        match self {
            Self::Ranking(config) => config.tables().collect(),
            Self::Matching(config) => config.tables().collect(),
            Self::Imported(config) => config.tables(),
            Self::Language(config) => config.table().map(str::to_owned).into_iter().collect(),
        }
    }

    /// The graph for a package.
    pub fn graph(&self, cache: &CacheOptions) -> Result<Graph, RankError> {
        match self {
            Self::Ranking(config) => trace_ranking(config, cache),
            Self::Matching(config) => config.trace().map_err(untraced),
            Self::Imported(config) => config.served(cache),
            Self::Language(config) => trace_language(config, DType::F32),
        }
    }

    /// The graphs that compute only vectors of users or of items, by output, if a package has them in addition to the
    /// combined one.
    pub fn towers(&self) -> Vec<(String, Graph)> {
        match self {
            Self::Imported(config) => config.towers(),
            Self::Ranking(_) | Self::Matching(_) | Self::Language(_) => vec![],
        }
    }

    /// [`ModelConfig::graph`], checked against weights.
    pub fn trace(&self, weights: &Weights<'_>, cache: &CacheOptions, allow_unread: bool) -> Result<Graph, RankError> {
        match self {
            Self::Ranking(config) => check_buffers(config, weights)?,
            Self::Imported(config) => config.check_weights(weights)?,
            Self::Matching(_) => {}
            // Checkpoints repeat tensors that are tied.
            Self::Language(config) => return trace_language(config, weights.common_float()),
        }
        let graph = self.graph(cache)?;
        match self {
            _ if allow_unread => {}
            Self::Ranking(config) => unread::check(config, &graph, weights)?,
            // The folder keeps tensors that training needs.
            Self::Imported(_) | Self::Language(_) => {}
            Self::Matching(_) => {
                let read: HashSet<String> = graph.parameters().into_iter().map(|parameter| parameter.name).collect();
                unread::refuse(weights.names().filter(|name| !read.contains(*name)).collect(), &graph, weights)?;
            }
        }
        Ok(graph)
    }
}

pub(super) fn untraced(error: ModelError) -> RankError {
    RankError::Trace(Box::new(error))
}
