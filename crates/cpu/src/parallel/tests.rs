#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn pool(threads: usize) -> ThreadPool {
    ThreadPool::new(ThreadPoolOptions { threads: Some(threads), ..ThreadPoolOptions::default() }).unwrap()
}

/// True if `count` threads work for one caller at the same time.
fn meet(count: usize) -> bool {
    let (here, begun) = (AtomicUsize::new(0), Instant::now());
    with_helpers(count - 1, |_| {
        here.fetch_add(1, Ordering::Relaxed);
        while here.load(Ordering::Relaxed) < count && begun.elapsed() < LONG {
            yield_now();
        }
    });
    here.into_inner() == count
}

/// Waits until `is_so` returns true; false after [`LONG`].
fn soon(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < LONG {
        sleep(Duration::from_millis(1));
    }
    is_so()
}

#[test]
fn results_are_in_the_order_of_the_items() {
    for threads in 1..5 {
        let squares = pool(threads).install(|| map((0..1000).collect(), |n: u32| n * n));
        assert_eq!(squares, (0..1000).map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(pool(threads).install(|| join(|| 1, || "two")), (1, "two"));
    }
    assert!(map(vec![], |n: u32| n).is_empty());
}

#[test]
fn the_default_pool_is_not_the_installed_one() {
    let before = threads();
    pool(7).install(|| {
        assert_eq!(threads(), 7);
        pool(3).install(|| assert_eq!(threads(), 3));
        assert!(catch_unwind(|| pool(5).install(|| panic!("within"))).is_err());
        assert_eq!(threads(), 7);
    });
    assert_eq!(threads(), before);
}

#[test]
fn work_that_nobody_waits_for_is_done_by_a_helper() {
    let (pool, done) = (pool(2), Arc::new(AtomicUsize::new(0)));
    for _ in 0..3 {
        let done = done.clone();
        pool.install(|| later(move || panic!("{}", done.fetch_add(1, Ordering::Relaxed))));
    }
    assert!(soon(|| done.load(Ordering::Relaxed) == 3));
    assert!(pool.install(|| meet(2)), "a panic ends no helper");
}

#[test]
fn a_pool_goes_on_without_threads_that_the_system_refuses() {
    // No address space can hold such a stack.
    let options = ThreadPoolOptions { threads: Some(4), stack_bytes: 1 << 60, ..ThreadPoolOptions::default() };
    let pool = ThreadPool::new(options).unwrap();
    for _ in 0..3 {
        assert_eq!(pool.install(|| map(vec![1, 2, 3], |n| 2 * n)), [2, 4, 6]);
        assert_eq!(pool.install(|| join(|| 1, || 2)), (1, 2));
        pool.install(|| later(|| unreachable!("there is no helper")));
    }
}

#[test]
fn options_out_of_range_are_errors() {
    let refused = |options: ThreadPoolOptions| ThreadPool::new(options).unwrap_err().to_string();
    let threads = |threads| refused(ThreadPoolOptions { threads: Some(threads), ..ThreadPoolOptions::default() });
    assert_eq!(threads(0), "`threads`: expected 1 to 1024, got 0");
    assert_eq!(threads(20_000), "`threads`: expected 1 to 1024, got 20000");
    let name = refused(ThreadPoolOptions { name: "a\0b".into(), ..ThreadPoolOptions::default() });
    assert_eq!(name, r#"`name`: expected a string without null bytes, got "a\0b""#);
    let stack = refused(ThreadPoolOptions { stack_bytes: 0, ..ThreadPoolOptions::default() });
    assert_eq!(stack, "`stack_bytes`: expected at least 1048576, got 0");
}

/// Number of threads of this process with a name.
#[cfg(target_os = "linux")]
fn named(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|other| other.trim() == name).count()
}

/// A pool of three threads with a name.
#[cfg(target_os = "linux")]
fn named_pool(name: &str) -> ThreadPool {
    let options = ThreadPoolOptions { threads: Some(3), name: name.to_owned(), ..ThreadPoolOptions::default() };
    ThreadPool::new(options).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn helpers_have_the_name_of_their_pool_and_have_ended_when_it_is_dropped() {
    /// Freed when the thread ends, like thread-local data of GPU drivers.
    struct Kept;
    impl Drop for Kept {
        fn drop(&mut self) {
            sleep(Duration::from_millis(20));
            FREED.fetch_add(1, Ordering::Relaxed);
        }
    }
    static FREED: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static KEPT: Kept = const { Kept });

    for round in 1..=20 {
        let pool = named_pool("to be ended");
        let (here, main) = (AtomicUsize::new(0), std::thread::current().id());
        pool.clone().install(|| {
            with_helpers(2, |_| {
                if std::thread::current().id() != main {
                    KEPT.with(|_| here.fetch_add(1, Ordering::Relaxed));
                }
                soon(|| here.load(Ordering::Relaxed) == 2);
            });
        });
        assert_eq!(named("to be ended"), 2);
        drop(pool);
        assert_eq!(FREED.load(Ordering::Relaxed), 2 * round);
        // The system may list a thread shortly after it has ended.
        assert!(soon(|| named("to be ended") == 0));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_pool_that_is_dropped_on_its_helper_ends() {
    let pool = named_pool("end themselves");
    let (drops, waits) = std::sync::mpsc::channel::<()>();
    let last = pool.clone();
    pool.install(|| {
        assert!(meet(3));
        later(move || {
            let _ = waits.recv();
            drop(last);
        });
    });
    drop(pool);
    assert_eq!(named("end themselves"), 2);
    drop(drops);
    assert!(soon(|| named("end themselves") == 0));
}

#[cfg(target_os = "linux")]
#[test]
fn cpu_affinity_stays_as_the_app_has_it() {
    use rustix::thread::sched_getaffinity;
    let all = sched_getaffinity(None).unwrap();
    let allowed = pool(4).install(|| {
        map((0..400).collect(), |_: u32| {
            sleep(Duration::from_micros(100));
            sched_getaffinity(None).unwrap()
        })
    });
    assert!(allowed.into_iter().all(|own| own == all));
}

/// Runs `work` in a forked child, which exits with 0 if it returns true.
#[cfg(unix)]
fn is_so_in_a_forked_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only takes locks of this test and of the allocator, which supports forks, and ends without
    // destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_so = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: nothing of this process is used after this call.
        unsafe { libc::_exit(if matches!(is_so, Ok(true)) { 0 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = 0;
    let begun = Instant::now();
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } != child {
        if begun.elapsed() > 2 * LONG {
            // SAFETY: the child was not waited for, so its id is still valid.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        sleep(Duration::from_millis(1));
    }
    status == 0
}

#[cfg(unix)]
#[test]
fn a_forked_child_starts_helpers_of_its_own() {
    let pool = pool(3);
    assert!(pool.install(|| meet(3)) && meet(2));
    assert!(is_so_in_a_forked_child(|| pool.install(|| meet(3)) && meet(2) && pool.install(|| meet(2))));
    assert!(pool.install(|| meet(3)), "the parent continues");
}

#[cfg(unix)]
#[test]
fn a_forked_child_drops_pools_of_its_parent() {
    let pools = [pool(3), pool(3)];
    assert!(pools.iter().all(|pool| pool.install(|| meet(3))));
    // Only one of the two pools has helpers in the child.
    assert!(is_so_in_a_forked_child(|| {
        let met = pools[0].install(|| meet(3));
        drop(pools);
        met
    }));
}
