//! Wrong graphs and inputs are errors.

use rewire_graph::limits::MAX_RANK;
use rewire_graph::op::{Check, HostError, Unfold, Window};
use rewire_graph::{DType, HostTensor, Scope, interpret};
use std::collections::HashMap;

#[test]
fn interpreting_wrong_offsets_fails() {
    let scope = Scope::new();
    let rows = scope.offsets("offsets");
    let x = scope.input("x", DType::F32, &[scope.size("x rows"), 1.into()]);
    let dense = scope.input("dense", DType::F32, &[rows.batch.clone(), 1.into(), 1.into()]);
    let graph = scope.finish(&[("y", x.jagged_matmul(&dense, &rows))]).unwrap();
    let dense = HostTensor::f32(vec![2, 1, 1], &[1.0, 2.0]).unwrap();
    let x = HostTensor::f32(vec![3, 1], &[1.0, 2.0, 3.0]).unwrap();
    let run = |offsets: &[i64]| {
        let inputs = [("offsets", HostTensor::lengths(offsets)), ("x", x.clone()), ("dense", dense.clone())];
        let inputs = inputs.map(|(name, tensor)| (name.to_owned(), tensor)).into();
        interpret(&graph, &inputs, &HashMap::new()).map(|outputs| outputs["y"].to_f64())
    };
    assert_eq!(run(&[0, 1, 3]).unwrap(), [1.0, 4.0, 6.0]);
    for wrong in [[0, 1, 4], [0, 2, 1], [-1, 1, 3], [0, i64::MIN, i64::MAX]] {
        assert!(run(&wrong).is_err(), "{wrong:?}");
    }
    assert!(run(&[]).is_err());
}

#[test]
fn patches_beyond_counting_are_an_error() {
    let huge = usize::MAX / 4;
    for (kernel, padding) in [([1, 1], [huge, huge]), ([huge, huge], [huge, huge])] {
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, &[1.into(), 1.into(), 1.into(), 1.into()]);
        let patches = Unfold { kernel, window: Window { padding, ..Window::default() } };
        let columns = scope.apply(patches, &[&x]);
        let error = scope.finish(&[("columns", columns)]).unwrap_err().to_string();
        assert!(error.starts_with("unfold: `kernel` must be"), "{error}");
    }
}

#[test]
fn too_many_dimensions_are_an_error() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &vec![1.into(); MAX_RANK + 1]);
    let error = scope.finish(&[("y", &x + 1.0)]).unwrap_err().to_string();
    assert!(error.contains(&format!("has {} dimensions, more than {MAX_RANK}", MAX_RANK + 1)), "{error}");
}

#[test]
fn counts_are_bounded_on_both_sides() {
    let bounded = |values: &[i64]| Check::AtMost.verify(&[values, &[3, 5]], |_| None);
    let wrong = |entry, expected: &str, value| {
        Err(HostError::Entry { operand: 0, entry, expected: expected.to_owned(), value })
    };
    assert_eq!(bounded(&[3, 0]), Ok(()));
    assert_eq!(bounded(&[1, 6]), wrong(1, "at most 5", 6));
    assert_eq!(bounded(&[-1, 2]), wrong(0, "at least 0", -1));
}
