//! Generation for prompts of any number of clients, which join and leave between runs.

use super::error::Fault;
use super::queue::{Line, Waiting};
use rewire::generate::decoder::{Decoder, Queue, Task};
use rewire::generate::{Found, GenerateError, RequestId, Sampling, Trie};
use std::time::Instant;

/// The prompts of a request.
#[derive(Debug)]
pub struct Prompts {
    pub tokens: Vec<Vec<u32>>,
    pub mode: Mode,
}

#[derive(Debug)]
pub enum Mode {
    /// Searches the trie of the server with this beam width.
    Search(usize),
    Sample(Sampling),
}

/// By prompt, best first.
pub type Generated = Vec<Vec<Found>>;

/// Limits of the prompts that run together.
#[derive(Clone, Copy, Debug)]
pub struct DecoderLimits {
    /// Rows of the caches of keys and values.
    pub cache_rows: usize,
    /// Running requests.
    pub requests: usize,
}

/// A running request.
struct Running {
    waiting: Waiting<Prompts, Generated>,
    /// By prompt; `None` once it has ended.
    ids: Vec<Option<RequestId>>,
    found: Generated,
}

/// Answers requests until the queue is dropped. After an error of the caches it answers all with that error.
pub fn serve(mut decoder: Decoder, trie: Option<&Trie>, limits: DecoderLimits, line: &Line<Prompts, Generated>) {
    let mut queue = match decoder.queue(limits.cache_rows) {
        Ok(queue) => queue,
        Err(error) => return refuse_all(&error.into(), line),
    };
    let mut running: Vec<Running> = vec![];
    loop {
        while running.len() < limits.requests {
            // Without running requests there is nothing else to do.
            let deadline = (!running.is_empty()).then(Instant::now);
            let Some(waiting) = line.next(deadline) else { break };
            if !line.is_cancelled(&waiting) {
                running.extend(begin(&mut queue, trie, waiting));
            }
        }
        if running.is_empty() {
            return;
        }
        running.retain(|request| {
            let is_cancelled = line.is_cancelled(&request.waiting);
            if is_cancelled {
                request.ids.iter().flatten().for_each(|id| {
                    queue.cancel(*id);
                });
            }
            !is_cancelled
        });
        line.ran(running.len());
        match queue.step() {
            Ok(progress) => {
                for ended in progress {
                    if let Some(found) = ended.found {
                        running.iter_mut().for_each(|request| request.take(ended.request, &found));
                    }
                }
                running.extract_if(.., |request| request.is_done()).for_each(|request| request.answer(None));
            }
            Err(error) => {
                let fault = Fault::from(error);
                running.drain(..).for_each(|request| request.answer(Some(fault.clone())));
            }
        }
    }
}

fn refuse_all(fault: &Fault, line: &Line<Prompts, Generated>) {
    while let Some(waiting) = line.next(None) {
        let _ = waiting.answer.send(Err(fault.clone()));
    }
}

/// Submits the prompts of a request; `None` if one is invalid, which is answered.
fn begin<'q>(queue: &mut Queue<'q>, trie: Option<&'q Trie>, waiting: Waiting<Prompts, Generated>) -> Option<Running> {
    let submitted = submit(queue, trie, &waiting.job);
    match submitted {
        Ok(ids) => {
            let found = ids.iter().map(|_| vec![]).collect();
            Some(Running { waiting, ids: ids.into_iter().map(Some).collect(), found })
        }
        Err(fault) => {
            let _ = waiting.answer.send(Err(fault));
            None
        }
    }
}

fn submit<'q>(queue: &mut Queue<'q>, trie: Option<&'q Trie>, job: &Prompts) -> Result<Vec<RequestId>, Fault> {
    let mut ids = vec![];
    for (place, prompt) in job.tokens.iter().enumerate() {
        let task = match (&job.mode, trie) {
            (Mode::Sample(sampling), _) => Task::Sample(sampling.clone()),
            (Mode::Search(width), Some(trie)) => Task::Search { trie, width: *width },
            (Mode::Search(_), None) => return Err(Fault::of_text("`beams` needs items: start the server with --trie")),
        };
        match queue.submit(prompt, task) {
            Ok(id) => ids.push(id),
            Err(error) => {
                ids.into_iter().for_each(|id| {
                    queue.cancel(id);
                });
                return Err(of_prompt(place, error));
            }
        }
    }
    Ok(ids)
}

/// An error of a prompt, with its position in the request.
fn of_prompt(place: usize, error: GenerateError) -> Fault {
    let fault = Fault::from(error);
    Fault { message: format!("prompts[{place}]: {}", fault.message), ..fault }
}

impl Running {
    /// Stores the results of a prompt, if it belongs to this request.
    fn take(&mut self, ended: RequestId, results: &[Found]) {
        let place = self.ids.iter().position(|id| *id == Some(ended));
        if let Some((id, found)) = place.and_then(|at| Some((self.ids.get_mut(at)?, self.found.get_mut(at)?))) {
            *id = None;
            *found = results.to_vec();
        }
    }

    fn is_done(&self) -> bool {
        self.ids.iter().all(Option::is_none)
    }

    fn answer(self, fault: Option<Fault>) {
        // The client may have disconnected.
        let _ = self.waiting.answer.send(fault.map_or(Ok(self.found), Err));
    }
}
