use crate::{CancellationToken, Options, Ranking, Request, RewireError};
use rewire::package::Package;
use rewire::rank::{self, Batch, Column, RankOptions};
use std::path::Path;
use std::sync::Arc;

/// A loaded ranking model, for any number of threads.
#[derive(Debug, uniffi::Object)]
pub struct Ranker(rank::Ranker);

/// The features of requests.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Schema {
    /// User features, one value per request.
    pub contextual: Vec<String>,
    /// Features of past events, one list per request.
    pub history: Vec<String>,
    /// Features of candidates, one list per request.
    pub candidates: Vec<String>,
}

#[uniffi::export]
impl Ranker {
    /// Loads a model: a package or, unless the library was built only for packages, a folder with `config.json` and
    /// `model.safetensors`. Without options it runs on a hardware GPU if one exists, otherwise on the CPU. Blocks.
    #[uniffi::constructor(default(options = None))]
    pub fn load(path: String, options: Option<Options>) -> Result<Self, RewireError> {
        let load = if cfg!(feature = "folders") { rank::Ranker::load } else { rank::Ranker::load_package };
        let ranker = load(Path::new(&path), &given(options));
        ranker.map(Self).map_err(RewireError::of_model)
    }

    /// Loads a package from memory; otherwise like `load`.
    #[uniffi::constructor(default(options = None))]
    pub fn from_bytes(bytes: Vec<u8>, options: Option<Options>) -> Result<Self, RewireError> {
        let package = Package::parse(bytes).map_err(RewireError::of_model)?;
        rank::Ranker::from_package(&package, &given(options)).map(Self).map_err(RewireError::of_model)
    }

    /// Names of the tasks, in the order of logits.
    pub fn tasks(&self) -> Vec<String> {
        self.0.tasks().iter().map(|task| task.name.clone()).collect()
    }

    /// Name of the GPU that it uses, or `cpu`.
    pub fn device(&self) -> String {
        self.0.report().adapter.unwrap_or_else(|| "cpu".to_owned())
    }

    /// The features of requests.
    pub fn schema(&self) -> Schema {
        let names = |columns: &[Column]| columns.iter().map(|column| column.name.clone()).collect();
        let schema = self.0.schema();
        Schema {
            contextual: names(&schema.contextual),
            history: names(&schema.history),
            candidates: names(&schema.candidates),
        }
    }

    /// A readable description of the model's inputs and outputs: features of requests with their ranges, tasks,
    /// tensors, and an example request for `rank_json`.
    pub fn describe(&self) -> String {
        self.0.describe().to_string()
    }

    /// Ranks the candidates of each request, unless `token` is cancelled. Scores do not depend on the other requests of the batch. Blocks.
    #[uniffi::method(default(token = None))]
    pub fn rank(&self, requests: Vec<Request>, token: Option<Arc<CancellationToken>>) -> Result<Ranking, RewireError> {
        let mut batch = self.0.batch();
        for request in requests {
            batch.push(&request.into()).map_err(rank::RankError::from)?;
        }
        self.ranking(&batch, token.as_deref())
    }

    /// Like `rank`, for requests as JSON, one per line: `user`, user features by name, and lists by feature in `history` and
    /// `candidates`.
    #[uniffi::method(default(token = None))]
    pub fn rank_json(&self, lines: String, token: Option<Arc<CancellationToken>>) -> Result<Ranking, RewireError> {
        let mut batch = self.0.batch();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            batch.push_json(line.as_bytes())?;
        }
        self.ranking(&batch, token.as_deref())
    }

    /// Frees the memory of idle runs, for use when the system is low on memory. The next runs allocate it again.
    pub fn trim(&self) {
        self.0.trim();
    }
}

impl Ranker {
    fn ranking(&self, batch: &Batch, token: Option<&CancellationToken>) -> Result<Ranking, RewireError> {
        let ranked = match token {
            None => self.0.rank_batch(batch)?,
            Some(token) => self.0.with_cancellation(&token.token).rank_batch(batch)?,
        };
        Ok(Ranking::of(ranked))
    }
}

pub(crate) fn given(options: Option<Options>) -> RankOptions {
    options.map(RankOptions::from).unwrap_or_default()
}
