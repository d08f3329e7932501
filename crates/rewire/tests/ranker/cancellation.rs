//! Rankings that end before all is ranked.

use super::{both_ways, config, load, on_cpu, plain, requests};
use rewire::graph::Coded;
use rewire::rank::{CacheLimits, Caches, CancellationToken, RankError, RankOptions, Ranked};
use rewire::{Workers, block_on};
use serde_json::Value;
use std::time::Duration;

fn is_cancelled(result: Result<Vec<Ranked>, RankError>) -> bool {
    matches!(result, Err(RankError::Cancelled))
}

/// With candidates apart from histories and without.
fn shapes() -> [Value; 2] {
    [plain(), both_ways()]
}

#[test]
fn what_is_cancelled_ranks_nothing_and_the_model_goes_on() {
    for value in shapes() {
        let ranker = load(&config(&value), &on_cpu());
        let (requests, token) = (requests(&ranker), CancellationToken::default());
        let expected = ranker.rank(&requests).unwrap();
        let with_token = ranker.with_cancellation(&token);
        assert_eq!(with_token.rank(&requests).unwrap(), expected);
        token.clone().cancel();
        assert!(token.is_cancelled() && is_cancelled(with_token.rank(&requests)));
        assert_eq!(ranker.rank(&requests).unwrap(), expected);
        assert_eq!(RankError::Cancelled.code(), "rank.cancelled");
    }
}

#[test]
fn a_batch_ends_between_its_runs() {
    for value in shapes() {
        let ranker = load(&config(&value), &RankOptions { batch_rows: 1, ..on_cpu() });
        let (some, mut batch) = (requests(&ranker), ranker.batch());
        some.iter().cycle().take(2_000).for_each(|request| batch.push(request).unwrap());
        let token = CancellationToken::default();
        std::thread::scope(|scope| {
            let with_token = ranker.with_cancellation(&token);
            // A run each, over and over.
            let ends = move || (0..).map(|_| with_token.rank_batch(&batch)).find(Result::is_err);
            let ranking = scope.spawn(ends);
            std::thread::sleep(Duration::from_millis(20));
            token.cancel();
            assert!(ranking.join().unwrap().is_some_and(is_cancelled));
        });
        let whole = load(&config(&value), &on_cpu()).rank(&some).unwrap();
        assert_eq!(ranker.rank(&some).unwrap(), whole);
    }
}

#[test]
fn work_on_other_threads_ends_too() {
    let workers = Some(Workers::new(|work| drop(std::thread::spawn(work))));
    let ranker = load(&config(&plain()), &RankOptions { workers, ..on_cpu() });
    let (requests, token) = (requests(&ranker), CancellationToken::default());
    token.cancel();
    let cancelled = ranker.with_cancellation(&token);
    let ranked = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(is_cancelled(ranked.block_on(cancelled.rank_async(&requests))));
    assert!(is_cancelled(block_on(cancelled.rank_async(&requests))));
}

#[test]
fn caches_keep_nothing_that_was_not_computed() {
    let ranker = load(&config(&plain()), &on_cpu());
    let (requests, token) = (requests(&ranker), CancellationToken::default());
    let mut caches = Caches::new(&ranker.with_cancellation(&token), CacheLimits::default()).unwrap();
    assert_eq!(caches.rank(&requests[..2]).unwrap(), ranker.rank(&requests[..2]).unwrap());
    let kept = caches.report().users;
    token.cancel();
    assert!(is_cancelled(caches.rank(&requests[4..])));
    assert_eq!((kept, caches.report().users), (2, 2));
}
