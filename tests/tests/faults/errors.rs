//! What is left after a run that failed.

use rewire_graph::{DType, HostTensor, Scope};
use rewire_runtime::{Inputs, Kernel, Report, RunError, Session};
use rewire_tests::backend::{Tensors, session};
use rewire_tests::noise::Noise;
use std::hint::black_box;

const F32: DType = DType::F32;

/// Two matmuls, each with a separate tensor.
fn inputs(rows: usize) -> Inputs {
    Inputs::new().with("x", Noise::new(1, "x").floats(F32, &[rows, 20], 1.0))
}

#[test]
fn a_wrong_input_leaves_the_memory_of_the_session() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 20.into()]);
    let w = scope.parameter("w", F32, &[20.into(), 20.into()]);
    let graph = scope.finish(&[("y", x.matmul(&w).normalize(1e-5).matmul(&w))]).unwrap();
    let parameters = Tensors::from([("w".to_owned(), Noise::new(2, "w").floats(F32, &[20, 20], 0.3))]);
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
        let expected = session.run(&inputs(300)).unwrap();
        // Participating threads have their own registers, and they vary from run to run.
        let report = |session: &Session| Report { scratch_bytes: 0, ..session.report() };
        let held = report(&session);
        let narrow = Inputs::new().with("x", HostTensor::f32(vec![3, 2], &[0.0; 6]).unwrap());
        assert!(matches!(session.run(&narrow), Err(RunError::InputShape { .. })));
        assert!(matches!(session.run(&Inputs::new()), Err(RunError::MissingInput { .. })));
        assert_eq!(report(&session), held, "{kernel}");
        assert_eq!(session.run(&inputs(300)).unwrap(), expected, "{kernel}");
        assert_eq!(report(&session), held, "{kernel}");
        session.trim();
        assert!(session.report().host_bytes + session.report().device_bytes < held.host_bytes + held.device_bytes);
    }
}

#[test]
#[should_panic(expected = "attempt to add with overflow")]
fn tests_notice_sums_that_overflow() {
    black_box(black_box(i32::MAX) + 1);
}
