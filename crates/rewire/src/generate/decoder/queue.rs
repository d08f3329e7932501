use super::Decoder;
use crate::generate::requests::Requests;
use crate::generate::{GenerateError, Progress, RequestId, Sampling, Trie};
use rewire_runtime::block_on;

/// The result of a prompt.
#[derive(Clone, Debug)]
pub enum Task<'a> {
    /// Items of a trie, by beam search.
    Search {
        /// The items.
        trie: &'a Trie,
        /// Beginnings and items that are kept at every level.
        width: usize,
    },
    /// Tokens that are drawn.
    Sample(Sampling),
}

/// Requests of different lengths that run together, and come and go between runs. The results of one have the same bits whatever the others are.
///
/// Each run computes the prompts of the requests that begin, and a token of all others. A request holds rows of the decoder's caches for its
/// prompt and for all tokens that it may take, until it has ended; requests for which there are no rows wait.
#[derive(Debug)]
pub struct Queue<'a> {
    decoder: &'a mut Decoder,
    requests: Requests<'a>,
}

impl Decoder {
    /// An empty queue, with caches of so many rows.
    ///
    /// # Errors
    /// [`GenerateError::Run`] where there is no room for them.
    pub async fn queue_async(&mut self, rows: usize) -> Result<Queue<'_>, GenerateError> {
        let requests = Requests::new(self, rows).await?;
        Ok(Queue { decoder: self, requests })
    }

    /// [`Decoder::queue_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::queue_async`].
    pub fn queue(&mut self, rows: usize) -> Result<Queue<'_>, GenerateError> {
        block_on(self.queue_async(rows))
    }
}

impl<'a> Queue<'a> {
    /// Adds a request.
    ///
    /// # Errors
    /// [`GenerateError`] for a prompt or a task that cannot be, and [`GenerateError::Rows`] for one that needs more rows than there are.
    pub fn submit(&mut self, prompt: &[u32], task: Task<'a>) -> Result<RequestId, GenerateError> {
        self.decoder.check(0, prompt)?;
        let work = self.decoder.work(task)?;
        self.requests.submit(&*self.decoder, prompt.to_vec(), work)
    }

    /// Ends a request and frees its rows. False where it has ended before.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.requests.cancel(request)
    }

    /// True if no request is left.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Cache rows that requests hold, of sequences and of encoders' tokens together.
    pub fn rows(&self) -> usize {
        self.requests.held().iter().sum()
    }

    /// Runs once, and returns the requests that continue. After an error no request is left.
    ///
    /// # Errors
    /// What failed while it ran.
    pub async fn step_async(&mut self) -> Result<Vec<Progress>, GenerateError> {
        self.requests.step(self.decoder).await
    }

    /// [`Queue::step_async`], blocking.
    ///
    /// # Errors
    /// As [`Queue::step_async`].
    pub fn step(&mut self) -> Result<Vec<Progress>, GenerateError> {
        block_on(self.step_async())
    }
}
