use super::RankError;
use rewire_runtime::{GpuError, RunError};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The same model on several devices. Each task goes to the least busy device; any number of threads may submit tasks.
///
/// If a device fails, the other devices execute its tasks; a lost device gets no more tasks. Devices of one kind
/// compute the same bits.
///
/// ```no_run
/// use rewire::Kernel;
/// use rewire::rank::{RankOptions, Ranker, Spread};
/// let on = |device: usize| {
///     let adapter = Some(format!("#{device}"));
///     Ranker::load("model.rewire".as_ref(), &RankOptions { kernel: Kernel::Wgpu, adapter, ..RankOptions::default() })
/// };
/// let first = on(0)?;
/// let batch = first.batch();
/// let rankers = Spread::new(first, [on(1)?]);
/// let ranked = rankers.run(|ranker| ranker.rank_batch(&batch))?;
/// # Ok::<(), rewire::rank::RankError>(())
/// ```
#[derive(Debug)]
pub struct Spread<T> {
    members: Vec<T>,
    states: Mutex<Vec<State>>,
}

/// The state of a device.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    under_way: usize,
    is_lost: bool,
}

impl RankError {
    /// True for a failure of the device: it is lost, out of memory, or its results do not arrive. Another device may
    /// execute the task.
    pub fn is_of_device(&self) -> bool {
        let failed = |error: &RunError| {
            use GpuError::{Lost, OutOfMemory, Readback};
            matches!(error, RunError::Gpu(Lost { .. } | OutOfMemory { .. } | Readback { .. }))
        };
        matches!(self, Self::Run(error) if failed(error))
    }

    fn is_lost(&self) -> bool {
        matches!(self, Self::Run(error) if matches!(**error, RunError::Gpu(GpuError::Lost { .. })))
    }
}

impl<T> Spread<T> {
    /// A model, and the same model on other devices.
    pub fn new(first: T, others: impl IntoIterator<Item = T>) -> Self {
        let members: Vec<T> = std::iter::once(first).chain(others).collect();
        let states = Mutex::new(vec![State::default(); members.len()]);
        Self { members, states }
    }

    /// The first model.
    pub fn first(&self) -> &T {
        // At least one exists.
        &self.members[0]
    }

    /// The models, in the order given.
    pub fn members(&self) -> &[T] {
        &self.members
    }

    /// Runs a task on the least busy device, the first one on a tie. If it fails, another device runs the task.
    ///
    /// # Errors
    /// The error of the task or, if all devices have failed, that of the last one.
    pub fn run<R>(&self, work: impl Fn(&T) -> Result<R, RankError>) -> Result<R, RankError> {
        let mut tried = vec![];
        loop {
            let busy = Busy::idlest(self, &tried);
            let result = work(&self.members[busy.member]);
            let Err(error) = &result else { return result };
            tried.push(busy.member);
            if error.is_lost() {
                busy.end();
            }
            if !error.is_of_device() || !self.has_others(&tried) {
                return result;
            }
            tracing::warn!("device {} of {} passes its work to another: {error}", busy.member + 1, self.members.len());
        }
    }

    fn has_others(&self, tried: &[usize]) -> bool {
        self.states().iter().enumerate().any(|(member, state)| !state.is_lost && !tried.contains(&member))
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a task on a device while it exists.
struct Busy<'a, T> {
    spread: &'a Spread<T>,
    member: usize,
}

impl<'a, T> Busy<'a, T> {
    fn idlest(spread: &'a Spread<T>, tried: &[usize]) -> Self {
        let mut states = spread.states();
        let last = |member: usize, state: &State| (tried.contains(&member), state.is_lost, state.under_way);
        let idlest = states.iter_mut().enumerate().min_by_key(|(member, state)| last(*member, state));
        let member = idlest.map_or(0, |(member, state)| {
            state.under_way += 1;
            member
        });
        Self { spread, member }
    }

    /// Excludes the device from further tasks.
    fn end(&self) {
        self.spread.states().iter_mut().skip(self.member).take(1).for_each(|state| state.is_lost = true);
    }
}

impl<T> Drop for Busy<'_, T> {
    fn drop(&mut self) {
        self.spread.states().iter_mut().skip(self.member).take(1).for_each(|state| state.under_way -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_runtime::GpuError;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn lost() -> RankError {
        let gpu = GpuError::Lost { adapter: "a GPU".into(), reason: "it is gone".into() };
        RankError::Run(Box::new(gpu.into()))
    }

    #[test]
    fn work_goes_to_the_device_with_least_to_do() {
        let (spread, together) = (Spread::new(0, 1..4), Barrier::new(4));
        let taken = std::thread::scope(|scope| {
            let work = || {
                spread.run(|&member| {
                    together.wait();
                    Ok(member)
                })
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            let mut taken: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
            taken.sort_unstable();
            taken
        });
        assert_eq!(taken, [0, 1, 2, 3]);
        assert_eq!(spread.run(|&member| Ok(member)).unwrap(), 0);
    }

    #[test]
    fn a_device_that_fails_hands_its_work_to_the_others() {
        let (spread, tried) = (Spread::new(0, 1..3), AtomicUsize::new(0));
        let run = |failing: &[usize]| {
            spread.run(|member| {
                tried.fetch_add(1, Ordering::Relaxed);
                if failing.contains(member) { Err(lost()) } else { Ok(*member) }
            })
        };
        assert_eq!(run(&[0, 1]).unwrap(), 2);
        assert_eq!(tried.swap(0, Ordering::Relaxed), 3);
        // Lost devices are skipped.
        assert_eq!(run(&[]).unwrap(), 2);
        assert_eq!(tried.swap(0, Ordering::Relaxed), 1);
        assert!(run(&[2]).unwrap_err().is_of_device());
        assert_eq!(tried.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_device_without_memory_for_one_piece_of_work_gets_the_next() {
        let spread = Spread::new(0, 1..3);
        let full = |failing: usize| {
            let full = || RankError::Run(Box::new(GpuError::OutOfMemory { during: "a run".into() }.into()));
            spread.run(|&member| if member < failing { Err(full()) } else { Ok(member) })
        };
        assert_eq!(full(2).unwrap(), 2);
        assert_eq!(full(0).unwrap(), 0);
        assert!(full(3).unwrap_err().is_of_device());
        assert_eq!(full(1).unwrap(), 1);
    }

    #[test]
    fn what_is_wrong_with_the_work_is_no_fault_of_a_device() {
        let (spread, tried) = (Spread::new(0, 1..3), AtomicUsize::new(0));
        let refused = spread.run(|_| {
            tried.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(RankError::Schema)
        });
        assert!(matches!(refused, Err(RankError::Schema)));
        assert_eq!(tried.load(Ordering::Relaxed), 1);
    }
}
