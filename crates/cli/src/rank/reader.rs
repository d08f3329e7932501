//! Requests that are read while those before them are ranked.

use super::input::{InputError, Progress, Requests};
use rewire::rank::Batch;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Requests and entries of a chunk: few at first, so that there are scores soon.
const FIRST: usize = 1 << 11;
const LATER: usize = 1 << 14;
/// Chunks that wait to be ranked.
const WAITING: usize = 2;

/// Requests that are ranked together.
pub struct Chunk {
    pub batch: Batch,
    pub progress: Option<Progress>,
    /// Why there are no requests after these, if it is not the end of the file.
    pub end: Result<(), InputError>,
}

/// The chunks of an input.
pub struct Chunks {
    chunks: Receiver<Chunk>,
    reader: Option<JoinHandle<()>>,
}

/// Reads on a thread of its own, into clones of a batch that is empty. The thread ends with the input, or when nobody takes its chunks.
pub fn chunks(input: Box<dyn Requests>, empty: Batch) -> Chunks {
    let (sender, chunks) = sync_channel(WAITING);
    Chunks { chunks, reader: Some(std::thread::spawn(move || read(input, &empty, &sender))) }
}

fn read(mut input: Box<dyn Requests>, empty: &Batch, chunks: &SyncSender<Chunk>) {
    let (mut entries, mut more) = (FIRST, true);
    while more {
        let mut batch = empty.clone();
        let read = input.read(&mut batch, entries);
        more = matches!(read, Ok(true));
        let chunk = Chunk { batch, progress: input.progress(), end: read.map(drop) };
        if chunks.send(chunk).is_err() {
            return;
        }
        entries = LATER;
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
