//! Model code as people write it: operators, shapes, axes and elements.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use rewire_graph::{DType, Element, Graph, GraphError, HostTensor, Scope, Tensor, interpret};
use std::collections::HashMap;

type Body = fn(&Scope, &Tensor) -> Tensor;

const VALUES: [f32; 6] = [0.5, -1.25, 3.0, 2.0, -0.75, 4.0];

fn finish(body: impl FnOnce(&Scope, &Tensor) -> Tensor) -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, (scope.size("rows"), 3));
    let y = body(&scope, &x);
    scope.finish(&[("y", y)])
}

fn run(body: impl FnOnce(&Scope, &Tensor) -> Tensor) -> Vec<f32> {
    let inputs = HashMap::from([("x".to_owned(), HostTensor::new([2, 3], &VALUES).unwrap())]);
    interpret(&finish(body).unwrap(), &inputs, &HashMap::new()).unwrap()["y"].values().unwrap()
}

fn each(function: impl Fn(f32) -> f32) -> Vec<f32> {
    VALUES.iter().map(|&value| function(value)).collect()
}

#[test]
fn operators_take_owned_and_borrowed_tensors() {
    let expected = each(|x| (x + x * x) - (x * x) / 2.0);
    assert_eq!(run(|_, x| (x + x * x) - (x * x) * 0.5), expected);
    assert_eq!(run(|_, x| (x.clone() + &(x.clone() * x.clone())) - &(x * x.clone()) / 2.0), expected);
    assert_eq!(run(|_, x| -(-x)), each(|x| x));
}

#[test]
fn numbers_stand_on_either_side() {
    assert_eq!(run(|_, x| 1.0 - x), each(|x| 1.0 - x));
    assert_eq!(run(|_, x| 2.0 / (x + 8.0)), each(|x| 2.0 / (x + 8.0)));
    assert_eq!(run(|_, x| 3 * (x + 1)), each(|x| 3.0 * (x + 1.0)));
    assert_eq!(
        run(|_, x| x.gt(0.5).and(x.lt(4)).select(x, &x.maximum(3))),
        each(|x| if x > 0.5 && x < 4.0 { x } else { x.max(3.0) })
    );
    let host = |body: fn(&Tensor) -> Tensor| {
        let scope = Scope::new();
        let lengths = scope.host_input("lengths", (scope.size("samples"),));
        let graph = scope.finish(&[("y", body(&lengths))]).unwrap();
        let inputs = HashMap::from([("lengths".to_owned(), HostTensor::lengths(&[2, 0, 5]))]);
        interpret(&graph, &inputs, &HashMap::new()).unwrap()["y"].to_i64()
    };
    assert_eq!(host(|x| 7 - x), [5, 7, 2]);
    assert_eq!(host(|x| x * 2 + 1), [5, 1, 11]);
}

#[test]
fn a_number_that_a_type_does_not_hold_is_named_by_its_side() {
    let of = |body: fn(&Tensor) -> Tensor| {
        let scope = Scope::new();
        let lengths = scope.host_input("lengths", (scope.size("samples"),));
        scope.finish(&[("y", body(&lengths))]).unwrap_err().to_string()
    };
    assert!(of(|x| -3 + x).contains("`a`"), "{}", of(|x| -3 + x));
    assert!(of(|x| x + 0.5).contains("`b`"), "{}", of(|x| x + 0.5));
}

#[test]
fn shapes_are_tuples_arrays_and_slices() {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let shapes = [
        scope.input("a", DType::F32, (&rows, 2, 3)),
        scope.input("b", DType::F32, [rows.clone(), 2.into(), 3.into()]),
        scope.input("c", DType::F32, &[rows.clone(), 2.into(), 3.into()]),
        scope.input("d", DType::F32, vec![rows.clone(), 2.into(), 3.into()]),
        scope.input("e", DType::F32, (rows.clone() * 6,)).reshape((rows, 2, 3)),
    ];
    assert!(shapes.iter().all(|tensor| tensor.shape() == shapes[0].shape()));
    assert!(scope.input("scalar", DType::F32, ()).shape().is_empty());
    assert_eq!(scope.parameter("weight", DType::F32, [4, 5]).width(), 5);
}

#[test]
fn axes_count_from_either_end() {
    let pairs: [[Body; 2]; 8] = [
        [|_, x| x.sum(-1), |_, x| x.sum(1)],
        [|_, x| x.mean(-2), |_, x| x.mean(0)],
        [|_, x| x.softmax(-1), |_, x| x.softmax(1usize)],
        [|_, x| x.slice(-1, 1, 2), |_, x| x.slice(1, 1, 2)],
        [|_, x| x.flip(-1), |_, x| x.flip(1)],
        [|_, x| x.transpose(-1, -2), |_, x| x.transpose(0, 1)],
        [|scope, x| scope.concat(&[x, &x.exp()], -1), |scope, x| scope.concat(&[x, &x.exp()], 1)],
        [|scope, x| scope.stack(&[x, &x.exp()], -1), |scope, x| scope.stack(&[x, &x.exp()], 2)],
    ];
    for [from_the_end, from_the_start] in pairs {
        assert_eq!(run(from_the_end), run(from_the_start));
    }
}

#[test]
fn an_axis_that_is_not_there_is_an_error() {
    let bodies: [Body; 7] = [
        |_, x| x.sum(2),
        |_, x| x.mean(-3),
        |_, x| x.slice(-3, 0, 1),
        |_, x| x.slice(2, 0, 0),
        |_, x| x.transpose(0, 2),
        |scope, x| scope.concat(&[x, x], -3),
        |scope, _| scope.concat(&[] as &[Tensor], 0),
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let error = finish(body).unwrap_err().to_string();
        let argument = if number == 6 { "`parts`" } else { "`axis`" };
        assert!(error.contains(argument), "{number}: {error}");
    }
}

#[test]
fn tensors_are_taken_by_value_and_by_reference() {
    let bodies: [[Body; 2]; 4] = [
        [|_, x| x.matmul(&x.transpose(0, 1)), |_, x| x.matmul(x.transpose(0, 1))],
        [|_, x| x.gt(0.0).select(x, &x.exp()), |_, x| x.gt(0.0).select(x, x.exp())],
        [|scope, x| scope.concat(&[x, &x.exp()], 0), |scope, x| scope.concat(&[x.clone(), x.exp()], 0)],
        [|scope, x| scope.top_k(&-x, 2).0, |scope, x| scope.top_k(-x, 2).0],
    ];
    for [by_reference, by_value] in bodies {
        assert_eq!(run(by_reference), run(by_value));
    }
}

#[test]
fn a_shape_error_names_the_line_that_called_the_operator() {
    let bodies: [(Body, u32); 6] = [
        (|_, x| x.matmul(x), line!()),
        (|_, x| x + x.reshape([6]), line!()),
        (|_, x| x.linear(x.slice(1, 0, 2), None), line!()),
        (|_, x| x.layer_norm(x, x, 1e-5), line!()),
        (|_, x| x.clamp(None, Some(1.0)) + x.sum(2), line!()),
        (|scope, x| scope.top_k(x, 0).0, line!()),
    ];
    for (body, line) in bodies {
        let error = finish(body).unwrap_err();
        let GraphError::Type { place: Some(place), .. } = error else { panic!("{error}") };
        assert_eq!((place.file(), place.line()), (file!(), line), "{error}");
        assert!(error.to_string().contains(&format!(" at {}:{line}:", file!())), "{error}");
    }
    let scope = Scope::new().without_places();
    let x = scope.input("x", DType::F32, [2, 3]);
    let y = x.matmul(&x);
    let error = y.error().unwrap();
    assert!(error.to_string().starts_with("matmul: `"), "{error}");
    assert_eq!(scope.finish(&[("y", y)]).err(), Some(error));
}

#[test]
fn debug_shows_types_and_a_few_values() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, (scope.size("rows"), 32));
    assert_eq!(format!("{x:?} {:?} {scope:?}", x.sum(7)), "f32[s0, 32] poisoned Scope(\"\")");
    let values = [0.1f32, -2.0, 3.5];
    assert_eq!(format!("{:?}", HostTensor::new([3, 1], &values).unwrap()), "f32[3, 1] [0.1, -2.0, 3.5]");
    assert_eq!(format!("{:?}", HostTensor::vector(&[true, false])), "bool[2] [1, 0]");
    let long: Vec<i64> = (0..1000).collect();
    assert_eq!(format!("{:?}", HostTensor::vector(&long)), "i64[1000] [0, 1, 2, 3, 4, 5, 6, 7, ..]");
}

#[test]
fn a_graph_is_traced_in_a_thread_and_finished_in_another() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, (scope.size("rows"), 3));
    let y = std::thread::scope(|threads| threads.spawn(|| (&x + 1.0).silu()).join().unwrap());
    let graph = std::thread::spawn(move || scope.finish(&[("y", y)])).join().unwrap().unwrap();
    assert_eq!(graph.counts().get("silu"), Some(&1));
}

#[test]
fn values_of_two_scopes_are_an_error_of_both_whichever_comes_first() {
    for swapped in [false, true] {
        let scopes = [Scope::new(), Scope::new()];
        let [a, b] = scopes.each_ref().map(|scope| scope.input("x", DType::F32, [3]));
        let y = if swapped { b + a } else { a + b };
        for scope in scopes {
            let error = scope.finish(&[("y", y.clone())]).unwrap_err();
            assert!(matches!(error, GraphError::Scopes { .. }), "{error}");
        }
    }
}

fn returns<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
    let tensor = HostTensor::new([values.len()], values).unwrap();
    assert_eq!((tensor.dtype(), tensor.values::<T>().unwrap().as_slice()), (T::DTYPE, values));
    assert_eq!(HostTensor::vector(values), tensor);
    assert!(HostTensor::new([values.len() + 1], values).is_err());
}

#[test]
fn elements_of_every_type_come_back() {
    returns(&[1.5f32, f32::MIN_POSITIVE, f32::INFINITY]);
    returns(&[f16::from_f32(0.1), f16::MAX]);
    returns(&[bf16::from_f32(-0.1), bf16::MIN]);
    returns(&[i64::MIN, -1, i64::MAX]);
    returns(&[i32::MIN, 7]);
    returns(&[0u32, u32::MAX]);
    returns(&[true, false]);
    assert_eq!(HostTensor::vector(&[true, false]).to_i64(), [1, 0]);
    assert_eq!(HostTensor::lengths(&[3]).values::<i32>(), None);
}
