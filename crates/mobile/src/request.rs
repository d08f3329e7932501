use rewire::rank;
use std::collections::HashMap;

/// A user, the user's history, and candidates to rank. Columns that the model does not read are ignored.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Request {
    /// The user.
    pub user: String,
    /// Features of the user.
    #[uniffi(default)]
    pub contextual: HashMap<String, i64>,
    /// Past events, oldest first, lists of equal length by feature.
    #[uniffi(default)]
    pub history: HashMap<String, Vec<i64>>,
    /// Candidates, lists of equal length by feature.
    #[uniffi(default)]
    pub candidates: HashMap<String, Vec<i64>>,
}

impl From<Request> for rank::Request {
    fn from(Request { user, contextual, history, candidates }: Request) -> Self {
        Self {
            user: user.into(),
            contextual: contextual.into_iter().collect(),
            history: history.into_iter().collect(),
            candidates: candidates.into_iter().collect(),
            labels: None,
        }
    }
}
