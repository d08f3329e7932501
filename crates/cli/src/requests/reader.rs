//! Reads requests while earlier ones are ranked.

use super::{Cell, InputError, Kind, Progress, Requests};
use rewire::describe;
use rewire::rank::Batch;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// A batch of requests.
pub struct Chunk {
    pub batch: Batch,
    /// Cells by copied column.
    pub carried: Vec<Vec<Cell>>,
    /// Types of the user and of those columns so far.
    pub kinds: Option<Vec<Option<Kind>>>,
    /// Invalid rows among and after the requests.
    pub rejected: Vec<Rejected>,
    /// The requested number of requests and entries.
    pub size: usize,
    /// Lines or rows of the file up to here.
    pub row: u64,
    pub progress: Option<Progress>,
    /// Why no requests follow, unless the file has ended.
    pub end: Result<(), InputError>,
}

/// An invalid row.
pub struct Rejected {
    /// From 1, if known.
    pub row: Option<u64>,
    pub reason: String,
    /// The row, if it is text.
    pub text: Option<String>,
}

/// Options for reading a file.
pub struct Reading {
    /// The empty batch to fill.
    pub empty: Batch,
    pub sizes: Sizes,
    /// Continues after invalid rows.
    pub rejects: bool,
    /// Chunks that are read in advance.
    pub ahead: usize,
}

/// Sizes of chunks in requests and entries.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Those of the first chunks.
    pub first: Vec<usize>,
    /// That of the others, until it is changed.
    pub later: Arc<AtomicUsize>,
}

impl Default for Sizes {
    /// Small at first, for early scores.
    fn default() -> Self {
        Self { first: vec![1 << 11], later: Arc::new(AtomicUsize::new(1 << 14)) }
    }
}

/// The chunks of an input.
pub struct Chunks {
    chunks: Receiver<Chunk>,
    reader: Option<JoinHandle<()>>,
}

/// Reads on a separate thread. The thread ends with the input, or when the receiver is dropped.
pub fn chunks(input: Box<dyn Requests>, reading: Reading) -> Result<Chunks, InputError> {
    let (sender, chunks) = sync_channel(reading.ahead);
    let reader = Builder::new().name("rewire reads".to_owned()).spawn(move || read(input, &reading, &sender));
    Ok(Chunks { chunks, reader: Some(reader.map_err(InputError::Thread)?) })
}

/// Reads the requests of the first chunk.
pub(super) fn first(input: &mut dyn Requests, batch: &mut Batch) -> Result<(), InputError> {
    let size = Sizes::default().first.first().copied().unwrap_or_default();
    fill(input, batch, size, None).map(drop)
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

/// Reads requests until they, their entries and invalid rows reach a number; false at the end of the file.
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
