//! Invalid graphs and inputs give errors.

use rewire_graph::limits::MAX_RANK;
use rewire_graph::op::{Check, HostError, Unfold, Window};
use rewire_graph::{DType, Dim, GraphError, HostTensor, Scope, Tensor, interpret};
use std::collections::HashMap;
use std::slice::from_ref;

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
        assert!(error.starts_with("unfold") && error.contains(": `kernel` must be"), "{error}");
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

/// The errors of a model that `trace` builds from two scopes, one from each scope.
fn of_two_scopes(trace: impl Fn(&Tensor, &Tensor) -> Tensor) -> [String; 2] {
    let scopes = [Scope::new(), Scope::new()];
    let [a, b] = [(&scopes[0], "a"), (&scopes[1], "b")].map(|(scope, name)| scope.input(name, DType::F32, &[4.into()]));
    let y = trace(&a, &b);
    assert!(y.is_poisoned());
    let [one, other] = scopes;
    let error = |scope: Scope, output| scope.finish(&[("y", output)]).map_or_else(|e| e.to_string(), |_| String::new());
    [error(one, a), error(other, b)]
}

#[test]
fn tensors_of_two_scopes_do_not_combine() {
    for trace in [
        |a: &Tensor, b: &Tensor| a + b,
        |a: &Tensor, b: &Tensor| b.matmul(a),
        |a: &Tensor, b: &Tensor| a.gt(&(b * 2.0)).select(a, b),
        |a: &Tensor, b: &Tensor| &b.reshape(&[4.into(), 1.into()]) + &a.exp(),
    ] {
        for error in of_two_scopes(trace) {
            assert!(error.contains("trace a model in one scope"), "{error}");
        }
    }
    let errors = of_two_scopes(|a, b| a + b);
    assert_eq!(errors, ["add reads the input `a` and the input `b` of another scope: trace a model in one scope"; 2]);
}

#[test]
fn what_reads_several_values_reads_one_scope() {
    let (one, other) = (Scope::new(), Scope::new());
    let rows = one.lengths("lengths", &one.size("samples"));
    let [x, y] = [&one, &other].map(|scope| scope.input("x", DType::F32, &[scope.size("rows"), 2.into()]));
    let others = other.lengths("lengths", &other.size("samples"));
    let wrong = [
        one.concat(&[&x, &y], 1),
        y.jagged_broadcast(&rows),
        (&rows.lengths + &others.lengths).cast(DType::F32),
        one.host_fill(3, &others.max()),
        rows.plus(&others).offsets,
        one.apply(rewire_graph::op::MatMul, &[&y, &y]),
    ];
    assert!(wrong.iter().all(Tensor::is_poisoned));
    for scope in [one, other] {
        let error = scope.finish(&[]).unwrap_err().to_string();
        assert!(error.starts_with("concat reads the input `x` and the input `x` of another scope"), "{error}");
    }
}

#[test]
fn sizes_of_another_scope_are_an_error() {
    type Use = fn(&Scope, &Tensor, &Dim) -> Tensor;
    let cases: [(Use, &str); 9] = [
        (|s, _, n| s.input("y", DType::F32, from_ref(n)), "the input `y` reads its scope"),
        (|s, _, n| s.input("x", DType::F32, &[n.clone(), 2.into()]), "the input `x` reads its scope"),
        (|s, _, n| s.parameter("w", DType::F32, from_ref(n)), "the parameter `w` reads its scope"),
        (|_, x, n| x.reshape(&[n.clone(), 2.into()]), "reshape reads the input `x`"),
        (|_, x, n| x.reshape(&[n.clone() * 2]), "reshape reads the input `x`"),
        (|_, x, n| x.broadcast(&[n.clone() + 1.into(), x.dim(0), 2.into()]), "broadcast reads the input `x`"),
        (|s, _, n| s.host_size(n.clone()), "size reads its scope"),
        (|s, _, n| s.host_size(s.size("rows") - n.clone()), "size reads its scope"),
        (|s, _, n| s.host_size(n.clone() - s.size("rows") + 3.into()), "size reads its scope"),
    ];
    for (number, (traced, expected)) in cases.into_iter().enumerate() {
        let (own, other) = (Scope::new(), Scope::new());
        let rows = own.size("rows");
        let x = own.input("x", DType::F32, &[rows.clone(), 2.into()]);
        own.host_size(rows.clone());
        let count = other.size("count");
        // Sizes are numbered per scope, so only the scope distinguishes these.
        assert_eq!(count, rows);
        assert!(traced(&own, &x, &count).is_poisoned(), "{number}");
        let error = own.finish(&[("y", x)]).unwrap_err().to_string();
        let whole = format!("{expected} and the size `count` of another scope: trace a model in one scope");
        assert_eq!(error, whole, "{number}");
    }
}

#[test]
fn totals_of_another_scope_are_an_error() {
    let (own, other) = (Scope::new(), Scope::new());
    let [rows, others] = [&own, &other].map(|scope| scope.lengths("lengths", &scope.size("samples")));
    let x = own.input("x", DType::F32, &[rows.total.clone(), 2.into()]);
    let y = x.jagged_to_padded(&rows, &others.max().as_dim(), 0.0);
    let error = own.finish(&[("y", y)]).unwrap_err().to_string();
    assert!(error.contains(" and the size `value of max ") && error.contains("of another scope"), "{error}");
}

#[test]
fn constants_made_of_sizes_are_of_every_scope() {
    let (own, other) = (Scope::new(), Scope::new());
    let rows = other.size("rows");
    let two = (rows.clone() + 2.into()) - rows;
    let y = own.input("x", DType::F32, &[two.clone(), 3.into()]).reshape(&[two * 3]);
    assert_eq!(own.finish(&[("y", y)]).unwrap().len(), 2);
}

#[test]
fn outputs_are_of_the_scope() {
    let (one, other) = (Scope::new(), Scope::new());
    let y = other.module("layers.0", |scope| scope.input("x", DType::F32, &[4.into()]).silu());
    let error = one.finish(&[("y", y.clone())]).unwrap_err().to_string();
    assert!(error.starts_with("the output `y` reads its scope and the result of silu in `layers.0` of another scope"));
    assert_eq!(other.finish(&[("y", y)]).unwrap_err().to_string(), error);
}

#[test]
fn a_finished_scope_traces_no_more() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[4.into()]);
    assert_eq!(scope.clone().finish(&[("y", x.silu())]).unwrap().len(), 2);
    let again = scope.input("z", DType::F32, &[4.into()]);
    assert_eq!(scope.clone().finish(&[("y", &x + &again)]).unwrap_err(), GraphError::Finished);
    assert_eq!(scope.finish(&[]).unwrap_err(), GraphError::Finished);
}

#[test]
fn an_error_stays_the_error_of_its_scope() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[4.into()]);
    let y = x.reshape(&[3.into()]);
    for _ in 0..2 {
        assert!(scope.clone().finish(&[("y", y.clone())]).unwrap_err().to_string().starts_with("reshape"));
    }
}

#[test]
fn outputs_have_names_of_their_own_and_are_stored() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[4.into()]);
    let error = scope.finish(&[("y", x.silu()), ("y", x.exp())]).unwrap_err().to_string();
    assert_eq!(error, "the name `y` is used for two outputs: give each a unique name");

    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("samples"));
    let q = scope.input("q", DType::F32, &[rows.total.clone(), 2.into(), 4.into()]);
    let scores = q.scores(&q, &rows, &rows).silu();
    let error = scope.finish(&[("scores", scores)]).unwrap_err().to_string();
    assert!(error.starts_with("the output `scores` is") && error.contains("`weighted_sum`"), "{error}");
}
