use rewire::describe;
use rewire::generate::GenerateError;
use rewire::graph::Coded;
use rewire::package::PackageError;
use rewire::rank::{ColumnsError, JsonError, RankError, RequestError};
use std::fmt;

/// An error for JavaScript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code, such as `device.lost`.
    pub code: &'static str,
    /// The message.
    pub message: String,
}

impl Failure {
    /// An error for requests that do not form a batch.
    pub(crate) fn of_request(message: impl fmt::Display) -> Self {
        Self { code: "request.columns", message: message.to_string() }
    }

    /// An error for values that are not tensors.
    #[cfg(feature = "models")]
    pub(crate) fn of_tensor(message: impl fmt::Display) -> Self {
        Self { code: "request.tensor", message: message.to_string() }
    }

    /// An error for an unknown option.
    pub(crate) fn of_option(message: impl fmt::Display) -> Self {
        Self { code: "option", message: message.to_string() }
    }
}

impl From<RankError> for Failure {
    fn from(error: RankError) -> Self {
        Self { code: error.code(), message: describe(&error) }
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        Self { code: error.code(), message: describe(&error) }
    }
}

impl From<PackageError> for Failure {
    fn from(error: PackageError) -> Self {
        RankError::from(error).into()
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        RankError::from(error).into()
    }
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Request(error) => error.into(),
            other => Self { code: "request.text", message: other.to_string() },
        }
    }
}

impl From<ColumnsError> for Failure {
    fn from(error: ColumnsError) -> Self {
        match error {
            ColumnsError::Request(error) => error.into(),
            other => Self::of_request(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::package::Package;
    use rewire::rank::{Batch, Column, Columns, Schema};

    #[test]
    fn every_error_has_a_code_and_a_message() {
        let item = || vec![Column::ids("item", 10)];
        let mut batch = Batch::new(Schema { contextual: vec![], history: vec![], candidates: item() });
        let text = Failure::from(batch.push_json(b"7").unwrap_err());
        let range = Failure::from(batch.push_json(br#"{"user":"u","candidates":{"item":[10]}}"#).unwrap_err());
        let columns = Columns::new(["u"]).candidates("item", &[0, 2], &[1]);
        let offsets = Failure::from(batch.extend(&columns).unwrap_err());
        let package = Failure::from(Package::parse(vec![0; 64]).unwrap_err());
        let kernel = Failure::of_option("kernel: expected auto, wgpu or cpu, got `npu`");
        let all = [text, range, offsets, package, kernel];
        let codes = all.each_ref().map(|failure| failure.code);
        assert_eq!(codes, ["request.text", "rank.request", "request.columns", "package.not_package", "option"]);
        assert!(all.iter().all(|failure| !failure.message.is_empty()));
        assert!(all[1].message.contains("`candidates.item[0]` is 10"), "{}", all[1].message);
    }
}
