//! Rankings that an executor of one thread waits for, beside a ticker on it.

use super::{Noise, config, load, on_cpu, plain, request, requests};
use rewire::rank::{RankError, RankOptions, Ranked, Ranker, Request};
use rewire::runtime::{RunError, WorkDropped};
use rewire::{Gpu, Kernel, Workers};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval};

/// Ticks that a ranking has to leave room for.
const ENOUGH: usize = 5;

/// A task that ticks every 5 ms, and how often it did.
fn ticker() -> Arc<AtomicUsize> {
    let ticks = Arc::new(AtomicUsize::new(0));
    let own = ticks.clone();
    tokio::spawn(async move {
        let mut interval = interval(Duration::from_millis(5));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            own.fetch_add(1, Ordering::SeqCst);
        }
    });
    ticks
}

/// Threads of tokio's whose work ends only when the ticker has gone on ticking. It gives up if that does not come.
fn patient(ticks: Arc<AtomicUsize>) -> Workers {
    let handle = Handle::current();
    Workers::new(move |work| {
        let (ticks, begun) = (ticks.clone(), Instant::now());
        let enough = ticks.load(Ordering::SeqCst) + ENOUGH;
        handle.spawn_blocking(move || {
            while ticks.load(Ordering::SeqCst) < enough && begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(1));
            }
            work();
        });
    })
}

fn with_long_histories(options: &RankOptions) -> (Ranker, Vec<Request>) {
    let mut value = plain();
    value["max_seq_len"] = json!(600);
    let ranker = load(&config(&value), options);
    let mut noise = Noise(3);
    let requests = (0..12).map(|user| request(&ranker, &mut noise, 480 + user * 7, 3)).collect();
    (ranker, requests)
}

/// What is ranked, and how often the ticker ticked meanwhile.
async fn beside_a_ticker(options: RankOptions) -> (Vec<Ranked>, usize) {
    let ticks = ticker();
    let workers = Some(patient(ticks.clone()));
    let (ranker, requests) = with_long_histories(&RankOptions { workers, ..options });
    let before = ticks.load(Ordering::SeqCst);
    let ranked = ranker.rank_async(&requests).await.unwrap();
    (ranked, ticks.load(Ordering::SeqCst) - before)
}

#[tokio::test]
async fn workers_rank_on_the_cpu_while_a_ticker_ticks() {
    let (ranked, ticks) = beside_a_ticker(on_cpu()).await;
    assert!(ticks >= ENOUGH, "{ticks}");
    let (ranker, requests) = with_long_histories(&on_cpu());
    assert_eq!(ranked, ranker.rank(&requests).unwrap());
}

#[tokio::test]
async fn workers_wait_for_an_adapter_while_a_ticker_ticks() {
    let Ok(gpu) = Gpu::open(None) else { return eprintln!("skipped: there is no adapter") };
    let options = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() };
    let (ranked, ticks) = beside_a_ticker(options.clone()).await;
    assert!(ticks >= ENOUGH, "{ticks}");
    let (ranker, requests) = with_long_histories(&options);
    assert_eq!(ranked, ranker.rank(&requests).unwrap());
}

#[tokio::test]
async fn without_workers_an_adapter_is_asked_again_and_again_beside_a_ticker() {
    let Ok(gpu) = Gpu::open(None) else { return eprintln!("skipped: there is no adapter") };
    let options = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() };
    let (ranker, requests) = with_long_histories(&options);
    let ticks = ticker();
    for _ in 0..100 {
        ranker.rank_async(&requests).await.unwrap();
        if ticks.load(Ordering::SeqCst) >= ENOUGH {
            return;
        }
    }
    panic!("the ticker did not tick");
}

#[tokio::test]
async fn a_ranking_that_is_dropped_leaves_a_ranker_that_ranks() {
    let ticks = ticker();
    let options = RankOptions { workers: Some(patient(ticks.clone())), ..on_cpu() };
    let ranker = load(&config(&plain()), &options);
    let requests = requests(&ranker);
    tokio::select! {
        biased;
        _ = ranker.rank_async(&requests) => panic!("nobody waited"),
        () = tokio::task::yield_now() => {}
    }
    let ranked = ranker.rank_async(&requests).await.unwrap();
    assert_eq!(ranked, load(&config(&plain()), &on_cpu()).rank(&requests).unwrap());
}

#[tokio::test]
async fn work_that_an_executor_drops_is_an_error() {
    let ranker = load(&config(&plain()), &RankOptions { workers: Some(Workers::new(drop)), ..on_cpu() });
    let requests = requests(&ranker);
    let error = ranker.rank_async(&requests).await.unwrap_err();
    assert!(matches!(&error, RankError::Run(error) if **error == RunError::Dropped(WorkDropped)), "{error}");
    assert!(ranker.rank(&requests).is_ok(), "what blocks needs no workers");
}
