use crate::rank::RankError;
use crate::weights::WeightsError;
use rewire_decoders::ConfigError;
use rewire_graph::{Coded, TensorSizeError};
use rewire_graph_rewrite::RewriteError;
use rewire_hstu::models::ModelError;
use rewire_runtime::{RunError, RuntimeError};
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why items or tokens cannot be generated.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "generate.")]
#[non_exhaustive]
pub enum GenerateError {
    /// The configuration is invalid.
    #[error("cannot trace the model")]
    Trace(#[from] ModelError),
    /// The configuration of a language model is invalid.
    #[error("cannot trace the model")]
    Config(#[source] Box<ConfigError>),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The weights are invalid.
    #[error(transparent)]
    Weights(Box<WeightsError>),
    /// The folder or the package is invalid.
    #[error(transparent)]
    Model(Box<RankError>),
    /// A tensor cannot be allocated.
    #[error(transparent)]
    Memory(#[from] TensorSizeError),
    /// A prompt has no tokens.
    #[error("prompt {prompt} is empty")]
    Prompt {
        /// The index of the prompt.
        prompt: usize,
    },
    /// A token of a prompt is outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocabulary} tokens")]
    Token {
        /// The token.
        token: u32,
        /// The number of tokens of the model.
        vocabulary: usize,
    },
    /// A training sequence is not a sequence of items.
    #[error("token {place} of sequence {sequence} is not the next token of an item in the trie")]
    Outside {
        /// The index of the sequence in the batch.
        sequence: usize,
        /// The index of the token in the sequence.
        place: usize,
    },
    /// A training failed.
    #[cfg(feature = "train")]
    #[error("the training failed")]
    Train(#[source] Box<rewire_train::TrainError>),
    /// Codebooks cannot be computed from the vectors.
    #[error("the vectors {reason}")]
    Vectors {
        /// The reason.
        reason: String,
    },
    /// A request needs more cache rows than the queue has.
    #[error("the request needs {needed} rows of the caches: there are {rows}")]
    Rows {
        /// The rows that it needs.
        needed: usize,
        /// The rows of the queue.
        rows: usize,
    },
    /// The graph cannot be rewritten or lowered.
    #[error("cannot compile the model")]
    Compile(#[source] Box<RewriteError>),
    /// The model cannot be loaded.
    #[error("cannot load the model")]
    Load(#[source] Box<RuntimeError>),
    /// A run failed.
    #[error("cannot run the model")]
    Run(#[source] Box<RunError>),
    /// A semantic id does not fit the model.
    #[error("the semantic id {id:?} of item {item} does not fit levels of {codes:?} codes")]
    Id {
        /// The item.
        item: i64,
        /// Its id.
        id: Vec<u32>,
        /// The number of codes of each level.
        codes: Vec<usize>,
    },
    /// The number of widths differs from the number of levels, or a width is 0.
    #[error("`widths` must be {levels} numbers of at least 1, one per level, got {widths:?}")]
    Widths {
        /// The number of levels of the model.
        levels: usize,
        /// The given widths.
        widths: Vec<usize>,
    },
    /// An option of sampling is out of range.
    #[error("`{option}` must be {expected}")]
    Sampling {
        /// The option.
        option: &'static str,
        /// The valid values.
        expected: &'static str,
    },
    /// The trie and the model have different numbers of levels.
    #[error("the trie has {actual} levels, the model has {expected}")]
    Levels {
        /// The levels of the model.
        expected: usize,
        /// The levels of the trie.
        actual: usize,
    },
    /// An output of the model is not finite.
    #[error("the model's output `{name}` {reason}")]
    Output {
        /// The name of the output.
        name: &'static str,
        /// The reason.
        reason: String,
    },
}

impl GenerateError {
    /// True if prompts, items or options do not fit the model: another request may succeed.
    pub fn is_of_request(&self) -> bool {
        use GenerateError::{Id, Levels, Prompt, Rows, Sampling, Token, Widths};
        matches!(
            self,
            Prompt { .. } | Token { .. } | Rows { .. } | Id { .. } | Widths { .. } | Sampling { .. } | Levels { .. }
        )
    }
}

impl Coded for GenerateError {
    fn code(&self) -> &'static str {
        match self {
            Self::Trace(source) => source.code(),
            Self::Config(source) => source.code(),
            Self::Weights(source) => source.code(),
            Self::Model(source) => source.code(),
            #[cfg(feature = "train")]
            Self::Train(source) => source.code(),
            Self::Compile(source) => source.code(),
            Self::Load(source) => source.code(),
            Self::Run(source) => source.code(),
            other => other.into(),
        }
    }
}

impl From<RewriteError> for GenerateError {
    fn from(error: RewriteError) -> Self {
        Self::Compile(Box::new(error))
    }
}

impl From<RuntimeError> for GenerateError {
    fn from(error: RuntimeError) -> Self {
        Self::Load(Box::new(error))
    }
}

impl From<RunError> for GenerateError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

impl From<ConfigError> for GenerateError {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}

impl From<WeightsError> for GenerateError {
    fn from(error: WeightsError) -> Self {
        Self::Weights(Box::new(error))
    }
}

impl From<RankError> for GenerateError {
    fn from(error: RankError) -> Self {
        Self::Model(Box::new(error))
    }
}

#[cfg(feature = "train")]
impl From<rewire_train::TrainError> for GenerateError {
    fn from(error: rewire_train::TrainError) -> Self {
        Self::Train(Box::new(error))
    }
}
