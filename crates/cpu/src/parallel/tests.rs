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

/// True once `count` threads do the work of one caller at the same time.
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

/// True once `is_so` is, which may take a while.
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
    // No address space has room for such a stack.
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
    assert_eq!(name, r#"`name`: expected a text without null bytes, got "a\0b""#);
    let stack = refused(ThreadPoolOptions { stack_bytes: 0, ..ThreadPoolOptions::default() });
    assert_eq!(stack, "`stack_bytes`: expected at least 1048576, got 0");
}

#[cfg(target_os = "linux")]
#[test]
fn helpers_have_the_name_of_their_pool_and_end_with_it() {
    let named = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "to be ended").count()
    };
    let options = ThreadPoolOptions { threads: Some(3), name: "to be ended".into(), ..ThreadPoolOptions::default() };
    let pool = ThreadPool::new(options).unwrap();
    assert!(pool.clone().install(|| meet(3)));
    assert_eq!(named(), 2);
    drop(pool);
    assert!(soon(|| named() == 0));
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

#[cfg(unix)]
#[test]
fn a_forked_child_starts_helpers_of_its_own() {
    let pool = pool(3);
    assert!(pool.install(|| meet(3)) && meet(2));
    // SAFETY: the child takes locks of this test alone and of the allocator, which is made for forks, and ends without destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let met = catch_unwind(AssertUnwindSafe(|| pool.install(|| meet(3)) && meet(2) && pool.install(|| meet(2))));
        // SAFETY: nothing of this process is used any more.
        unsafe { libc::_exit(if matches!(met, Ok(true)) { 0 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let has_ended = || unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child;
    let begun = Instant::now();
    let mut has_ended = has_ended;
    while !has_ended() {
        if begun.elapsed() > 2 * LONG {
            // SAFETY: the child was not waited for, so that its number is its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        sleep(Duration::from_millis(1));
    }
    assert_eq!(status, 0);
    assert!(pool.install(|| meet(3)), "the parent goes on");
}
