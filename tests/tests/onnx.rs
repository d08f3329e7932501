//! Backend cases of ONNX, a part of those in its wheel, of which `cargo xtask onnx` runs all, and cases of ONNX Runtime's operators.

use rewire_runtime::Kernel;
use rewire_tests::backend::gpu;
use rewire_verify::{Status, Verifier, VerifyOptions, cases};
use std::path::Path;

fn hold(kernel: Kernel) {
    let verifier = Verifier::new(VerifyOptions { kernel, ..VerifyOptions::default() }).unwrap();
    let folders = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx")).unwrap();
    assert!(folders.len() > 200, "{} cases", folders.len());
    let reports = folders.iter().map(|folder| verifier.verify(folder));
    let bad = reports.filter(|report| report.status != Status::Ok);
    let bad: Vec<String> =
        bad.map(|report| format!("{}: {}: {:?}", report.case, report.status, report.message)).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_cpu_meets_the_backend_cases() {
    hold(Kernel::Cpu);
}

#[test]
fn the_gpu_meets_the_backend_cases() {
    if gpu().is_some() {
        hold(Kernel::Wgpu);
    }
}
