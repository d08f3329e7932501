use super::Decoder;
use crate::generate::requests::{Requests, Work};
use crate::generate::{GenerateError, Progress, RequestId, Sampling, Trie};
use rewire_runtime::block_on;

/// The result of a prompt.
#[derive(Clone, Debug)]
pub enum Task<'a> {
    /// Items of a trie, by beam search.
    Search {
        /// The items.
        trie: &'a Trie,
        /// The beam width, counting prefixes and complete items.
        width: usize,
    },
    /// Sampled tokens.
    Sample(Sampling),
}

/// Continuous batching: requests of different lengths run together, and start and end between runs. Results do not
/// depend on other requests, bit for bit.
///
/// Each run computes the prompts of new requests and one token of every other request. On a device, the trie lies in
/// device memory, which selects the best prefixes; the host reads those after each run. Until it ends, a request holds
/// cache rows of the decoder for its prompt and the maximum number of its new tokens; requests wait until enough rows
/// are free.
#[derive(Debug)]
pub struct Queue<'a> {
    decoder: &'a mut Decoder,
    requests: Requests<'a>,
}

impl Decoder {
    /// An empty queue, with caches of `rows` rows.
    ///
    /// # Errors
    /// [`GenerateError::Run`] if they cannot be allocated.
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
    /// [`GenerateError`] for an invalid prompt or task, and [`GenerateError::Rows`] for a request that needs more rows than the queue has.
    pub fn submit(&mut self, prompt: &[u32], task: Task<'a>) -> Result<RequestId, GenerateError> {
        self.decoder.check(0, prompt)?;
        let work = self.decoder.work(task)?;
        self.requests.submit(&*self.decoder, prompt.to_vec(), work)
    }

    /// Ends a request and frees its rows. False if it has already ended.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.requests.cancel(request)
    }

    /// True if no request is left.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Cache rows that requests hold: the sum of rows for sequences and for encoders' tokens.
    pub fn rows(&self) -> usize {
        self.requests.held().iter().sum()
    }

    /// Runs once, and returns the progress of the requests. An error ends all requests.
    ///
    /// # Errors
    /// The error of the run.
    pub async fn step_async(&mut self) -> Result<Vec<Progress>, GenerateError> {
        if let Err(error) = self.prepare().await {
            self.requests.clear();
            return Err(error);
        }
        self.requests.step(self.decoder).await
    }

    /// Moves new searches to the device, where it supports them.
    async fn prepare(&mut self) -> Result<(), GenerateError> {
        for work in self.requests.submitted() {
            if let Work::Search(search) = work
                && let Some(resident) = self.decoder.resident_search(search).await?
            {
                *work = Work::Resident(resident);
            }
        }
        Ok(())
    }

    /// [`Queue::step_async`], blocking.
    ///
    /// # Errors
    /// As [`Queue::step_async`].
    pub fn step(&mut self) -> Result<Vec<Progress>, GenerateError> {
        block_on(self.step_async())
    }
}
