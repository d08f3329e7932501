//! The served models.

use super::Limits;
use super::generation::{self, DecoderLimits};
use super::metrics::Metrics;
use super::operations::{Embedding, Generation, Operation, Prediction, Ranking, Running};
use super::queue::{self, Batched, Queue};
use crate::error::CliError;
use prometheus::IntGauge;
use rewire::delta::{Delta, DeltaError};
use rewire::generate::Trie;
use rewire::generate::decoder::{Decoder, read_items};
use rewire::predict::Predictor;
use rewire::program::{ModelFile, ModelKind, Program};
use rewire::rank::{Embedded, Embedder, RankOptions, Ranker};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// A model to serve.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in paths.
    pub name: String,
    /// A folder, a package or an exported model; the built-in model if `None`.
    pub path: Option<PathBuf>,
    /// Options for loading it.
    pub options: RankOptions,
    /// The valid items of a language model, as `generate` reads them.
    pub trie: Option<PathBuf>,
}

/// Applies a delta to all queues of a model.
pub type Update = Box<dyn Fn(&Delta) -> Result<(), DeltaError> + Send + Sync>;

/// A loaded model.
pub struct Served {
    pub name: String,
    pub operations: Vec<Operation>,
    /// Its inputs and outputs.
    pub description: Value,
    pub update: Option<Update>,
    /// The number of the latest delta.
    pub version: IntGauge,
}

/// Starts the threads of models. Each thread drops its copy of `alive` at its end.
pub struct Starter<'a> {
    pub limits: Limits,
    pub metrics: &'a Metrics,
    pub alive: mpsc::Sender<()>,
}

impl Source {
    /// A model named like its file or folder, without the extension, or `NAME=PATH`.
    pub fn parse(text: &str, options: &RankOptions, trie: Option<&Path>) -> Self {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !name.contains(['/', '\\']) => (name.to_owned(), path),
            _ => (Path::new(text).file_stem().unwrap_or_default().to_string_lossy().into_owned(), text),
        };
        Self { name, path: Some(path.into()), options: options.clone(), trie: trie.map(Path::to_owned) }
    }

    /// The built-in model, `demo`.
    pub fn demo(options: &RankOptions) -> Self {
        Self { name: "demo".to_owned(), path: None, options: options.clone(), trie: None }
    }
}

impl Served {
    /// Loads a model and starts its threads.
    pub fn load(source: &Source, start: &Starter<'_>) -> Result<Self, CliError> {
        let Source { name, path: Some(path), options, trie } = source else {
            return start.ranking(&source.name, crate::rank::load(None, &source.options)?);
        };
        let file = ModelFile::open(path, options.mapping)?;
        match file.kind()? {
            ModelKind::Ranking => start.ranking(name, Ranker::load(path, options)?),
            ModelKind::Imported => start.prediction(name, Predictor::load(path, options)?),
            ModelKind::Matching => {
                let [users, items] =
                    [Embedded::Users, Embedded::Items].map(|embedded| Embedder::load(path, embedded, options));
                start.embedding(name, users?, items?)
            }
            ModelKind::Language => {
                let decoder = Decoder::open(path, options)?;
                let vocabulary = decoder.config().vocabulary();
                let items = trie.as_deref().map(read_items).transpose()?;
                let trie = items.map(|items| Trie::of_tokens(vocabulary, (0i64..).zip(items))).transpose()?;
                start.generation(name, decoder, trie)
            }
            ModelKind::Tensors => start.running(name, Program::load(&file, options)?),
        }
    }

    /// The operation of this name.
    pub fn operation(&self, name: &str) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.name() == name)
    }

    /// The names of all operations.
    pub fn known(&self) -> String {
        self.operations.iter().map(Operation::name).collect::<Vec<_>>().join(", ")
    }

    /// The model in the list of all models.
    pub fn summary(&self) -> Value {
        let operations: Vec<_> = self.operations.iter().map(Operation::name).collect();
        json!({ "name": self.name, "operations": operations })
    }
}

impl Starter<'_> {
    fn queue<B: Batched>(&self, name: &str, model: B) -> Result<Queue<B::Job, B::Answer>, CliError> {
        let limits = self.limits.queue;
        let metrics = self.metrics.of_queue(name);
        Queue::start(limits.waiting, metrics, self.alive.clone(), move |line| queue::serve(model, limits, line))
            .map_err(CliError::Thread)
    }

    fn served(&self, name: &str, operations: Vec<Operation>, description: Value, update: Option<Update>) -> Served {
        Served { name: name.to_owned(), operations, description, update, version: self.metrics.version(name) }
    }

    fn ranking(&self, name: &str, ranker: Ranker) -> Result<Served, CliError> {
        let tasks = ranker.tasks().iter().map(|task| task.name.clone()).collect();
        let queue = self.queue(name, ranker.clone())?;
        let operation = Operation::Rank(Ranking { empty: ranker.batch(), tasks, queue });
        let description = json!(ranker.describe());
        let update: Update = Box::new(move |delta| ranker.update(delta));
        Ok(self.served(name, vec![operation], description, Some(update)))
    }

    fn prediction(&self, name: &str, predictor: Predictor) -> Result<Served, CliError> {
        let (columns, outputs) = (predictor.columns().to_vec(), predictor.outputs().to_vec());
        let queue = self.queue(name, predictor.clone())?;
        let operation = Operation::Predict(Prediction { columns, outputs, queue });
        let description = json!(predictor.describe());
        let update: Update = Box::new(move |delta| predictor.update(delta));
        Ok(self.served(name, vec![operation], description, Some(update)))
    }

    fn embedding(&self, name: &str, users: Embedder, items: Embedder) -> Result<Served, CliError> {
        let operation = |name: &'static str, embedder: &Embedder| {
            let queue = self.queue(name, embedder.clone())?;
            Ok::<_, CliError>(Operation::Embed(Embedding { name, empty: embedder.batch(), queue }))
        };
        let operations = vec![operation("users", &users)?, operation("items", &items)?];
        let description = json!({ "users": users.schema(), "items": items.schema() });
        let update: Update = Box::new(move |delta| {
            users.update(delta)?;
            items.update(delta)
        });
        Ok(self.served(name, operations, description, Some(update)))
    }

    fn generation(&self, name: &str, decoder: Decoder, trie: Option<Trie>) -> Result<Served, CliError> {
        let limits = DecoderLimits { cache_rows: self.limits.cache_rows, requests: self.limits.queue.batch_rows };
        let config = decoder.config();
        let description =
            json!({ "model": config.model_type(), "vocabulary": config.vocabulary(), "trie": trie.is_some() });
        let metrics = self.metrics.of_queue(name);
        let answer = move |line: queue::Line<_, _>| generation::serve(decoder, trie.as_ref(), limits, &line);
        let queue = Queue::start(self.limits.queue.waiting, metrics, self.alive.clone(), answer);
        let operation = Operation::Generate(Generation { queue: queue.map_err(CliError::Thread)? });
        Ok(self.served(name, vec![operation], description, None))
    }

    fn running(&self, name: &str, program: Program) -> Result<Served, CliError> {
        let description = json!({ "inputs": program.inputs() });
        let operation = Operation::Run(Running { queue: self.queue(name, program)? });
        Ok(self.served(name, vec![operation], description, None))
    }
}
