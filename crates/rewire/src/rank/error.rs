use super::{Request, UnreadTensors, User};
use crate::delta::DeltaError;
use crate::package::PackageError;
use crate::weights::WeightsError;
use rewire_decoders::ConfigError;
use rewire_features::{EncodeError, Problems};
use rewire_graph::{Coded, TensorSizeError};
use rewire_graph_rewrite::RewriteError;
use rewire_hstu::models::ModelError;
use rewire_import::{ImportError, ScalarType};
use rewire_runtime::{RunError, RuntimeError};
use rewire_tables::MapError;
use std::fmt;
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a model could not be loaded or requests could not be ranked.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "rank.")]
#[non_exhaustive]
pub enum RankError {
    /// A file of the model folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The configuration is invalid.
    #[error("{name} is not a valid configuration")]
    Config {
        /// The file.
        name: String,
        /// The cause.
        source: Box<ModelError>,
    },
    /// The configuration of a language model is invalid.
    #[error("{name} is not a valid configuration of a language model")]
    Decoder {
        /// The file.
        name: String,
        /// The reason.
        source: Box<ConfigError>,
    },
    /// The configuration belongs to a language model, but another model is expected.
    #[error("{name} is the configuration of a language model: use `generate` or `Decoder`")]
    Language {
        /// The file.
        name: String,
    },
    /// The configuration belongs to another model, but a language model is expected.
    #[error(
        "{name} is not the configuration of a language model: expected a Hugging Face `config.json` with a `model_type`"
    )]
    NotLanguage {
        /// The file.
        name: String,
    },
    /// The index of a folder's weights is invalid.
    #[error("{}: {reason}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The pipeline of an imported model has options that are not supported.
    #[error("{name}: {problems}")]
    Pipeline {
        /// The file.
        name: String,
        /// The faults.
        problems: Problems,
    },
    /// The configuration belongs to an imported model, but a model that reads requests is expected.
    #[error(
        "{name} is the configuration of an imported model, which reads tables, not requests: use `predict`, `package` or `Predictor`"
    )]
    Imported {
        /// The file.
        name: String,
    },
    /// The configuration belongs to a model that reads requests, but an imported one is expected.
    #[error("{name} is the configuration of a model that reads requests, not tables: use `Ranker`")]
    NotImported {
        /// The file.
        name: String,
    },
    /// The imported model has no towers, which compute vectors of users or items.
    #[error(
        "{name} has no vectors of users and items: expected a matching model (dssm, dssm_v2, dat, mind, hstu_match)"
    )]
    NoTowers {
        /// The file.
        name: String,
    },
    /// A column of a table does not match the model.
    #[error(transparent)]
    Columns(#[from] EncodeError),
    /// The configuration belongs to a matching model, but a ranking model is expected.
    #[error(
        "{name} is the configuration of a matching model, which computes vectors of users and items, not logits of candidates: use `predict` with \
         `--embeddings` or `--items`"
    )]
    Matching {
        /// The file.
        name: String,
    },
    /// The weights are invalid.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The package is invalid.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A delta cannot be applied.
    #[error(transparent)]
    Delta(Box<DeltaError>),
    /// The model cannot be traced.
    #[error("cannot trace the model")]
    Trace(#[source] Box<ModelError>),
    /// The graph cannot be rewritten or lowered.
    #[error("cannot compile the model")]
    Compile(#[source] Box<RewriteError>),
    /// The weights do not fit the configuration, or the requested device is not available.
    #[error("cannot load the model")]
    Load(#[source] Box<RuntimeError>),
    /// A sequence has no room for candidates.
    #[error("`max_seq_len` is {max_seq_len}: expected at least {} for {contextual} contextual tokens and candidates", contextual + 2)]
    NoRoom {
        /// Rows of a sequence.
        max_seq_len: usize,
        /// Contextual tokens of a sequence.
        contextual: usize,
    },
    /// An exported model cannot be imported.
    #[error("cannot import {name}")]
    Export {
        /// The file.
        name: String,
        /// The cause.
        source: Box<ImportError>,
    },
    /// A tensor has a wrong element type.
    #[error("input `{name}` is {actual}: expected {expected}")]
    TensorType {
        /// The tensor.
        name: String,
        /// The expected type.
        expected: ScalarType,
        /// Its type.
        actual: ScalarType,
    },
    /// A request does not fit the model.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A batch was created for a model with another schema.
    #[error("the schema of the batch differs from the model's: create it with the model's schema")]
    Schema,
    /// The call's [`CancellationToken`](super::CancellationToken) was cancelled.
    #[error("the ranking was cancelled")]
    Cancelled,
    /// A run failed.
    #[error("cannot run the model")]
    Run(#[source] Box<RunError>),
    /// A tensor of the weights differs from the value that the configuration defines.
    #[error("tensor `{name}` is {actual:?}: expected {expected:?} by the configuration")]
    Buffer {
        /// Name of the tensor.
        name: String,
        /// The elements that follow from the configuration.
        expected: Vec<f64>,
        /// The elements in the weights.
        actual: Vec<f64>,
    },
    /// The ids of a growing table are missing or invalid.
    #[error("the weights have no valid ids for the growing table `{table}`")]
    Ids {
        /// The table.
        table: String,
        /// The missing or invalid part.
        source: MapError,
    },
    /// Two tables of the same features have different ids.
    #[error("the tables `{}` and `{}` belong to the same features but have different ids", tables[0], tables[1])]
    UnequalIds {
        /// The tables.
        tables: [String; 2],
    },
    /// The weights contain tensors that the model does not use.
    #[error(transparent)]
    Unread(#[from] UnreadTensors),
    /// A batch is too large for a tensor.
    #[error("cannot create the model's inputs")]
    Batch(#[from] TensorSizeError),
    /// The keys and values of histories cannot be cached.
    #[error("the model's candidates attend to each other, or its history attends to them: histories cannot be cached")]
    NotApart,
    /// Parameters were replaced repeatedly while requests were ranked.
    #[error("parameters were replaced while requests were ranked, {times} times in a row")]
    Updated {
        /// The number of attempts.
        times: usize,
    },
    /// Compared vectors have different numbers of elements.
    #[error("vectors have {actual} elements: expected {expected}, like item vectors")]
    Width {
        /// Elements of a vector.
        actual: usize,
        /// Elements of an item vector.
        expected: usize,
    },
    /// The model's output is not one finite number per candidate and task.
    #[error("the model's output `{output}` {reason}")]
    Output {
        /// The output.
        output: String,
        /// The reason.
        reason: String,
    },
}

impl Coded for RankError {
    fn code(&self) -> &'static str {
        match self {
            Self::Config { source, .. } => source.code(),
            Self::Decoder { source, .. } => source.code(),
            Self::Weights(source) => source.code(),
            Self::Package(source) => source.code(),
            Self::Delta(source) => source.code(),
            Self::Trace(source) => source.code(),
            Self::Compile(source) => source.code(),
            Self::Load(source) => source.code(),
            Self::Run(source) => source.code(),
            Self::Export { source, .. } => source.code(),
            other => other.into(),
        }
    }
}

impl From<DeltaError> for RankError {
    fn from(error: DeltaError) -> Self {
        Self::Delta(Box::new(error))
    }
}

impl From<RewriteError> for RankError {
    fn from(error: RewriteError) -> Self {
        Self::Compile(Box::new(error))
    }
}

impl From<RuntimeError> for RankError {
    fn from(error: RuntimeError) -> Self {
        Self::Load(Box::new(error))
    }
}

impl From<RunError> for RankError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

/// A request that does not fit the model.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("user `{user}`: {fault}")]
pub struct RequestError {
    /// Its position in the batch, from 0.
    pub row: usize,
    /// The user.
    pub user: User,
    /// The fault.
    pub fault: RequestFault,
}

/// Why a request is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestFault {
    /// Columns that the model reads are missing.
    #[error("{} missing; example: {example}", listed(columns))]
    Missing {
        /// All missing columns, at least one.
        columns: Vec<MissingColumn>,
        /// A complete example request.
        example: Box<Request>,
    },
    /// Lists that must have equal lengths differ in length.
    #[error("`{column}` has length {actual}, but `{other}` has length {expected}")]
    Lengths {
        /// The column.
        column: String,
        /// Its length.
        actual: usize,
        /// The column it is compared with.
        other: String,
        /// The length of the other column.
        expected: usize,
    },
    /// Candidates have times that differ from the first one, which is the time of the request.
    #[error(
        "`{column}[{position}]` is {actual}, but `{column}[0]` is {expected}: expected one time, that of the request; candidates of another time \
         belong in a separate request"
    )]
    Times {
        /// The column.
        column: String,
        /// Position of the first different time, from 1.
        position: usize,
        /// That time.
        actual: i64,
        /// The time of the first candidate.
        expected: i64,
    },
    /// An id lies outside its embedding table.
    #[error("`{column}{}` is {value}, but the table `{table}` has {rows} rows", index(*position))]
    OutOfRange {
        /// The column.
        column: String,
        /// Position in the list, from 0.
        position: Option<usize>,
        /// The id.
        value: i64,
        /// The table.
        table: String,
        /// Number of rows of the table.
        rows: usize,
    },
}

/// A column that the model reads but the request lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingColumn {
    /// Its name, such as `user` or `history.item_id`.
    pub column: String,
    /// A column of the request with a similar name.
    pub similar: Option<String>,
}

impl fmt::Display for MissingColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, similar } = self;
        match similar {
            Some(similar) => write!(f, "`{column}` (is it `{similar}`?)"),
            None => write!(f, "`{column}`"),
        }
    }
}

fn listed(columns: &[MissingColumn]) -> String {
    let names: Vec<String> = columns.iter().map(MissingColumn::to_string).collect();
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}

fn index(position: Option<usize>) -> String {
    position.map(|position| format!("[{position}]")).unwrap_or_default()
}
