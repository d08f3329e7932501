//! Tunings that a ranker measures between calls.

use super::{config, load, plain, requests};
use rewire::rank::RankOptions;
use rewire::runtime::Work;
use rewire::{Gpu, Kernel, TuningStore, Workers};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Workers whose work waits in a queue.
fn queued() -> (Workers, Receiver<Work>) {
    let (sender, queue) = channel();
    (Workers::new(move |work| sender.send(work).unwrap()), queue)
}

#[test]
fn a_ranker_refines_between_calls_and_not_within() {
    let Ok(gpu) = Gpu::open(None) else { return eprintln!("skipped: there is no adapter") };
    let folder = tempfile::tempdir().unwrap();
    let (workers, queue) = queued();
    let on_gpu = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() };
    let options = RankOptions {
        workers: Some(workers),
        tunings: Some(TuningStore::at(folder.path())),
        refine_between_calls: Some(Duration::ZERO),
        ..on_gpu.clone()
    };
    let (usual, refined) = (load(&config(&plain()), &on_gpu), load(&config(&plain()), &options));
    let requests = requests(&usual);
    let expected = usual.rank(&requests).unwrap();
    let stored = || folder.path().read_dir().unwrap().count();
    for _ in 0..400 {
        assert_eq!(refined.rank(&requests).unwrap(), expected);
        let work = queue.try_recv().expect("a call leaves work behind");
        assert_eq!(refined.rank(&requests).unwrap(), expected);
        assert!(queue.try_recv().is_err(), "one measurement at a time");
        work();
        if stored() > 0 {
            break;
        }
    }
    assert!(stored() > 0);
    assert_eq!(refined.rank(&requests).unwrap(), expected);
}

#[test]
fn a_ranker_without_the_option_leaves_no_work() {
    let (workers, queue) = queued();
    let options = RankOptions { workers: Some(workers), ..super::on_cpu() };
    let ranker = load(&config(&plain()), &options);
    ranker.rank(&requests(&ranker)).unwrap();
    assert!(queue.try_recv().is_err());
}
