//! Invalid and malicious files result in errors, never in panics.
#![allow(clippy::unwrap_used)]

use rewire_import::{ImportError, onnx};
use std::path::Path;

fn model(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/onnx").join(name).join("model.onnx")).unwrap()
}

/// Modifies bytes at positions of a linear congruential sequence.
fn changed(bytes: &[u8], seed: u64) -> Vec<u8> {
    let (mut bytes, mut state) = (bytes.to_vec(), seed);
    for _ in 0..1 + seed % 4 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let place = (state >> 33) as usize % bytes.len();
        bytes[place] = (state >> 24) as u8;
    }
    bytes
}

#[test]
fn damaged_models_are_errors_or_other_models() {
    for name in ["test_if", "test_loop11", "test_slice_start_out_of_bounds", "test_scan9_sum"] {
        let bytes = model(name);
        for seed in 0..400 {
            drop(onnx::from_bytes(&changed(&bytes, seed)));
        }
        for end in 0..bytes.len() {
            drop(onnx::from_bytes(&bytes[..end]));
        }
    }
}

#[test]
fn values_that_shapes_depend_on_are_named() {
    // The second model depends on a size inside a branch.
    for (name, expected) in [("test_slice_start_out_of_bounds", "starts"), ("test_affine_grid_2d_expanded", "size")] {
        let error = onnx::from_bytes(&model(name)).unwrap_err();
        let ImportError::Unbound { inputs } = error else { panic!("{error}") };
        assert_eq!(inputs, [expected]);
    }
}

#[test]
fn what_is_no_model_is_an_error() {
    assert!(onnx::from_bytes(b"no model").is_err());
    assert!(onnx::from_bytes(&[]).is_err());
    assert!(onnx::open(Path::new("no/such/model.onnx")).is_err());
}
