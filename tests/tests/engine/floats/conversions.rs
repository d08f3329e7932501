//! Integers, bools and 16-bit floats.

use super::*;

#[test]
fn conversions() {
    let values = all();
    for shape in shapes(values.len()) {
        let scope = Scope::new();
        let x = scope.input("x", F32, &dims(&shape));
        let outputs = vec![
            ("i32".to_owned(), x.cast(DType::I32)),
            ("i64".to_owned(), x.cast(DType::I64)),
            ("truth".to_owned(), x.cast(DType::Bool).cast(DType::I32)),
            ("negated".to_owned(), x.cast(DType::Bool).not().cast(DType::I32)),
        ];
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values))]);
        hold(scope, outputs, &inputs, values_differ, |n| format!("({:?})", values[n]));
    }
}

/// The nearest is stored, which is infinite from 65520 on.
#[test]
fn halves() {
    stored(DType::F16, 7e-5);
}

/// The nearest is stored, ties to even.
#[test]
fn upper_halves() {
    stored(DType::BF16, f64::from(f32::MIN_POSITIVE));
}

/// Storing and loading a type whose numbers below `normal` may be 0.
fn stored(dtype: DType, normal: f64) {
    let values = all();
    let stored = |x: f32| HostTensor::from_f64(dtype, vec![1], &[x.into()]).unwrap().to_f64()[0];
    for shape in shapes(values.len()) {
        for (name, options) in kernels() {
            let scope = Scope::new();
            let x = scope.input("x", F32, &dims(&shape));
            let h = scope.input("h", dtype, &dims(&shape));
            let graph = scope.finish(&[("stored", x.cast(dtype)), ("loaded", h.cast(F32))]).unwrap();
            let halves: Vec<f64> = values.iter().map(|&x| x.into()).collect();
            let halves = HostTensor::from_f64(dtype, shape.clone(), &halves).unwrap();
            let loaded = halves.to_f64();
            let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values)), ("h".to_owned(), halves)]);
            let actual = run(&mut load(&graph, &Tensors::new(), options).unwrap(), &inputs).unwrap();
            for (n, &x) in values.iter().enumerate() {
                let (a, b) = (actual["stored"].to_f64()[n], actual["loaded"].to_f64()[n]);
                assert!(
                    !differs(a, stored(x), true) || stored(x).abs() < normal && a == 0.0,
                    "{name}: {x:?} stored as {a}"
                );
                assert!(
                    !differs(b, loaded[n], true) || b == 0.0 && loaded[n].abs() < normal,
                    "{name}: {x:?} loaded as {b}"
                );
            }
        }
    }
}
