use rewire::describe;
use rewire::generate::GenerateError;
use rewire::graph::Coded;
use rewire::rank::{JsonError, RankError};
use thiserror::Error;

/// An error. `code` identifies its kind and is stable between versions; `reason` is a readable message.
#[derive(Clone, Debug, Error, PartialEq, Eq, uniffi::Error)]
pub enum RewireError {
    /// A model cannot be read, or the requested device is not available.
    #[error("{reason}")]
    Model {
        /// The kind of error, such as `rank.read`.
        code: String,
        /// The message.
        reason: String,
    },
    /// Requests do not fit the model.
    #[error("{reason}")]
    Request {
        /// The kind of error: `rank.request`, or `request.text` if the text is not JSON of a request.
        code: String,
        /// The message.
        reason: String,
    },
    /// A run failed.
    #[error("{reason}")]
    Run {
        /// The kind of error, such as `device.lost`.
        code: String,
        /// The message.
        reason: String,
    },
    /// The token of the call was cancelled.
    #[error("the ranking was cancelled")]
    Cancelled,
}

impl RewireError {
    /// A model that cannot be read, or loaded on the device.
    pub(crate) fn of_model(error: impl Into<RankError>) -> Self {
        let error = error.into();
        Self::Model { code: error.code().to_owned(), reason: describe(&error) }
    }

    /// A language model that cannot be read, or loaded on the device.
    pub(crate) fn of_loading(error: &GenerateError) -> Self {
        Self::Model { code: error.code().to_owned(), reason: describe(error) }
    }
}

/// An error of generation.
impl From<GenerateError> for RewireError {
    fn from(error: GenerateError) -> Self {
        let (code, reason) = (error.code().to_owned(), describe(&error));
        match error.is_of_request() {
            true => Self::Request { code, reason },
            false => Self::Run { code, reason },
        }
    }
}

/// An error of ranking.
impl From<RankError> for RewireError {
    fn from(error: RankError) -> Self {
        let (code, reason) = (error.code().to_owned(), describe(&error));
        match error {
            RankError::Cancelled => Self::Cancelled,
            RankError::Request(_) => Self::Request { code, reason },
            _ => Self::Run { code, reason },
        }
    }
}

impl From<JsonError> for RewireError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Request(error) => RankError::from(error).into(),
            other => Self::Request { code: "request.text".to_owned(), reason: other.to_string() },
        }
    }
}
