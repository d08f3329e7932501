use super::error::CpuError;
use super::memory::Memory;
use super::scratch::headroom;
use super::store::{Blocks, Store, Target, deal};
use crate::parallel::{Member, threads, with_helpers};
use std::sync::{Mutex, OnceLock};

/// Runs tasks on this thread and on helpers, up to the number of threads in the caller's pool. Tasks start in order. Each
/// thread has one `state`. After an error no further task starts.
pub fn for_each<T: Send, S>(
    tasks: Vec<T>,
    state: impl Fn() -> Result<S, CpuError> + Sync,
    run: impl Fn(&mut S, T) -> Result<(), CpuError> + Sync,
) -> Result<(), CpuError> {
    let workers = threads().min(tasks.len());
    let (queue, failure) = (Mutex::new(tasks.into_iter()), OnceLock::new());
    let work = |member: &Member<'_>| {
        let mut own = None;
        loop {
            member.begin_task();
            let task =
                if failure.get().is_none() { queue.lock().ok().and_then(|mut queue| queue.next()) } else { None };
            let Some(task) = task else { break };
            let result = match &mut own {
                Some(own) => run(own, task),
                None => headroom().and_then(|()| run(own.insert(state()?), task)),
            };
            if let Err(error) = result {
                // Only the first error is returned.
                drop(failure.set(error));
            }
        }
    };
    with_helpers(workers.saturating_sub(1), work);
    failure.into_inner().map_or(Ok(()), Err)
}

/// Runs the blocks of a loop with [`for_each`]. `run` gets the output targets and the number of a block.
pub(super) fn for_each_block<'s, S>(
    stores: impl Iterator<Item = &'s Store> + Clone,
    outputs: &mut [&mut Memory],
    blocks: Blocks,
    state: impl Fn() -> Result<S, CpuError> + Sync,
    run: impl Fn(&mut S, &mut [Target<'_>], usize) -> Result<(), CpuError> + Sync,
) -> Result<(), CpuError> {
    let dealt = deal(stores, outputs, blocks)?;
    for_each(dealt.into_iter().enumerate().collect(), state, |state, (n, mut targets)| run(state, &mut targets, n))
}
