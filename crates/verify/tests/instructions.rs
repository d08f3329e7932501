//! Golden cases on the CPU, once with each set of vector instructions of this processor.
#![allow(clippy::unwrap_used)]

use rewire_runtime::Kernel;
use rewire_runtime::cpu::Arch;
use rewire_verify::{CaseReport, Status, Verifier, VerifyOptions, cases};
use std::path::Path;

#[test]
fn every_case_holds_with_all_instructions() {
    let verifier = Verifier::new(VerifyOptions { kernel: Kernel::Cpu, ..VerifyOptions::default() }).unwrap();
    let files = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")).unwrap();
    let reports: Vec<CaseReport> = files.iter().flat_map(|file| verifier.verify_tunings(file)).collect();
    let failed: Vec<&CaseReport> = reports.iter().filter(|report| report.status != Status::Ok).collect();
    assert!(failed.is_empty(), "{} of {}: {failed:#?}", failed.len(), reports.len());
    assert_eq!(reports.len(), files.len() * Arch::all().len());
    let names: Vec<&str> = Arch::all().iter().map(|arch| arch.name()).collect();
    eprintln!("{} cases with {}", files.len(), names.join(", "));
    let expected = match std::env::consts::ARCH {
        "x86_64" => &["sse4", "baseline"][..],
        "aarch64" => &["neon", "baseline"],
        _ => &["simd128"],
    };
    assert!(names.ends_with(expected), "{names:?}");
}
