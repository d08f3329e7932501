//! Reads, computes and writes concurrently.

use crate::error::CliError;
use crate::requests::{Chunk, Chunks};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Builder;

/// True once the program's allocator uses its reserve, which is for finishing a run.
pub static MEMORY_IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Chunks, and their results, in order.
struct Line {
    chunks: Mutex<(u64, Chunks)>,
    /// The number of the next chunk to deliver.
    turn: Mutex<u64>,
    passed: Condvar,
}

/// Calls `compute` on up to `workers` threads, as far as the system allows, and `take` with the results, in the order of the chunks. After
/// an error, or once memory is short, no more results are delivered.
pub fn run<T: Send>(
    chunks: Chunks,
    workers: usize,
    compute: impl Fn(Chunk) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let line = Line { chunks: Mutex::new((0, chunks)), turn: Mutex::new(0), passed: Condvar::new() };
    let (sender, results) = sync_channel(1);
    std::thread::scope(|scope| {
        let (line, compute) = (&line, &compute);
        let worker = || {
            let sender = sender.clone();
            let thread = Builder::new().name("rewire computes".to_owned());
            thread.spawn_scoped(scope, move || while line.compute_next(compute, &sender) {})
        };
        let mut started = vec![worker().map_err(CliError::Thread)?];
        started.extend((1..workers).map_while(|_| worker().ok()));
        drop(sender);
        let mut is_short = false;
        let taken = results.iter().try_for_each(|result| {
            if is_short {
                return Err(CliError::Short);
            }
            take(result)?;
            is_short = MEMORY_IS_SHORT.load(Ordering::Relaxed);
            Ok(())
        });
        drop(results);
        for worker in started {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        taken
    })
}

impl Line {
    /// Computes the next chunk and sends the result in order; false if no chunk is left, or the receiver is dropped.
    fn compute_next<T>(&self, compute: impl Fn(Chunk) -> T, results: &SyncSender<T>) -> bool {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(chunk) = chunks.1.next() else { return false };
        let number = chunks.0;
        chunks.0 += 1;
        drop(chunks);
        let _turn = Turn { line: self, number };
        let result = compute(chunk);
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.passed.wait_while(turn, |turn| *turn < number);
        drop(turn.unwrap_or_else(PoisonError::into_inner));
        results.send(result).is_ok()
    }
}

/// The position of a chunk in the order. It passes to the next one even if the computation panics.
struct Turn<'a> {
    line: &'a Line,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turn = self.line.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = (*turn).max(self.number + 1);
        self.line.passed.notify_all();
    }
}
