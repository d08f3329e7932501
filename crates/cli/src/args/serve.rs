use super::values::{bytes, seconds};
use super::{Placement, Stored, Weights};
use crate::serve::{Limits, QueueLimits};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Model folders, packages or exported models (.pt2, .onnx), as PATH or NAME=PATH. In URLs a model has its NAME, or
    /// its file name without the extension. The built-in model, `demo`, if left out.
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// The address to listen on; port 0 selects a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub listen: String,
    /// Maximum rows of a batch; concurrent requests run together. Results do not depend on it.
    #[arg(long, value_name = "ROWS", default_value = "64")]
    pub batch: NonZeroUsize,
    /// Maximum time that a batch waits for further requests.
    #[arg(long, value_name = "SECONDS", default_value = "0.001", value_parser = seconds)]
    pub batch_wait: f64,
    /// Maximum number of requests that wait for a model. Further ones are rejected with status 503.
    #[arg(long, value_name = "N", default_value = "256")]
    pub queue: NonZeroUsize,
    /// Maximum rows of a request.
    #[arg(long, value_name = "ROWS", default_value = "1024")]
    pub rows_limit: NonZeroUsize,
    /// Maximum size of the body of a request, such as 16MiB.
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = bytes)]
    pub body_limit: u64,
    /// Timeout for the head of a request, also between two requests of a connection.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub header_timeout: f64,
    /// Timeout for the body of a request, and for a client that does not read its answer.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub body_timeout: f64,
    /// Maximum number of open connections. Others wait.
    #[arg(long, value_name = "N", default_value = "1024")]
    pub connections: NonZeroUsize,
    /// Grace period of accepted requests after SIGTERM or an interrupt.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub grace: f64,
    /// The valid items for language models, as for `generate`. Without it, tokens are sampled.
    #[arg(long, value_name = "FILE")]
    pub trie: Option<PathBuf>,
    /// Tokens in the caches of a language model, of all requests that run together.
    #[arg(long, value_name = "TOKENS", default_value = "2048")]
    pub cache_rows: NonZeroUsize,
    /// Folder of the deltas of a training. New deltas are applied to the model that they follow.
    #[arg(long, value_name = "DIR")]
    pub delta_folder: Option<PathBuf>,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub placement: Placement,
    #[command(flatten)]
    pub weights: Weights,
}

impl Serve {
    pub fn limits(&self) -> Limits {
        Limits {
            queue: QueueLimits {
                waiting: self.queue.get(),
                batch_rows: self.batch.get(),
                batch_wait: Duration::from_secs_f64(self.batch_wait),
            },
            rows: self.rows_limit.get(),
            body_bytes: usize::try_from(self.body_limit).unwrap_or(usize::MAX),
            header_timeout: Duration::from_secs_f64(self.header_timeout),
            body_timeout: Duration::from_secs_f64(self.body_timeout),
            grace: Duration::from_secs_f64(self.grace),
            connections: self.connections.get().min(MOST_CONNECTIONS),
            cache_rows: self.cache_rows.get(),
        }
    }
}

/// The maximum value of a semaphore.
const MOST_CONNECTIONS: usize = tokio::sync::Semaphore::MAX_PERMITS;
