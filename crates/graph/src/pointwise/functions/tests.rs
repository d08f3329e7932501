use super::*;
use crate::pointwise::{Dag, Expr, ExprId, Numbers};

const POINTS: [f64; 6] = [-2.3, -0.71, 0.37, 0.8, 1.62, 3.17];

/// The value of an expression of floats and bools, given the values of its inputs.
fn value(dag: &Dag, id: ExprId, given: &[f64]) -> f64 {
    let of = |id: ExprId| value(dag, id, given);
    match *dag.expr(id) {
        Expr::Float(bits) => f32::from_bits(bits).into(),
        Expr::Value(position) => given[usize::from(position)],
        Expr::Unary(op, a) => op.evaluate(of(a)),
        Expr::Binary(op, a, b) => op.evaluate(of(a), of(b)),
        Expr::Select(c, a, b) => of(if of(c) != 0.0 { a } else { b }),
        ref other => panic!("{other:?}"),
    }
}

/// Compares a gradient with that of the same function as an expression, and with differences of values.
fn check(what: &str, found: f64, as_expression: f64, slope: f64) {
    let close = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * (1.0 + b.abs());
    assert!(close(found, as_expression, 1e-6), "{what}: {found} as a number, {as_expression} as an expression");
    assert!(close(found, slope, 1e-7), "{what}: {found}, and {slope} by differences");
}

fn slope(function: impl Fn(f64) -> f64, x: f64) -> f64 {
    let step = 1e-5;
    (function(x + step) - function(x - step)) / (2.0 * step)
}

#[test]
fn gradients_of_one_argument_meet_differences() {
    let of_y = -1.37;
    for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(Scalar::F32)) {
        for x in POINTS.into_iter().filter(|&x| !op.evaluate(x).is_nan()) {
            let y = op.evaluate(x);
            let found = op.gradient(&mut Numbers(Scalar::F32), &x, &y, &of_y);
            let mut dag = Dag::new();
            let [a, of_b] = [0, 1].map(|n| dag.value(n, Scalar::F32));
            let b = dag.unary(op, a);
            let expression = op.gradient(&mut dag, &a, &b, &of_b).map_or(0.0, |id| value(&dag, id, &[x, of_y]));
            let slope = of_y * slope(|x| op.evaluate(x), x);
            check(&format!("{op:?}({x})"), found.unwrap_or(0.0), expression, slope);
        }
    }
}

#[test]
fn gradients_of_two_arguments_meet_differences() {
    let of_y = 0.83;
    let ops = BinaryOp::ALL.iter().filter(|op| op.accepts(Scalar::F32) && !op.is_comparison());
    for (&op, a) in ops.flat_map(|op| POINTS.map(|a| (op, a))) {
        for b in POINTS.map(|b| b * 0.9).into_iter().filter(|&b| !op.evaluate(a, b).is_nan()) {
            let y = op.evaluate(a, b);
            let found = op.gradient(&mut Numbers(Scalar::F32), [&a, &b], &y, &of_y);
            let mut dag = Dag::new();
            let [x, z, of_w] = [0, 1, 2].map(|n| dag.value(n, Scalar::F32));
            let w = dag.binary(op, x, z);
            let expressions = op.gradient(&mut dag, [&x, &z], &w, &of_w);
            let expressions = expressions.map(|id| id.map_or(0.0, |id| value(&dag, id, &[a, b, of_y])));
            let slopes = [slope(|a| op.evaluate(a, b), a), slope(|b| op.evaluate(a, b), b)];
            for (n, name) in ["a", "b"].into_iter().enumerate() {
                let what = format!("{name} of {op:?}({a}, {b})");
                check(&what, found[n].unwrap_or(0.0), expressions[n], of_y * slopes[n]);
            }
        }
    }
}

#[test]
fn gradients_where_functions_have_corners() {
    let at = &mut Numbers(Scalar::F32);
    let infinite = f64::INFINITY;
    assert_eq!(UnaryOp::Abs.gradient(at, &0.0, &0.0, &3.0), Some(0.0));
    assert_eq!(UnaryOp::Relu.gradient(at, &0.0, &0.0, &3.0), Some(0.0));
    assert_eq!(UnaryOp::Relu.gradient(at, &-1.0, &0.0, &infinite), Some(0.0));
    assert_eq!(BinaryOp::Max.gradient(at, [&2.0, &2.0], &2.0, &3.0), [Some(1.5), Some(1.5)]);
    assert_eq!(BinaryOp::Min.gradient(at, [&2.0, &4.0], &2.0, &3.0), [Some(3.0), Some(0.0)]);
    assert_eq!(BinaryOp::Pow.gradient(at, [&0.0, &2.0], &0.0, &3.0), [Some(0.0), Some(0.0)]);
    assert_eq!(BinaryOp::Pow.gradient(at, [&0.0, &0.0], &1.0, &3.0), [Some(0.0), Some(0.0)]);
    assert_eq!(UnaryOp::Floor.gradient(at, &0.5, &0.0, &3.0), None);
}
