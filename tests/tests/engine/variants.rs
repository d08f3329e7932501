//! Stored cases with every tuning of their kernels, each forced in turn. `rewire verify --variants` does so with all cases.

use rewire::Kernel;
use rewire_tests::backend::gpu;
use rewire_tests::golden::{is_wanted_whole, stored};
use rewire_verify::{CaseReport, Status, Verifier, VerifyOptions};
use std::path::{Path, PathBuf};

/// Number of cases that are replayed at the same time.
const TOGETHER: usize = 4;

/// Replays cases, and returns how many variants there were.
fn hold(cases: &[PathBuf]) -> usize {
    let adapter = std::env::var("REWIRE_TEST_ADAPTER").ok();
    let options = VerifyOptions { kernel: Kernel::Wgpu, adapter, ..VerifyOptions::default() };
    let replay = |case| Verifier::new(options.clone()).unwrap().verify_tunings(case);
    let reports: Vec<CaseReport> = std::thread::scope(|scope| {
        let threads: Vec<_> = cases.iter().map(|case| scope.spawn(|| replay(case))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let failed: Vec<&CaseReport> = reports.iter().filter(|report| report.status != Status::Ok).collect();
    assert!(failed.is_empty(), "{} of {} variants failed: {failed:#?}", failed.len(), reports.len());
    reports.len()
}

/// The first case of each operator.
#[test]
fn all_operators_hold_with_every_variant() {
    if gpu().is_some() && is_wanted_whole() {
        let mut cases = stored();
        cases.dedup_by_key(|path| path.parent().map(Path::to_owned));
        let variants: usize = cases.chunks(TOGETHER).map(hold).sum();
        assert!(variants > 2 * cases.len(), "{variants} variants of {} cases", cases.len());
    }
}

/// Cases of the families of kernels.
#[test]
fn some_cases_hold_with_every_variant() {
    if gpu().is_none() {
        return;
    }
    let names = ["addmm", "hstu_mha", "layer_norm", "jagged_dense_bmm_broadcast_add"];
    let of = |name: &str| stored().into_iter().find(|path| path.parent().is_some_and(|folder| folder.ends_with(name)));
    let cases: Vec<PathBuf> = names.iter().filter_map(|name| of(name)).collect();
    assert_eq!(cases.len(), names.len());
    let variants = hold(&cases);
    assert!(variants >= 5 * cases.len(), "{variants} variants of {} cases", cases.len());
}
