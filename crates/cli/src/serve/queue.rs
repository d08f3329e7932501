//! Requests that wait for a model, and the thread that answers them in batches.

use super::error::{Fault, ServeError};
use super::metrics::QueueMetrics;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Limits of a queue and its batches.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Maximum number of waiting requests; further ones are rejected.
    pub waiting: usize,
    /// Rows of a batch. A larger request runs alone.
    pub batch_rows: usize,
    /// Maximum wait of a batch for further requests.
    pub batch_wait: Duration,
}

/// A model that answers several requests at once.
pub trait Batched: Send + 'static {
    /// A parsed request.
    type Job: Send + 'static;
    type Answer: Send + 'static;

    fn rows(&self, job: &Self::Job) -> usize;

    /// The answers to all jobs, in their order.
    fn run(&mut self, jobs: Vec<Self::Job>) -> Vec<Result<Self::Answer, Fault>>;
}

/// A request in the queue. If its client has disconnected, `answer` is closed.
pub struct Waiting<J, A> {
    pub job: J,
    pub answer: oneshot::Sender<Result<A, Fault>>,
}

/// The sending side of a model's queue. The thread ends when all queues of it are dropped and all requests are answered.
pub struct Queue<J, A> {
    sender: SyncSender<Waiting<J, A>>,
    metrics: QueueMetrics,
}

/// The receiving side of a queue.
pub struct Line<J, A> {
    receiver: Receiver<Waiting<J, A>>,
    metrics: QueueMetrics,
}

impl<J: Send + 'static, A: Send + 'static> Queue<J, A> {
    /// Starts a thread that answers requests until the queue is dropped. `done` is dropped at its end.
    pub fn start(
        waiting: usize,
        metrics: QueueMetrics,
        done: impl Send + 'static,
        answer: impl FnOnce(Line<J, A>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(waiting);
        let line = Line { receiver, metrics: metrics.clone() };
        Builder::new().name("rewire serves".to_owned()).spawn(move || {
            answer(line);
            drop(done);
        })?;
        Ok(Self { sender, metrics })
    }

    /// Waits for the answer to a request. Dropping the future cancels a request that has not started.
    pub async fn answer(&self, job: J) -> Result<A, Fault> {
        let (answer, answered) = oneshot::channel();
        self.metrics.depth.inc();
        self.sender.try_send(Waiting { job, answer }).map_err(|error| {
            self.metrics.depth.dec();
            match error {
                TrySendError::Full(_) => ServeError::QueueFull,
                TrySendError::Disconnected(_) => ServeError::WorkerLost,
            }
        })?;
        answered.await.map_err(|_| ServeError::WorkerLost)?
    }
}

impl<J, A> Line<J, A> {
    /// The next request, waiting until `deadline`, or without a limit; `None` after the deadline, or if the queue is
    /// closed.
    pub fn next(&self, deadline: Option<Instant>) -> Option<Waiting<J, A>> {
        let next = match deadline {
            None => self.receiver.recv().ok(),
            Some(deadline) => self.next_by(deadline).ok(),
        };
        if next.is_some() {
            self.metrics.depth.dec();
        }
        next
    }

    fn next_by(&self, deadline: Instant) -> Result<Waiting<J, A>, RecvTimeoutError> {
        self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    }

    /// True if the client of a request has disconnected; counts such requests.
    pub fn is_cancelled(&self, waiting: &Waiting<J, A>) -> bool {
        let is_closed = waiting.answer.is_closed();
        if is_closed {
            self.metrics.cancelled.inc();
        }
        is_closed
    }

    /// Counts a batch.
    pub fn ran(&self, requests: usize) {
        self.metrics.batch.observe(requests as f64);
    }
}

/// Answers requests in batches until the queue is dropped.
pub fn serve<B: Batched>(mut model: B, limits: QueueLimits, line: Line<B::Job, B::Answer>) {
    let mut next = None;
    while let Some(first) = next.take().or_else(|| line.next(None)) {
        let deadline = Instant::now() + limits.batch_wait;
        let (mut rows, mut batch) = (model.rows(&first.job), vec![first]);
        while rows < limits.batch_rows {
            let Some(other) = line.next(Some(deadline)) else { break };
            rows = rows.saturating_add(model.rows(&other.job));
            if rows > limits.batch_rows {
                next = Some(other);
                break;
            }
            batch.push(other);
        }
        batch.retain(|waiting| !line.is_cancelled(waiting));
        if batch.is_empty() {
            continue;
        }
        line.ran(batch.len());
        let (jobs, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(|one| (one.job, one.answer)).unzip();
        for (answer, result) in answers.into_iter().zip(model.run(jobs)) {
            // The client may have disconnected.
            let _ = answer.send(result);
        }
    }
}
