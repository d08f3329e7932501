use hyper::StatusCode;
use rewire::describe;
use rewire::generate::GenerateError;
use rewire::graph::Coded;
use rewire::rank::{JsonError, RankError, RequestError};
use rewire::runtime::RunError;
use serde::Serialize;
use strum::IntoStaticStr;
use thiserror::Error;

/// The code of a body that is not JSON of its schema.
const TEXT: &str = "request.text";

/// Why the server rejects a request.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "serve.")]
#[non_exhaustive]
pub enum ServeError {
    /// The path does not exist.
    #[error("there is no `{path}`: operations are at /v1/models/MODEL/OPERATION")]
    Path {
        /// The path.
        path: String,
    },
    /// No model has this name.
    #[error("there is no model `{name}`: expected one of {known}")]
    Model {
        /// The name.
        name: String,
        /// The names of all models.
        known: String,
    },
    /// The model is of another kind.
    #[error("the model `{model}` has no operation `{operation}`: expected one of {known}")]
    Operation {
        /// The model.
        model: String,
        /// The operation.
        operation: String,
        /// The operations of the model.
        known: String,
    },
    /// The method does not fit the path.
    #[error("the method is {actual}: expected {expected}")]
    Method {
        /// The method.
        actual: String,
        /// The expected one.
        expected: String,
    },
    /// The body has a type that the operation does not read.
    #[error("the content type is `{actual}`: expected {expected}")]
    ContentType {
        /// The type.
        actual: String,
        /// The expected types.
        expected: &'static str,
    },
    /// The body exceeds `--body-limit`.
    #[error("the body is larger than {limit} bytes")]
    BodyLimit {
        /// The limit.
        limit: usize,
    },
    /// The rows of a request exceed `--rows-limit`.
    #[error("the request has more than {limit} rows: split it")]
    RowsLimit {
        /// The limit.
        limit: usize,
    },
    /// The body did not arrive within `--body-timeout`.
    #[error("the body did not arrive within {seconds} s")]
    BodyTimeout {
        /// The limit.
        seconds: f64,
    },
    /// The body ended early.
    #[error("the body ended early")]
    BodyLost,
    /// The body is not an Arrow stream of a table.
    #[error("the body is not a stream of Arrow: {reason}")]
    Arrow {
        /// The fault.
        reason: String,
    },
    /// The queue of the model is full. Repeat the request later.
    #[error("the queue of the model is full")]
    QueueFull,
    /// The models are not loaded yet. Repeat the request later.
    #[error("the models are not loaded yet")]
    Loading,
    /// The server accepts no more requests.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The thread of the model has ended.
    #[error("the thread of the model has ended: restart the server")]
    WorkerLost,
}

impl Coded for ServeError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

impl ServeError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Path { .. } | Self::Model { .. } | Self::Operation { .. } => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyLimit { .. } | Self::RowsLimit { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::BodyLost | Self::Arrow { .. } => StatusCode::BAD_REQUEST,
            Self::QueueFull | Self::Loading | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::WorkerLost => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// An error as clients see it.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    #[serde(skip)]
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

impl Fault {
    /// A body that is not JSON of its schema.
    pub fn of_text(message: impl ToString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: TEXT, message: message.to_string() }
    }
}

impl From<ServeError> for Fault {
    fn from(error: ServeError) -> Self {
        Self { status: error.status(), code: error.code(), message: error.to_string() }
    }
}

impl From<RequestError> for Fault {
    fn from(error: RequestError) -> Self {
        let row = error.row;
        let fault = Self::from(RankError::from(error));
        Self { message: format!("requests[{row}]: {}", fault.message), ..fault }
    }
}

impl From<JsonError> for Fault {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Request(error) => error.into(),
            other => Self::of_text(other),
        }
    }
}

impl From<RankError> for Fault {
    fn from(error: RankError) -> Self {
        let is_of_request = match &error {
            RankError::Request(_) | RankError::Columns(_) | RankError::TensorType { .. } => true,
            RankError::Run(error) => is_of_inputs(error),
            _ => false,
        };
        let status = if is_of_request { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self { status, code: error.code(), message: describe(&error) }
    }
}

impl From<GenerateError> for Fault {
    fn from(error: GenerateError) -> Self {
        let status = if error.is_of_request() { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self { status, code: error.code(), message: describe(&error) }
    }
}

/// True for inputs that the model does not accept.
fn is_of_inputs(error: &RunError) -> bool {
    use RunError::{InputPlace, InputShape, InputType, InputValue, MissingInput, UnknownName};
    matches!(
        error,
        MissingInput { .. }
            | UnknownName { .. }
            | InputShape { .. }
            | InputType { .. }
            | InputValue { .. }
            | InputPlace { .. }
    )
}
