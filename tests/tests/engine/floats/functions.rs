//! Functions of floats.

use super::*;
use rewire_graph::pointwise::{BinaryOp, UnaryOp};

/// Functions of one float.
const UNARY: [UnaryOp; 18] = {
    use UnaryOp::*;
    [Neg, Abs, Exp, Log, Sqrt, Rsqrt, Sigmoid, Silu, Softplus, Relu, Tanh, Erf, Sin, Cos, Floor, Ceil, Trunc, Round]
};

/// Functions of two floats.
const BINARY: [BinaryOp; 14] = {
    use BinaryOp::*;
    [Add, Sub, Mul, Div, Mod, Pow, Min, Max, Eq, Ne, Lt, Le, Gt, Ge]
};

#[test]
fn functions_of_one_float() {
    let values = all();
    for shape in shapes(values.len()) {
        let scope = Scope::new();
        let x = scope.input("x", F32, &dims(&shape));
        let outputs = UNARY.map(|op| (op.name().to_owned(), x.unary(op))).to_vec();
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values))]);
        hold_functions(scope, outputs, &inputs, values_differ, |n| format!("({:?})", values[n]));
    }
}

#[test]
fn functions_of_two_floats() {
    let values = all();
    let count = values.len();
    let (mut a, mut b) = (vec![], vec![]);
    for x in &values {
        a.extend(vec![*x; count]);
        b.extend(&values);
    }
    for shape in shapes(count * count) {
        let scope = Scope::new();
        let [x, y] = ["x", "y"].map(|name| scope.input(name, F32, &dims(&shape)));
        let outputs = BINARY.map(|op| (op.name().to_owned(), x.binary(op, &y))).to_vec();
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &a)), ("y".to_owned(), tensor(&shape, &b))]);
        // Powers are exponentials of logarithms, which may round beyond the largest.
        let lost = |name: &str, n: usize| name == "pow" && a[n].abs() == f32::MAX;
        let differ = |name: &str, n, x, y| !lost(name, n) && values_differ(name, n, x, y);
        hold_functions(scope, outputs, &inputs, differ, |n| format!("({:?}, {:?})", a[n], b[n]));
    }
}

#[test]
fn functions_of_a_float_and_itself() {
    let values = all();
    for shape in shapes(values.len()) {
        let scope = Scope::new();
        let x = scope.input("x", F32, &dims(&shape));
        let outputs = BINARY.map(|op| (op.name().to_owned(), x.binary(op, &x))).to_vec();
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values))]);
        hold_functions(scope, outputs, &inputs, values_differ, |n| format!("({:?})", values[n]));
    }
}

#[test]
fn functions_of_a_float_and_a_literal() {
    let values = PLAIN;
    for literal in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, 2.0, -1e30] {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[values.len().into()]);
        let literal = f64::from(literal);
        let mut outputs = vec![];
        for op in BINARY {
            outputs.push((format!("{} of literal", op.name()), scope.scalar(F32, literal).binary(op, &x)));
            outputs.push((format!("{} with literal", op.name()), x.binary_scalar(op, literal)));
        }
        let inputs = Tensors::from([("x".to_owned(), tensor(&[values.len()], &values))]);
        hold_functions(scope, outputs, &inputs, values_differ, |n| format!("({:?}, {literal:?})", values[n]));
    }
}

#[test]
fn functions_of_literals() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[4.into()]);
    let mut outputs = vec![];
    for (n, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, -1.0, 1e30].into_iter().enumerate() {
        for op in UNARY {
            let chosen = x.gt(&scope.scalar(F32, 0.0)).select(&scope.scalar(F32, value).unary(op), &x);
            outputs.push((format!("{} of literal {n}", op.name()), chosen));
        }
    }
    let inputs = Tensors::from([("x".to_owned(), tensor(&[4], &[1.0, -1.0, f32::NAN, f32::INFINITY]))]);
    hold_functions(scope, outputs, &inputs, values_differ, |n| format!("[{n}]"));
}

/// The results of one function for NaN, infinities and zeros are the inputs of another one.
#[test]
fn functions_of_functions() {
    // The sign of a zero result depends on the function.
    let values: Vec<f32> = PLAIN.into_iter().filter(|x| *x != 0.0 || x.is_sign_positive()).collect();
    let scope = Scope::new();
    let x = scope.input("x", F32, &[values.len().into()]);
    let mut outputs = vec![];
    for inner in UNARY {
        let y = x.unary(inner);
        for outer in [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Rsqrt, UnaryOp::Silu, UnaryOp::Tanh, UnaryOp::Floor] {
            outputs.push((format!("{} {}", outer.name(), inner.name()), y.unary(outer)));
        }
        for outer in [BinaryOp::Max, BinaryOp::Min, BinaryOp::Mod, BinaryOp::Div] {
            outputs.push((format!("{} {} x", outer.name(), inner.name()), y.binary(outer, &x)));
            outputs.push((format!("{} x {}", outer.name(), inner.name()), x.binary(outer, &y)));
        }
        let below = y.lt(&x);
        outputs.push((format!("not lt {}", inner.name()), below.not().cast(DType::I32)));
        outputs.push((format!("choice {}", inner.name()), below.not().select(&y, &x)));
        outputs.push((format!("clamp {}", inner.name()), y.clamp(Some(-2.0), Some(1.5))));
    }
    let inputs = Tensors::from([("x".to_owned(), tensor(&[values.len()], &values))]);
    hold_functions(scope, outputs, &inputs, |_, _, a, b| is_another_kind(a, b), |n| format!("({:?})", values[n]));
}

/// Zeros that a sum leaves negative stay so.
#[test]
fn adding_zero_is_no_identity() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[PLAIN.len().into()]);
    let outputs = vec![
        ("plus zero".to_owned(), &x + 0.0),
        ("plus negative zero".to_owned(), &x + -0.0),
        ("minus zero".to_owned(), &x - 0.0),
        ("times one".to_owned(), &x * 1.0),
    ];
    let inputs = Tensors::from([("x".to_owned(), tensor(&[PLAIN.len()], &PLAIN))]);
    hold(scope, outputs, &inputs, |_, _, a, b| differs(a, b, true), |n| format!("({:?})", PLAIN[n]));
}
