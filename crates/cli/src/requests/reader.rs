//! Requests that are read while those before them are ranked.

use super::{Cell, InputError, Kind, Progress, Requests};
use rewire::describe;
use rewire::rank::Batch;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Requests that are ranked together.
pub struct Chunk {
    pub batch: Batch,
    /// Cells by column that is carried along.
    pub carried: Vec<Vec<Cell>>,
    /// Types of the user and of those columns so far.
    pub kinds: Option<Vec<Option<Kind>>>,
    /// Rows among and after the requests that are none.
    pub rejected: Vec<Rejected>,
    /// Requests and entries that were asked for.
    pub size: usize,
    /// Lines or rows of the file up to here.
    pub row: u64,
    pub progress: Option<Progress>,
    /// Why there are no requests after these, if it is not the end of the file.
    pub end: Result<(), InputError>,
}

/// A row that is no request.
pub struct Rejected {
    /// From 1, where it is known.
    pub row: Option<u64>,
    pub reason: String,
    /// The row, where it is text.
    pub text: Option<String>,
}

/// How a file is read.
pub struct Reading {
    /// The batch that is filled, without requests.
    pub empty: Batch,
    pub sizes: Sizes,
    /// Goes on after rows that are no requests.
    pub rejects: bool,
    /// Chunks that wait for those that compute them.
    pub ahead: usize,
}

/// Requests and entries of chunks.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Those of the first chunks.
    pub first: Vec<usize>,
    /// Those of the others, until it is changed.
    pub later: Arc<AtomicUsize>,
}

impl Default for Sizes {
    /// Few at first, so that there are scores soon.
    fn default() -> Self {
        Self { first: vec![1 << 11], later: Arc::new(AtomicUsize::new(1 << 14)) }
    }
}

/// The chunks of an input.
pub struct Chunks {
    chunks: Receiver<Chunk>,
    reader: Option<JoinHandle<()>>,
}

/// Reads on a thread of its own. The thread ends with the input, or when nobody takes its chunks.
pub fn chunks(input: Box<dyn Requests>, reading: Reading) -> Result<Chunks, InputError> {
    let (sender, chunks) = sync_channel(reading.ahead);
    let reader = Builder::new().name("rewire reads".to_owned()).spawn(move || read(input, &reading, &sender));
    Ok(Chunks { chunks, reader: Some(reader.map_err(InputError::Thread)?) })
}

fn read(mut input: Box<dyn Requests>, reading: &Reading, chunks: &SyncSender<Chunk>) {
    let mut more = true;
    let mut first = reading.sizes.first.iter();
    while more {
        let size = first.next().copied().unwrap_or_else(|| reading.sizes.later.load(Ordering::Relaxed));
        let (mut batch, mut rejected) = (reading.empty.clone(), vec![]);
        let read = fill(&mut *input, &mut batch, size, reading.rejects.then_some(&mut rejected));
        more = matches!(read, Ok(true));
        let chunk = Chunk {
            batch,
            carried: input.take_carried(),
            kinds: input.carry().kinds.clone(),
            rejected,
            size,
            row: input.row(),
            progress: input.progress(),
            end: read.map(drop),
        };
        if chunks.send(chunk).is_err() {
            return;
        }
    }
}

/// Reads requests until they and their entries, and rows that are none, are so many together; false at the end of the file.
fn fill(
    input: &mut dyn Requests,
    batch: &mut Batch,
    size: usize,
    mut rejected: Option<&mut Vec<Rejected>>,
) -> Result<bool, InputError> {
    loop {
        let taken = batch.len() + batch.entries() + rejected.as_ref().map_or(0, |rejected| rejected.len());
        let left = size.saturating_sub(taken);
        if left == 0 {
            return Ok(true);
        }
        match (input.read(batch, left), &mut rejected) {
            (Err(error), Some(rejected)) if error.is_of_row() => rejected.push(Rejected {
                row: error.row(),
                reason: describe(&error),
                text: input.text().map(|text| text.into_owned()),
            }),
            (read, _) => return read,
        }
    }
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        if let Ok(chunk) = self.chunks.recv() {
            return Some(chunk);
        }
        if let Some(Err(panic)) = self.reader.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        None
    }
}
