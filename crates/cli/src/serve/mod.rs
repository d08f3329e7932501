//! An HTTP server for models.

mod arrow;
mod batched;
mod connections;
mod deltas;
mod error;
mod generation;
mod http;
mod metrics;
mod models;
mod operations;
mod queue;
mod requests;
mod rows;
mod stop;

pub use error::ServeError;
pub use models::Source;
pub use queue::QueueLimits;

use crate::args::{Common, Serve};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::with_common;
use metrics::Metrics;
use models::{Served, Starter};
use rewire::ThreadPool;
use rewire::rank::RankOptions;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Threads that read requests and write answers.
const THREADS: usize = 2;

/// The maximum wait for threads of models after all requests are answered.
const LAST: Duration = Duration::from_secs(1);

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limits of the queue of each model.
    pub queue: QueueLimits,
    /// Rows of a request.
    pub rows: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Time for the head of a request, from the end of the one before.
    pub header_timeout: Duration,
    /// Time for the body of a request, and timeout for a client that does not read its answer.
    pub body_timeout: Duration,
    /// Time for accepted requests after the server was stopped.
    pub grace: Duration,
    /// Open connections. Others wait for them.
    pub connections: usize,
    /// Rows of the caches of a language model.
    pub cache_rows: usize,
}

/// Why the server ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is invalid or in use.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Two models have one name.
    #[error("two models have the name `{name}`: name them as NAME=MODEL")]
    Names {
        /// The name.
        name: String,
    },
    /// The system has no more threads or sockets.
    #[error("cannot start the server")]
    Start(#[source] io::Error),
    /// The metrics contradict each other.
    #[error("cannot count requests")]
    Metrics(#[from] prometheus::Error),
    /// A model cannot be loaded.
    #[error(transparent)]
    Load(Box<dyn Error + Send + Sync>),
    /// The list of models cannot be written.
    #[error("cannot write standard output")]
    Output(#[from] io::Error),
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
    deltas: Option<PathBuf>,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Answered requests.
    pub answered: u64,
    /// Connections that were cut off after the grace period.
    pub cut_off: usize,
    /// True if all connections and all threads of models have ended.
    pub is_clean: bool,
}

/// The state that all connections share.
struct App {
    limits: Limits,
    metrics: Metrics,
    /// Empty until the models are loaded.
    models: OnceLock<Vec<Served>>,
    is_stopping: AtomicBool,
    answered: AtomicU64,
}

impl Server {
    /// Listens on an address, such as `127.0.0.1:8000`; port 0 selects a free one.
    ///
    /// # Errors
    /// [`ServerError::Listen`].
    pub fn bind(address: &str, limits: Limits) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Listen { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, limits, deltas: None })
    }

    /// Also applies the deltas of a folder, as they appear, to the models that they follow.
    #[must_use]
    pub fn with_deltas(self, folder: Option<PathBuf>) -> Self {
        Self { deltas: folder, ..self }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loads models, calls `ready` with their names and operations, and answers requests until `stop` is ready. Then it accepts no more
    /// connections and answers all accepted requests.
    ///
    /// # Errors
    /// Two models of one name, and the errors of loading a model and of `ready`.
    pub fn run(
        self,
        sources: Vec<Source>,
        ready: impl FnOnce(&[Value]) -> io::Result<()>,
        stop: impl Future<Output = ()>,
    ) -> Result<Closed, ServerError> {
        for (place, source) in sources.iter().enumerate() {
            if sources.iter().skip(place + 1).any(|other| other.name == source.name) {
                return Err(ServerError::Names { name: source.name.clone() });
            }
        }
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.map_err(ServerError::Start)?;
        let result = runtime.block_on(self.answer(sources, ready, stop));
        // Leaves a model that is still loaded, or runs after the grace period.
        runtime.shutdown_background();
        result
    }

    async fn answer(
        self,
        sources: Vec<Source>,
        ready: impl FnOnce(&[Value]) -> io::Result<()>,
        stop: impl Future<Output = ()>,
    ) -> Result<Closed, ServerError> {
        let Self { listener, limits, deltas, .. } = self;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(ServerError::Start)?;
        let (alive, mut ended) = mpsc::channel(1);
        let app = Arc::new(App {
            limits,
            metrics: Metrics::new()?,
            models: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            answered: AtomicU64::new(0),
        });
        let load = {
            let app = app.clone();
            move || app.load(&sources, alive)
        };
        let loading = async {
            let loaded = tokio::task::spawn_blocking(load).await;
            loaded.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
            let models: Vec<Value> =
                app.models.get().iter().flat_map(|models| models.iter().map(Served::summary)).collect();
            ready(&models)?;
            pending::<Result<Infallible, ServerError>>().await
        };
        let following = async {
            match &deltas {
                Some(folder) => deltas::follow(app.clone(), folder).await,
                None => pending::<Infallible>().await,
            }
        };
        let cut_off = tokio::select! {
            Err(error) = loading => return Err(error),
            never = following => match never {},
            cut_off = connections::serve(listener, &app, stop) => cut_off,
        };
        let answered = app.answered.load(Ordering::Relaxed);
        // Threads of models end with their queues.
        let is_last = Arc::into_inner(app).is_some();
        let is_clean = timeout(LAST, ended.recv()).await.is_ok() && is_last;
        Ok(Closed { answered, cut_off, is_clean })
    }
}

impl App {
    /// Loads all models, one after the other.
    fn load(&self, sources: &[Source], alive: mpsc::Sender<()>) -> Result<(), ServerError> {
        let start = Starter { limits: self.limits, metrics: &self.metrics, alive };
        let load = |source| Served::load(source, &start).map_err(|error| ServerError::Load(Box::new(error)));
        let models = sources.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        let is_first = self.models.set(models).is_ok();
        debug_assert!(is_first, "models are loaded once");
        Ok(())
    }
}

/// Serves models until a signal.
pub fn run(options: &Serve, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let with = RankOptions {
        precision: options.stored.precision(),
        cache: options.stored.cache(),
        allow_unread: options.weights.allow_unread,
        threads: Some(ThreadPool::current()),
        ..options.placement.of_model()
    };
    let with = with_common(common, with);
    let mut sources: Vec<Source> =
        options.models.iter().map(|model| Source::parse(model, &with, options.trie.as_deref())).collect();
    if sources.is_empty() {
        sources.push(Source::demo(&with));
    }
    let server = Server::bind(&options.listen, options.limits())?.with_deltas(options.delta_folder.clone());
    let address = server.address().to_string();
    let ready = |models: &[Value]| {
        if common.json {
            output.json(&json!({ "address": address, "models": models }))?;
        } else {
            for model in models {
                let operations = model["operations"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let operations = operations.collect::<Vec<_>>().join(", ");
                let name = model["name"].as_str().unwrap_or_default();
                output.line(format_args!("http://{address}/v1/models/{name}: {operations}"))?;
            }
        }
        output.flush()
    };
    match server.run(sources, ready, stop::signal())? {
        Closed { cut_off: 0, .. } => Ok(()),
        Closed { cut_off, .. } => Err(CliError::CutOff { connections: cut_off }),
    }
}
