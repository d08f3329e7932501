//! Rankings on a single-threaded executor, next to a ticker.

use super::{Noise, config, load, on_cpu, plain, request, requests};
use rewire::rank::{RankError, RankOptions, Ranked, Ranker, Request};
use rewire::runtime::{RunError, WorkDropped};
use rewire::{Gpu, Kernel, Workers};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval};

/// Ticks that a ranking has to leave room for.
const ENOUGH: usize = 5;

/// How often a task ticked that does so every millisecond, and the longest time between two ticks.
#[derive(Default)]
struct Ticker {
    ticks: AtomicUsize,
    gap: Mutex<Duration>,
}

impl Ticker {
    fn start() -> Arc<Self> {
        let ticker = Arc::<Self>::default();
        let own = ticker.clone();
        tokio::spawn(async move {
            let mut interval = interval(Duration::from_millis(1));
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut latest = interval.tick().await;
            loop {
                interval.tick().await;
                let gap = latest.elapsed();
                latest += gap;
                own.ticks.fetch_add(1, Ordering::SeqCst);
                let mut longest = own.gap.lock().unwrap();
                *longest = longest.max(gap);
            }
        });
        ticker
    }

    fn ticks(&self) -> usize {
        self.ticks.load(Ordering::SeqCst)
    }
}

/// Threads of tokio's whose work ends only when the ticker has gone on ticking. It gives up if that does not come.
fn patient(ticker: Arc<Ticker>) -> Workers {
    let handle = Handle::current();
    Workers::new(move |work| {
        let (ticker, begun) = (ticker.clone(), Instant::now());
        let enough = ticker.ticks() + ENOUGH;
        handle.spawn_blocking(move || {
            while ticker.ticks() < enough && begun.elapsed() < Duration::from_secs(30) {
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
    let requests = (0..6).map(|user| request(&ranker, &mut noise, 480 + user * 7, 3)).collect();
    (ranker, requests)
}

/// The rankings, and the number of ticks meanwhile.
async fn beside_a_ticker(options: RankOptions) -> (Vec<Ranked>, usize) {
    let ticker = Ticker::start();
    let workers = Some(patient(ticker.clone()));
    let (ranker, requests) = with_long_histories(&RankOptions { workers, ..options });
    let before = ticker.ticks();
    let ranked = ranker.rank_async(&requests).await.unwrap();
    (ranked, ticker.ticks() - before)
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

/// The time that executors and systems add between ticks.
const NOISE: Duration = Duration::from_millis(100);

/// Ranks next to a ticker, and prints the longest delay of the ticker, which is less than the time of a ranking.
async fn leaves_room(what: &str, options: RankOptions) {
    let (ranker, requests) = with_long_histories(&options);
    ranker.rank_async(&requests).await.unwrap();
    let begun = Instant::now();
    ranker.rank(&requests).unwrap();
    let ranking = begun.elapsed();
    let ticker = Ticker::start();
    tokio::time::sleep(Duration::from_millis(5)).await;
    *ticker.gap.lock().unwrap() = Duration::ZERO;
    for _ in 0..3 {
        ranker.rank_async(&requests).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let gap = *ticker.gap.lock().unwrap();
    let adapter = ranker.report().adapter.unwrap_or_else(|| "the CPU".to_owned());
    println!("{what}, {adapter}: {gap:?} between ticks at most, rankings of {ranking:?}");
    assert!(gap < ranking.max(NOISE), "{what}: {gap:?} between ticks, rankings of {ranking:?}");
}

fn blocking_threads() -> Option<Workers> {
    let handle = Handle::current();
    Some(Workers::new(move |work| drop(handle.spawn_blocking(work))))
}

#[tokio::test]
async fn rankings_on_the_cpu_leave_room_to_a_ticker() {
    leaves_room("with workers", RankOptions { workers: blocking_threads(), ..on_cpu() }).await;
}

#[tokio::test]
async fn rankings_on_an_adapter_leave_room_to_a_ticker() {
    let Ok(gpu) = Gpu::open(None) else { return eprintln!("skipped: there is no adapter") };
    let options = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() };
    leaves_room("with workers", RankOptions { workers: blocking_threads(), ..options.clone() }).await;
    leaves_room("without workers", options).await;
}

#[tokio::test]
async fn a_ranking_that_is_dropped_leaves_a_ranker_that_ranks() {
    let options = RankOptions { workers: Some(patient(Ticker::start())), ..on_cpu() };
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
