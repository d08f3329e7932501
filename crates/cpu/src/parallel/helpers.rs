//! Threads of this process that help callers with their work.

use super::place::Seat;
use super::region::Region;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use web_time::{Duration, Instant};

/// How long a helper looks for more work before it sleeps: the kernels of a run follow one another faster.
const AWAKE: Duration = Duration::from_micros(50);

/// Bytes of a helper's stack, of which memory is taken as it is used: kernels take more than the usual 2 MiB where nothing is optimised.
const STACK: usize = 16 << 20;

static HELPERS: Helpers = Helpers {
    waiting: Mutex::new(Waiting { regions: vec![], threads: 0, asleep: 0 }),
    places: AtomicUsize::new(0),
    looking: AtomicUsize::new(0),
    invited: Condvar::new(),
};

/// The helpers of all callers. There are as many as the caller with most of them wants.
struct Helpers {
    waiting: Mutex<Waiting>,
    /// Helpers that regions wait for.
    places: AtomicUsize,
    /// Helpers that look for work.
    looking: AtomicUsize,
    invited: Condvar,
}

struct Waiting {
    /// Regions that wait for so many helpers, the one that began first in front.
    regions: Vec<(Arc<Region>, usize)>,
    threads: usize,
    asleep: usize,
}

/// Asks up to `count` helpers to join a region.
pub(super) fn invite(region: &Arc<Region>, count: usize) {
    HELPERS.invite(region, count);
}

/// Asks no more helpers to join a region.
pub(super) fn withdraw(region: &Arc<Region>) {
    let mut waiting = HELPERS.lock();
    waiting.regions.retain(|(other, _)| !Arc::ptr_eq(other, region));
    HELPERS.count(&waiting);
}

/// Makes this thread a helper, as long as it lives: in browsers, where programs start no threads.
#[cfg(target_arch = "wasm32")]
pub fn help() -> ! {
    HELPERS.lock().threads += 1;
    HELPERS.serve()
}

/// Threads that may work at once for a caller that is no helper.
#[cfg(target_arch = "wasm32")]
pub(super) fn threads_of_caller() -> usize {
    HELPERS.lock().threads + 1
}

impl Helpers {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes known how many helpers regions wait for.
    fn count(&self, waiting: &Waiting) -> usize {
        let places = waiting.regions.iter().map(|(_, places)| places).sum();
        self.places.store(places, Ordering::Release);
        places
    }

    fn invite(&'static self, region: &Arc<Region>, count: usize) {
        let mut waiting = self.lock();
        while waiting.threads < count {
            let thread = std::thread::Builder::new().name("rewire helps".to_owned()).stack_size(STACK);
            if let Err(error) = thread.spawn(|| self.serve()) {
                tracing::debug!("kernels run with {} helpers: {error}", waiting.threads);
                break;
            }
            waiting.threads += 1;
        }
        waiting.regions.push((region.clone(), count));
        let places = self.count(&waiting);
        let asleep = waiting.asleep;
        drop(waiting);
        for _ in 0..places.saturating_sub(self.looking.load(Ordering::Acquire)).min(asleep) {
            self.invited.notify_one();
        }
    }

    fn serve(&self) -> ! {
        let seat = Arc::new(Seat::here());
        loop {
            self.next().join(&seat);
        }
    }

    /// A region that waits for a helper, when there is one.
    fn next(&self) -> Arc<Region> {
        self.looking.fetch_add(1, Ordering::AcqRel);
        let begun = Instant::now();
        while begun.elapsed() < AWAKE {
            if self.places.load(Ordering::Acquire) > 0
                && let Some(region) = self.take(&mut self.lock())
            {
                self.looking.fetch_sub(1, Ordering::AcqRel);
                return region;
            }
            spin_loop();
        }
        let mut waiting = self.lock();
        self.looking.fetch_sub(1, Ordering::AcqRel);
        loop {
            if let Some(region) = self.take(&mut waiting) {
                return region;
            }
            waiting.asleep += 1;
            waiting = self.invited.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.asleep -= 1;
        }
    }

    fn take(&self, waiting: &mut Waiting) -> Option<Arc<Region>> {
        let (region, places) = waiting.regions.first_mut()?;
        let region = region.clone();
        *places -= 1;
        if *places == 0 {
            waiting.regions.remove(0);
        }
        self.count(waiting);
        Some(region)
    }
}
